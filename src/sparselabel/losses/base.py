"""What every method is made of.

A method is a ``ComposedLoss``: one label loss plus optional extra terms. Each is a ``LossPart``.

    step ──▶ label loss ──▶ entry losses (B, L) ──▶ reduction ──▶ losses["labels"]
      │                                                              +
      └────▶ terms ─────────────────────────────────────▶ losses[name of the term]
    after the optimizer's step: every part may ``update`` what it remembers of the step's images

Most label losses are a ``TargetLoss``: a target rule (a target and a weight for every entry, unknown ones
too) and an entry loss. Positive-unlabeled (pu), generalized robust (gr) and entropy maximization (em) compute
their entry losses themselves. ``registry.py`` finds methods by name. A part sees nothing but a ``Step``: not
the data set, the model, the optimizer or the configuration.
"""

import copy
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple, Self, final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sparselabel.data.labels import (
    NEGATIVE,
    Indices,
    LabelMatrix,
    SparseLabels,
    count_per_class,
    count_per_image,
    take_rows,
)
from sparselabel.data.spatial_labels import SpatialLabels
from sparselabel.data.view_geometry import ViewGeometry
from sparselabel.distributed import all_reduce_sum
from sparselabel.errors import ConfigError, DataError
from sparselabel.models.classifier import Output

ENTRIES_AT_ONCE = 2**19
"""Maximum number of labels (rows × classes) processed at once: a mask over a million rows would take
gigabytes, and ``topk_per_class`` takes about 200 bytes per label."""


def rows_at_once(classes: int) -> int:
    """How many rows have at most ``ENTRIES_AT_ONCE`` labels; at least one."""
    return max(1, ENTRIES_AT_ONCE // max(1, classes))


class LabelRows:
    """Sparse labels (n, L) that are indexed like a dense tensor: ``labels[rows]`` is a dense (B, L).

    Only the rows of a step become dense, so a step takes equally long for any n.
    """

    def __init__(self, labels: SparseLabels) -> None:
        self.labels = labels
        self.shape = torch.Size(labels.shape)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, rows: "Tensor | slice") -> Tensor:
        return torch.from_numpy(self.labels[rows if isinstance(rows, slice) else rows.numpy()])

    def index_select(self, dim: int, rows: Tensor) -> Tensor:
        """(B, L) The labels of some rows, as ``Tensor.index_select`` with ``dim`` 0."""
        return self[rows]


Observed = Tensor | LabelRows
"""Labels (n, L): a tensor, or sparse labels that are indexed like one."""


def observed_rows(labels: LabelMatrix, rows: Indices | None = None) -> Observed:
    """The labels, or those of some rows, in the form that a ``Layout`` takes."""
    some = labels if rows is None else take_rows(labels, rows)
    return LabelRows(some) if isinstance(some, SparseLabels) else torch.from_numpy(some)


def count_labels(observed: Observed, label: int) -> Tensor:
    """(L,) int64 How many labels of every class are ``label``."""
    return torch.from_numpy(count_per_class(_matrix_of(observed), label))


def _matrix_of(observed: Observed) -> LabelMatrix:
    return observed.labels if isinstance(observed, LabelRows) else observed.cpu().numpy()


def in_chunks(values: Tensor) -> tuple[Tensor, ...]:
    """Rows (n, L) in chunks (c, L) of a bounded size, at least one chunk."""
    return torch.split(values, rows_at_once(values.shape[1]))


class Memory:
    """A large per-row array: in RAM, or in a file with two slots per row (``memory/``).

    ``by_row`` lists the state tensors with one entry per row. They can be redistributed when the number of
    processes changes (``memory/reshard.py``).
    """

    by_row: tuple[str, ...] = ()

    def bytes_still_needed(self) -> tuple[int, int]:
        """Bytes of RAM and of disk that it has yet to allocate."""
        return 0, 0

    def state(self) -> dict[str, Tensor]:
        """The tensors that a checkpoint saves."""
        raise TypeError(f"{type(self).__name__} must define state()")

    def restore(self, state: dict[str, Tensor]) -> None:
        """Load the tensors that ``state`` returned."""
        raise TypeError(f"{type(self).__name__} must define restore()")

    def on_checkpoint_saved(self) -> None:
        """Called once the checkpoint is on disk. Older data may now be overwritten."""


