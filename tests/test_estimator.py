"""``SparseLabelClassifier``: what it learns, scikit-learn's checks, and refused inputs."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import joblib
import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
import scipy.sparse
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import average_precision_score, f1_score
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from sparselabel import SparseLabelClassifier, average_precision, estimate_expected_positives
from sparselabel.errors import ConfigError, DataError, DataWarning
from sparselabel.losses.registry import METHODS, needs_of, settings_of

Array = npt.NDArray[Any]
CLASSES = 6

ONE_COLUMN = "the check's labels are 1 and 2 in one column; here they are 1, 0 and -1"
ONE_DIMENSION = "the check gives one class for each row, which may or may not say that others are absent"
OWN_WORDS = "labels for each row are refused, but in words of our own"
NOT_APPLICABLE = {
    "check_estimators_dtypes": ONE_COLUMN,
    "check_fit2d_1feature": ONE_COLUMN,
    "check_classifier_data_not_an_array": ONE_COLUMN,
    "check_classifiers_classes": ONE_DIMENSION,
    "check_classifiers_train": ONE_DIMENSION,
    "check_decision_proba_consistency": ONE_DIMENSION,
    "check_classifiers_regression_target": OWN_WORDS,
    "check_classifier_not_supporting_multiclass": OWN_WORDS,
    "check_classifier_multioutput": "it wants 0.5 as the threshold; ours are those of the highest F1",
}


@parametrize_with_checks(  # type: ignore[untyped-decorator]
    [SparseLabelClassifier(epochs=5)], expected_failed_checks=lambda _: NOT_APPLICABLE, xfail_strict=True
)
def test_checks_of_scikit_learn(estimator: SparseLabelClassifier, check: Callable[..., None]) -> None:
    check(estimator)


def made(count: int = 1500, seed: int = 0, width: int = 24, noise: float = 1.0) -> tuple[Array, Array]:
    """Features that are the sum of their classes' prototypes, and noise; and complete labels."""
    random = np.random.default_rng(seed)
    prototypes = np.random.default_rng(7).normal(size=(CLASSES, width))
    truth = (random.random((count, CLASSES)) < np.linspace(0.15, 0.5, CLASSES)).astype(np.int64)
    empty = truth.sum(1) == 0
    truth[empty, random.integers(0, CLASSES, empty.sum())] = 1
    scale = np.linspace(0.1, 10, width)
    return (truth @ prototypes + noise * random.normal(size=(count, width))) * scale + 3, truth


def single_positives(truth: Array, seed: int = 100) -> Array:
    chance = np.random.default_rng(seed).random(truth.shape) * (truth == 1)
    observed = np.full(truth.shape, -1)
    observed[np.arange(len(truth)), chance.argmax(1)] = 1
    return observed


def half_known(truth: Array, seed: int = 200) -> Array:
    return np.where(np.random.default_rng(seed).random(truth.shape) < 0.5, truth, -1)


X, TRUTH = made()
TEST_X, TEST_TRUTH = made(seed=1)
SINGLE = single_positives(TRUTH)
K = float(TRUTH.sum(1).mean())


def test_single_positives_come_near_complete_labels() -> None:
    full = SparseLabelClassifier("bce").fit(X, TRUTH)
    sparse = SparseLabelClassifier("pu").fit(X, SINGLE)
    assert full.score(TEST_X, TEST_TRUTH) > 0.95
    assert sparse.score(TEST_X, TEST_TRUTH) > full.score(TEST_X, TEST_TRUTH) - 0.02
    assert sparse.class_counts_ is not None
    assert sparse.expected_positives_ == sparse.class_counts_.per_image == pytest.approx(K, rel=0.15)


def test_scores_are_probabilities_and_thresholds_suit_them() -> None:
    probe = SparseLabelClassifier("pu", expected_positives=K).fit(X, SINGLE)
    scores, logits = probe.predict_proba(TEST_X), probe.decision_function(TEST_X)
    assert scores.sum(1).mean() == pytest.approx(TEST_TRUTH.sum(1).mean(), rel=0.1)
    assert np.mean((scores - TEST_TRUTH) ** 2) < 0.09
    np.testing.assert_allclose(scores, 1 / (1 + np.exp(-(probe.slope_ * logits + probe.offset_))))
    np.testing.assert_allclose(logits, TEST_X @ probe.coef_.T + probe.intercept_)
    np.testing.assert_array_equal(probe.predict(TEST_X), scores >= probe.thresholds_)
    chosen = f1_score(TEST_TRUTH, probe.predict(TEST_X), average="macro")
    raw = f1_score(TEST_TRUTH, logits >= 0, average="macro")
    assert chosen > 0.85
    assert chosen >= raw - 0.01


