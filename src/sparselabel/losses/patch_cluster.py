"""PatchCluster: pseudo-labels for images without labels (PatchML §3.3, eq. 4–5).

The prototype of a class is the mean feature of its labeled cells. An image without any label is positive for
the class if one of its cells is near the prototype by cosine distance, and negative if all are far. In
PatchML's "I+PC" the mean features of images replace cells.

    rows with a positive ──▶ prototypes (L, D), summed over processes
    rows without a label ──▶ nearest cell to each prototype ──▶ pseudo labels (n, L), for the whole epoch
"""

import warnings
from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

from sparselabel.data.labels import NEGATIVE, POSITIVE, UNKNOWN
from sparselabel.distributed import all_gather, all_reduce_sum
from sparselabel.errors import ConfigError, DataWarning
from sparselabel.losses.base import (
    ComposedLoss,
    EntryLoss,
    EntryLosses,
    LabelLoss,
    LossPart,
    Needs,
    Reduction,
    TargetLoss,
    at_least_float32,
    with_other_terms,
)
from sparselabel.losses.class_selective import SelectiveUnknown, has_labels
from sparselabel.losses.memory.row_store import RowStore, make_row_store
from sparselabel.losses.patchml import BoxRule, cell_labels
from sparselabel.losses.registry import register
from sparselabel.losses.setting_checks import not_negative
from sparselabel.losses.step import Layout, Memory, Progress, Scan, Step

Source = Literal["cells", "images"]
"""What prototypes are means of: labeled cells, or whole images with the class."""
NEAR: dict[Source, float] = {"cells": 0.3, "images": 0.1}  # d⁺: PatchML has .30 to .35 for cells
FAR = 0.7  # d⁻ (ours)