@dataclass(frozen=True)
class Layout:
    """The data that every part gets once, before training.

    ``rows`` (n,) are the rows of this process, sorted, and ``observed`` (n, L) their labels. ``total`` is the
    number of rows in all ``processes``. ``folder`` is for memories too large for RAM (None: RAM only), and
    ``keep`` says where they go. ``grid`` is the height and width of the model's maps, if already known.
    ``memories`` lists those made so far: together they must fit.
    """

    rows: Tensor
    observed: Observed
    total: int
    seed: int = 0
    processes: int = 1
    folder: Path | None = None
    keep: Literal["auto", "ram", "file"] = "auto"
    grid: tuple[int, int] | None = None
    memories: list[Memory] = field(default_factory=list, repr=False)

    @cached_property
    def has_negatives(self) -> bool:
        """Whether any label of this process is an observed negative."""
        return bool(self.counts(NEGATIVE).any())

    def counts(self, label: int) -> Tensor:
        """(L,) int64 How many labels of every class are ``label``, in this process."""
        return count_labels(self.observed, label)

    def per_image(self, label: int) -> Tensor:
        """(n,) int64 How many labels of every image of this process are ``label``."""
        return torch.from_numpy(count_per_image(_matrix_of(self.observed), label))

    def local_index(self, rows: Tensor) -> Tensor:
        """(B,) The positions of ``rows`` (B,) in ``self.rows``; any position for padding."""
        # numpy is faster than torch on so few numbers.
        own, asked = self.rows.numpy(), rows.cpu().numpy()
        local_index = np.minimum(own.searchsorted(asked), len(own) - 1)
        unknown_rows = (own[local_index] != asked) & (asked >= 0)
        if unknown_rows.any():
            raise DataError(
                f"row {asked[unknown_rows][0]} is none of the {len(own):,} rows that the method was "
                "prepared for: rows in a Step are rows of the labels it was built with"
            )
        return torch.from_numpy(local_index)


@dataclass(frozen=True)
class Progress:
    """The progress of training: ``epoch`` of ``epochs``, from 0; the first ``head_epochs`` train the head.

    ``lr`` is a tensor (R,) where R runs are trained side by side.
    """

    epoch: int
    epochs: int
    head_epochs: int
    lr: float | Tensor

    @property
    def warmed_up(self) -> bool:
        """Whether memories can be relied on: after the head-only epochs, or after the first without any."""
        return self.epoch >= max(self.head_epochs, 1)


@dataclass(frozen=True)
class Step:
    """One training step as a method sees it: B images, L classes, an output and a geometry per view.

    ``rows`` (B,) are the images' rows in the training set. They are the keys of every memory, and each is
    visited once per epoch; -1 is padding, which is ignored. ``observed`` (B, L) holds POSITIVE, NEGATIVE or
    UNKNOWN and is never written to. The maps in ``outputs`` are class activation maps: cell logits
    (B, L, h, w). ``spatial_labels`` has positions in the batch as its rows. ``truth`` (B, L) is None unless
    a part needs it. Labels are on the outputs' device. Keep rows and geometries on the CPU, where memories
    are: reading them from a GPU would synchronize. ``check``: raise if a point or box is in a row or class
    out of range, or of a class labeled absent.

    A step of R runs side by side has rows (R, B), labels and logits (R, B, L), and no padding.
    """

    rows: Tensor
    observed: Tensor
    outputs: tuple[Output, ...]
    geometries: tuple[ViewGeometry, ...]
    progress: Progress
    spatial_labels: SpatialLabels | None = None
    truth: Tensor | None = None
    check: InitVar[bool] = True

    def __post_init__(self, check: bool) -> None:
        # The trainer turns it off: prepared data is already checked, and this synchronizes with a GPU.
        if check and self.spatial_labels is not None:
            refuse_spatial_labels(self.spatial_labels, self.observed)

    @cached_property
    def valid(self) -> Tensor:
        """(B,) bool Which rows are not padding, where the outputs are."""
        return (self.rows >= 0).to(self.outputs[0].logits.device)

    @cached_property
    def padded(self) -> bool:
        """Whether some rows are padding."""
        return not bool((self.rows >= 0).all())


def refuse_spatial_labels(spatial_labels: SpatialLabels, observed: Tensor) -> None:
    """Raise if a point or box is outside the labels (B, L) of a batch, or of a class labeled absent."""
    rows, classes = torch.from_numpy(spatial_labels.rows), torch.from_numpy(spatial_labels.classes).long()
    beyond = (rows >= observed.shape[0]) | (classes >= observed.shape[1])
    if beyond.any():
        first = int(beyond.int().argmax())
        raise DataError(
            f"a spatial label has row {int(rows[first])} and class {int(classes[first])}, but the labels of "
            f"the step are {observed.shape[0]} × {observed.shape[1]}: its rows are positions in the batch"
        )
    absent = observed[rows.to(observed.device), classes.to(observed.device)] == NEGATIVE
    if bool(absent.any()):
        first = int(absent.int().argmax())
        kind = "point" if spatial_labels.is_point[first] else "box"
        center = ", ".join(f"{number:.4g}" for number in spatial_labels.centers[first])
        raise DataError(
            f"a {kind} at {center} of class {int(classes[first])} in row {int(rows[first])} of the step, "
            "where it is labeled absent (0)",
            "remove it",
            "label the class present (1)",
        )


