"""ROLE: an estimate of every label of every training image, learned together with the classifier.

Cole et al., "Multi-Label Learning from Single Positive Labels" (2021), §5.4 and §6.1. The beliefs are ỹ =
σ(φ) with one logit φ per image and class, updated by their own dense Adam, in which momentum moves an image's
row in every step, whether or not it is in the batch: most of φ's motion. Here a row is updated when it is
next read: the missed steps are replayed, each with its learning rate. So the cost of a step does not depend
on the number of images.

    m, v after j steps without gradient:  m·β₁ʲ, v·β₂ʲ
    their motion of φ:                    −m · Σⱼ rⱼ / (√v + eⱼ),  at step t = last touch + j
    with                                  rⱼ = ηₜ·√(1−β₂ᵗ)/(1−β₁ᵗ) · (β₁/√β₂)ʲ,  eⱼ = ε·√(1−β₂ᵗ) · β₂^(−j/2)

Each term is a tenth smaller than the one before, so terms below rounding are not replayed.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from sparselabel.data.labels import NEGATIVE, POSITIVE
from sparselabel.distributed import all_reduce_sum
from sparselabel.errors import RunError
from sparselabel.losses.base import (
    ComposedLoss,
    LossPart,
    Needs,
    TargetLoss,
    TargetRule,
    Targets,
    cross_entropy,
)
from sparselabel.losses.epr import CountPenalty
from sparselabel.losses.memory.row_store import make_row_store, stack_row_stores
from sparselabel.losses.registry import register
from sparselabel.losses.setting_checks import Expected, checked_count, not_negative
from sparselabel.losses.step import Layout, Memory, Step

BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8  # torch.optim.Adam's defaults
REPLAYED = {torch.float32: 160, torch.float64: 256}  # .9^160 is 5e-8, half of float32's last digit
LONGEST = max(REPLAYED.values())
BETAS = torch.tensor([BETA_1, BETA_2], dtype=torch.float64)
RATIOS = torch.tensor([[[BETA_1]], [[1.0]]], dtype=torch.float64) / math.sqrt(BETA_2)
FACTORS = RATIOS ** torch.arange(1, LONGEST + 1)  # (2, 1, j) of r and e, j steps after a touch
ONE, HALF = torch.tensor(1.0), torch.tensor(0.5)  # torch converts a Python number in every operation
CLIP = 1e-5
RATE_FACTOR = 10.0  # learning rate of the estimates, as a multiple of the classifier's
BLOCK = 1024  # rows that share one random generator
CHUNK_NUMBERS = 2**21  # what a replay over all rows holds at once


def logit(probability: float) -> float:
    """The inverse of the sigmoid function."""
    return math.log(probability / (1 - probability))


def initial_logits(observed: Tensor, uniform: Tensor) -> Tensor:
    """φ before training (Cole 2021 §6.1): .995 for a positive, .005 for a negative, else ``uniform`` in .4 to
    .6.
    """
    logits = logit(0.6) * (2 * uniform - 1)
    logits = torch.where(observed == POSITIVE, logit(0.995), logits)
    return torch.where(observed == NEGATIVE, logit(0.005), logits)


def carried_logits(probabilities: Tensor) -> Tensor:
    """φ at the start of a new phase: the beliefs of the one before, kept away from 0 and 1."""
    return probabilities.clamp(CLIP, 1 - CLIP).logit()


def uniform_draws(seed: int, rows: Tensor, classes: int) -> Tensor:
    """(n, classes) Numbers in 0..1 for sorted ``rows``, which depend on the row and the seed alone."""
    numbers = rows.numpy()
    drawn = np.empty((len(numbers), classes), dtype=np.float32)
    for block in np.unique(numbers // BLOCK):
        here = slice(*np.searchsorted(numbers, (block * BLOCK, (block + 1) * BLOCK)))
        generator = np.random.Generator(np.random.Philox(key=np.array([seed, block], dtype=np.uint64)))
        drawn[here] = generator.random((BLOCK, classes), dtype=np.float32)[numbers[here] - block * BLOCK]
    return torch.from_numpy(drawn)


def estimates_gradient(
    logits: Tensor,
    scores: Tensor,
    positive: Tensor,
    *,
    size: float,
    surplus: Tensor,
    weight: float,
    positive_weight: float,
) -> Tensor:
    """(b, L) The gradient for φ of its side of ROLE: ½[(ỹ−f) + w₊·[z=1]·(ỹ−1)]/(B·L) + ½·dR_k/dφ.

    ``positive`` is [z=1], ``size`` is B, the rows of the batch in all processes, ``surplus`` is k̂−k, and
    ``weight`` is λ.
    """
    classes = logits.shape[-1]
    beliefs, doubts = logits.sigmoid(), logits.neg().sigmoid_()
    pull = (beliefs - scores).addcmul_(positive, doubts, value=-positive_weight)
    slopes = beliefs.mul_(doubts).mul_(surplus[..., None, None])
    return pull.add_(slopes, alpha=2 * weight / classes).div_(2 * size * classes)


class Clock(Memory):
    """The step count of the estimates' Adam, the rates of its steps, and when each row was last updated.

    ``touched`` (n,) is the step of a row's last touch, 0 for never. Column t of the table is what
    step t does to a row without gradient: η·√(1−β₂ᵗ)/(1−β₁ᵗ), ε·√(1−β₂ᵗ). Steps to come do nothing: 0, 1.
    Of runs side by side ``touched`` is (R, n) and the table (2, R, steps), as their learning rates differ.
    """

    by_row = ("touched",)

    def __init__(self, rows: int) -> None:
        self.touched = torch.zeros(rows, dtype=torch.int64)
        self._of_runs: Sequence[Clock] = ()
        self.restart()

    def restart(self) -> None:
        """A new phase: no steps, no touched rows."""
        self.touched.zero_()
        self.step = 0
        self._table = _steps_to_come(2 * LONGEST)

    @staticmethod
    def stack(clocks: "Sequence[Clock]") -> "Clock":
        """One clock for runs side by side, of which their own are views."""
        stacked = Clock(0)
        stacked.touched = torch.stack([clock.touched for clock in clocks])
        stacked._table = torch.stack([clock._table for clock in clocks], dim=1)
        stacked._of_runs = clocks
        for clock, touched in zip(clocks, stacked.touched, strict=True):
            clock.touched = touched
        return stacked

    def tick(self, rate: float | Tensor) -> tuple[float, float]:
        """Count a step of this learning rate; returns 1−β₁ᵗ and √(1−β₂ᵗ)."""
        self.step += 1
        if self.step + LONGEST + 1 >= self._table.shape[-1]:
            more = _steps_to_come(self._table.shape[-1])
            more = more if self._table.ndim == 2 else more[:, None].expand(-1, len(self.touched), -1)
            self._table = torch.cat([self._table, more], dim=-1)
        first, second = 1 - BETA_1**self.step, math.sqrt(1 - BETA_2**self.step)
        self._table[0, ..., self.step] = rate * second / first
        self._table[1, ..., self.step] = EPSILON * second
        for run, clock in enumerate(self._of_runs):
            clock.step, clock._table = self.step, self._table[:, run]
        return first, second

    def after(self, touched: Tensor, steps: int) -> Tensor:
        """(2, b, steps) r and e of the steps that follow ``touched`` (b,); r is 0 for steps to come."""
        windows = self._table.unfold(-1, steps, 1)
        if touched.ndim == 1:
            return windows[:, touched + 1].mul_(FACTORS[..., :steps])
        runs = torch.arange(len(touched))[:, None]
        return windows[:, runs, touched + 1].mul_(FACTORS[:, None, :, :steps])

    def state(self) -> dict[str, Tensor]:
        return {"touched": self.touched, "table": self._table[:, : self.step + 1].clone()}

    def restore(self, state: dict[str, Tensor]) -> None:
        if state["touched"].shape != self.touched.shape:
            held = f"{len(state['touched']):,} rows, and this process has {len(self.touched):,}"
            raise RunError(f"the checkpoint has estimates of {held}: resume with the same data")
        self.touched.copy_(state["touched"])
        self.step = state["table"].shape[1] - 1
        self._table = torch.cat([state["table"], _steps_to_come(self.step + 2 * LONGEST)], dim=1)


class Current(NamedTuple):
    """The estimates of a step's rows, up to date; b of its B rows are not padding."""

    step: Step
    real: Tensor | slice  # their positions in the batch
    local_index: Tensor  # (b,) positions in the memory
    lines: Tensor  # (b, 3, L) φ, m and v
    logits: Tensor  # (B, L) φ on the model's device, 0 for padding
    beliefs: Tensor  # (B, L) ỹ there
    scores: Tensor  # (B, L) f there, without gradient
    positive: Tensor  # (B, L) [z=1] there, as numbers
    surplus: Tensor  # the paper's k̂ − k; k̂ is the mean Σỹ over all processes


