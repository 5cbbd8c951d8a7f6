"""Consistency with the model's earlier scores of an image (Verelst 2023 §3.4 and §3.5).

Verelst et al. 2023, Spatial Consistency Loss for Training Multi-Label Classifiers from Single-Label
Annotations. The paper writes norms; here they are means over the entries, so that γ = .1 and 1 have the scale
of its other losses (ours). The target carries no gradient.
"""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from sparselabel.data.view_geometry import ViewGeometry
from sparselabel.errors import ConfigError
from sparselabel.losses.base import ComposedLoss, LossPart, Needs, at_least_float32, batch_mean
from sparselabel.losses.heatmaps import HeatMaps
from sparselabel.losses.registry import register
from sparselabel.losses.running_scores import RunningScores
from sparselabel.losses.setting_checks import not_negative
from sparselabel.losses.step import Step

Distance = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(logits, their sigmoid, target), all of one shape -> the distance of each score from its target."""


def absolute(logits: Tensor, score: Tensor, target: Tensor) -> Tensor:
    """|σ(logit) − target|, the paper's ℓ1."""
    return (score - target).abs()


def squared(logits: Tensor, score: Tensor, target: Tensor) -> Tensor:
    """(σ(logit) − target)²: ℓ2, squared (ours)."""
    return (score - target) ** 2


def jensen_shannon(logits: Tensor, score: Tensor, target: Tensor) -> Tensor:
    """Jensen–Shannon divergence of two Bernoullis, in nats: H(m) − (H(p) + H(q))/2 with m = (p + q)/2."""
    smallest = torch.finfo(logits.dtype).tiny  # no logarithm of 0 where both are 0
    target = target.clamp(0, 1)  # weighted sums may exceed 1 by a rounding error
    other = torch.sigmoid(-logits)
    present = ((score + target) / 2).clamp(min=smallest)
    absent = ((other + 1 - target) / 2).clamp(min=smallest)
    middle = torch.special.entr(present) + torch.special.entr(absent)
    own = F.softplus(logits) - score * logits  # the entropy of σ(logit), finite for any logit
    of_target = torch.special.entr(target) + torch.special.entr(1 - target)
    divergence: Tensor = middle - (own + of_target) / 2
    return divergence


DistanceName = Literal["l1", "l2", "jsd"]
DISTANCES: dict[DistanceName, Distance] = {
    "l1": absolute,
    "l2": squared,
    "jsd": jensen_shannon,
}


class Consistency(LossPart):
    """γ times the distance between the scores and the image's running scores (Verelst 2023 eq. 6)."""

    after_warm_up = True
    side_by_side = True

    def __init__(self, scores: RunningScores, weight: float = 1.0, distance: DistanceName = "l1") -> None:
        super().__init__()
        self.scores = scores
        self.weight = not_negative("weight", weight)
        self.distance = DISTANCES[distance]

    def forward(self, step: Step) -> Tensor:
        """The mean over the batch's entries; 0 during the warm-up."""
        logits = at_least_float32(step.outputs[0].logits)
        if not step.progress.warmed_up:
            return logits.new_zeros(logits.shape[:-2])
        target = self.scores(step.rows).to(logits.device, logits.dtype)
        losses = self.distance(logits, torch.sigmoid(logits), target)
        return self.weight * batch_mean(losses * step.valid[..., None], step.size)


class SpatialConsistency(LossPart):
    """γ times the distance between the cells' scores and the image's heat maps seen through this view.

    Verelst 2023 eq. 7: the crop and flip of the view are applied to the heat maps of the epoch before, which
    are resized to the model's cells. Cells whose centers are hidden in the view (cutout) are left out (ours).
    """

    needs = Needs(maps=True)
    after_warm_up = True

    def __init__(self, heat_maps: HeatMaps, weight: float = 1.0, distance: DistanceName = "l1") -> None:
        super().__init__()
        self.heat_maps = heat_maps
        self.weight = not_negative("weight", weight)
        self.distance = DISTANCES[distance]

    def forward(self, step: Step) -> Tensor:
        """The mean over the cells of each image, then over the batch; 0 during the warm-up."""
        maps = step.outputs[0].maps
        if maps is None:
            raise ConfigError("scl compares cells", "give maps=, cell logits of (B, L, h, w)")
        maps = at_least_float32(maps)
        if not step.progress.warmed_up:
            return maps.new_zeros(())
        scores = torch.sigmoid(maps)
        losses = self.distance(maps, scores, self.heat_maps(step, scores))
        means = _over_visible(losses, step.geometries[0])
        return self.weight * batch_mean(means * step.valid[:, None], step.size)


def _over_visible(losses: Tensor, geometry: ViewGeometry) -> Tensor:
    """(B, L) The means of losses (B, L, h, w) over the cells that are not hidden; 0 where all are."""
    if geometry.cutout is None:
        return losses.mean(dim=(2, 3))
    visible = ~geometry.hides_cells((losses.shape[2], losses.shape[3]))[:, None].to(losses.device)
    return (losses * visible).sum(dim=(2, 3)) / visible.sum(dim=(2, 3)).clamp(min=1)


@register("cl", "consistency")
def cl(
    method: ComposedLoss, momentum: float = 0.8, weight: float = 1.0, distance: DistanceName = "l1"
) -> ComposedLoss:
    """Consistency: γ times the distance of scores from the image's running scores (Verelst 2023 eq. 6, 8).

    It starts after the warm-up (the head alone) or, without one, after the first epoch. Verelst 2023 writes a
    norm; here it is the mean over the B·L entries (ours).

    Parameters
    ----------
    method
        What it is added to.
    momentum
        μ of running averages.
    weight
        γ of consistency, which Verelst 2023 chooses from .1 and 1 by validation.
    distance
        l1, l2 (squared, ours) or jsd.
    """
    return method.with_term("consistency", Consistency(_running_scores(method, momentum), weight, distance))


@register("scl", "consistency", like=cl, needs=Needs(maps=True))
def scl(
    method: ComposedLoss,
    momentum: float = 0.8,
    weight: float = 1.0,
    distance: DistanceName = "l1",
    map_scale: int = 2,
    top_maps: int | None = None,
) -> ComposedLoss:
    """Spatial consistency: γ times the distance of cells' scores from heat maps (Verelst 2023 eq. 7, 8).

    As cl, but cell by cell: heat maps have ``map_scale`` times the cells of the model, in 8 bits; the view's
    crop and flip are applied to them. With ``top_maps`` (Verelst 2023, supplement G) only the best classes of
    an image have one. Means over the entries instead of norms, and stochastic rounding, are ours.

    Parameters
    ----------
    map_scale
        Cells of a heat map for each cell of the model, along an axis.
    top_maps
        Keep heat maps of so many classes of each image, the best; default: of all.
    """
    scores = None if top_maps is None else _running_scores(method, momentum)
    maps = HeatMaps(momentum, map_scale, top_maps, scores)
    return method.with_term("consistency", SpatialConsistency(maps, weight, distance))


def _running_scores(method: ComposedLoss, momentum: float) -> RunningScores:
    """The method's own running scores if it has them, or else new ones."""
    own = [part for part in method.parts() if isinstance(part, RunningScores)]
    return own[0] if own else RunningScores(momentum)
