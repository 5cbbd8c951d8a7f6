"""Training on compressed labels equals training on the same labels as arrays."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import sparselabel
from sparselabel.data.dataset import Dataset
from sparselabel.data.labels import SparseLabels
from sparselabel.errors import ResourceError
from sparselabel.expected_positives import from_features
from sparselabel.expected_positives.estimate import estimate_positives
from sparselabel.expected_positives.from_features import images_to_score
from sparselabel.inference import class_thresholds
from sparselabel.inference.evaluate import evaluate_run
from sparselabel.inference.saved_scores import saved_scores
from sparselabel.losses.registry import make_method
from sparselabel.losses.step import LabelRows, Layout, observed_rows
from sparselabel.metrics import tiled_scores
from sparselabel.metrics.tiled_scores import TiledScores
from sparselabel.review.question_order import questions
from sparselabel.run import Run
from tests.sparse_and_dense import CLASSES, both, few_labels


class Tiny(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.layer = nn.Conv2d(3, 6, 4, stride=4)
        with torch.no_grad():
            self.layer.weight.copy_(torch.randn(self.layer.weight.shape, generator=generator) / 5)
            self.layer.bias.zero_()  # type: ignore[union-attr]

    def forward(self, views: Tensor) -> Tensor:
        return torch.relu(self.layer(views))


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Dataset, Dataset]:
    return both(tmp_path_factory.mktemp("pair"), validation=0.2, validation_labels="observed")


def trained(data: Dataset, out: Path, method: str, **settings: Any) -> Run:
    given: dict[str, Any] = {"head": {"epochs": 0}, "views": {"size": 16}, "workers": 0, "quiet": True}
    given |= {"finetune": {"epochs": 1, "batch_size": 16}}
    return sparselabel.train(data, out, model=Tiny(), method=method, **given, **settings)


def numbers_of(run: Run) -> Any:
    content = json.loads(run.result_file.read_text())
    return {key: value for key, value in content.items() if "checksum" not in key}


@pytest.mark.parametrize(
    ("method", "settings"),
    [("an", {}), ("pu", {"expected_positives": 3.0}), ("en", {"expected_positives": 3.0})],
)
def test_a_run_has_the_same_numbers(
    pair: tuple[Dataset, Dataset], tmp_path: Path, method: str, settings: dict[str, float]
) -> None:
    one, other = (trained(data, tmp_path / data.folder.name, method, **settings) for data in pair)
    assert numbers_of(one) == numbers_of(other)
    assert one.model_file.read_bytes() == other.model_file.read_bytes()


def test_scores_in_a_file_are_measured_alike(
    pair: tuple[Dataset, Dataset], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = trained(pair[0], tmp_path / "memory", "an")
    monkeypatch.setattr(tiled_scores, "LARGEST_SCORES", 64)
    monkeypatch.setattr(tiled_scores, "TILE", 4)
    other = trained(pair[1], tmp_path / "file", "an")
    assert numbers_of(one) == numbers_of(other)
    run = Run.open(other.path, data=pair[1], model=Tiny())
    measured = evaluate_run(run, "test")
    assert measured["mean_average_precision"] == numbers_of(one)["test"]["mean_average_precision"]
    kept = saved_scores(run, "test")
    assert isinstance(kept.scores, TiledScores)
    assert np.array_equal(kept.scores[:], saved_scores(one, "test").scores[:])
    assert not run.scores_file("test").exists()
    with pytest.raises(ResourceError):
        _ = kept.array


def test_thresholds_are_chosen_from_a_stated_sample(
    pair: tuple[Dataset, Dataset], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(class_thresholds, "MOST_SCORES", 5 * CLASSES)
    monkeypatch.setattr(class_thresholds, "FEWEST_IMAGES", 2)
    run = trained(pair[1], tmp_path / "run", "an")
    content = json.loads(run.thresholds_file.read_text())
    assert (content["images"], content["drawn_from"]) == (5, 12)
    assert class_thresholds.load_class_thresholds(run).drawn_from == 12
    assert numbers_of(run)["test"]["decided"]["chosen_from"]["drawn_from"] == 12


def test_the_order_of_questions_is_the_same() -> None:
    observed = few_labels(40)
    scores = np.random.default_rng(3).random(observed.shape).astype(np.float16)
    for how in ("useful", "likely", "uncertain", "random"):
        one = questions(scores, observed, how, 30)
        other = questions(scores, SparseLabels.of_array(observed), how, 30)
        assert [part.tolist() for part in one] == [part.tolist() for part in other]


@pytest.mark.parametrize("kind", ["answers", "kept", "single"])
def test_estimates_are_the_same(kind: str) -> None:
    random = np.random.default_rng(4)
    truth = (random.random((700, CLASSES)) < np.linspace(0.1, 0.5, CLASSES)).astype(np.int8)
    observed = np.full_like(truth, -1)
    if kind == "answers":
        asked = random.random(truth.shape) < 0.3
        observed[asked] = truth[asked]
    elif kind == "kept":
        observed[(truth == 1) & (random.random(truth.shape) < 0.4)] = 1
    else:
        truth[np.arange(700), random.integers(0, CLASSES, 700)] = 1
        observed[np.arange(700), (truth * random.random(truth.shape)).argmax(1)] = 1
    features = (truth @ random.random((CLASSES, 12)) + random.random((700, 12))).astype(np.float32)
    sparse = SparseLabels.of_array(observed)
    names = tuple(map(str, range(CLASSES)))
    one, other = (estimate_positives(features, form, names) for form in (observed, sparse))
    assert np.allclose(one.expected, other.expected, rtol=1e-12)
    assert one.interval == pytest.approx(other.interval)
    assert one.why == other.why
    few = images_to_score(sparse)
    if kind == "single":
        assert np.array_equal(estimate_positives(features[few], sparse, names).expected, other.expected)


def test_few_images_are_scored_where_there_are_many_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(from_features, "MOST_SCORES", 350 * CLASSES)
    random = np.random.default_rng(5)
    observed = np.full((900, CLASSES), -1, np.int8)
    observed[np.arange(900), random.integers(0, CLASSES, 900)] = 1
    assert len(images_to_score(observed)) == 350
    features = random.random((900, 8)).astype(np.float32)
    assert (
        "by 350 of 900 labeled images, drawn at random"
        in estimate_positives(features, observed, tuple(map(str, range(CLASSES)))).why
    )


@pytest.mark.parametrize(
    ("method", "store", "settings"),
    [
        ("role", "label-estimates", {"expected_positives": 2.0}),
        ("en", "running-scores", {"expected_positives": 2.0}),
        ("pu+cl", "running-scores", {"expected_positives": 2.0}),
        ("pu+scl", "heat-maps", {"expected_positives": 2.0}),
        ("pu+scl", "running-scores", {"expected_positives": 2.0, "top_maps": 3}),
        ("em+apl", "soft-labels", {}),
        ("patchml+cluster", "pseudo-labels", {}),
    ],
)
def test_a_memory_that_fits_nowhere_is_refused_with_its_size_and_ways_out(
    method: str, store: str, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    images, classes = 900_000, 200_000
    values = (np.arange(images // 2) % 2).astype(np.int8)  # every other image has a label
    labels = SparseLabels(np.arange(images + 1) // 2, np.zeros(len(values), np.int32), values, classes)
    # The refusal looks at no array of all labels: it is to come at once.
    monkeypatch.setattr(LabelRows, "__getitem__", lambda *_: pytest.fail("labels were written out"))
    layout = Layout(torch.arange(images), observed_rows(labels), images, keep="ram", grid=(7, 7))
    make_method("pu", expected_positives=2.0).prepare(layout)  # remembers nothing of an image
    with pytest.raises(ResourceError, match="GB") as refused:
        make_method(method, **settings).prepare(layout)
    assert refused.value.what == store
    if method == "role":
        # Value and moments, in two slots of a file.
        assert refused.value.value == 2 * images * 3 * classes * 4
        assert "take a method that remembers nothing of an image, as pu" in refused.value.remedies
