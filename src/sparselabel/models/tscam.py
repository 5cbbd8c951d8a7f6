"""TS-CAM, a head on the class token, and the class token's attention.

TS-CAM: Gao et al. 2021, Token Semantic Coupled Attention Map for Weakly Supervised Object Localization, which
PatchML builds on.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from sparselabel.errors import ModelError
from sparselabel.models.backbone import Backbone
from sparselabel.models.classifier import Classifier, Head, Output, boosted


class PatchHead(Head):
    """A 3×3 convolution on the cells, and the mean over them (TS-CAM eq. 3; PatchML §3.1).

    On a ViT or DeiT the cells are the patch tokens after the last norm; the class token is not used.
    ``boost`` as for the linear head.
    """

    def __init__(self, width: int, classes: int, boost: float | None = None) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(width, classes, kernel_size=3, padding=1)
        self.boost = boost

    def forward(self, features: Tensor, maps: bool = False, token: Tensor | None = None) -> Output:
        cells = self.convolution(features)
        if self.boost is not None:
            cells = boosted(cells, self.boost)
        return Output(cells.mean(dim=(2, 3)), cells if maps else None, features)


class TokenHead(Head):
    """A linear layer on the class token: the plain ViT or DeiT (PatchML table 4).

    Its maps are the same layer on the patch tokens, which are not tied to the logits (ours, so that every
    method runs on this model).
    """

    reads_token = True

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, classes)

    def forward(self, features: Tensor, maps: bool = False, token: Tensor | None = None) -> Output:
        """Logits of the class token (B, D); cell features (B, D, h, w) are ignored."""
        if token is None:
            raise ModelError("a class-token head needs the token: call it through its Classifier")
        cells = self.linear(features.movedim(1, 3)).movedim(3, 1) if maps else None
        return Output(self.linear(token), cells, features)


def coupled(classifier: Classifier, views: Tensor) -> Output:
    """The output with TS-CAM's localization maps: cell logits times the class token's attention (its eq. 5).

    The logits stay as they are.
    """
    output, attention = with_attention(classifier.backbone, lambda: classifier(views, maps=True))
    maps: Tensor = output.maps
    return Output(output.logits, maps * attention[:, None], output.features)


def with_attention(backbone: Backbone, run: Callable[[], Any]) -> tuple[Any, Tensor]:
    """The result of ``run``, and the class token's attention to each patch (B, h, w) during it.

    The mean over heads, the sum over blocks (TS-CAM eq. 4).
    """
    blocks = getattr(backbone.network, "blocks", None)
    modules = [block.attn for block in blocks if hasattr(block, "attn")] if blocks is not None else []
    fused = all(getattr(module, "fused_attn", False) for module in modules)
    if not backbone.has_token or not modules or not fused:
        raise ModelError(
            "this backbone has no attention of a class token to show",
            "take a ViT or DeiT (with timm's fused attention, its default: TIMM_FUSED_ATTN)",
            "maps without it",
        )
    with _Attention() as seen:
        result = run()
    if len(seen.rows) != len(modules):  # as differential attention, which subtracts one from another
        raise ModelError(
            f"the backbone computed {len(seen.rows)} attentions in {len(modules)} blocks; what a class token "
            "looked at is known where each block has one",
            "take a ViT or DeiT",
            "maps without it",
        )
    patches = torch.stack(seen.rows).sum(dim=0)[:, backbone.network.num_prefix_tokens :]
    side = round(patches.shape[1] ** 0.5)
    return result, patches.reshape(len(patches), side, side)


class _Attention(TorchFunctionMode):
    """Keeps the class token's row of every attention that is computed, (B, T), the mean over heads.

    It sees the queries and keys that torch is given, so rotary positions (EVA, DINOv3) and biases (BEiT) are
    included. Fused attention does not return weights, so the row is computed again with one-hot values, which
    gives the weights.
    """

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[Tensor] = []

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the function, and attention once more for the first token."""
        kwargs = kwargs or {}
        if func is functional.scaled_dot_product_attention:
            query, key = args[:2]
            own = torch.eye(key.shape[2], dtype=key.dtype, device=key.device).expand(*key.shape[:2], -1, -1)
            mask = kwargs.get("attn_mask")
            first = kwargs | {"dropout_p": 0.0, "attn_mask": None if mask is None else mask[..., :1, :]}
            self.rows.append(func(query[:, :, :1], key, own, **first).mean(dim=1)[:, 0])
        return func(*args, **kwargs)