class ClusterLabels(LossPart):
    """Pseudo labels for every class of every image without a label, computed anew in every epoch.

    They start after the warm-up (or, without one, after the first epoch). A class without observed positives
    has no prototype and no pseudo labels.
    """

    rows: RowStore

    def __init__(
        self, source: Source, near: float | None = None, far: float = FAR, box_rule: BoxRule = "half"
    ) -> None:
        super().__init__()
        self.source = source
        self.near = NEAR[source] if near is None else near
        self.far = far
        if not 0 <= self.near < far <= 2:
            raise ConfigError(
                f"near (d⁺) must be below far (d⁻), both cosine distances in [0, 2], not {self.near} and "
                f"{far}"
            )
        self.box_rule: BoxRule = box_rule
        cells = source == "cells"
        self.needs = Needs(scan=True, features=True, maps=cells, spatial_labels=cells)
        self._asked = self._scanned = -1

    def prepare(self, layout: Layout) -> None:
        """Find the images without a label, and allocate their pseudo labels."""
        self.layout = layout
        classes = layout.observed.shape[1]
        self.with_positive = layout.rows[layout.per_image(POSITIVE) > 0]
        self.without = layout.rows[layout.per_image(UNKNOWN) == classes]
        self._useful = int(all_reduce_sum(torch.tensor(len(self.without)))) > 0
        if not self._useful:
            warnings.warn(
                "every training image has an observed label: +cluster is for those without, and has "
                "nothing to do",
                DataWarning,
                stacklevel=2,
            )

        def start(local_index: Tensor) -> Tensor:
            return torch.full((len(local_index), classes), UNKNOWN, dtype=torch.int8)

        self.rows = make_row_store("pseudo-labels", layout, classes, start, dtype=torch.int8)

    def begin_epoch(self, progress: Progress) -> None:
        if progress.warmed_up:
            self._asked = progress.epoch

    def scan(self, steps: Scan) -> None:
        """Compute prototypes from labeled images, and pseudo labels of the others from these."""
        if self._asked == self._scanned:
            return
        self._scanned = self._asked
        if not self._useful:  # in all processes alike, so all return here
            return
        prototypes = self.prototypes(steps)
        for step in steps(self.without):
            real = (step.rows >= 0).cpu()
            local_index = self.layout.local_index(step.rows)[real]
            self.rows.write(local_index, self.labels_by(prototypes, self._features(step)).cpu()[real])

    def prototypes(self, steps: Scan) -> Tensor:
        """(L, D) Means of labeled features over all processes; NaN for a class without any."""
        classes = self.layout.observed.shape[1]
        sums: Tensor | None = None
        counts = torch.zeros(classes, dtype=torch.float64)
        for step in steps(self.with_positive):
            features = self._features(step)
            if sums is None:
                sums = torch.zeros(classes, features.shape[1], dtype=torch.float64)
            which, observed = self._observed_features(step, features)
            sums.index_add_(0, which.cpu(), observed.cpu().double())
            counts.index_add_(0, which.cpu(), torch.ones(len(which), dtype=torch.float64))
        # A process without a labeled image does not know the width.
        widths = all_gather(torch.tensor([0 if sums is None else sums.shape[1]]))
        if sums is None:
            sums = torch.zeros(classes, int(widths.max()), dtype=torch.float64)
        return all_reduce_sum(sums) / all_reduce_sum(counts)[:, None]

    def labels_by(self, prototypes: Tensor, features: Tensor) -> Tensor:
        """(B, L) int8 Pseudo labels of images by their features (B, D, cells)."""
        closest = nearest_cosine(prototypes.to(features), features)
        labels = torch.full(closest.shape, UNKNOWN, dtype=torch.int8, device=closest.device)
        labels[1 - closest <= self.near] = POSITIVE  # NaN is neither
        labels[1 - closest > self.far] = NEGATIVE
        return labels

    def _features(self, step: Step) -> Tensor:
        """(B, D, cells) Features of cells, or one mean feature per image."""
        features = step.outputs[0].features
        if features is None or (self.source == "cells" and features.ndim != 4):
            raise ConfigError(
                "prototypes of cells need their features", "give features=, of cells (B, D, h, w)"
            )
        features = at_least_float32(features.detach())
        if self.source == "images":
            return (features if features.ndim == 2 else features.mean(dim=(2, 3)))[:, :, None]
        return features.flatten(2)

    def _observed_features(self, step: Step, features: Tensor) -> tuple[Tensor, Tensor]:
        """(n,) classes and (n, D) features of a step's observed positives."""
        if self.source == "images":
            image, which = ((step.observed == POSITIVE) & step.valid[:, None]).nonzero(as_tuple=True)
            return which, features[image, :, 0]
        cells = step.outputs[0].features
        if step.spatial_labels is None or cells is None:
            raise ConfigError("prototypes of cells need points or boxes", "give spatial_labels=")
        grid = (cells.shape[2], cells.shape[3])
        labels = cell_labels(step.observed, step.spatial_labels, step.geometries[0], grid, self.box_rule)
        positive = (labels == POSITIVE) & step.valid[:, None, None, None]
        image, which, cell = positive.flatten(2).nonzero(as_tuple=True)
        return which, features[image, :, cell]

    def forward(self, step: Step) -> Tensor:
        """(B, L) The pseudo labels of the step's rows; UNKNOWN for images that have labels."""
        if step.progress.warmed_up and self._scanned != step.progress.epoch:
            raise ConfigError(
                "PatchCluster looks at all training images before an epoch after its warm-up",
                "call criterion.set_epoch(epoch), then criterion.scan(predict)",
            )
        if not step.progress.warmed_up:
            return torch.full_like(step.observed, UNKNOWN)
        stored = self.rows.read(self.layout.local_index(step.rows)).to(step.observed.device)
        return stored.masked_fill(has_labels(step.observed)[:, None], UNKNOWN)

    def prefetch(self, rows: Tensor) -> None:
        self.rows.prefetch(self.layout.local_index(rows))

    def row_stores(self) -> Mapping[str, Memory]:
        return {"labels": self.rows}

    def logged_state(self, rows: Tensor) -> dict[str, Tensor]:
        return {"pseudo_labels": self.rows.read(self.layout.local_index(rows))}


def nearest_cosine(prototypes: Tensor, features: Tensor) -> Tensor:
    """(B, L) The largest cosine between a prototype (L, D) and a cell of each image (B, D, cells).

    One product of matrices, divided by lengths afterwards, so that no copy of the features is made.
    """
    unit = prototypes / torch.linalg.vector_norm(prototypes, dim=1, keepdim=True)
    lengths = torch.linalg.vector_norm(features, dim=1, keepdim=True).clamp(min=1e-12)
    cosines: Tensor = torch.matmul(unit, features) / lengths
    return cosines.amax(dim=2)


