"""Another model's scores as evidence: weights by how well they rank what was observed, worked by hand."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from sparselabel.data.labels import NEGATIVE, POSITIVE, UNKNOWN
from sparselabel.errors import ConfigError, DataError
from sparselabel.losses.pu import AnnotationLikelihood
from sparselabel.losses.registry import make_method
from sparselabel.losses.score_prior import ScorePrior
from sparselabel.losses.sparse_loss import SparseLoss
from sparselabel.losses.step import Layout
from tests.losses.steps import after_one_epoch, build_method, make_step

Array = npt.NDArray[Any]
ROWS, CLASSES = 4000, 8


def labels(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Truth, and a third of its positives."""
    random = np.random.default_rng(seed)
    truth = random.random((ROWS, CLASSES)) < np.linspace(0.05, 0.3, CLASSES)
    seen = truth & (random.random(truth.shape) < 1 / 3)
    return torch.from_numpy(truth), torch.from_numpy(np.where(seen, POSITIVE, UNKNOWN).astype(np.int8))


def scores_of(truth: torch.Tensor, distance: float | Array, seed: int = 1) -> Array:
    """Noise of standard deviation 1, and ``distance`` more where a class is there."""
    return np.random.default_rng(seed).standard_normal(truth.shape) + distance * truth.numpy()


def fitted(scores: Array, truth: torch.Tensor, observed: torch.Tensor) -> ScorePrior:
    part = ScorePrior(scores)
    part.fit(Layout(torch.arange(len(observed)), observed, len(observed)), truth.sum(0))
    return part


def test_scores_of_known_quality_get_the_log_likelihood_ratio() -> None:
    truth, observed = labels()
    scores = scores_of(truth, 2.0)
    part = fitted(scores, truth, observed)
    # N(2, 1) against N(0, 1): log odds 2s − 2, though the scale is not known and most labels are not.
    got = part(torch.arange(ROWS)).numpy()
    assert not part.by_image  # with so few classes an image's mean is noise
    assert np.abs(got - (2 * scores - 2)).mean() < 0.2
    assert np.corrcoef(got.ravel(), scores.ravel())[0, 1] > 0.99
    assert part.auc == pytest.approx(0.86, abs=0.01)  # 0.92 among true negatives, which nobody knows


@pytest.mark.parametrize("seed", range(3))
def test_scores_of_chance_and_reversed_ones_count_for_nothing(seed: int) -> None:
    truth, observed = labels(seed)
    for scores in (scores_of(truth, 0.0, 10 + seed), scores_of(truth, -1.0)):
        part = fitted(scores, truth, observed)
        assert part(torch.arange(ROWS)).eq(0).all()
        assert "not used" in part.summary


def test_scores_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(DataError, match=r"no score .* is a number") as caught:
        ScorePrior(np.full((4, 2), np.nan, np.float32))
    assert caught.value.what == "scores"


def test_a_class_that_the_scorer_does_not_know_gets_no_weight() -> None:
    truth, observed = labels()
    part = fitted(scores_of(truth, np.asarray([2.0, 2, 2, 2, 2, 2, 2, 0])), truth, observed)
    assert part.weight[-1] < 0.2
    assert part.weight[:-1].min() > 1.3


def test_an_offset_of_images_is_taken_off_where_that_helps() -> None:
    truth, observed = labels()
    offset = 5 * np.random.default_rng(2).standard_normal((ROWS, 1))
    part = fitted(scores_of(truth, 2.0) + offset, truth, observed)
    assert part.by_image
    assert part.auc > 0.8  # 0.86 without the offset; 0.6 where it stays


def test_missing_scores_constant_classes_and_classes_without_labels_say_nothing() -> None:
    truth, observed = labels()
    scores = scores_of(truth, 2.0)
    scores[:5] = np.nan
    scores[:, 1] = 3.0
    observed[:, 2] = UNKNOWN
    observed[7, 3] = NEGATIVE
    got = fitted(scores, truth, observed)(torch.arange(ROWS))
    assert got.isfinite().all()
    assert got[:5].eq(0).all()
    assert got[:, 2].eq(0).all()
    part = fitted(np.where(np.arange(CLASSES) == 1, 3.0, np.nan) + 0 * scores, truth, observed)
    assert part(torch.arange(ROWS)).eq(0).all()


def test_parts_of_the_rows_in_any_order_get_the_same() -> None:
    truth, observed = labels()
    part = fitted(scores_of(truth, 1.0), truth, observed)
    rows = torch.tensor([9, 3, -1, 4])
    assert torch.equal(part(rows)[:2], part(torch.arange(10))[[9, 3]])
    assert torch.equal(part(rows.view(2, 2)).view(4, CLASSES), part(rows))