class LabelEstimates(LossPart):
    """The memory that ``RoleTargets`` and ``EstimatesLoss`` share: φ (n, L) with its Adam.

    ``expected`` is the number of positives per image, the paper's k, and ``weight`` its λ. The observed
    positives' term has ``positive_weight``: 1 as in the authors' code, L as in the paper's equation. φ's
    learning rate is ``RATE_FACTOR`` times the classifier's.
    """

    needs = Needs(lr=True)
    dtype = torch.float32
    side_by_side = True

    def __init__(self, expected: float, *, weight: float = 1.0, positive_weight: float = 1.0) -> None:
        super().__init__()
        self.expected = expected
        self.weight = not_negative("count_weight", weight)
        self.positive_weight = not_negative("positive_weight", positive_weight)
        self._current: Current | None = None

    def prepare(self, layout: Layout) -> None:
        """Allocate the estimates; they are drawn when first read."""
        self.layout = layout
        self.classes = layout.observed.shape[1]
        self._rows_at_once = max(1, CHUNK_NUMBERS // (LONGEST * self.classes))
        count = len(layout.rows)
        self.clock = Clock(count)

        def initial(local_index: Tensor) -> Tensor:
            uniform = uniform_draws(layout.seed, layout.rows[local_index], self.classes)
            logits = initial_logits(layout.observed[local_index], uniform.to(self.dtype))
            return F.pad(logits, (0, 2 * self.classes))

        width = 3 * self.classes
        self.lines = make_row_store("label-estimates", layout, width, initial, dtype=self.dtype)

    def stack(self, parts: "Sequence[LabelEstimates]") -> None:
        self.lines = stack_row_stores([part.lines for part in parts])
        self.clock = Clock.stack([part.clock for part in parts])

    def row_stores(self) -> dict[str, Memory]:
        return {"lines": self.lines, "clock": self.clock}

    def current(self, step: Step) -> Current:
        """The estimates of the step's rows, looked up once per step."""
        if self._current is None or self._current.step is not step:
            real, local_index, lines, logits = self._look_up(step.rows)
            of_model = step.outputs[0].logits.detach()
            logits = logits.to(of_model.device)
            beliefs = logits.sigmoid()
            positives = all_reduce_sum((beliefs[real] if step.padded else beliefs).sum((-2, -1)))
            self._current = Current(
                step=step,
                real=real,
                local_index=local_index,
                lines=lines,
                logits=logits,
                beliefs=beliefs,
                scores=of_model.to(self.dtype).sigmoid(),
                positive=(step.observed == POSITIVE).to(self.dtype),
                surplus=positives / step.size - self.expected,
            )
        return self._current

    def update(self, step: Step) -> None:
        """One step of Adam with the closed form of the gradient; other rows catch up when they are read."""
        current, self._current = self.current(step), None
        rate = RATE_FACTOR * step.progress.lr
        first, second = self.clock.tick(rate)
        real, lines = current.real, current.lines
        logits, mean, square = (lines.select(-2, number) for number in range(3))
        gradient = estimates_gradient(
            logits,
            current.scores.cpu()[real],
            current.positive.cpu()[real],
            size=float(step.size),
            surplus=current.surplus.cpu(),
            weight=self.weight,
            positive_weight=self.positive_weight,
        )
        mean.lerp_(gradient, 1 - BETA_1)
        square.lerp_(gradient.square_(), 1 - BETA_2)
        motion = mean / square.sqrt().div_(second).add_(EPSILON)
        logits.sub_(motion.mul_(rate[:, None, None] / first if isinstance(rate, Tensor) else rate / first))
        self.lines.write(current.local_index, lines.flatten(-2))
        self.clock.touched.scatter_(-1, current.local_index, self.clock.step)

    @torch.no_grad()
    def begin_phase(self) -> None:
        """Keep the beliefs and restart the Adam."""
        self._current = None
        for local_index in self.lines.chunks(self._rows_at_once):
            logits = carried_logits(self._up_to_date(local_index)[:, 0].sigmoid())
            self.lines.write(local_index, F.pad(logits, (0, 2 * self.classes)))
        self.clock.restart()

    @torch.no_grad()
    def estimates(self) -> Tensor:
        """(n, L) The beliefs ỹ about the labels of the layout's rows."""
        beliefs = torch.empty(len(self.layout.rows), self.classes, dtype=self.dtype)
        for local_index in self.lines.chunks(self._rows_at_once):
            beliefs[local_index] = self._up_to_date(local_index)[:, 0].sigmoid()
        return beliefs

    def _look_up(self, rows: Tensor) -> tuple[Tensor | slice, Tensor, Tensor, Tensor]:
        rows = rows.cpu()
        if bool((rows >= 0).all()):
            local_index = self.layout.local_index(rows)
            lines = self._up_to_date(local_index)
            return slice(None), local_index, lines, lines.select(-2, 0)
        real = rows >= 0
        local_index = self.layout.local_index(rows[real])
        lines = self._up_to_date(local_index)
        logits = torch.zeros(*rows.shape, self.classes, dtype=self.dtype)
        logits[real] = lines.select(-2, 0)
        return real, local_index, lines, logits

    def _up_to_date(self, local_index: Tensor) -> Tensor:
        """(b, 3, L) A copy of φ, m and v, with the steps since the rows' last touch replayed."""
        lines = self.lines.read(local_index).view(*local_index.shape, 3, self.classes)
        touched = self.clock.touched.gather(-1, local_index)
        if not touched.any():  # no momentum yet
            return lines
        logits, mean, square = (lines.select(-2, number) for number in range(3))
        steps = min(self.clock.step, REPLAYED[self.dtype])
        after = self.clock.after(touched, steps).to(self.dtype)
        inverse = (square.sqrt().unsqueeze(-2) + after[1].unsqueeze(-1)).reciprocal_()
        logits.addcmul_(mean, torch.matmul(after[0].unsqueeze(-2), inverse).squeeze(-2), value=-1)
        decays = BETAS ** (self.clock.step - touched).unsqueeze(-1)
        lines.narrow(-2, 1, 2).mul_(decays.to(self.dtype).unsqueeze(-1))
        return lines


def _steps_to_come(steps: int) -> Tensor:
    return torch.tensor([[0.0], [1.0]], dtype=torch.float64).repeat(1, steps)


class RoleTargets(TargetRule):
    """The classifier's side of ROLE: the beliefs as targets, pulled up for the observed positives.

    weight·BCE(f, value) = ½[BCE(f, ỹ) + w₊·[z=1]·(−log f)], which is Cole 2021 eq. 11 without its R_k. An
    observed negative is −log(1−f) at full weight (ours; the paper has none).
    """

    side_by_side = True

    def __init__(self, beliefs: LabelEstimates) -> None:
        super().__init__()
        self.beliefs = beliefs

    def forward(self, step: Step) -> Targets:
        current, extra = self.beliefs.current(step), self.beliefs.positive_weight
        # value = (ỹ + w₊z) / (1 + w₊z), weight = (1 + w₊z) / 2, with z = [observed positive]
        whole = torch.add(ONE, current.positive, alpha=extra)
        value = torch.add(current.beliefs, current.positive, alpha=extra).div_(whole)
        weight = whole.mul_(HALF)
        if self.beliefs.layout.has_negatives:
            negative = step.observed == NEGATIVE
            value.masked_fill_(negative, 0.0)
            weight.masked_fill_(negative, 1.0)
        return Targets(value, weight)


class EstimatesLoss(LossPart):
    """The estimates' side of ROLE, without gradient: ½[BCE(ỹ, f) + w₊·[z=1]·(−log ỹ)] + ½R_k(ỹ)."""

    side_by_side = True

    def __init__(self, beliefs: LabelEstimates) -> None:
        super().__init__()
        self.beliefs = beliefs

    def forward(self, step: Step) -> Tensor:
        """The loss of the whole batch over all processes."""
        beliefs, current = self.beliefs, self.beliefs.current(step)
        losses = F.binary_cross_entropy_with_logits(current.logits, current.scores, reduction="none")
        losses.addcmul_(current.positive, F.logsigmoid(current.logits), value=-beliefs.positive_weight)
        summed = all_reduce_sum((losses[current.real] if step.padded else losses).sum((-2, -1)))
        half_mean = summed / (2 * step.size * beliefs.classes)
        surplus, share = current.surplus, beliefs.weight / (2 * beliefs.classes**2)
        return torch.addcmul(half_mean, surplus, surplus, value=share)


@register(
    "role",
    needs=Needs(lr=True),
    keeps_entry_loss="its estimates are those of cross-entropy (Cole 2021 eq. 11)",
    keeps_past="its label estimates already follow what the model said before",
)
def role(
    expected_positives: Expected = None, count_weight: float = 1.0, positive_weight: float = 1.0
) -> ComposedLoss:
    """Regularized online label estimation: labels are estimated along with the classifier (Cole 2021 eq. 11).

    (L′(F|Ỹ) + L′(Ỹ|F))/2, each side held fixed for the other, with epr on both. The estimates Ỹ = σ(φ), one
    logit per entry, move by their own Adam at ten times the classifier's rate. Its updates equal the authors'
    dense Adam (momentum moves rows between visits too), at no cost for rows outside the batch. An observed
    negative counts as −log(1−f) at full weight (ours).

    Parameters
    ----------
    expected_positives
        K, the mean number of classes in an image.
    count_weight
        λ of the counts' terms.
    positive_weight
        Weight of observed positives: 1 as in the authors' code; L as in the paper's equation.
    """
    expected = checked_count(expected_positives)
    estimates = LabelEstimates(expected, weight=count_weight, positive_weight=positive_weight)
    terms = {"count": CountPenalty(expected, count_weight / 2), "estimates": EstimatesLoss(estimates)}
    return ComposedLoss(TargetLoss(RoleTargets(estimates), cross_entropy), terms)