class Targets(NamedTuple):
    """What a target rule returns: ``value`` (B, L) in 0..1; ``weight`` (B, L), 0 to leave an entry out."""

    value: Tensor
    weight: Tensor


@dataclass(frozen=True)
class Needs:
    """What a part needs in a step; a method needs the union of its parts' needs."""

    views: int = 1
    strong_views: int = 0  # how many of the views, counted from the last, also have their colors changed
    maps: bool = False  # class activation maps: cell logits (B, L, h, w)
    features: bool = False
    spatial_labels: bool = False
    truth: bool = False  # complete labels: an oracle sees all labels and is an upper bound
    scan: bool = False  # passes over the training images in evaluation mode
    negatives: bool = False  # observed negatives in the training labels
    epochs: bool = False  # the total number of epochs
    lr: bool = False  # the learning rate of every step
    solves: bool = False  # stored features of all images: the head is computed from them, not trained

    def __or__(self, other: "Needs") -> "Needs":
        merged = {f.name: max(getattr(self, f.name), getattr(other, f.name)) for f in fields(self)}
        return Needs(**merged)


EntryLoss = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(logits, target, observed), each (..., L) -> losses (..., L), each entry's from nothing but that entry."""


def cross_entropy(logits: Tensor, target: Tensor, observed: Tensor) -> Tensor:
    """−y·log f − (1−y)·log(1−f), for f = σ(logit) and a target y in 0..1 (Cole 2021 eq. 5).

    From logits, so that it stays finite and keeps its gradient at any logit. The authors' code takes
    ``log(score + 1e-5)`` or clamps scores instead, which moves losses by up to a half at large logits; the
    tests hold a reference with that ε as an argument and compare both with it.
    """
    return F.softplus(logits) - target * logits


Reduction = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(losses (B, L), 0 where not valid; valid (B,) bool; counted (B, L) bool) -> scalar over all processes.

Those of this module return (R,) for the losses (R, B, L) of runs side by side."""


class EntryLosses(NamedTuple):
    """What a label loss returns: ``value`` (B, L), each entry's loss; ``counted`` (B, L), weight not 0."""

    value: Tensor
    counted: Tensor


def _checked_entry_losses(label_loss: "LabelLoss", step: "Step") -> EntryLosses:
    """The entry losses of a step. A wrong type or shape raises here; it would broadcast or fail elsewhere."""
    entries = label_loss(step)
    shape = step.outputs[0].logits.shape
    if not isinstance(entries, EntryLosses):
        problem = f"returned {type(entries).__name__}"
    elif entries.value.shape != shape or entries.counted.shape != shape:
        problem = f"returned shapes {tuple(entries.value.shape)} and {tuple(entries.counted.shape)}"
    elif entries.counted.dtype != torch.bool:
        problem = f"returned counted in {str(entries.counted.dtype).removeprefix('torch.')}"
    else:
        return entries
    raise ConfigError(
        f"a label loss returns EntryLosses(value, counted), both {tuple(shape)}, counted in bool; "
        f"{type(label_loss).__name__} {problem}",
        what="loss",
        value=type(label_loss).__name__,
    )


