"""Figures of evaluated runs: scores and sizes."""

import csv
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sparselabel.data.dataset import Dataset
from sparselabel.data.labels import UNKNOWN
from sparselabel.data.spatial_labels import SpatialLabels
from sparselabel.errors import ConfigError, DataError, RunError
from sparselabel.metrics.average_precision import average_precision
from sparselabel.report.figures.object_sizes import bin_precision, bins_of, draw_sizes, largest_areas
from sparselabel.report.figures.score_histogram import draw_scores
from tests.report.figures.made_up import make_data, make_run, score

RANDOM = np.random.default_rng(5)
LABELS = np.array(
    [[1, 1, 0, 0, 0], [1, 0, 0, 0, 0], [0, 1, 0, 1, 0], [1, 0, 0, 0, 0], [0, 0, 1, 0, 0]], np.int8
)
# (row, class, width, height); row 0 has two boxes of ant, row 2 no box of dog but a point.
BOXES = [
    (0, 0, 0.1, 0.1),
    (0, 0, 0.4, 0.5),
    (0, 1, 0.2, 0.2),
    (1, 0, 0.5, 0.1),
    (2, 1, 0.9, 0.9),
    (2, 3, 0.0, 0.0),
    (3, 0, 0.8, 0.5),
    (4, 2, 0.5, 0.5),
]
MARKS = SpatialLabels(
    np.array([box[0] for box in BOXES]),
    np.array([box[1] for box in BOXES]),
    np.full((len(BOXES), 2), 0.5),
    np.array([box[2:] for box in BOXES]),
)
SCORES = RANDOM.random(LABELS.shape)
BETTER = SCORES + LABELS / 2


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return make_data(tmp_path_factory.mktemp("made-up"), LABELS, MARKS)


@pytest.fixture
def runs(tmp_path: Path, data: Dataset) -> tuple[Path, Path]:
    made = []
    for name, scores in (("an", SCORES), ("role", BETTER)):
        run = make_run(tmp_path / name, data)
        score(run, data, "test", np.clip(scores, 0, 1))
        made.append(run.path)
    return made[0], made[1]


def numbers(path: Path) -> list[dict[str, str]]:
    with Image.open(path.with_suffix(".png")) as image:
        image.load()
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_scores(runs: tuple[Path, Path], tmp_path: Path) -> None:
    found = numbers(draw_scores(runs, "test", tmp_path / "a.png"))
    assert len(found) == 2 * 4 * 25
    for name, scores in (("an", SCORES), ("role", np.clip(BETTER, 0, 1))):
        ranked = np.sort(scores, axis=1)[:, ::-1]
        for rank in range(4):
            lines = [line for line in found if (line["run"], line["rank"]) == (name, str(rank + 1))]
            assert sum(float(line["share"]) for line in lines) == pytest.approx(1)
            for line in lines:
                low, high = float(line["from"]), float(line["to"])
                inside = (ranked[:, rank] >= low) & ((ranked[:, rank] < high) | (high == 1))
                assert float(line["share"]) == pytest.approx(inside.mean())


