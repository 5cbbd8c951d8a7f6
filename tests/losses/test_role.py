"""ROLE's label estimates: the authors' numbers, and the dense Adam that the lazy one stands for."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from sparselabel.data.labels import NEGATIVE, POSITIVE, UNKNOWN
from sparselabel.errors import RunError
from sparselabel.losses.base import ComposedLoss, LossPart, TargetLoss
from sparselabel.losses.memory import row_store as keeping
from sparselabel.losses.memory.row_store import FileRowStore
from sparselabel.losses.role import (
    EstimatesLoss,
    LabelEstimates,
    RoleTargets,
    carried_logits,
    estimates_gradient,
    initial_logits,
    uniform_draws,
)
from sparselabel.losses.step import Layout, Progress, Step
from sparselabel.models.classifier import Output
from tests.conftest import Golden

K = 1.5
ROLE_CASES = [f"cole/role_k{k}_s{s}" for k in (1.5, 2.9) for s in range(4)]


class ExpectedPositives(LossPart):
    """½R_k of the classifier's scores."""

    def __init__(self, expected: float) -> None:
        super().__init__()
        self.expected = expected

    def forward(self, step: Step) -> Tensor:
        scores = step.outputs[0].logits.sigmoid()[step.rows >= 0]
        return 0.5 * ((scores.sum(1).mean() - self.expected) / scores.shape[1]) ** 2


def layout(observed: Tensor, rows: Tensor | None = None, **more: Any) -> Layout:
    owned = torch.arange(len(observed)) if rows is None else rows
    return Layout(owned, observed, total=len(observed), **more)


def make_step(rows: Tensor, observed: Tensor, logits: Tensor, rate: float = 0.01) -> Step:
    return Step(rows, observed, (Output(logits),), (), Progress(0, 1, 0, rate))


def make_estimates(
    table: Layout, dtype: torch.dtype = torch.float64, expected: float = K, **more: float
) -> LabelEstimates:
    beliefs = LabelEstimates(expected, **more)
    beliefs.dtype = dtype
    beliefs.prepare(table)
    return beliefs


@torch.no_grad()
def logits_of(beliefs: LabelEstimates, rows: Tensor) -> Tensor:
    """(B, L) The logits φ of rows, up to date; rows of -1 get 0."""
    return beliefs._look_up(rows)[-1]


def with_logits(beliefs: LabelEstimates, logits: Tensor) -> LabelEstimates:
    everyone = torch.arange(len(logits))
    beliefs.lines.write(everyone, F.pad(logits.to(beliefs.dtype), (0, 2 * logits.shape[1])))
    return beliefs


def role_losses(
    logits: Tensor,
    estimates: Tensor,
    positive: Tensor,
    expected: float,
    *,
    epsilon: float,
    weight: float = 1.0,
) -> Tensor:
    """The paper's loss in float64, with the authors' ε inside the logarithms."""
    f, y = logits.sigmoid(), estimates.sigmoid()

    def half(one: Tensor, other: Tensor) -> Tensor:
        match = -other * (one + epsilon).log() - (1 - other) * (1 - one + epsilon).log()
        known = -weight * positive * (one + epsilon).log()
        spread = (one.sum(1).mean() - expected) / one.shape[1]
        return (match + known).mean() + spread**2

    return (half(f, y.detach()) + half(y, f.detach())) / 2


def backward(loss: Tensor) -> None:
    loss.backward()  # type: ignore[no-untyped-call]


def gradient(of: Tensor) -> Tensor:
    assert of.grad is not None
    return of.grad


def from_golden(case: dict[str, Any]) -> tuple[Tensor, Tensor, Tensor]:
    """Logits, estimates' logits, observed labels in our coding (theirs: 0 is unknown)."""
    observed = torch.from_numpy(np.where(case["inputs"]["labels"] == 1, POSITIVE, UNKNOWN).astype(np.int8))
    logits, estimates = (
        torch.from_numpy(case["inputs"][n]).double().requires_grad_() for n in ("logits", "est_logits")
    )
    return logits, estimates, observed


@pytest.mark.parametrize("name", ROLE_CASES)
def test_reference_has_the_authors_numbers(cole: Golden, name: str) -> None:
    case = cole.cases[name]
    logits, estimates, observed = from_golden(case)
    loss = role_losses(
        logits, estimates, observed == POSITIVE, case["hyper"]["expected_num_pos"], epsilon=1e-5
    )
    backward(loss)
    assert loss.item() == pytest.approx(case["values"]["loss64"], abs=1e-9)
    for ours, theirs in ((logits, "grad64"), (estimates, "grad_est_logits64")):
        np.testing.assert_allclose(gradient(ours).numpy(), case["outputs"][theirs], rtol=0, atol=1e-9)