def test_pu_is_the_likelihood_of_annotations_and_scores() -> None:
    observed = torch.full((8, 2), UNKNOWN, dtype=torch.int8)
    observed[:2] = POSITIVE
    part = AnnotationLikelihood([4, 4], 1.0, 0.0, 0.0, np.zeros((8, 2)))
    part.prepare(Layout(torch.arange(8), observed, 8))
    assert part.prior is not None
    part.prior.register_buffer("mean", torch.zeros(2, dtype=torch.float64), persistent=False)
    part.prior.register_buffer("deviation", torch.ones(2, dtype=torch.float64), persistent=False)
    part.prior.register_buffer("weight", torch.tensor([0.7, 0.0], dtype=torch.float64), persistent=False)
    part.prior.register_buffer("offset", torch.tensor([-0.3, 0.0], dtype=torch.float64), persistent=False)
    part.prior.scores, part.prior.by_image = torch.full((8, 2), 2.0), False
    x = torch.tensor([[0.4, 0.4]], dtype=torch.float64)
    f, ratio = 1 / (1 + math.exp(-0.4)), math.exp(0.7 * 2 - 0.3)
    wanted = [-math.log(1 - f + f * 0.5 * ratio), -math.log(1 - 0.5 * f)]
    got = part(make_step(x, observed[7:], rows=torch.tensor([7]))).value[0]
    assert got.tolist() == pytest.approx(wanted, rel=1e-6)  # the ratio is kept in float32


def test_en_chooses_by_running_scores_and_evidence_together() -> None:
    observed = torch.full((40, 2), UNKNOWN, dtype=torch.int8)
    observed[:8, 0], observed[8:16, 1] = POSITIVE, POSITIVE
    scores = np.zeros((40, 2))
    scores[:8, 0], scores[8:16, 1], scores[30:32, 0] = 3.0, 3.0, 3.0
    scores += 0.01 * np.random.default_rng(0).standard_normal(scores.shape)
    logits = torch.zeros(40, 2, dtype=torch.float64)
    logits[20:22, 0] = 1.0  # a little likelier by the model
    for given, chosen in ((None, [20, 21]), (scores, [30, 31])):
        settings = {} if given is None else {"scores": given}
        method = build_method("en", observed, expected_positives=[10.0, 8.0], **settings)
        after_one_epoch(method, logits, observed, None)
        weight = method.label_loss.rule(make_step(logits, observed)).weight  # type: ignore[operator]
        assert torch.nonzero(weight[:, 0] == 0).flatten().tolist() == chosen


@pytest.mark.parametrize("method", ["pu", "en", "ep", "pu+cl", "en+asl"])
def test_scores_of_one_value_change_nothing(method: str) -> None:
    observed = labels()[1][:64]
    logits = torch.randn(64, CLASSES, generator=torch.Generator().manual_seed(0))
    losses = []
    for settings in ({}, {"scores": np.ones((64, CLASSES))}):
        made = build_method(method, observed, expected_positives=1.4, **settings)
        after_one_epoch(made, logits, observed, None)
        losses.append(made(make_step(logits, observed))["labels"])
    assert torch.equal(*losses)


def test_a_loop_of_ones_own_takes_them() -> None:
    truth, observed = labels()
    criterion = SparseLoss("pu", observed, expected_positives=1.4, scores=scores_of(truth, 2.0))
    criterion.set_epoch(0)
    logits = torch.zeros(4, CLASSES, requires_grad=True)
    criterion(logits, torch.arange(4)).backward()
    hidden = truth[:4] & (observed[:4] == UNKNOWN)
    assert logits.grad is not None
    assert logits.grad[hidden].mean() < logits.grad[~truth[:4]].mean()


@pytest.mark.parametrize(
    ("scores", "kind"),
    [
        ("scores.csv", ConfigError),
        (np.zeros((3, 2)), DataError),
        (np.zeros(4), DataError),
        (np.zeros((4, 2), dtype=bool), DataError),
    ],
)
def test_what_is_no_matrix_of_scores_is_refused(scores: Any, kind: type[Exception]) -> None:
    observed = torch.tensor([[1, -1]] * 4, dtype=torch.int8)
    with pytest.raises(kind) as error:
        make_method("pu", expected_positives=1.2, scores=scores).prepare(Layout(torch.arange(4), observed, 4))
    assert error.value.what == "scores"  # type: ignore[attr-defined]
