import warnings
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score

from sparselabel.errors import ConfigError, DataError, DataWarning
from sparselabel.metrics.average_precision import (
    Rule,
    average_precision,
    by_number_of_labels,
    mean_average_precision,
)
from tests.conftest import Golden

RULES: tuple[Rule, ...] = ("sklearn", "voc", "hits")
Array = npt.NDArray[Any]


@pytest.fixture(scope="module")
def metrics() -> Golden:
    return Golden("metrics")


def parts(case: dict[str, Any]) -> tuple[dict[str, Array], dict[str, Any]]:
    """The arrays of a golden case, by role, and its scalar values."""
    return case["inputs"] | case["outputs"], case["values"]


def quiet(scores: Array, labels: Array, rule: Rule = "sklearn", **reading: Any) -> Array:
    """Average precision of data that may have empty classes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        return average_precision(scores, labels, rule, **reading)


def as_ranked(scores: Array, order: Array) -> Array:
    """Scores without ties that rank the rows of each class as ``order`` (L, N) does."""
    ranked = np.empty(scores.shape)
    for index, rows in enumerate(order):
        ranked[rows, index] = -np.arange(len(rows))
    return ranked


@st.composite
def tied(draw: st.DrawFn, positives: int = 1) -> tuple[Array, Array]:
    """Scores of few different values, and labels with at least so many positives in each class."""
    rows, classes = draw(st.integers(2, 40)), draw(st.integers(1, 5))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    scores = random.integers(-draw(st.integers(0, 12)), 3, (rows, classes)) / 4
    labels = (random.random((rows, classes)) < draw(st.floats(0, 1))).astype(np.int8)
    labels[: min(positives, rows)] = 1
    return random.permuted(scores, axis=0), random.permuted(labels, axis=0)


# Falling order: + tied with - (the positive in the earlier row), then - + +.
HAND_SCORES = np.array([[3.0], [3.0], [2.0], [1.0], [0.0]])
HAND_LABELS = np.array([[1], [0], [0], [1], [1]])


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("sklearn", (1 / 2 + 2 / 4 + 3 / 5) / 3),
        ("hits", (1 + 2 / 4 + 3 / 5) / 3),
        ("voc", (1 + 3 / 5 + 3 / 5) / 3),
    ],
)
def test_values_worked_by_hand(rule: Rule, expected: float) -> None:
    assert average_precision(HAND_SCORES, HAND_LABELS, rule) == pytest.approx([expected], abs=1e-15)


def test_ties_keep_the_order_of_rows_in_hits_and_voc() -> None:
    random = np.random.default_rng(3)
    scores, labels = random.integers(0, 3, (500, 1)) / 2, random.random((500, 1)) < 0.1
    # Long ties, so that an unstable sort would show; sorted() is stable.
    order = sorted(range(500), key=lambda row: -scores[row, 0])
    ranked = as_ranked(scores, np.array([order]))
    for rule in RULES[1:]:
        assert average_precision(scores, labels, rule) == average_precision(ranked, labels, rule)
    assert average_precision(np.zeros((4, 1)), [[0], [0], [0], [1]], "hits").tolist() == [0.25]
    assert average_precision(np.zeros((4, 1)), [[1], [0], [0], [0]], "hits").tolist() == [1.0]


@given(tied())
def test_equals_sklearn_with_ties(data: tuple[Array, Array]) -> None:
    scores, labels = data
    expected = [average_precision_score(labels[:, i], scores[:, i]) for i in range(labels.shape[1])]
    assert average_precision(scores, labels) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_equals_sklearn_on_larger_data(dtype: type) -> None:
    random = np.random.default_rng(5)
    scores: Array = random.random((2000, 7)).astype(dtype)
    labels = random.random(scores.shape) < np.linspace(0.01, 0.9, 7)
    expected = [average_precision_score(labels[:, i], scores[:, i]) for i in range(7)]
    assert average_precision(scores, labels) == pytest.approx(expected, abs=1e-12)


@given(tied(), st.randoms(use_true_random=False))
def test_does_not_depend_on_the_order_of_rows_and_classes(data: tuple[Array, Array], random: Any) -> None:
    scores, labels = data
    rows, classes = list(range(len(scores))), list(range(scores.shape[1]))
    random.shuffle(rows)
    random.shuffle(classes)
    assert average_precision(scores[rows], labels[rows]) == pytest.approx(average_precision(scores, labels))
    for rule in RULES:
        shuffled = average_precision(scores[:, classes], labels[:, classes], rule)
        assert shuffled.tolist() == average_precision(scores, labels, rule)[classes].tolist()


@given(tied())
def test_only_the_order_of_scores_matters(data: tuple[Array, Array]) -> None:
    scores, labels = data
    for rule in RULES:
        values = average_precision(scores, labels, rule)
        for same in (3 * scores - 7, scores**3, np.exp(scores)):
            assert average_precision(same, labels, rule).tolist() == values.tolist()


@given(tied())
def test_a_perfect_ranking_has_one_and_the_envelope_is_never_below(data: tuple[Array, Array]) -> None:
    scores, labels = data
    hits, voc = (average_precision(scores, labels, rule) for rule in ("hits", "voc"))
    assert ((voc >= hits) & (voc <= 1) & (hits > 0)).all()
    for rule in RULES:
        assert average_precision(scores + 100.0 * labels, labels, rule).tolist() == [1.0] * labels.shape[1]


@given(tied(positives=0))
def test_unknown_ignored_is_the_data_without_it(data: tuple[Array, Array]) -> None:
    scores, labels = data
    labels = np.where(np.arange(labels.size).reshape(labels.shape) % 3 == 0, -1, labels)
    for rule in RULES:
        values = quiet(scores, labels, rule, unknown="ignore")
        for index in range(labels.shape[1]):
            kept = labels[:, index] >= 0
            if kept.any():
                alone = quiet(scores[kept, index, None], labels[kept, index, None], rule)
                assert values[index] == alone[0]
        negative = quiet(scores, np.maximum(labels, 0), rule)
        assert quiet(scores, labels, rule, unknown="negative").tolist() == negative.tolist()


def test_golden_cole(cole: Golden) -> None:
    cases = cole.of_kind("metric")
    assert len(cases) == 3
    for arrays, values in map(parts, cases):
        ap = quiet(arrays["scores"], arrays["labels"])
        assert ap == pytest.approx(arrays["ap"], abs=1e-12)
        assert 100 * mean_average_precision(ap, arrays["labels"]).mean == pytest.approx(values["map"])


@pytest.mark.parametrize("peer", ["hill", "asl", "csl"])
def test_golden_hits(metrics: Golden, peer: str) -> None:
    # Their denominators carry 1e-8, hence the tolerance.
    tie, plain = (parts(metrics.cases[f"{peer}/map{i}"]) for i in (0, 1))
    ap = quiet(plain[0]["scores"], plain[0]["labels"], "hits")
    assert ap == pytest.approx(plain[0]["ap"], abs=1e-7)
    assert 100 * mean_average_precision(ap, plain[0]["labels"]).mean == pytest.approx(
        plain[1]["map"], abs=1e-5
    )
    arrays = tie[0]
    stable = quiet(arrays["scores"], arrays["labels"], "hits")
    assert (stable >= arrays["ap_ties_worst"] - 1e-7).all()
    assert (stable <= arrays["ap_ties_best"] + 1e-7).all()
    ranked = quiet(as_ranked(arrays["scores"], arrays["order"]), arrays["labels"], "hits")
    assert ranked == pytest.approx(arrays["ap"], abs=1e-7)
    mean = mean_average_precision(ranked, arrays["labels"]).mean
    assert 100 * mean == pytest.approx(tie[1]["map"], abs=1e-5)


def test_golden_voc(metrics: Golden) -> None:
    for name, empty in (("q2l/voc_map0", []), ("q2l/voc_map2", [1])):
        arrays, _ = parts(metrics.cases[name])
        ap = quiet(arrays["scores"], arrays["labels"], "voc")
        theirs = arrays["ap_percent"] / 100
        assert np.flatnonzero(np.isnan(theirs)).tolist() == empty
        assert ap == pytest.approx(np.nan_to_num(theirs), abs=1e-12)
    arrays, values = parts(metrics.cases["q2l/voc_map1"])
    stable = 100 * average_precision(arrays["scores"], arrays["labels"], "voc")
    assert (stable >= arrays["ap_ties_worst"] - 1e-9).all()
    assert (stable <= arrays["ap_ties_best"] + 1e-9).all()
    ranked = 100 * average_precision(as_ranked(arrays["scores"], arrays["order"]), arrays["labels"], "voc")
    assert ranked == pytest.approx(arrays["ap_percent"], abs=1e-9)
    assert ranked.mean() == pytest.approx(values["map"])


@pytest.mark.parametrize(
    ("name", "rule", "mean", "tolerance"),
    [
        ("csl/map_partial", "hits", "map", 1e-7),
        ("mlcpl/partial_map0", "sklearn", "macro", 1e-6),  # computed in float32
        ("mlcpl/partial_map1", "sklearn", "macro", 1e-6),
    ],
)
def test_golden_partial_labels(metrics: Golden, name: str, rule: Rule, mean: str, tolerance: float) -> None:
    arrays, values = parts(metrics.cases[name])
    labels = np.nan_to_num(arrays["labels"], nan=-1)
    ap = quiet(arrays["scores"], labels, rule, unknown="ignore")
    positives, negatives = ((labels == value).any(axis=0) for value in (1, 0))
    # They leave out classes without positives or negatives (-1 or NaN) that are 0 or 1 with us.
    compared = arrays["ap"] >= 0
    assert compared.tolist() == (positives & negatives).tolist()
    assert ap[compared] == pytest.approx(arrays["ap"][compared], abs=tolerance)
    assert ap[compared].mean() == pytest.approx(values[mean] / (100 if mean == "map" else 1), abs=tolerance)
    assert ap[~compared].tolist() == positives[~compared].astype(float).tolist()


def test_empty_classes_count_zero_and_are_named_once() -> None:
    scores, labels = np.array([[0.1, 0.2, 0.3]] * 2), np.array([[0, 1, 0]] * 2)
    with pytest.warns(DataWarning, match=r"2 of 3 classes .* count(s)? as 0: 0, 2$") as caught:
        assert average_precision(scores, labels).tolist() == [0.0, 1.0, 0.0]
    assert len(caught) == 1
    assert caught[0].filename == __file__
    with pytest.warns(DataWarning, match="cat, dog$"):
        average_precision(scores, labels, classes=["cat", "cow", "dog"])


def test_means_say_how_empty_classes_count() -> None:
    labels = np.array([[1, 0, -1], [1, 1, 0]])
    summary = mean_average_precision([1.0, 0.5, 0.0], labels)
    assert (summary.mean, summary.mean_of_present, summary.present) == (0.5, 0.75, 2)
    nothing = mean_average_precision([0.0, 0.0], np.zeros((3, 2)))
    assert (nothing.mean, nothing.mean_of_present, nothing.present) == (0.0, None, 0)
    with pytest.raises(DataError, match=r"\(2,\) and \(2, 3\)"):
        mean_average_precision([1.0, 0.5], labels)


def test_by_number_of_labels() -> None:
    labels = np.array([[1, 0, 0, 0], [0, 1, 0, 0], [1, 1, 0, 0], [1, 1, 1, 1], [0, 0, 0, 0]])
    scores = np.array([[0.9, 0.9, 0, 0], [0.1, 0.2, 0, 0], [0, 0, 0, 0], [1, 1, 1, 1], [9, 9, 9, 9]])
    subsets = by_number_of_labels(scores, labels)
    assert list(subsets) == ["1", "2", "3", "4", "5", "6", "7+", "4+"]
    assert [subset.images for subset in subsets.values()] == [2, 1, 0, 1, 0, 0, 0, 1]
    one, two, three, more = (subsets[name].average_precision for name in ("1", "2", "3", "4+"))
    assert (one.mean, one.mean_of_present, one.present) == (0.375, 0.75, 2)
    assert (two.mean, two.mean_of_present, two.present) == (0.5, 1.0, 2)
    assert (three.mean, three.mean_of_present, three.present) == (0.0, None, 0)
    assert (more.mean, more.mean_of_present, more.present) == (1.0, 1.0, 4)


def test_many_labels_are_told_apart_up_to_seven() -> None:
    labels = np.tril(np.ones((9, 9), dtype=np.int8))
    subsets = by_number_of_labels(np.random.default_rng(0).random((9, 9)), labels)
    assert [subset.images for subset in subsets.values()] == [1, 1, 1, 1, 1, 1, 3, 6]
    assert [subset.average_precision.present for subset in subsets.values()] == [1, 2, 3, 4, 5, 6, 9, 9]


def test_by_number_of_labels_follows_the_rule() -> None:
    labels, scores = np.array([[1, 0], [0, 1]]), np.zeros((2, 2))
    assert by_number_of_labels(scores, labels)["1"].average_precision.mean == 0.5
    assert by_number_of_labels(scores, labels, "hits")["1"].average_precision.mean == 0.75
    with pytest.raises(DataError, match="number of labels is not known"):
        by_number_of_labels(scores, labels - 1)


def test_anything_numpy_reads_is_fine() -> None:
    expected = average_precision(HAND_SCORES, HAND_LABELS)
    for scores, labels in (
        (HAND_SCORES.tolist(), HAND_LABELS.tolist()),
        (torch.tensor(HAND_SCORES), torch.tensor(HAND_LABELS)),
        (torch.tensor(HAND_SCORES).float(), torch.tensor(HAND_LABELS).bool()),
        (HAND_SCORES.astype(np.uint8), HAND_LABELS.astype(np.float32)),
    ):
        assert average_precision(scores, labels).tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("scores", "labels", "message"),
    [
        ([0.1, 0.2], [1, 0], r"\(images, classes\).*\(2,\) and \(2,\)"),
        ([[0.1, 0.2]], [[1], [0]], r"\(1, 2\) and \(2, 1\)"),
        (np.empty((0, 2)), np.empty((0, 2)), r"at least one of each.*\(0, 2\)"),
        ([[0.1, 0.2], [0.3, float("nan")]], [[1, 1], [1, 1]], "row 1 of class 1 has nan"),
        ([[0.1, 0.2], [-float("inf"), 1]], [[1, 1], [1, 1]], "row 1 of class 0 has -inf"),
        ([[0.1, 0.2]], [[1, 2]], "labels must be 1, 0 or -1"),
        ([[0.1, 0.2]], [[1, -1]], r"1 of 2 labels are unknown \(-1\).*unknown=negative"),
        ([["a", "b"]], [[1, 0]], "real numbers"),
    ],
)
def test_refused(scores: Any, labels: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        average_precision(scores, labels)


def test_refused_settings_name_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"no rule 'sklern': did you mean 'sklearn'\?"):
        average_precision(HAND_SCORES, HAND_LABELS, cast(Any, "sklern"))
    with pytest.raises(ConfigError, match="known: hits, sklearn, voc"):
        by_number_of_labels(HAND_SCORES, HAND_LABELS, cast(Any, "11-point"))
    with pytest.raises(ConfigError, match="'ignored': did you mean 'ignore'"):
        average_precision(HAND_SCORES, HAND_LABELS, unknown=cast(Any, "ignored"))
    with pytest.raises(DataError, match="1 classes need as many names, not 2"):
        average_precision(HAND_SCORES, HAND_LABELS, classes=["cat", "dog"])