def test_complete_labels_are_counted() -> None:
    probe = SparseLabelClassifier("pu").fit(X, TRUTH)
    assert probe.expected_positives_ == pytest.approx(K)
    assert probe.class_counts_ is not None
    assert probe.class_counts_.trusted
    np.testing.assert_array_equal(probe.class_counts_.expected, TRUTH.sum(0))


def usable() -> list[str]:
    names = []
    for name in [*METHODS, "en+cl", "an+asl"]:
        needs = needs_of(name)
        if not (needs.maps or needs.features or needs.spatial_labels or needs.views > 1):
            names.append(name)
    return names


@pytest.mark.parametrize("method", usable())
def test_every_method_that_needs_labels_alone(method: str) -> None:
    needs = needs_of(method)
    labels = TRUTH if needs.truth else half_known(TRUTH) if needs.negatives else SINGLE
    probe = SparseLabelClassifier(method, expected_positives=K, epochs=20).fit(X, labels)
    assert probe.score(TEST_X, TEST_TRUTH) > 0.85
    assert np.isfinite(probe.predict_proba(TEST_X)).all()


def test_score_is_sklearns_on_complete_labels_and_leaves_unknown_ones_out() -> None:
    probe = SparseLabelClassifier("an", epochs=5).fit(X, SINGLE)
    logits, partly = probe.decision_function(TEST_X), half_known(TEST_TRUTH)
    assert probe.score(TEST_X, TEST_TRUTH) == pytest.approx(average_precision_score(TEST_TRUTH, logits))
    ignoring = average_precision(logits, partly, unknown="ignore").mean()
    assert probe.score(TEST_X, partly) == pytest.approx(ignoring)
    assert probe.score(TEST_X, np.where(partly < 0, np.nan, partly)) == pytest.approx(ignoring)


def test_score_without_known_negatives_takes_unknown_ones_for_them() -> None:
    probe = SparseLabelClassifier("an", epochs=5).fit(X, SINGLE)
    observed = single_positives(TEST_TRUTH)
    observed[observed[:, 2] == 1, 2] = -1  # a class without positives is left out
    others = [0, 1, 3, 4, 5]
    expected = average_precision_score((observed == 1)[:, others], probe.decision_function(TEST_X)[:, others])
    assert probe.score(TEST_X, observed) == pytest.approx(expected)
    assert expected < 0.9


def test_cross_validation_and_search_on_sparse_labels() -> None:
    pipe = make_pipeline(StandardScaler(), SparseLabelClassifier("pu", expected_positives=K, epochs=10))
    scores = cross_val_score(pipe, X, SINGLE, cv=3)
    assert scores.shape == (3,)
    assert ((scores > 0.4) & (scores < 0.95)).all()
    unknown = np.where(SINGLE < 0, np.nan, SINGLE)
    np.testing.assert_allclose(cross_val_score(pipe, X, unknown, cv=KFold(3)), scores)
    grid = {
        "sparselabelclassifier__method": ["an", "pu"],
        "sparselabelclassifier__weight_decay": [0.01, 100.0],
    }
    search = GridSearchCV(pipe, grid, cv=2).fit(X, half_known(TRUTH))
    assert search.best_score_ > 0.9
    assert len({*search.cv_results_["mean_test_score"].round(6).tolist()}) == 4
    assert search.predict(TEST_X).shape == TEST_TRUTH.shape


def test_scorers_of_scikit_learn_on_complete_labels() -> None:
    probe = SparseLabelClassifier("bce", epochs=5)
    scores = cross_val_score(probe, X, TRUTH, cv=2, scoring="average_precision")
    np.testing.assert_allclose(scores, cross_val_score(probe, X, TRUTH, cv=2))


def test_all_forms_of_labels_say_the_same() -> None:
    probe = SparseLabelClassifier("an", epochs=2)
    expected = clone(probe).fit(X, SINGLE)
    names = [f"class {number}" for number in range(CLASSES)]
    rows, columns = np.nonzero(SINGLE == 1)
    forms = {
        "frame": pd.DataFrame(np.where(SINGLE < 0, np.nan, 1.0), columns=names),
        "sparse": scipy.sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape=SINGLE.shape),
        "tensor": torch.from_numpy(SINGLE),
        "list": SINGLE.tolist(),
    }
    for form, labels in forms.items():
        got = clone(probe).fit(X, labels)
        np.testing.assert_array_equal(got.coef_, expected.coef_)
        assert got.classes_.tolist() == (names if form == "frame" else list(range(CLASSES)))
    frame = pd.DataFrame(X, columns=[f"f{number}" for number in range(X.shape[1])])
    named = clone(probe).fit(frame, forms["frame"])
    assert named.feature_names_in_.tolist() == frame.columns.tolist()
    np.testing.assert_array_equal(named.predict(frame), expected.predict(X))
    with pytest.raises(DataError, match="feature names"):
        named.predict(frame[frame.columns[::-1]])