class AnnotatedOnly(LabelLoss):
    """A label loss for images that have a label; the others are left out (PatchML eq. 5)."""

    def __init__(self, label_loss: TargetLoss) -> None:
        super().__init__()
        self.label_loss = label_loss
        if isinstance(label_loss.rule, SelectiveUnknown):  # it selects within the batch
            label_loss.rule.labeled_only = True

    def forward(self, step: Step) -> EntryLosses:
        """The other's entry losses, 0 and not counted for all entries of an image without labels."""
        losses, counted = self.label_loss(step)
        labeled = has_labels(step.observed)[:, None]
        every = labeled.expand_as(losses)
        return EntryLosses(losses * labeled, every if counted is None else counted & labeled)


class ClusterLoss(LossPart):
    """The loss of pseudo labels as if they were observed, at image level (PatchML eq. 4 with w_patch 0)."""

    def __init__(
        self, labels: ClusterLabels, entry_loss: EntryLoss, reduction: Reduction, weight: float = 1.0
    ) -> None:
        super().__init__()
        self.labels = labels
        self.entry_loss = entry_loss
        self.reduction = reduction
        self.weight = not_negative("pseudo_weight", weight)

    def forward(self, step: Step) -> Tensor:
        """A scalar; 0 where no image of the batch has a pseudo label."""
        labels = self.labels(step)
        logits = at_least_float32(step.outputs[0].logits)
        counted = (labels != UNKNOWN) & step.valid[:, None]
        losses = self.entry_loss(logits, (labels == POSITIVE).to(logits.dtype), labels)
        return self.weight * self.reduction(losses * counted, step.size, counted)


def _source(base: Needs, prototypes: Source | None) -> Source:
    """What prototypes are means of; by default cells if the method has points or boxes, else images."""
    return prototypes or ("cells" if base.spatial_labels else "images")


def _needs(base: Needs, prototypes: Source | None, **_: object) -> Needs:
    cells = _source(base, prototypes) == "cells"
    return Needs(scan=True, features=True, maps=cells, spatial_labels=cells)


@register("cluster", "unlabeled", needs=_needs)
def cluster(
    method: ComposedLoss,
    prototypes: Source | None = None,
    near: float | None = None,
    far: float = FAR,
    pseudo_weight: float = 1.0,
    box_rule: BoxRule = "half",
) -> ComposedLoss:
    """PatchCluster: pseudo labels from features of labeled cells (PatchML eq. 4–5).

    Before every epoch (ours) after the warm-up, the prototype of each class is the mean feature of its
    labeled cells in all training images, uncropped. An image without any label is positive for a class if one
    of its cells is within the cosine distance ``near`` (d⁺, .3; PatchML .30–.35) of the prototype, and
    negative if all are beyond ``far`` (d⁻, ours .7). Pseudo labels act at image level only, at
    ``pseudo_weight``. ``prototypes`` images: mean features of whole images instead (PatchML's I+PC; d⁺ .1),
    which is the default for methods without points. Labels and pseudo labels are each divided by their own
    number (ours), but with iu both by B·L, as iu itself divides.

    Parameters
    ----------
    method
        The method to which it is added.
    prototypes
        What prototypes are means of: labeled cells, or whole images. Default: cells, where the method has
        points or boxes.
    near
        d⁺, the cosine distance to a prototype up to which an image is positive.
    far
        d⁻, the cosine distance to a prototype beyond which an image is negative.
    pseudo_weight
        Weight of pseudo labels.
    box_rule
        Which cells a box makes positive: those it covers by half, or any that it meets.
    """
    label_loss = method.label_loss
    if not isinstance(label_loss, TargetLoss):
        raise TypeError("cluster takes the entry loss of a TargetLoss for its pseudo labels")
    labels = ClusterLabels(_source(method.needs, prototypes), near, far, box_rule)
    loss = ClusterLoss(labels, label_loss.entry_loss, with_other_terms(method.reduction), pseudo_weight)
    return method.with_term("pseudo", loss, AnnotatedOnly(label_loss))
