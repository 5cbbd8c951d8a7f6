"""The one interface of all methods.

Nearly every loss for sparse labels is *a reading of the unknown labels* (a target and a weight for every
entry) × *an element loss* + *further terms*, with a memory per picture behind some of them. So there is
one ``Method``, made of small ``Part``s; ``catalog/`` names the combinations that papers propose.

    step ──▶ reading ──▶ Targets ──▶ element ──▶ × weight ──▶ reduction ──▶ losses["labels"]
      │                                                                        +
      └────▶ terms ────────────────────────────────────────────────▶ losses[name of the term]
    after the optimiser: every part may ``observe`` the step and remember something for the next epoch

Parts never see the data set, the model, the optimiser or the configuration: a ``Step`` is all they get.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import InitVar, dataclass, fields
from functools import cached_property
from typing import NamedTuple, final

import torch
from torch import Tensor, nn

from sparselabel.data.spatial_labels import Marks
from sparselabel.data.view_geometry import Frame
from sparselabel.distributed import total
from sparselabel.errors import ConfigError
from sparselabel.losses.cells import refuse_marks
from sparselabel.losses.layout import Layout, Memory
from sparselabel.models.output import Output


@dataclass(frozen=True)
class Progress:
    """How far training is: ``epoch`` of ``epochs``, from 0; the first ``warm_up`` train the head alone."""

    epoch: int
    epochs: int
    warm_up: int
    learning_rate: float

    @property
    def settled(self) -> bool:
        """Whether memories can be relied on: after the warm-up or, where there is none, the first epoch."""
        return self.epoch >= max(self.warm_up, 1)


@dataclass(frozen=True)
class Step:
    """All that a method may see of one training step: B rows, L classes, one output and frame per view.

    ``rows`` (B,) are the pictures' rows in the training set, the keys of every memory, each visited once an
    epoch; -1 is padding and counts for nothing. ``observed`` (B, L) holds POSITIVE, NEGATIVE or UNKNOWN; it
    is never written to. ``marks`` has positions in the batch as its rows. ``truth`` (B, L) is None unless a
    part needs it: only oracles can peek. Labels are where the outputs are; rows and frames are best left on
    the CPU, where memories are, so that nobody waits for a GPU to learn them. ``check``: refuse marks of
    classes that are marked absent.
    """

    rows: Tensor
    observed: Tensor
    outputs: tuple[Output, ...]
    frames: tuple[Frame, ...]
    progress: Progress
    marks: Marks | None = None
    truth: Tensor | None = None
    check: InitVar[bool] = True

    def __post_init__(self, check: bool) -> None:
        if check and self.marks is not None:  # prepared data has been checked, and a GPU would have to wait
            refuse_marks(self.marks, self.observed)

    @cached_property
    def valid(self) -> Tensor:
        """(B,) bool Which rows are not padding, where the outputs are."""
        return (self.rows >= 0).to(self.outputs[0].logits.device)


class Targets(NamedTuple):
    """What the element loss is asked for: ``value`` (B, L) in 0..1; ``weight`` (B, L), 0 leaves it out."""

    value: Tensor
    weight: Tensor


@dataclass(frozen=True)
class Needs:
    """What a part wants to find in a step; a method needs the union of its parts' needs."""

    views: int = 1
    strong_views: int = 0  # so many of the views, the last ones, have their colours changed too
    maps: bool = False
    features: bool = False
    marks: bool = False
    truth: bool = False
    survey: bool = False
    negatives: bool = False  # observed negatives in the training labels

    def __or__(self, other: "Needs") -> "Needs":
        merged = {f.name: max(getattr(self, f.name), getattr(other, f.name)) for f in fields(self)}
        return Needs(**merged)


Element = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(logits, target, observed), each (B, L) -> losses (B, L)."""

Reduction = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(losses (B, L), valid (B,) bool, weight (B, L)) -> scalar over all processes; 0 where not valid."""


class Part(nn.Module):
    """A reading (Step -> Targets), a term (Step -> scalar) or a memory that others read."""

    needs = Needs()

    def prepare(self, layout: Layout) -> None:
        """Once, before training: look at the labels, make room for memories."""

    def begin_epoch(self, progress: Progress) -> None:
        """Before the first step of every epoch."""

    def observe(self, step: Step, targets: Targets) -> None:
        """After the optimiser's step, without gradients: remember."""

    def survey(self, steps: "Survey") -> None:
        """Look at training pictures in evaluation mode, if ``needs.survey``: after ``begin_epoch``.

        ``steps(rows)`` shows these rows of this process, ``steps(None)`` all of them. Who does not want to
        look in this epoch does not call it, which then costs nothing.
        """

    def begin_phase(self) -> None:
        """Before every phase but the first: the optimiser is new, and so is a part's own, if it has one."""

    def expect(self, rows: Tensor) -> None:
        """These rows (B,) come in a step soon: a memory on the disk may fetch them meanwhile."""

    def memories(self) -> Mapping[str, Memory]:
        """Large per-row arrays of this part, which go into checkpoints beside ``state_dict``."""
        return {}

    def estimates(self) -> Tensor | None:
        """(n, L) This part's own belief about the labels of the layout's rows, if it has one."""
        return None

    def remembered(self, rows: Tensor) -> dict[str, Tensor]:
        """What is remembered about some rows (B,), by name, for figures."""
        return {}