def test_a_tensor_of_features() -> None:
    probe = SparseLabelClassifier("an", epochs=2)
    tensor = torch.from_numpy(X).float().requires_grad_()
    expected = clone(probe).fit(X.astype(np.float32), SINGLE)
    np.testing.assert_array_equal(clone(probe).fit(tensor, SINGLE).coef_, expected.coef_)
    assert expected.predict_proba(tensor).dtype == np.float32


@pytest.mark.parametrize(
    "again", [copy.deepcopy, lambda probe: pickle.loads(pickle.dumps(probe))], ids=["deepcopy", "pickle"]
)
def test_a_copy_predicts_the_same(again: Callable[[Any], Any]) -> None:
    probe = SparseLabelClassifier("role", expected_positives=K, epochs=2).fit(X, SINGLE)
    np.testing.assert_array_equal(again(probe).predict_proba(TEST_X), probe.predict_proba(TEST_X))


def test_joblib_and_clone(tmp_path: Any) -> None:
    probe = SparseLabelClassifier("wan", settings={"negative_weight": 0.1}, epochs=2).fit(X, SINGLE)
    joblib.dump(probe, tmp_path / "probe")
    loaded = joblib.load(tmp_path / "probe")
    np.testing.assert_array_equal(loaded.predict(TEST_X), probe.predict(TEST_X))
    assert clone(probe).get_params() == probe.get_params()
    assert not hasattr(clone(probe), "coef_")


def test_random_state() -> None:
    def weights(state: Any) -> Array:
        probe = SparseLabelClassifier("an", epochs=1, random_state=state).fit(X, SINGLE)
        return np.asarray(probe.coef_)

    before = torch.get_rng_state()
    np.testing.assert_array_equal(weights(3), weights(3))
    assert not np.array_equal(weights(3), weights(4))
    assert torch.equal(before, torch.get_rng_state())


def test_every_class_keeps_a_positive_to_train_on() -> None:
    labels = np.full((600, 3), -1)
    labels[:, 0], labels[17, 1], labels[18, 2] = 1, 1, 1
    for state in range(5):
        probe = SparseLabelClassifier("an", random_state=state, validation_fraction=0.5)
        training, held_out = probe._split(labels, np.random.RandomState(state))
        assert {17, 18} <= {*training.tolist()}
        assert len(held_out) == 300
        assert sorted([*training, *held_out]) == list(range(600))


def test_standardizing_makes_units_no_matter() -> None:
    probe = SparseLabelClassifier("an", epochs=5)
    units = np.geomspace(1e-3, 1e3, X.shape[1])
    one, other = clone(probe).fit(X, SINGLE), clone(probe).fit(X * units, SINGLE)
    np.testing.assert_allclose(
        one.decision_function(TEST_X), other.decision_function(TEST_X * units), atol=1e-3
    )
    constant = np.hstack([X, np.full((len(X), 1), 5.0)])
    assert np.isfinite(clone(probe).fit(constant, SINGLE).coef_).all()


@pytest.mark.parametrize(
    ("parameters", "what"),
    [
        ({"method": "pu+scl"}, "method"),
        ({"method": "patchml"}, "method"),
        ({"method": "fixmatch"}, "method"),
        ({"method": "iu+cluster"}, "method"),
        ({"method": "nonsense"}, "method"),
        ({"method": "bce"}, "method"),
        ({"epochs": 0}, "epochs"),
        ({"epochs": 2.5}, "epochs"),
        ({"batch_size": 0}, "batch_size"),
        ({"lr": float("nan")}, "lr"),
        ({"weight_decay": -1}, "weight_decay"),
        ({"validation_fraction": 1.0}, "validation_fraction"),
        ({"expected_positives": "many"}, "expected_positives"),
        ({"expected_positives": 7}, "expected_positives"),
        ({"settings": {"expected_positives": 2}}, "settings.expected_positives"),
        ({"settings": {"gamma": 2}}, "settings.gamma"),
    ],
)
def test_parameters_that_are_refused(parameters: dict[str, Any], what: str) -> None:
    with pytest.raises(ConfigError) as error:
        SparseLabelClassifier(**parameters).fit(X, SINGLE)
    assert error.value.what == what