class LossPart(nn.Module):
    """A part of a method, with hooks for its state. Subclasses define what calling it returns."""

    needs = Needs()
    after_warm_up = False
    """Whether it is 0 until the warm-up is over."""
    side_by_side = False
    """Whether it can compute the steps of several runs at once. All that it returns then has their dimension
    first; it draws no random numbers, and no run changes what another one gets."""

    def stack(self, parts: Sequence[Self]) -> None:
        """Compute the steps of several runs from now on, with the state of their own ``parts``.

        It is a copy of the first of them, whose settings all have.
        """

    def prepare(self, layout: Layout) -> None:
        """Called once, before training: look at the labels, allocate memories."""

    def begin_epoch(self, progress: Progress) -> None:
        """Called before the first step of every epoch."""

    def update(self, step: Step) -> None:
        """Called after the optimizer's step, without gradients: remember the step's outputs."""

    def scan(self, steps: "Scan") -> None:
        """Called after ``begin_epoch`` if ``needs.scan``: look at training images in evaluation mode.

        ``steps(rows)`` yields steps with these rows of this process, ``steps(None)`` with all of them. A part
        that needs no scan in this epoch does not call it, and no image is loaded.
        """

    def begin_phase(self) -> None:
        """Called before every phase but the first: reset the part's own optimizer, if it has one."""

    def prefetch(self, rows: Tensor) -> None:
        """Called before a step with these rows (B,): a memory on disk may start reading them."""

    def row_stores(self) -> Mapping[str, Memory]:
        """Large per-row arrays of this part, saved in checkpoints beside ``state_dict``."""
        return {}

    def estimates(self) -> Tensor | None:
        """(n, L) This part's own estimates of the labels of the layout's rows, if it has any."""
        return None

    def logged_state(self, rows: Tensor) -> dict[str, Tensor]:
        """Stored values of some rows (B,), by name, for figures."""
        return {}


class TargetRule(LossPart):
    """The target and weight of every label of a step: ``rule(step)`` returns ``Targets``."""


class LinearWeights(NamedTuple):
    """Logits are features · weight (L, D) + bias (L,)."""

    weight: Tensor
    bias: Tensor


class LabelLoss(LossPart):
    """The loss of every label of a step: ``label_loss(step)`` returns ``EntryLosses``."""

    def solve_head(self, features: Tensor, observed: Observed) -> LinearWeights:
        """Compute a linear head from the features (N, D) of all images: what ``Needs.solves`` promises."""
        raise TypeError(f"{type(self).__name__} must define solve_head()")


class TargetLoss(LabelLoss):
    """A target rule and an entry loss: weight × entry loss(logit, target)."""

    side_by_side = True

    def __init__(self, rule: TargetRule, entry_loss: EntryLoss) -> None:
        super().__init__()
        self.rule = rule
        self.entry_loss = entry_loss

    def forward(self, step: Step) -> EntryLosses:
        target, weight = self.rule(step)
        logits = at_least_float32(step.outputs[0].logits)
        return EntryLosses(self.entry_loss(logits, target, step.observed) * weight, weight != 0)


Scan = Callable[[Tensor | None], Iterable[Step]]
"""Rows (n,) of this process, or None for all -> steps that hold each of these rows once, in any batches."""


def not_begun(progress: Progress) -> ConfigError:
    """The error for a step of an epoch for which ``begin_epoch`` was not called."""
    return ConfigError(
        f"a step of epoch {progress.epoch + 1} came before that epoch began",
        f"call criterion.set_epoch({progress.epoch}), which counts from 0, before its first step",
    )


def batch_mean(losses: Tensor, valid: Tensor, counted: Tensor | None = None) -> Tensor:
    """Sum over the entries divided by the number of non-padding rows × L, over all processes.

    Entries with weight 0 count in the divisor.
    """
    return all_reduce_sum(losses.sum((-2, -1))) / (all_reduce_sum(valid.sum(-1)) * losses.shape[-1])


def batch_sum(losses: Tensor, valid: Tensor, counted: Tensor) -> Tensor:
    """Sum over the entries, over all processes, as the authors of asl, csl, hill and splc do."""
    return all_reduce_sum(losses.sum((-2, -1)))


def counted_mean(losses: Tensor, valid: Tensor, counted: Tensor) -> Tensor:
    """Sum over the entries divided by the number of counted ones, over all processes."""
    entries = (counted & valid[..., None]).sum((-2, -1))
    return all_reduce_sum(losses.sum((-2, -1))) / all_reduce_sum(entries).clamp(min=1)


REDUCTIONS: tuple[Reduction, ...] = (batch_mean, batch_sum, counted_mean)


def with_other_terms(reduction: Reduction) -> Reduction:
    """The reduction for a method with further terms: a sum becomes the mean over the counted entries.

    So the weight of a term means the same for every method.
    """
    return counted_mean if reduction is batch_sum else reduction


@dataclass(frozen=True)
class ScaledMean:
    """``scale`` × the mean over the entries."""

    scale: float

    def __post_init__(self) -> None:
        if not 0 < self.scale < math.inf:
            raise ConfigError(f"scale must be a number above 0, not {self.scale}")

    def __call__(self, losses: Tensor, valid: Tensor, counted: Tensor | None = None) -> Tensor:
        """The scaled mean over all processes."""
        return self.scale * batch_mean(losses, valid)