@pytest.mark.parametrize("positive_weight", [1.0, 20.0])
@pytest.mark.parametrize("name", ROLE_CASES)
def test_losses_and_gradients_are_the_references_without_epsilon(
    cole: Golden, name: str, positive_weight: float
) -> None:
    case = cole.cases[name]
    logits, estimates, observed = from_golden(case)
    expected = case["hyper"]["expected_num_pos"]
    wanted = role_losses(
        logits, estimates, observed == POSITIVE, expected, epsilon=0.0, weight=positive_weight
    )
    backward(wanted)

    beliefs = make_estimates(layout(observed), expected=expected, positive_weight=positive_weight)
    with_logits(beliefs, estimates.detach())
    method = role(beliefs)
    ours = logits.detach().clone().requires_grad_()
    step = make_step(torch.arange(len(observed)), observed, ours)
    losses = method(step)
    loss = torch.stack(list(losses.values())).sum()
    backward(loss)
    assert loss.item() == pytest.approx(wanted.item(), abs=1e-12)
    assert torch.allclose(gradient(ours), gradient(logits), rtol=0, atol=1e-12)

    method.update(step)
    moments = beliefs.lines.read(torch.arange(len(observed))).view(len(observed), 3, -1)
    # m is a tenth of the first gradient
    assert torch.allclose(10 * moments[:, 1], gradient(estimates), rtol=0, atol=1e-12)