Survey = Callable[[Tensor | None], Iterable[Step]]
"""Rows (n,) of this process, or None for all -> steps that show each of them once, in any batches."""


def not_begun(progress: Progress) -> ConfigError:
    """The refusal of a step in an epoch that nobody began."""
    return ConfigError(
        f"a step of epoch {progress.epoch + 1} came before that epoch began: call "
        f"method.begin_epoch(Progress(epoch={progress.epoch}, ...)), which counts from 0, before the first "
        "step of every epoch, where the method puts to use what it has learnt so far"
    )


def batch_mean(losses: Tensor, valid: Tensor, weight: Tensor | None = None) -> Tensor:
    """Sum over the entries divided by B·L, over all processes; entries of weight 0 count in B·L."""
    return total(losses.sum()) / (total(valid.sum()) * losses.shape[1])


def batch_sum(losses: Tensor, valid: Tensor, weight: Tensor) -> Tensor:
    """Sum over the entries, over all processes: the scale of the losses for fully labelled data."""
    return total(losses.sum())


def counted_mean(losses: Tensor, valid: Tensor, weight: Tensor) -> Tensor:
    """Sum over the entries divided by how many are not left out (weight 0), over all processes."""
    return total(losses.sum()) / total(((weight != 0) & valid[:, None]).sum()).clamp(min=1)


@dataclass(frozen=True)
class ScaledMean:
    """So many times the mean over the entries."""

    scale: float

    def __post_init__(self) -> None:
        if not 0 < self.scale < math.inf:
            raise ConfigError(f"scale must be a number above 0, not {self.scale}")

    def __call__(self, losses: Tensor, valid: Tensor, weight: Tensor | None = None) -> Tensor:
        """The mean over all processes, times the scale."""
        return self.scale * batch_mean(losses, valid)


@final
class Method(nn.Module):
    """Reading × element + terms. Call it on a ``Step`` for the losses, then ``observe`` after the optimiser.

    ``forward`` returns the losses by name, to be added up, and the targets that were used. A loss's value
    is that of the whole batch over all processes; its gradient is scaled so that averaging it over
    processes, as DDP does, is right.
    """

    def __init__(
        self,
        reading: Part,
        element: Element,
        terms: Mapping[str, Part] | None = None,
        reduction: Reduction = batch_mean,
    ) -> None:
        super().__init__()
        self.reading = reading
        self.element = element
        self.terms = nn.ModuleDict(dict(terms or {}))
        self.reduction = reduction
        self._parts = [module for module in self.modules() if isinstance(module, Part)]
        self._expecting = [part for part in self._parts if type(part).expect is not Part.expect]

    def parts(self) -> list[Part]:
        """Every part once, those inside other parts included, in a fixed order."""
        return self._parts

    @property
    def needs(self) -> Needs:
        """What a step must hold for this method."""
        merged = Needs()
        for part in self.parts():
            merged = merged | part.needs
        return merged

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

    def forward(self, step: Step) -> tuple[dict[str, Tensor], Targets]:
        """The losses of a step by name, and the targets they used."""
        logits = at_least_float32(step.outputs[0].logits)
        valid = step.valid
        targets = self.reading(step)
        losses = self.element(logits, targets.value, step.observed) * targets.weight * valid[:, None]
        named = {"labels": self.reduction(losses, valid, targets.weight)}
        for name, term in self.terms.items():
            named[name] = term(step)
        return named, targets

    @torch.no_grad()
    def observe(self, step: Step, targets: Targets) -> None:
        """Let every part remember the step; after the optimiser has moved."""
        for part in self.parts():
            part.observe(step, targets)

    def expect(self, rows: Tensor) -> None:
        """Tell the parts that want to know which rows come soon."""
        for part in self._expecting:
            part.expect(rows)

    def survey(self, steps: Survey) -> None:
        """Show the training set to the parts that asked for it; ``steps`` starts a pass over rows."""
        for part in self.parts():
            if part.needs.survey:
                part.survey(steps)

    def memories(self) -> dict[str, Memory]:
        """The large memories of all parts by a name that is stable over runs."""
        return {
            f"{name}.{key}": memory
            for name, part in self.named_modules()
            if isinstance(part, Part)
            for key, memory in part.memories().items()
        }

    def estimates(self) -> Tensor | None:
        """(n, L) The method's own belief about the training labels, if it keeps one."""
        return next((e for part in self.parts() if (e := part.estimates()) is not None), None)

    def remembered(self, rows: Tensor) -> dict[str, Tensor]:
        """What all parts remember about some rows, by name."""
        return {name: value for part in self.parts() for name, value in part.remembered(rows).items()}


def at_least_float32(logits: Tensor) -> Tensor:
    """Losses are computed in float32 or better, also under mixed precision."""
    return logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
