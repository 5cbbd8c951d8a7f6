"""Parts of a backbone that training leaves as they are, and computing it again instead of keeping it."""

from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from sparselabel.errors import ConfigError
from sparselabel.models.backbone import Backbone

Norm = _BatchNorm  # of any dimension


def norms(module: nn.Module) -> list[Norm]:
    """All layers of batch norm."""
    return [layer for layer in module.modules() if isinstance(layer, Norm)]


def frozen_parts(backbone: Backbone, *, norm: bool, stages: int) -> list[nn.Module]:
    """The batch norm, if asked for, and the first stages of a backbone; raises where it has none or too few.

    Stages are those of timm's own division of a network: the stem, then its stages or blocks.
    """
    found: list[nn.Module] = []
    if norm:
        found += norms(backbone)
        if not found:
            raise ConfigError(
                "--full.frozen-norm keeps batch norm as it is, and this backbone has none: leave it out"
            )
    return found + (_first_stages(backbone.network, stages) if stages else [])


def _first_stages(network: Any, count: int) -> list[nn.Module]:
    """The largest modules whose parameters all belong to the first ``count`` stages, and what no module has.

    The class token and the places of a ViT are parameters of the whole network: they come in a list.
    """
    from timm.models import group_parameters

    groups = group_parameters(network, network.group_matcher(coarse=True))
    stages = [names for number, names in sorted(groups.items()) if number < float("inf")]
    if count >= len(stages):
        raise ConfigError(
            f"--full.frozen-stages {count} would leave nothing of this backbone to train: it has "
            f"{len(stages)} stages, the stem included. Give fewer, or train the head alone (--head.epochs)"
        )
    frozen = {name for stage in stages[:count] for name in stage}
    own = {name: [f"{name}.{key}" for key, _ in part.named_parameters()] for name, part in _parts(network)}
    whole = [name for name, keys in own.items() if keys and frozen.issuperset(keys)]
    chosen = [
        part
        for name, part in _parts(network)
        if name in whole and not any(name.startswith(f"{other}.") for other in whole)
    ]
    theirs = {id(value) for part in chosen for value in part.parameters()}
    named = network.named_parameters()
    loose = [value for name, value in named if name in frozen and id(value) not in theirs]
    return [*chosen, nn.ParameterList(loose)] if loose else chosen


def _parts(network: nn.Module) -> list[tuple[str, nn.Module]]:
    return [(name, part) for name, part in network.named_modules() if name]


def recompute(backbone: Backbone, on: bool) -> None:
    """Compute what is inside the backbone again on the way back, instead of keeping it, or no longer."""
    network: Any = backbone.network
    try:
        network.set_grad_checkpointing(on)
    except (AssertionError, AttributeError) as error:  # how timm says that a network cannot
        if on:
            raise ConfigError(
                f"--full.recompute: {type(network).__name__} cannot compute its inside again; take "
                "--full.accumulate, a smaller --full.batch or another backbone"
            ) from error
