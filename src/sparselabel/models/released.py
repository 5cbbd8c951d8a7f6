"""Checkpoints that the authors of Query2Label released (P4 table I), under our names.

    module.backbone.0.body.layer1.0.conv1.weight  ─▶ backbone: names of timm's (or CvT's) network
    module.transformer.decoder.layers.0.linear1.… ─▶ head: ``query2label.released_head``

Files of R101-448, R101-576, TResL-448 (timm's tresnet_l), TResL_22k-448 (tresnet_v2_l), SwinL-384
(swin_large_patch4_window12_384) and CvT_w24-384 (cvt_w24).
"""

import sys
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

PREFIXES = ("backbone.0.body.", "backbone.0.")  # ResNets and TResNets are inside a getter of layers
MARKS = ("query_embed.weight", "fc.W", "fc.b")


def is_released(names: Mapping[str, Any]) -> bool:
    """Whether these are the names of a whole Query2Label model of the authors' program."""
    return {*MARKS} <= {name.removeprefix("module.") for name in names}


def released_backbone(tensors: dict[str, Tensor], network: nn.Module) -> dict[str, Tensor]:
    """The backbone's weights, named as in this network, as far as its family is one of theirs."""
    own: dict[str, Tensor] = {}
    for name, value in tensors.items():
        key = name.removeprefix("module.")
        prefix = next((prefix for prefix in PREFIXES if key.startswith(prefix)), None)
        if prefix is not None:
            own[key.removeprefix(prefix)] = value
    if hasattr(network, "renamed"):
        renamed: dict[str, Tensor] = network.renamed(own)  # type: ignore[operator]
        return renamed
    # timm knows the older names of its networks: TResNets' of the authors' program, and Swin's.
    of_timm = getattr(sys.modules[type(network).__module__], "checkpoint_filter_fn", None)
    if of_timm is None:
        return own
    try:
        converted: dict[str, Tensor] = of_timm(own, network)
    except (AttributeError, KeyError):  # names of another family: they will be named as unknown
        return own
    return converted
