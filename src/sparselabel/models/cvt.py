"""CvT-w24 as a backbone (Wu et al. 2021, Query2Label), from transformers because timm lacks it."""

import re
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from sparselabel.errors import ModelError
from sparselabel.slow_imports import import_timm

NAME = "cvt_w24"
HUB = "microsoft/cvt-w24-384-22k"
SIZE = 384
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
W24: dict[str, Any] = {
    "embed_dim": [192, 768, 1024],
    "num_heads": [3, 12, 16],
    "depth": [2, 2, 20],
    "drop_path_rate": [0.0, 0.0, 0.3],  # as in the authors' cvt-w24-384x384.yaml
}

# Names in the authors' code, and in transformers.
_THEIRS = {
    r"^stage(\d)\.patch_embed\.proj\.": r"encoder.stages.\1.embedding.convolution_embeddings.projection.",
    r"^stage(\d)\.patch_embed\.norm\.": r"encoder.stages.\1.embedding.convolution_embeddings.normalization.",
    r"^stage(\d)\.blocks\.": r"encoder.stages.\1.layers.",
    r"^stage(\d)\.cls_token$": r"encoder.stages.\1.cls_token",
    r"\.attn\.conv_proj_q\.": ".attention.attention.convolution_projection_query.convolution_projection.",
    r"\.attn\.conv_proj_k\.": ".attention.attention.convolution_projection_key.convolution_projection.",
    r"\.attn\.conv_proj_v\.": ".attention.attention.convolution_projection_value.convolution_projection.",
    r"\.attn\.proj_q\.": ".attention.attention.projection_query.",
    r"\.attn\.proj_k\.": ".attention.attention.projection_key.",
    r"\.attn\.proj_v\.": ".attention.attention.projection_value.",
    r"\.attn\.proj\.": ".attention.output.dense.",
    r"\.conv\.weight$": ".convolution.weight",
    r"\.bn\.": ".normalization.",
    r"\.mlp\.fc1\.": ".intermediate.dense.",
    r"\.mlp\.fc2\.": ".output.dense.",
    r"\.norm1\.": ".layernorm_before.",
    r"\.norm2\.": ".layernorm_after.",
}


class CvtNetwork(nn.Module):
    """CvT with the methods that timm's networks have: views (B, 3, S, S) -> cells (B, D, S/16, S/16).

    Its last norm, which a classifier applies to the class token, is applied to the cells. Where layers of
    transformers differ from the authors' code, they are changed to the authors'.
    """

    num_classes = 0

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        config, model = _transformers()
        network = model(config(**settings), add_pooling_layer=False)
        self.num_features = int(network.config.embed_dim[-1])
        self.encoder = network.encoder
        self.norm = nn.LayerNorm(self.num_features)
        for stage, most in zip(self.encoder.stages, network.config.drop_path_rate, strict=True):
            last = max(len(stage.layers) - 1, 1)
            for number, layer in enumerate(stage.layers):
                layer.intermediate.activation = QuickGELU()  # what the weights were trained with
                _drop_branches(layer, most * number / last)

    def forward_features(self, views: Tensor) -> Tensor:
        """Cells (B, D, h, w)."""
        cells: Tensor = self.encoder(views).last_hidden_state
        normed: Tensor = self.norm(cells.movedim(1, 3)).movedim(3, 1)
        return normed

    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        """As timm's networks have it: the stem, then stages, or their layers."""
        stem = r"^encoder\.stages\.0\.embedding"
        if coarse:
            return {"stem": stem, "blocks": [(r"^encoder\.stages\.(\d+)", None), (r"^norm", (99999,))]}
        layers = r"^encoder\.stages\.(\d+)\.layers\.(\d+)"
        other = r"^encoder\.stages\.(\d+)\.(?:embedding|cls_token)"
        return {"stem": stem, "blocks": [(layers, None), (other, (0,)), (r"^norm", (99999,))]}

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """Switch gradient checkpointing of every layer."""
        for layer in self._layers():
            vars(layer).pop("forward", None)
            if enable:
                layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)

    def renamed(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Weights of the authors' code, or of transformers' classifier, under the names here."""
        return {_renamed(name): value for name, value in tensors.items()}

    def _layers(self) -> list[Any]:
        return [layer for stage in self.encoder.stages for layer in stage.layers]


class QuickGELU(nn.Module):
    """x·σ(1.702·x): the authors' activation, where transformers has GELU."""

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs * torch.sigmoid(1.702 * inputs)


def _drop_branches(layer: Any, rate: float) -> None:
    """Drop attention and MLP before they are added, as the authors do: transformers drops the sum too.

    Dropping the sum would leave nothing of an image for the layers after.
    """
    import_timm()
    from timm.layers.drop import DropPath

    layer.drop_path = nn.Identity()
    for branch in (layer.attention.output, layer.output):
        branch.dropout = nn.Sequential(branch.dropout, DropPath(rate))


def pretrained_cvt() -> CvtNetwork:
    """CvT-w24 with the authors' weights (ImageNet-22k, 384 pixels) from the hub."""
    _transformers()
    from transformers import CvtForImageClassification

    network = CvtNetwork(**W24)
    tensors = network.renamed(CvtForImageClassification.from_pretrained(HUB).state_dict())
    network.load_state_dict({name: tensors[name] for name in network.state_dict()})
    return network


def _renamed(name: str) -> str:
    if name.startswith("cvt."):
        return name.removeprefix("cvt.")
    if name.startswith("layernorm."):
        return f"norm.{name.removeprefix('layernorm.')}"
    if not name.startswith("stage"):
        return name
    for theirs, ours in _THEIRS.items():
        name = re.sub(theirs, ours, name)
    return name


def _transformers() -> tuple[Any, Any]:
    """CvT's configuration and model in transformers."""
    try:
        from transformers import CvtConfig, CvtModel
    except ImportError as error:
        raise ModelError(
            f"backbone {NAME} needs a package that timm does not bring", "pip install 'sparselabel[cvt]'"
        ) from error
    return CvtConfig, CvtModel