@final
class ComposedLoss(nn.Module):
    """A label loss and further terms. Call it on a ``Step``, then ``update`` it after the optimizer's step.

    ``forward`` returns the losses by name, to be added up. A loss's value is that of the whole batch over all
    processes; its gradient is scaled so that averaging it over processes, as DDP does, is right.
    """

    def __init__(
        self,
        label_loss: LabelLoss,
        terms: Mapping[str, LossPart] | None = None,
        reduction: Reduction = batch_mean,
    ) -> None:
        super().__init__()
        self.label_loss = label_loss
        self.terms = nn.ModuleDict(dict(terms or {}))
        self.reduction = reduction
        self._parts = [module for module in self.modules() if isinstance(module, LossPart)]
        self._prefetching = [part for part in self._parts if type(part).prefetch is not LossPart.prefetch]
        self._updating = [part for part in self._parts if type(part).update is not LossPart.update]

    def with_term(self, name: str, term: LossPart, label_loss: LabelLoss | None = None) -> "ComposedLoss":
        """The same method with one more term; if given, ``label_loss`` replaces its own (it may wrap it).

        The reduction changes too, see ``with_other_terms``.
        """
        terms = {key: part for key, part in self.terms.items() if isinstance(part, LossPart)}
        return ComposedLoss(
            label_loss or self.label_loss, terms | {name: term}, with_other_terms(self.reduction)
        )

    def parts(self) -> list[LossPart]:
        """Every part once, those inside other parts included, in a fixed order."""
        return self._parts

    @property
    def needs(self) -> Needs:
        """What a step must hold for this method."""
        merged = Needs()
        for part in self.parts():
            merged = merged | part.needs
        return merged

    @property
    def side_by_side(self) -> bool:
        """Whether ``stack`` works with this method."""
        known = isinstance(self.reduction, ScaledMean) or self.reduction in REDUCTIONS
        return known and all(part.side_by_side for part in self.parts())

    @staticmethod
    def stack(methods: "Sequence[ComposedLoss]") -> "ComposedLoss":
        """One method for the steps of several runs, whose ``methods`` are prepared with the same settings.

        It returns losses (R,). What it remembers is in the methods.
        """
        stacked = copy.deepcopy(methods[0])
        for part, *own in zip(stacked.parts(), *(method.parts() for method in methods), strict=True):
            part.stack(own)
        return stacked

    def prepare(self, layout: Layout) -> None:
        """Tell every part the labels it will work with."""
        for part in self.parts():
            part.prepare(layout)

    def begin_phase(self) -> None:
        """Tell every part that a new phase begins."""
        for part in self.parts():
            part.begin_phase()

    def begin_epoch(self, progress: Progress) -> None:
        """Tell every part that an epoch begins."""
        for part in self.parts():
            part.begin_epoch(progress)

    def forward(self, step: Step) -> dict[str, Tensor]:
        valid = step.valid
        losses, counted = _checked_entry_losses(self.label_loss, step)
        losses = losses * valid[..., None] if step.padded else losses
        named = {"labels": self.reduction(losses, valid, counted)}
        for name, term in self.terms.items():
            named[name] = term(step)
        return named

    def update(self, step: Step) -> None:
        """Let the parts that remember something of a step do so, after the optimizer's."""
        if self._updating:
            with torch.no_grad():
                for part in self._updating:
                    part.update(step)

    def prefetch(self, rows: Tensor) -> None:
        """Tell the parts that prefetch which rows come soon."""
        for part in self._prefetching:
            part.prefetch(rows)

    def scan(self, steps: Scan) -> None:
        """Let the parts that need it scan the training set; ``steps`` starts a pass over rows."""
        for part in self.parts():
            if part.needs.scan:
                part.scan(steps)

    def row_stores(self) -> dict[str, Memory]:
        """The large memories of all parts by a name that is stable over runs."""
        return {
            f"{name}.{key}": memory
            for name, part in self.named_modules()
            if isinstance(part, LossPart)
            for key, memory in part.row_stores().items()
        }

    def estimates(self) -> Tensor | None:
        """(n, L) The method's own estimates of the training labels, if it has any."""
        return next((e for part in self.parts() if (e := part.estimates()) is not None), None)

    def logged_state(self, rows: Tensor) -> dict[str, Tensor]:
        """Stored values of all parts for some rows, by name."""
        return {name: value for part in self.parts() for name, value in part.logged_state(rows).items()}


def at_least_float32(logits: Tensor) -> Tensor:
    """Losses are computed in float32 or better, also under mixed precision."""
    return logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