def role(beliefs: LabelEstimates) -> ComposedLoss:
    def entry_loss(logits: Tensor, target: Tensor, observed: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(logits, target, reduction="none")

    terms = {"estimates": EstimatesLoss(beliefs), "expected": ExpectedPositives(beliefs.expected)}
    return ComposedLoss(TargetLoss(RoleTargets(beliefs), entry_loss), terms)


def test_everything_is_finite_at_large_logits() -> None:
    observed = torch.tensor([[POSITIVE, NEGATIVE, UNKNOWN]], dtype=torch.int8).repeat(2, 1)
    beliefs = with_logits(make_estimates(layout(observed), torch.float32), torch.full((2, 3), -100.0))
    logits = torch.tensor([[-100.0] * 3, [100.0] * 3], requires_grad=True)
    method = role(beliefs)
    step = make_step(torch.arange(2), observed, logits)
    losses = method(step)
    backward(torch.stack(list(losses.values())).sum())
    method.update(step)
    assert gradient(logits).isfinite().all()
    assert all(loss.isfinite() for loss in losses.values())
    assert logits_of(beliefs, step.rows).isfinite().all()


def test_initial_logits_are_the_authors(cole: Golden) -> None:
    case = cole.cases["cole/label_estimator_init"]
    theirs = case["inputs"]["labels"]
    observed = np.select([theirs == 1, theirs == -1], [POSITIVE, NEGATIVE], UNKNOWN).astype(np.int8)
    ours = initial_logits(torch.from_numpy(observed), torch.from_numpy(case["inputs"]["uniform01"]))
    assert ours.dtype == torch.float32
    np.testing.assert_allclose(ours, case["outputs"]["logits"], rtol=0, atol=5e-7)


def test_carried_logits_are_the_authors(cole: Golden) -> None:
    case = cole.cases["cole/label_estimator_warm_start"]
    ours = carried_logits(torch.from_numpy(case["inputs"]["estimated_labels"]))
    np.testing.assert_allclose(ours, case["outputs"]["logits"], rtol=0, atol=1e-6)


def test_a_rows_draws_depend_on_the_seed_and_the_row_alone() -> None:
    everyone = uniform_draws(5, torch.arange(3000), 4)
    some = torch.tensor([0, 3, 1023, 1024, 1025, 2999])
    assert torch.equal(uniform_draws(5, some, 4), everyone[some])
    assert not torch.equal(uniform_draws(6, some, 4), everyone[some])
    assert len(np.unique(everyone.numpy())) > 11_900  # no block repeats another
    assert everyone.mean().item() == pytest.approx(0.5, abs=0.01)
    assert 0 <= everyone.min() < 0.001
    assert 0.999 < everyone.max() < 1


def test_first_estimates_do_not_depend_on_the_number_of_processes() -> None:
    observed = sparse_labels(50, 4)
    alone = make_estimates(layout(observed, seed=3)).estimates()
    half = torch.arange(1, 50, 2)
    assert torch.equal(make_estimates(layout(observed[half], half, seed=3)).estimates(), alone[half])
    unknown = alone[observed == UNKNOWN]
    assert ((unknown >= 0.4) & (unknown <= 0.6)).all()
    assert torch.allclose(alone[observed == POSITIVE], torch.tensor(0.995, dtype=torch.float64))
    assert torch.allclose(alone[observed == NEGATIVE], torch.tensor(0.005, dtype=torch.float64))


def sparse_labels(count: int, classes: int) -> Tensor:
    """One positive per image, some negatives."""
    generator = torch.Generator().manual_seed(1)
    observed = torch.full((count, classes), UNKNOWN, dtype=torch.int8)
    observed[torch.rand(count, classes, generator=generator) < 0.1] = NEGATIVE
    observed[torch.arange(count), torch.randint(classes, (count,), generator=generator)] = POSITIVE
    return observed


def training(observed: Tensor, epochs: int, batch: int, dtype: torch.dtype) -> Iterator[Step]:
    """Shuffled epochs with a cosine schedule; the scores of a stand-in for the classifier."""
    count = len(observed)
    generator = torch.Generator().manual_seed(2)
    steps = epochs * count // batch
    done = 0
    for _ in range(epochs):
        for chosen in torch.randperm(count, generator=generator).view(-1, batch):
            logits = torch.randn(len(chosen), observed.shape[1], generator=generator, dtype=torch.float64)
            rate = 0.01 * 0.5 * (1 + math.cos(math.pi * done / steps))  # φ's is ten times that
            done += 1
            yield make_step(chosen, observed[chosen], (2 * logits - 1).to(dtype), rate)


def run(beliefs: LabelEstimates, steps: Iterator[Step] | list[Step]) -> None:
    for step in steps:
        beliefs.update(step)


COUNT, CLASSES, BATCH = 2400, 6, 8
EPOCH = COUNT // BATCH


def dense_adam(observed: Tensor, gradients: list[Tensor] | None = None) -> list[Tensor]:
    """φ after each of 3 epochs of torch's Adam over all rows in float64; gradients by autograd, or given."""
    phi = logits_of(make_estimates(layout(observed, seed=7)), torch.arange(COUNT)).requires_grad_()
    adam = torch.optim.Adam([phi])
    after = []
    for number, step in enumerate(training(observed, 3, BATCH, torch.float64)):
        adam.param_groups[0]["lr"] = 10 * step.progress.lr
        if gradients is None:
            adam.zero_grad()
            positive = step.observed == POSITIVE
            backward(role_losses(step.outputs[0].logits, phi[step.rows], positive, K, epsilon=0.0))
        else:
            phi.grad = torch.zeros_like(phi).index_copy_(0, step.rows, gradients[number].double())
        adam.step()
        if (number + 1) % EPOCH == 0:
            after.append(phi.detach().clone())
    return after


@pytest.fixture(scope="module")
def dense() -> list[Tensor]:
    return dense_adam(sparse_labels(COUNT, CLASSES))


def test_lazy_adam_is_dense_adam(dense: list[Tensor]) -> None:
    observed = sparse_labels(COUNT, CLASSES)
    beliefs = make_estimates(layout(observed, seed=7))
    start = logits_of(beliefs, torch.arange(COUNT))
    steps = list(training(observed, 3, BATCH, torch.float64))
    for epoch, wanted in enumerate(dense):
        run(beliefs, steps[epoch * EPOCH : (epoch + 1) * EPOCH])
        ours = logits_of(beliefs, torch.arange(COUNT))
        assert (ours - wanted).abs().max() <= 1e-7
        assert torch.allclose(ours.sigmoid(), beliefs.estimates(), rtol=0, atol=1e-14)
        assert (wanted - start).abs().mean() > 0.3  # there was something to get wrong


def test_lazy_adam_in_float32(dense: list[Tensor], monkeypatch: pytest.MonkeyPatch) -> None:
    # Where ỹ − f is nearly 0 Adam turns its rounding error into a large step: torch's own dense Adam in
    # float32 ends 7e-4 away from itself in float64 at one of the 14,400 entries. So the strict comparison is
    # one on the same gradients, and the free one looks at nearly all entries.
    gradients = []

    def recorded(*numbers: Any, **more: Any) -> Tensor:
        gradients.append(estimates_gradient(*numbers, **more))
        return gradients[-1].clone()

    monkeypatch.setattr("sparselabel.losses.role.estimates_gradient", recorded)
    observed = sparse_labels(COUNT, CLASSES)
    beliefs = make_estimates(layout(observed, seed=7), torch.float32)
    run(beliefs, training(observed, 3, BATCH, torch.float32))
    ours = logits_of(beliefs, torch.arange(COUNT)).double()
    assert (ours - dense_adam(observed, gradients)[-1]).abs().max() <= 1e-5
    assert ((ours - dense[-1]).abs() <= 1e-4).double().mean() > 0.999


def test_skipping_the_replay_would_be_another_method(
    dense: list[Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    observed = sparse_labels(COUNT, CLASSES)
    monkeypatch.setattr(LabelEstimates, "_up_to_date", plain_read)
    beliefs = make_estimates(layout(observed, seed=7))
    run(beliefs, training(observed, 3, BATCH, torch.float64))
    assert (logits_of(beliefs, torch.arange(COUNT)) - dense[-1]).abs().mean() > 0.3


def plain_read(beliefs: LabelEstimates, local_index: Tensor) -> Tensor:
    return beliefs.lines.read(local_index).view(len(local_index), 3, beliefs.classes)


def test_a_file_gives_the_same_numbers_as_ram(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    observed = sparse_labels(96, 5)
    in_ram = make_estimates(layout(observed, folder=tmp_path), torch.float32)
    run(in_ram, training(observed, 8, 8, torch.float32))
    in_file = in_a_file(observed, tmp_path, monkeypatch)
    run(in_file, training(observed, 8, 8, torch.float32))
    assert (tmp_path / "label-estimates-0-of-1.rows").is_file()
    everyone = torch.arange(96)
    assert torch.equal(in_file.lines.read(everyone), in_ram.lines.read(everyone))
    for beliefs in (in_ram, in_file):
        beliefs.begin_phase()
    assert torch.equal(in_file.estimates(), in_ram.estimates())


def in_a_file(observed: Tensor, folder: Path, monkeypatch: pytest.MonkeyPatch) -> LabelEstimates:
    with monkeypatch.context() as patch:
        defaults = {**(keeping.make_row_store.__kwdefaults__ or {}), "memory": lambda: 0}
        patch.setattr(keeping.make_row_store, "__kwdefaults__", defaults)
        beliefs = make_estimates(layout(observed, folder=folder), torch.float32)
    assert isinstance(beliefs.lines, FileRowStore)
    return beliefs


@pytest.mark.parametrize("kind", ["ram", "file"])
def test_resuming_is_bit_for_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    observed = sparse_labels(80, 5)
    steps = list(training(observed, 50, 8, torch.float32))  # 500 steps: the table has grown

    def fresh() -> ComposedLoss:
        if kind == "file":
            return role(in_a_file(observed, tmp_path, monkeypatch))
        return role(make_estimates(layout(observed), torch.float32))

    def go(method: ComposedLoss, part: list[Step]) -> None:
        for step in part:
            method(step)
            method.update(step)

    method = fresh()
    go(method, steps[:333])
    weights = method.state_dict()
    states = {
        name: {key: value.clone() for key, value in memory.state().items()}
        for name, memory in method.row_stores().items()
    }
    assert list(states) == ["label_loss.rule.beliefs.lines", "label_loss.rule.beliefs.clock"]
    for memory in method.row_stores().values():
        memory.on_checkpoint_saved()
    go(method, steps[333:])
    wanted = [memory.state() for memory in method.row_stores().values()]
    estimates = method.estimates()
    assert estimates is not None

    again = fresh()
    again.load_state_dict(weights)
    for name, memory in again.row_stores().items():
        memory.restore(states[name])
    go(again, steps[333:])
    found = [memory.state() for memory in again.row_stores().values()]
    assert all(torch.equal(w[key], f[key]) for w, f in zip(wanted, found, strict=True) for key in w)
    assert torch.equal(estimates, again.estimates())  # type: ignore[arg-type]


def test_a_checkpoint_of_other_rows_is_refused() -> None:
    clock = make_estimates(layout(sparse_labels(10, 3))).clock
    with pytest.raises(RunError, match="estimates of 10 rows, and this process has 12"):
        make_estimates(layout(sparse_labels(12, 3))).clock.restore(clock.state())


def test_reading_estimates_in_between_changes_nothing() -> None:
    observed = sparse_labels(64, 4)
    quiet, curious = (make_estimates(layout(observed), torch.float32) for _ in range(2))
    for step in training(observed, 5, 8, torch.float32):
        curious.estimates()
        logits_of(curious, torch.arange(20))
        run(quiet, [step])
        run(curious, [step])
    assert torch.equal(quiet.estimates(), curious.estimates())


def test_a_new_phase_keeps_the_beliefs_and_begins_a_new_adam() -> None:
    observed = sparse_labels(64, 4)
    beliefs = make_estimates(layout(observed))
    run(beliefs, training(observed, 3, 8, torch.float64))
    everyone = torch.arange(64)
    with_logits(beliefs, torch.where(observed == POSITIVE, 30.0, logits_of(beliefs, everyone)))
    before = beliefs.estimates()
    beliefs.begin_phase()
    after = beliefs.estimates()
    assert (after[observed == POSITIVE] - (1 - 1e-5)).abs().max() < 1e-12
    assert (after - before)[observed != POSITIVE].abs().max() < 1e-12
    # the first step of an Adam moves by its whole learning rate, whatever the gradient
    steps = list(training(observed, 1, 8, torch.float64))
    run(beliefs, steps[:1])
    moved = (logits_of(beliefs, everyone) - carried_logits(after)).abs()
    assert moved[steps[0].rows].median().item() == pytest.approx(0.1, rel=1e-3)
    untouched = torch.ones(64, dtype=torch.bool).index_fill(0, steps[0].rows, False)
    assert moved[untouched].max() < 1e-9


def test_padding_counts_for_nothing() -> None:
    observed = sparse_labels(6, 4)
    logits = torch.randn(4, 4, dtype=torch.float64)
    plain, padded = (role(make_estimates(layout(observed))) for _ in range(2))
    chosen = torch.tensor([4, 1])
    short = make_step(chosen, observed[chosen], logits[[0, 2]])
    spread = torch.tensor([4, -1, 1, -1])
    long = make_step(spread, observed[spread], logits)
    wanted, found = plain(short), padded(long)
    assert found["labels"].item() == pytest.approx(wanted["labels"].item(), abs=1e-14)
    assert found["estimates"].item() == pytest.approx(wanted["estimates"].item(), abs=1e-14)
    for _ in range(3):
        plain.update(short)
        padded.update(long)
    assert torch.equal(plain.estimates(), padded.estimates())  # type: ignore[arg-type]


def test_a_process_without_rows_keeps_time() -> None:
    beliefs = make_estimates(layout(torch.empty(0, 4, dtype=torch.int8)))
    padding = torch.tensor([-1, -1])
    run(beliefs, [make_step(padding, torch.full((2, 4), UNKNOWN), torch.zeros(2, 4))])
    assert beliefs.clock.step == 1
    assert beliefs.estimates().shape == (0, 4)
    assert logits_of(beliefs, padding).tolist() == [[0.0] * 4] * 2


def test_a_step_is_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    observed = sparse_labels(8, 4)
    beliefs = make_estimates(layout(observed))
    method = role(beliefs)
    asked = []
    read = beliefs.lines.read

    def counted(local_index: Tensor) -> Tensor:
        asked.append(len(local_index))
        return read(local_index)

    monkeypatch.setattr(beliefs.lines, "read", counted)
    for _ in range(2):
        step = make_step(torch.arange(8), observed, torch.zeros(8, 4, dtype=torch.float64))
        method(step)
        method.update(step)
    assert asked == [8, 8]


def test_targets_of_known_and_unknown_labels() -> None:
    observed = torch.tensor([[POSITIVE, NEGATIVE, UNKNOWN]], dtype=torch.int8)
    beliefs = with_logits(make_estimates(layout(observed), positive_weight=3.0), torch.zeros(1, 3))
    step = make_step(torch.tensor([0]), observed, torch.zeros(1, 3, dtype=torch.float64))
    targets = RoleTargets(beliefs)(step)
    assert targets.value.tolist() == [[(0.5 + 3) / 4, 0, 0.5]]
    assert targets.weight.tolist() == [[2, 1, 0.5]]


def test_statistics_are_those_of_all_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    observed = sparse_labels(8, 4)
    logits = torch.randn(8, 4, dtype=torch.float64)
    whole = make_estimates(layout(observed))
    run(whole, [make_step(torch.arange(8), observed, logits)])

    mine, others = torch.arange(0, 8, 2), torch.arange(1, 8, 2)
    half = make_estimates(layout(observed[mine], mine))
    elsewhere = make_estimates(layout(observed[others], others)).estimates().sum()
    monkeypatch.setattr("sparselabel.losses.role.all_reduce_sum", lambda positives: positives + elsewhere)
    monkeypatch.setattr("sparselabel.losses.step.all_reduce_sum", lambda count: count + 4)
    monkeypatch.setattr("sparselabel.losses.step.is_alone", lambda: False)
    run(half, [make_step(mine, observed[mine], logits[mine])])
    everyone = whole.lines.read(mine)
    assert torch.allclose(half.lines.read(torch.arange(4)), everyone, rtol=1e-12, atol=1e-15)
