"""TS-CAM, its class-token sibling, and where a transformer looks.

P2 = PatchML. TS-CAM = Gao et al., Token Semantic Coupled Attention Map for Weakly Supervised Object
Localization (2021), which P2 builds on.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from sparselabel.errors import ModelError
from sparselabel.model.backbone import Backbone
from sparselabel.model.classifier import Classifier, Head, boosted
from sparselabel.model.output import Output


class PatchHead(Head):
    """A 3×3 convolution on the cells, and the mean over them (TS-CAM eq. 3; P2 §3.1).

    On a ViT or DeiT the cells are the patch tokens after the last norm. The class token has no part in the
    logits. ``boost`` as for the linear head.
    """

    def __init__(self, width: int, classes: int, boost: float | None = None) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(width, classes, kernel_size=3, padding=1)
        self.boost = boost

    def forward(self, features: Tensor, maps: bool = False, token: Tensor | None = None) -> Output:
        """From cell features (B, D, h, w)."""
        cells = self.convolution(features)
        if self.boost is not None:
            cells = boosted(cells, self.boost)
        return Output(cells.mean(dim=(2, 3)), cells if maps else None, features)


class TokenHead(Head):
    """A linear layer on the class token: the plain ViT or DeiT (P2 table 4).

    Its maps are the same layer on the patch tokens, which nothing ties to the logits (ours: with them every
    method runs on this model too).
    """

    reads_token = True

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, classes)

    def forward(self, features: Tensor, maps: bool = False, token: Tensor | None = None) -> Output:
        """From cell features (B, D, h, w) and the class token (B, D)."""
        if token is None:
            raise ModelError("a class-token head needs the token: call it through its Classifier")
        cells = self.linear(features.movedim(1, 3)).movedim(3, 1) if maps else None
        return Output(self.linear(token), cells, features)


def coupled(classifier: Classifier, views: Tensor) -> Output:
    """The output with TS-CAM's localisation maps: cell logits times the class token's attention (its eq. 5).

    The logits are those without it.
    """
    output, attention = with_attention(classifier.backbone, lambda: classifier(views, maps=True))
    maps: Tensor = output.maps
    return Output(output.logits, maps * attention[:, None], output.features)


def with_attention(backbone: Backbone, run: Callable[[], Any]) -> tuple[Any, Tensor]:
    """What ``run`` gives, and (B, h, w) how much the class token looked at each patch while it ran.

    The mean over heads, the sum over blocks (eq. 4).
    """
    blocks = getattr(backbone.network, "blocks", None)
    modules = [block.attn for block in blocks if hasattr(block, "attn")] if blocks is not None else []
    if not backbone.has_token or not modules or not all(hasattr(module, "qkv") for module in modules):
        raise ModelError(
            "this backbone has no attention of a class token to show: take a ViT or DeiT, or maps without it"
        )
    with _recorded(modules) as rows:
        result = run()
    patches = torch.stack(rows).sum(dim=0)[:, backbone.network.num_prefix_tokens :]
    side = round(patches.shape[1] ** 0.5)
    return result, patches.reshape(len(patches), side, side)


@contextmanager
def _recorded(modules: list[Any]) -> Iterator[list[Tensor]]:
    """The class token's row of every attention matrix, (B, T), as it is computed.

    timm's fused attention gives no weights away, so the one row we want is computed again from its inputs.
    """
    rows: list[Tensor] = []

    def record(module: Any, inputs: tuple[Tensor, ...], _: Tensor) -> None:
        tokens = inputs[0]
        batch, length = tokens.shape[:2]
        qkv = module.qkv(tokens).reshape(batch, length, 3, module.num_heads, -1).permute(2, 0, 3, 1, 4)
        query, key = module.q_norm(qkv[0][:, :, :1]), module.k_norm(qkv[1])
        rows.append(((query * module.scale) @ key.transpose(-2, -1)).softmax(dim=-1).mean(dim=1)[:, 0])

    hooks = [module.register_forward_hook(record) for module in modules]
    try:
        yield rows
    finally:
        for hook in hooks:
            hook.remove()
