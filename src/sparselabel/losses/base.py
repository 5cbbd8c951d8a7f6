"""What every method is made of.

A method is a ``ComposedLoss``: one label loss, and optional further terms. Each is a ``LossPart``.

    step ──▶ label loss ──▶ entry losses (B, L) ──▶ reduction ──▶ losses["labels"]
      └────▶ terms ─────────────────────────────────────────────▶ losses[name of the term]

A training loop calls it like this (``training/trainer.py``; ``sparse_loss.py`` does it for other loops):

    method.prepare(layout)                 # once: look at the labels, allocate memories
    method.begin_epoch(progress)           # every epoch
    losses = method(step)                  # every step: a dictionary of scalars
    sum(losses.values()).backward()
    optimizer.step()
    method.update(step)                    # remember running scores, heat maps, ...

Most label losses are a ``TargetLoss``. A *target rule* gives every entry, unknown ones too, a target and a
weight; an *entry loss*, such as cross-entropy, compares logit and target. Positive-unlabeled (pu),
generalized robust (gr) and entropy maximization (em) compute their entry losses themselves. A part sees only
what ``step.py`` defines: not the data set, the model, the optimizer or the configuration. ``registry.py``
finds methods by name.
"""

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple, Self, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sparselabel.distributed import all_reduce_sum
from sparselabel.errors import ConfigError, listing
from sparselabel.losses.step import Layout, Memory, Observed, Progress, Scan, Step


@dataclass(frozen=True)
class Needs:
    """What a part needs; a method needs the union of its parts' needs."""

    views: int = 1
    strong_views: int = 0  # how many of the views, counted from the last, also have their colors changed
    maps: bool = False  # class activation maps: cell logits (B, L, h, w)
    features: bool = False  # features of cells (B, D, h, w)
    spatial_labels: bool = False  # points or boxes
    truth: bool = False  # the complete labels: such a method is an oracle, an upper bound
    scan: bool = False  # passes over the training images in evaluation mode
    negatives: bool = False  # observed negatives in the training labels
    epochs: bool = False  # the total number of epochs
    lr: bool = False  # the learning rate of every step
    solves: bool = False  # stored features of all images: it computes the head, nothing is trained

    def __or__(self, other: "Needs") -> "Needs":
        merged = {f.name: max(getattr(self, f.name), getattr(other, f.name)) for f in fields(self)}
        return Needs(**merged)


class LossPart(nn.Module):
    """A part of a method, with hooks for its state. Subclasses define ``forward(step)``."""

    needs = Needs()
    after_warm_up = False
    """Whether it is 0 until the warm-up is over."""
    side_by_side = False
    """Whether it can compute the steps of several runs at once: what it returns then has a leading dimension
    R, it draws no random numbers, and runs do not affect each other.
    """

    def prepare(self, layout: Layout) -> None:
        """Called once, before training: look at the labels, allocate memories."""

    def begin_phase(self) -> None:
        """Called before every phase but the first: reset the part's own optimizer, if it has one."""

    def begin_epoch(self, progress: Progress) -> None:
        """Called before the first step of every epoch."""

    def scan(self, steps: Scan) -> None:
        """Called after ``begin_epoch`` if ``needs.scan``: look at training images in evaluation mode.

        ``steps(rows)`` yields steps with these rows of this process, ``steps(None)`` with all of them. If a
        part does not call it in an epoch, no image is loaded.
        """

    def prefetch(self, rows: Tensor) -> None:
        """Called before a step with these rows (B,): a memory on disk may start reading them."""

    def update(self, step: Step) -> None:
        """Called after the optimizer's step, without gradients: remember the step's outputs."""

    def row_stores(self) -> Mapping[str, Memory]:
        """Large per-row arrays of this part, saved in checkpoints beside ``state_dict``."""
        return {}

    def estimates(self) -> Tensor | None:
        """(n, L) This part's own estimates of the labels of the layout's rows, if it has any."""
        return None

    def logged_state(self, rows: Tensor) -> dict[str, Tensor]:
        """Stored values of some rows (B,), by name, for figures."""
        return {}

    def stack(self, parts: Sequence[Self]) -> None:
        """Compute the steps of several runs from now on; ``parts`` are theirs and keep the state.

        This part is a copy of the first, and all have the same settings.
        """


class Targets(NamedTuple):
    """What a target rule returns: ``value`` (B, L) in 0..1; ``weight`` (B, L), 0 to leave an entry out.

    Without a weight every entry counts fully.
    """

    value: Tensor
    weight: Tensor | None = None


class TargetRule(LossPart):
    """The target and weight of every label of a step: ``rule(step)`` returns ``Targets``."""


EntryLoss = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(logits, target, observed), each (..., L) -> losses (..., L), each entry's loss from that entry alone."""


def cross_entropy(logits: Tensor, target: Tensor, observed: Tensor) -> Tensor:
    """−y·log f − (1−y)·log(1−f), for f = σ(logit) and a target y in 0..1 (Cole 2021 eq. 5).

    From logits, so that it stays finite and keeps its gradient at any logit. The authors' code takes
    ``log(score + 1e-5)`` or clamps scores instead, which moves losses by up to a half at large logits; the
    tests hold a reference with that ε as an argument and compare both with it.
    """
    target = target.to(logits.dtype).expand_as(logits)
    return F.binary_cross_entropy_with_logits(logits, target, reduction="none")


class EntryLosses(NamedTuple):
    """What a label loss returns: ``value`` (B, L), each entry's loss; ``counted`` (B, L), weight not 0.

    Without ``counted`` all entries are.
    """

    value: Tensor
    counted: Tensor | None = None