def test_scores_of_nothing(runs: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nothing to draw: name one or more evaluated runs"):
        draw_scores([], "test", tmp_path / "a.png")
    with pytest.raises(RunError, match=r"`sparselabel evaluate .*an` with `split=train` writes it"):
        draw_scores(runs, "train", tmp_path / "a.png")


def test_the_largest_box_counts(data: Dataset) -> None:
    rows, classes, sizes = largest_areas(data.split("test"))
    areas = dict(zip(zip(rows.tolist(), classes.tolist(), strict=True), sizes.tolist(), strict=True))
    assert areas[0, 0] == pytest.approx(0.2)
    assert (2, 3) not in areas
    assert len(areas) == np.count_nonzero(sizes) == 6
    assert sorted(areas) == [*areas]


def test_bins_have_the_same_number_of_positives(data: Dataset) -> None:
    small, middle, large = bins_of(data.split("test"), 3)
    assert [*zip(small.rows, small.classes, strict=True)] == [(0, 1), (1, 0)]
    assert [*zip(middle.rows, middle.classes, strict=True)] == [(0, 0), (4, 2)]
    assert [*zip(large.rows, large.classes, strict=True)] == [(3, 0), (2, 1)]
    assert (small.smallest, small.largest, large.largest) == pytest.approx((0.04, 0.05, 0.81))


def of_class(scores: np.ndarray, index: int, positives: list[int]) -> float:
    """The average precision of some positives of a class against all its negatives."""
    rows = positives + np.flatnonzero(LABELS[:, index] == 0).tolist()
    labels = np.array([[1]] * len(positives) + [[0]] * (len(rows) - len(positives)))
    return float(average_precision(scores[rows, index : index + 1], labels)[0])


def test_sizes(runs: tuple[Path, Path], tmp_path: Path) -> None:
    found = numbers(draw_sizes(runs[0], [runs[1]], 3, "test", tmp_path / "a.png"))
    bins = [[(1, [0]), (0, [1])], [(0, [0]), (2, [4])], [(0, [3]), (1, [2])]]
    assert [line["run"] for line in found] == ["an", "role"] * 3
    for place, part in enumerate(bins):
        baseline = np.mean([of_class(SCORES.astype(np.float32), *one) for one in part])
        value = np.mean([of_class(np.clip(BETTER, 0, 1).astype(np.float32), *one) for one in part])
        first, second = found[2 * place : 2 * place + 2]
        assert (first["bin"], first["positives"], first["classes"]) == (str(place + 1), "2", "2")
        assert float(first["mAP"]) == pytest.approx(baseline, rel=1e-5)
        assert float(first["relative_percent"]) == 0
        assert float(second["mAP"]) == pytest.approx(value, rel=1e-5)
        assert float(second["relative_percent"]) == pytest.approx(100 * (value / baseline - 1), rel=1e-4)


def test_labels_that_nobody_gave_count_as_absent(tmp_path: Path, data: Dataset) -> None:
    sparse = np.where(LABELS == 0, UNKNOWN, LABELS).astype(np.int8)
    split = make_data(tmp_path, sparse, MARKS).split("test")
    found = [bin_precision(SCORES, split, part) for part in bins_of(split, 3)]
    full = data.split("test")
    assert found == [bin_precision(SCORES, full, part) for part in bins_of(full, 3)]
    assert found[0] == pytest.approx((of_class(SCORES, 1, [0]) + of_class(SCORES, 0, [1])) / 2)
    assert min(found) < 1


def test_sizes_of_nothing(runs: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nothing to compare with the baseline"):
        draw_sizes(runs[0], [], 3, "test", tmp_path / "a.png")
    with pytest.raises(ConfigError, match=r"`bins` must be 1 to 20 \(more bars cannot be read\), not 0"):
        draw_sizes(runs[0], [runs[1]], 0, "test", tmp_path / "a.png")
    with pytest.raises(ConfigError, match=r"`bins` must be 1 to 20 .*not 1000"):
        draw_sizes(runs[0], [runs[1]], 1000, "test", tmp_path / "a.png")
    with pytest.raises(DataError, match="6 positives with a box, too few for 7 bins: give `bins=6` or fewer"):
        draw_sizes(runs[0], [runs[1]], 7, "test", tmp_path / "a.png")
    data = make_data(tmp_path / "other", LABELS[::-1].copy())
    other = make_run(tmp_path / "other-run", data)
    score(other, data, "test", SCORES)
    said = r"are of different data \(.*data, test [0-9a-f]{8} and .*other/data, test [0-9a-f]{8}\)"
    with pytest.raises(RunError, match=said):
        draw_sizes(runs[0], [other.path], 3, "test", tmp_path / "a.png")
    with pytest.raises(RunError, match=said):
        draw_scores([runs[0], other.path], "test", tmp_path / "a.png")
    with pytest.raises(DataError, match="'test' has no positive with a box: prepare data whose boxes"):
        draw_sizes(other.path, [other.path], 3, "test", tmp_path / "a.png")
