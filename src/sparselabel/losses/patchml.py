"""Patch loss: supervision of single cells by points and boxes (PatchML §3.2, eq. 2).

PatchML: Patch Based Learning for Multi-label Image Classification. It gives no weights or exponents; ours are
1, 1 and 0 for positive, negative and unknown cells, and 0, 1 and 4, with sums divided by the number of
labeled cells.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from sparselabel.data.labels import NEGATIVE, POSITIVE, UNKNOWN
from sparselabel.data.spatial_labels import SpatialLabels
from sparselabel.data.view_geometry import ViewGeometry, cell_centers
from sparselabel.distributed import all_reduce_sum
from sparselabel.errors import ConfigError
from sparselabel.losses.base import ComposedLoss, LossPart, Needs, TargetLoss, at_least_float32, counted_mean
from sparselabel.losses.class_selective import SelectiveFocal, SelectiveUnknown, Unknown, csl_i, has_labels
from sparselabel.losses.registry import OWN_ENTRY_LOSS, register
from sparselabel.losses.setting_checks import not_negative
from sparselabel.losses.step import Step

BoxRule = Literal["half", "any"]
"""Which cells a box makes positive: those it covers by half or more, or all that it meets."""

_LEAST: dict[BoxRule, float] = {"half": 0.5, "any": 0.0}
ROUNDING = 1e-6  # of a cell: a box that ends at a cell's edge must not meet it by a rounding error


def cell_labels(
    observed: Tensor,
    spatial_labels: SpatialLabels,
    geometry: ViewGeometry,
    grid: tuple[int, int],
    box_rule: BoxRule = "half",
) -> Tensor:
    """(B, L, h, w) int8 labels of a view's cells; rows of ``spatial_labels`` are positions in the batch.

    A box that covers no cell by half has the cell of its center, or small objects would be lost (ours). Cells
    whose centers are hidden in the view (cutout) are not positive.
    """
    batch, classes = observed.shape
    labels = observed.new_full((batch, classes, *grid), UNKNOWN)
    labels[observed == NEGATIVE] = NEGATIVE
    where = _positive_cells(spatial_labels, geometry, grid, _LEAST[box_rule]).to(observed.device)
    labels[tuple(where)] = POSITIVE
    return labels


def _positive_cells(
    spatial_labels: SpatialLabels, geometry: ViewGeometry, grid: tuple[int, int], least: float
) -> Tensor:
    """(4, n) Image, class, row and column of the cells that points and boxes make positive."""
    images = torch.from_numpy(spatial_labels.rows)
    seen = geometry.to("cpu")[images]
    centers, sizes = seen.boxes_to_view(
        torch.from_numpy(spatial_labels.centers), torch.from_numpy(spatial_labels.sizes)
    )
    covered = _covered(centers[:, 1], sizes[:, 1], grid[0])[:, :, None]
    covered = covered * _covered(centers[:, 0], sizes[:, 0], grid[1])[:, None, :]
    enough = (covered >= least - ROUNDING) & (covered > ROUNDING)
    center = _covered(centers[:, 1], torch.zeros(len(spatial_labels)), grid[0])[:, :, None]
    center = center * _covered(centers[:, 0], torch.zeros(len(spatial_labels)), grid[1])[:, None, :]
    covers = enough.flatten(1).any(dim=1)[:, None, None]
    chosen = torch.where(covers, enough, center > 0)
    if seen.cutout is not None:  # the labeled object is hidden there
        by_cell = covers & (sizes > 0).any(dim=1)[:, None, None]  # a point stands for its own cell
        places = torch.where(by_cell[..., None], cell_centers(grid).to(centers), centers[:, None, None])
        chosen &= ~seen.hides(places)
    number, down, across = chosen.nonzero(as_tuple=True)
    return torch.stack(
        [images[number], torch.from_numpy(spatial_labels.classes).long()[number], down, across]
    )


def _covered(centers: Tensor, sizes: Tensor, cells: int) -> Tensor:
    """(M, cells) The share of each cell that an interval covers; for a point 1 in its cell, else 0."""
    edges = torch.arange(cells + 1, dtype=torch.float64) / cells
    low, high = (centers - sizes / 2).double()[:, None], (centers + sizes / 2).double()[:, None]
    share = (torch.minimum(high, edges[1:]) - torch.maximum(low, edges[:-1])).clamp(min=0) * cells
    center = centers.double()[:, None]
    inside = (center >= edges[:-1]) & ((center < edges[1:]) | ((center <= 1) & (edges[1:] == 1)))
    return torch.where((sizes == 0)[:, None], inside.double(), share)


LIKELIEST_CELLS = 0.25  # of a labeled class's cells: what CSL-P leaves out (ours)


class PatchLoss(LossPart):
    """w_patch times the focal loss of labeled cells, divided by their number over all processes.

    A cell is positive where a point or box is, negative where its class is absent, else unknown. Unknown
    cells are left out (``ignore``); or negative (``negative``), in images with any label; or, of a class with
    a point or box, negative but for the quarter with the highest logits (``selective``, CSL-P). Those that
    are not left out count as labeled. Cells hidden by cutout are left out unless their class is absent
    (ours).
    """

    needs = Needs(maps=True, spatial_labels=True)

    def __init__(
        self,
        weight: float = 1.0,
        unknown: Unknown = "ignore",
        entry_loss: SelectiveFocal | None = None,
        box_rule: BoxRule = "half",
    ) -> None:
        super().__init__()
        self.weight = not_negative("patch_weight", weight)
        self.unknown = unknown
        self.entry_loss = entry_loss or SelectiveFocal()
        self.box_rule = box_rule

    def forward(self, step: Step) -> Tensor:
        """A scalar; 0 for a batch without a labeled cell."""
        maps = step.outputs[0].maps
        if maps is None or step.spatial_labels is None:
            raise ConfigError(
                "the patch loss is of cells and of the points or boxes in them",
                "give maps=, cell logits of (B, L, h, w), and spatial_labels=",
            )
        logits = at_least_float32(maps)
        grid = (logits.shape[2], logits.shape[3])
        labels = cell_labels(step.observed, step.spatial_labels, step.geometries[0], grid, self.box_rule)
        counted = (labels != UNKNOWN) & step.valid[:, None, None, None]
        if self.unknown == "selective":
            counted = counted | _unlikely(logits.detach(), labels, self._unknown(step, labels))
        elif self.unknown == "negative":
            rows = step.valid & has_labels(step.observed)
            counted = counted | (self._unknown(step, labels) & rows[:, None, None, None])
        losses = self.entry_loss(logits, (labels == POSITIVE).to(logits.dtype), labels) * counted
        return self.weight * all_reduce_sum(losses.sum()) / all_reduce_sum(counted.sum()).clamp(min=1)

    def _unknown(self, step: Step, labels: Tensor) -> Tensor:
        """(B, L, h, w) The unknown cells that the view shows, without those of hidden points and boxes."""
        unknown, geometry = labels == UNKNOWN, step.geometries[0]
        if geometry.cutout is None or step.spatial_labels is None:
            return unknown
        grid = (labels.shape[2], labels.shape[3])
        hidden = geometry.hides_cells(grid)[:, None].to(labels.device)
        bare = cell_labels(
            step.observed, step.spatial_labels, replace(geometry, cutout=None), grid, self.box_rule
        )
        return unknown & ~hidden & (bare != POSITIVE)


def _unlikely(logits: Tensor, labels: Tensor, unknown: Tensor) -> Tensor:
    """Unknown cells of classes with a positive cell, except those with the highest logits."""
    located = (labels == POSITIVE).flatten(2).any(dim=2)[:, :, None]
    cells = logits.flatten(2)
    unknown = unknown.flatten(2)
    order = cells.masked_fill(~unknown, -torch.inf).argsort(dim=2, descending=True)
    places = torch.arange(cells.shape[2], device=cells.device).expand_as(order)
    rank = torch.empty_like(order).scatter_(2, order, places)
    return (located & unknown & (rank >= LIKELIEST_CELLS * cells.shape[2])).view_as(labels)


def _needs(unknown: Unknown, **_: object) -> Needs:
    return Needs(maps=True, spatial_labels=True, negatives=unknown == "ignore")


@register("patchml", like=csl_i, needs=_needs, keeps_entry_loss=OWN_ENTRY_LOSS, leaves_out=True)
def patchml(
    unknown: Unknown = "ignore",
    unknown_cells: Unknown = "ignore",
    patch_weight: float = 1.0,
    positive_cell_weight: float = 1.0,
    negative_cell_weight: float = 1.0,
    unknown_cell_weight: float = 1.0,
    box_rule: BoxRule = "half",
    likeliest: int = 5,
    prior: Sequence[float] | None = None,
    prior_threshold: float = 0.5,
    gamma_pos: float = 0.0,
    gamma_neg: float = 1.0,
    gamma_unknown: float = 4.0,
) -> ComposedLoss:
    """Points and boxes label cells, beside the image-level loss of csl-i in ignore mode (PatchML eq. 1–3).

    A point makes its cell positive, a box those it covers by half (``box_rule`` half) or meets (any); all
    cells of an absent class are negative; the others are left out, or (``unknown_cells``) negative, or, as in
    csl-p, negative except the likeliest of a class with a point or box. PatchML prints no weights, no
    exponents and no denominators: ours are weights of 1, csl-i's exponents on cells too, and sums divided by
    their number of labels or cells. Images without any label are left out of the image-level loss in every
    mode (their set D^u, eq. 5).

    Parameters
    ----------
    unknown_cells
        As ``unknown``, for cells; selective: as in csl-p.
    patch_weight
        w_patch of the loss of cells.
    positive_cell_weight
        w₊ of cells that a point or box makes positive.
    negative_cell_weight
        w₋ of cells of absent classes.
    unknown_cell_weight
        w_u of unknown cells that count as negative.
    box_rule
        Which cells a box makes positive: those it covers by half, or any that it meets.
    """
    rule = SelectiveUnknown(unknown, likeliest, prior, prior_threshold, labeled_only=True)
    gammas = gamma_pos, gamma_neg, gamma_unknown
    cells = SelectiveFocal(
        *gammas,
        not_negative("positive_cell_weight", positive_cell_weight),
        not_negative("negative_cell_weight", negative_cell_weight),
        not_negative("unknown_cell_weight", unknown_cell_weight),
    )
    patches = PatchLoss(patch_weight, unknown_cells, cells, box_rule)
    return ComposedLoss(TargetLoss(rule, SelectiveFocal(*gammas)), {"patches": patches}, counted_mean)


@register("csl-p", like=patchml, needs=_needs, keeps_entry_loss=OWN_ENTRY_LOSS, leaves_out=True)
def csl_p(
    unknown: Unknown = "ignore",
    patch_weight: float = 1.0,
    positive_cell_weight: float = 1.0,
    negative_cell_weight: float = 1.0,
    unknown_cell_weight: float = 1.0,
    box_rule: BoxRule = "half",
    likeliest: int = 5,
    prior: Sequence[float] | None = None,
    prior_threshold: float = 0.5,
    gamma_pos: float = 0.0,
    gamma_neg: float = 1.0,
    gamma_unknown: float = 4.0,
) -> ComposedLoss:
    """Patch-selective: as patchml, but a located class's unlikely unknown cells are negative (PatchML §3.2).

    PatchML's CSL-P. Left out are the likeliest unknown cells of a class with a point or box, a quarter of all
    cells (ours; PatchML has "top k").
    """
    weights = patch_weight, positive_cell_weight, negative_cell_weight, unknown_cell_weight
    prior_of = likeliest, prior, prior_threshold
    return patchml(unknown, "selective", *weights, box_rule, *prior_of, gamma_pos, gamma_neg, gamma_unknown)