class LinearWeights(NamedTuple):
    """Logits are features · weight (L, D) + bias (L,)."""

    weight: Tensor
    bias: Tensor


class LabelLoss(LossPart):
    """The loss of every label of a step: ``label_loss(step)`` returns ``EntryLosses``."""

    def solve_head(self, features: Tensor, observed: Observed) -> LinearWeights:
        """Compute a linear head from the features (N, D) of all images, for methods with ``Needs.solves``."""
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
        losses = self.entry_loss(logits, target, step.observed)
        return EntryLosses(losses) if weight is None else EntryLosses(losses * weight, weight.bool())


Reduction = Callable[[Tensor, Tensor | int, Tensor | None], Tensor]
"""(losses (B, L); the batch's size; counted (B, L) bool or None for all) -> scalar over all processes.

Losses are 0 and not counted in padding. Reductions of this module return (R,) for the losses (R, B, L) of
runs side by side."""


def batch_mean(losses: Tensor, size: Tensor | int, counted: Tensor | None = None) -> Tensor:
    """Sum over the entries divided by the number of non-padding rows × L, over all processes.

    Entries with weight 0 count in the divisor.
    """
    return all_reduce_sum(losses.sum((-2, -1))) / (size * losses.shape[-1])


def batch_sum(losses: Tensor, size: Tensor | int, counted: Tensor | None = None) -> Tensor:
    """Sum over the entries, over all processes, as the authors of asl, csl, hill and splc do."""
    return all_reduce_sum(losses.sum((-2, -1)))


def counted_mean(losses: Tensor, size: Tensor | int, counted: Tensor | None = None) -> Tensor:
    """Sum over the entries divided by the number of counted ones, over all processes."""
    if counted is None:
        return batch_mean(losses, size)
    entries = all_reduce_sum(counted.sum((-2, -1)))
    return all_reduce_sum(losses.sum((-2, -1))) / entries.clamp(min=1)


REDUCTIONS: tuple[Reduction, ...] = (batch_mean, batch_sum, counted_mean)


def with_other_terms(reduction: Reduction) -> Reduction:
    """The reduction for a method with further terms: a sum becomes the mean over the counted entries.

    So a term's weight means the same for every method.
    """
    return counted_mean if reduction is batch_sum else reduction


@dataclass(frozen=True)
class ScaledMean:
    """``scale`` × the mean over the entries."""

    scale: float

    def __post_init__(self) -> None:
        if not 0 < self.scale < math.inf:
            raise ConfigError(f"scale must be a number above 0, not {self.scale}")

    def __call__(self, losses: Tensor, size: Tensor | int, counted: Tensor | None = None) -> Tensor:
        """The scaled mean over all processes."""
        return self.scale * batch_mean(losses, size)


@final
class ComposedLoss(nn.Module):
    """A label loss and further terms. Call it on a ``Step``, then ``update`` it after the optimizer's step.

    ``forward`` returns the losses by name, to be added up. Each value is that of the whole batch over all
    processes, and its gradient is scaled for DDP, which averages gradients over processes.
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
        """The same method with one more term, and with another ``label_loss`` if one is given.

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
        """One method that computes the steps of R runs at once, and returns losses (R,).

        The ``methods`` are those of the runs, prepared and with the same settings. They keep the state.
        """
        stacked = copy.deepcopy(methods[0])
        for part, *own in zip(stacked.parts(), *(method.parts() for method in methods), strict=True):
            part.stack(own)
        return stacked

    def prepare(self, layout: Layout) -> None:
        """Prepare every part with the labels of this process."""
        for part in self.parts():
            part.prepare(layout)

    def begin_phase(self) -> None:
        """Begin a new phase in every part."""
        for part in self.parts():
            part.begin_phase()

    def begin_epoch(self, progress: Progress) -> None:
        """Begin an epoch in every part."""
        for part in self.parts():
            part.begin_epoch(progress)

    def forward(self, step: Step) -> dict[str, Tensor]:
        losses, counted = _checked_entry_losses(self.label_loss, step)
        if step.padded:
            valid = step.valid[..., None]
            losses, counted = losses * valid, None if counted is None else counted & valid
        named = {"labels": self.reduction(losses, step.size, counted)}
        for name, term in self.terms.items():
            named[name] = term(step)
        return named

    def update(self, step: Step) -> None:
        """Let parts remember the outputs of a step; called after the optimizer's step."""
        if self._updating:
            with torch.no_grad():
                for part in self._updating:
                    part.update(step)

    def prefetch(self, rows: Tensor) -> None:
        """Start reading the memories of rows that come soon."""
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


def _checked_entry_losses(label_loss: LabelLoss, step: Step) -> EntryLosses:
    """The entry losses of a step. A wrong type or shape raises here; it would broadcast or fail elsewhere."""
    entries = label_loss(step)
    shape = step.outputs[0].logits.shape
    if not isinstance(entries, EntryLosses):
        problem = f"returned {type(entries).__name__}"
    elif wrong := [tuple(one.shape) for one in entries if one is not None and one.shape != shape]:
        problem = f"returned shape {listing(wrong)}"
    elif entries.counted is not None and entries.counted.dtype != torch.bool:
        problem = f"returned counted in {str(entries.counted.dtype).removeprefix('torch.')}"
    else:
        return entries
    raise ConfigError(
        f"a label loss returns EntryLosses(value, counted), both {tuple(shape)}, counted in bool; "
        f"{type(label_loss).__name__} {problem}",
        what="loss",
        value=type(label_loss).__name__,
    )


def at_least_float32(logits: Tensor) -> Tensor:
    """Logits in float32 or better: losses are computed in it under mixed precision too."""
    return logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