def with_value(array: Array, value: float) -> Array:
    changed = array.astype(np.float64)
    changed[4, 2] = value
    return changed


@pytest.mark.parametrize(
    ("features", "labels", "what", "words"),
    [
        (with_value(X, np.nan), SINGLE, "X", "contains NaN"),
        (with_value(X, np.inf), SINGLE, "X", "contains infinity"),
        (X[:, 0], SINGLE, "X", "Reshape your data"),
        (X[:-1], SINGLE, "y", "1,499 rows"),
        (X, with_value(SINGLE, 2), "labels", "row 4, column 2"),
        (X, SINGLE.argmax(1), "labels", "a column for each class"),
        (X, SINGLE == 1, "labels", "booleans"),
        (X, None, "y", "requires y"),
        (X, np.full_like(SINGLE, -1), None, "no positive label"),
        (X[:8], SINGLE[:8], "expected_positives", "cannot be estimated"),
    ],
)
def test_data_that_is_refused(features: Array, labels: Any, what: str | None, words: str) -> None:
    with pytest.raises(DataError, match=words) as error:
        SparseLabelClassifier("pu").fit(features, labels)
    assert error.value.what == what


def test_what_does_not_suit_the_fit() -> None:
    probe = SparseLabelClassifier("an", epochs=1)
    with pytest.raises(NotFittedError):
        probe.predict(X)
    probe.fit(X, SINGLE)
    with pytest.raises(DataError, match="expecting 24 features"):
        probe.predict(X[:, :3])
    with pytest.raises(DataError, match="6 columns"):
        probe.score(X, SINGLE[:, :2])
    with pytest.raises(DataError, match="nothing to rank"):
        probe.score(X, np.zeros_like(SINGLE))
    with pytest.raises(ConfigError, match="weights of rows"):
        probe.score(X, SINGLE, np.ones(len(X)))  # type: ignore[arg-type]


def test_soft_counts_for_itself_and_takes_k_that_is_given() -> None:
    own = SparseLabelClassifier().fit(X, SINGLE)
    told = SparseLabelClassifier(expected_positives=K).fit(X, SINGLE)
    assert own.expected_positives_ is None
    assert told.expected_positives_ == pytest.approx(K)
    assert np.abs(own.coef_ - told.coef_).max() > 1e-3
    asked = SparseLabelClassifier(expected_positives="auto").fit(X, SINGLE)
    np.testing.assert_array_equal(asked.coef_, own.coef_)  # an estimate from single labels is for calibration
    assert asked.expected_positives_ == pytest.approx(K, rel=0.15)
    with pytest.warns(DataWarning, match="it cannot be smaller") as warned:
        SparseLabelClassifier(expected_positives=0.5).fit(X, SINGLE)
    assert warned[0].filename == __file__


def test_methods_without_k_do_not_estimate_it_unless_asked() -> None:
    assert "expected_positives" not in settings_of("an")
    probe = SparseLabelClassifier("an", epochs=2)
    assert probe.fit(X, SINGLE).expected_positives_ is None
    asked = probe.set_params(expected_positives="auto").fit(X, SINGLE)
    assert asked.expected_positives_ == pytest.approx(K, rel=0.15)


def test_expected_positives_from_arrays() -> None:
    counts = estimate_expected_positives(torch.from_numpy(X), np.where(SINGLE < 0, np.nan, SINGLE))
    assert counts.per_image == pytest.approx(K, rel=0.15)
    assert counts.classes == ("0", "1", "2", "3", "4", "5")
    assert counts.per_image == estimate_expected_positives(X, SINGLE).per_image
    named = estimate_expected_positives(None, pd.DataFrame(TRUTH, columns=list("abcdef")))
    assert named.classes == tuple("abcdef")
    assert named.per_image == pytest.approx(K)
    answers = estimate_expected_positives(None, half_known(TRUTH), classes=list("uvwxyz"))
    assert answers.per_image == pytest.approx(K, rel=0.05)
    assert answers.classes == tuple("uvwxyz")


def test_expected_positives_that_are_refused() -> None:
    with pytest.raises(DataError, match="need the images' features"):
        estimate_expected_positives(None, SINGLE)
    with pytest.raises(DataError, match="6 classes need as many names") as error:
        estimate_expected_positives(X, SINGLE, classes=["one"])
    assert error.value.what == "classes"


def test_a_class_without_a_positive_is_told() -> None:
    labels = np.where(np.arange(CLASSES) == 2, -1, SINGLE)
    with pytest.warns(DataWarning, match="1 of 6 classes have no positive label") as warned:
        SparseLabelClassifier().fit(X, labels)
    assert warned[0].filename == __file__
