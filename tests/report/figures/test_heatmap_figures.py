"""Figures of watched images: heat-maps, growth, beside."""

import csv
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sparselabel.config import TrainConfig, Views, save
from sparselabel.data.dataset import Dataset
from sparselabel.errors import ConfigError, RunError
from sparselabel.report.figures.heatmap_figures import draw_beside, draw_growth, draw_heat_maps
from sparselabel.report.figures.watched_images import Watched, seen_of
from sparselabel.run import Run
from tests.prepared_data import write_checksums
from tests.report.figures.made_up import CLASSES, constant_maps, make_data, make_run, watch

SCORES = np.array(
    [
        [0.9, 0.5, 0.2, 0.3, 0.1],
        [0.1, 0.2, 0.8, 0.4, 0.3],
        [0.1, 0.7, 0.2, 0.6, 0.5],
        [0.5, 0.4, 0.3, 0.2, 0.1],
    ]
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return make_data(tmp_path_factory.mktemp("made-up"))


@pytest.fixture
def run(tmp_path: Path, data: Dataset) -> Run:
    """A run with heat maps that watched rows 1, 0 and 2 for 9 epochs; its maps grow by .1 an epoch."""
    run = make_run(tmp_path / "scl", data)
    rows = [1, 0, 2]
    for epoch in range(9):
        heat = constant_maps(np.full((3, 5), 51 * min(epoch, 5)), 4, np.uint8)
        levels = SCORES[rows] * (epoch + 1) / 9
        maps = constant_maps(levels, 2)
        watch(run, epoch + 1, rows, levels, maps=maps, running_scores=levels / 2, heat_maps=heat)
    return run


def numbers(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def is_image(path: Path) -> bool:
    with Image.open(path) as image:
        image.load()
        return image.format == "PNG" and min(image.size) > 200


def observed_class(data: Dataset, row: int) -> str:
    return CLASSES[int(np.argmax(data.train.observed.values[row] == 1))]


def test_heat_maps(run: Run, data: Dataset, tmp_path: Path) -> None:
    found = numbers(draw_heat_maps(run.path, [], 2, tmp_path / "new" / "a.png"))
    assert is_image(tmp_path / "new" / "a.png")
    # Images with a class of every kind come first.
    assert [(line["row"], line["kind"]) for line in found] == [
        ("0", "annotated"), ("0", "present"), ("0", "absent"),
        ("2", "annotated"), ("2", "present"), ("2", "absent"),
    ]  # fmt: skip
    assert {found[0]["class"], found[1]["class"]} == {"ant", "bee"}
    assert found[0]["class"] == observed_class(data, 0)
    assert (found[2]["class"], found[2]["score"]) == ("dog $x_1$", "0.3")
    assert (found[5]["class"], found[5]["score"]) == ("a class with a very long name", "0.5")
    assert {(line["map_mean"], line["map_max"]) for line in found} == {("1", "1")}
    assert (found[0]["image"], found[0]["map"]) == ("train-0", "heat_maps")


def test_heat_maps_of_rows(run: Run, tmp_path: Path) -> None:
    found = numbers(draw_heat_maps(run.path, [1], 4, tmp_path / "a.png"))
    assert [(line["row"], line["kind"], line["class"]) for line in found] == [
        ("1", "annotated", "cow"),
        ("1", "absent", "dog $x_1$"),
    ]
    with pytest.raises(ConfigError, match=r"did not watch row 3: it watched 1, 0, 2$"):
        draw_heat_maps(run.path, [1, 3], 4, tmp_path / "a.png")
    with pytest.raises(ConfigError, match="`count` must be at least 1, not 0"):
        draw_heat_maps(run.path, [], 0, tmp_path / "a.png")


def test_a_class_that_nobody_knows_of_is_of_no_kind(tmp_path: Path) -> None:
    data = make_data(tmp_path, hidden=True)
    run = make_run(tmp_path / "run", data)
    watch(run, 0, [0], SCORES[:1], maps=constant_maps(SCORES[:1], 2))
    watched = Watched(run.path)
    assert [watched.kind(0, index) for index in range(3)] == ["annotated", "annotated", "unknown"]
    found = numbers(draw_heat_maps(run.path, [], 1, tmp_path / "a.png"))
    assert [line["kind"] for line in found] == ["annotated"]
    draw_beside(run.path, run.path, 1, tmp_path / "b.png")
    assert [line["kind"] for line in numbers(tmp_path / "b.csv")[2:5]] == ["unknown"] * 3


def test_growth(run: Run, tmp_path: Path) -> None:
    found = numbers(draw_growth(run.path, None, tmp_path / "a.png"))
    assert is_image(tmp_path / "a.png")
    assert [line["epoch"] for line in found if line["kind"] == "present"] == [
        "1",
        "2",
        "4",
        "5",
        "6",
        "8",
        "9",
    ]
    assert {line["row"] for line in found} == {"0"}
    line = found[1]
    assert (line["kind"], line["class"], line["map_mean"]) == ("annotated", found[0]["class"], "0.2")
    score = SCORES[0, CLASSES.index(line["class"])] * 2 / 9
    assert float(line["score"]) == pytest.approx(score, rel=1e-5)
    assert float(line["running_score"]) == pytest.approx(score / 2, rel=1e-5)
    other = numbers(draw_growth(run.path, 1, tmp_path / "a.png"))
    assert {(line["row"], line["kind"]) for line in other} == {("1", "annotated"), ("1", "absent")}


def test_growth_without_heat_maps_shows_the_cells(tmp_path: Path, data: Dataset) -> None:
    run = make_run(tmp_path / "an", data)
    for epoch in range(2):
        watch(run, epoch, [0], SCORES[:1], maps=constant_maps(SCORES[:1] / 2, 3))
    found = numbers(draw_growth(run.path, 0, tmp_path / "a.png"))
    best = max(found, key=lambda line: float(line["score"]))
    assert (best["class"], best["running_score"]) == ("ant", "")
    assert best["map"] == "maps"
    assert float(best["map_max"]) == pytest.approx(0.45, abs=1e-3)


def test_growth_of_a_image_of_which_nothing_is_known(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Watched, "kind", lambda self, row, index: "unknown")
    with pytest.raises(RunError, match="of row 1 no label is known: name another `row`"):
        draw_growth(run.path, None, tmp_path / "a.png")


def test_beside(run: Run, tmp_path: Path, data: Dataset) -> None:
    other = make_run(tmp_path / "en", data)
    watch(other, 8, [0, 2, 3], SCORES[[0, 2, 3]] / 2, maps=constant_maps(SCORES[[0, 2, 3]] / 2, 2))
    found = numbers(draw_beside(run.path, other.path, 5, tmp_path / "a.png"))
    assert is_image(tmp_path / "a.png")
    assert list(dict.fromkeys(line["row"] for line in found)) == ["0", "2"]  # those that both have watched
    first = [line for line in found if (line["row"], line["run"]) == ("2", "scl")]
    second = [line for line in found if (line["row"], line["run"]) == ("2", "en")]
    names = ["bee", "dog $x_1$", "a class with a very long name", "cow", "ant"]
    assert [line["class"] for line in first] == [line["class"] for line in second] == names
    assert [line["score"] for line in second] == ["0.35", "0.3", "0.25", "0.1", "0.05"]
    assert {line["kind"] for line in first[:2]} == {"annotated", "present"}
    assert [line["kind"] for line in first[2:]] == ["absent"] * 3
    # One run has no heat maps, so cells are shown of both.
    assert float(first[0]["map_max"]) == pytest.approx(0.7, abs=1e-3)


def test_beside_shows_heat_maps_where_both_have_them(run: Run, tmp_path: Path) -> None:
    found = numbers(draw_beside(run.path, run.path, 1, tmp_path / "a.png"))
    assert {line["map_max"] for line in found} == {"1"}
    assert len({line["run"] for line in found}) == 1


def test_what_cannot_be_set_beside(run: Run, tmp_path: Path, data: Dataset) -> None:
    other = make_run(tmp_path / "en", data)
    with pytest.raises(RunError, match=r"has watched no images yet: train with .*`watch=8`"):
        draw_beside(run.path, other.path, 1, tmp_path / "a.png")
    watch(other, 0, [3], SCORES[3:])
    with pytest.raises(RunError, match=r"en kept no maps .*, or train it on images"):
        draw_beside(run.path, other.path, 1, tmp_path / "a.png")
    watch(other, 0, [3], SCORES[3:], maps=constant_maps(SCORES[3:], 2))
    with pytest.raises(RunError, match="watched no image in common"):
        draw_beside(run.path, other.path, 1, tmp_path / "a.png")
    with pytest.raises(ConfigError, match="`count` must be at least 1, not 0"):
        draw_beside(run.path, other.path, 0, tmp_path / "a.png")
    (other.watched / "0000.npz").write_bytes(b"PK\x03\x04 nothing more")
    with pytest.raises(RunError, match=r"0000.npz cannot be read"):
        draw_beside(run.path, other.path, 1, tmp_path / "a.png")


def test_other_images_of_the_same_names_are_refused(run: Run, tmp_path: Path) -> None:
    data = make_data(tmp_path / "other")
    digests = data.folder / "train" / "digests.npy"
    np.save(digests, np.load(digests) + 1)
    write_checksums(data.folder)
    other = make_run(tmp_path / "en", data)
    watch(other, 1, [0], SCORES[:1], maps=constant_maps(SCORES[:1], 2))
    said = r"trained on different images or classes \(.*data, train [0-9a-f]{8} and .*other/data, train "
    with pytest.raises(RunError, match=said):
        draw_beside(run.path, other.path, 1, tmp_path / "a.png")


def test_a_class_without_a_map_is_not_taken_for_absent(tmp_path: Path, data: Dataset) -> None:
    run = make_run(tmp_path / "run", data)
    save(TrainConfig(settings={"top_maps": 2}), run.config_file)
    levels = np.array([[255, 0, 0, 0, 0]])  # ant and bee have maps: that of bee has fallen to 0
    maps = {"maps": constant_maps(SCORES[:1], 2), "heat_maps": constant_maps(levels, 4)}
    watch(run, 1, [0], SCORES[:1], **maps, heat_map_classes=np.array([[0, 1]], np.int32))
    last = Watched(run.path).last
    assert [index for index in range(5) if last.map("heat_maps", 0, index) is None] == [2, 3, 4]
    assert np.array_equal(last.map("heat_maps", 0, 1), np.zeros((4, 4)))  # type: ignore[arg-type]
    assert last.map("maps", 0, 4) is not None
    found = numbers(draw_heat_maps(run.path, [0], 1, tmp_path / "a.png"))
    of_class = {line["class"]: (line["map_mean"], line["map_max"]) for line in found}
    assert of_class == {"ant": ("1", "1"), "bee": ("0", "0"), "dog $x_1$": ("", "")}
    assert is_image(tmp_path / "a.png")
    growth = numbers(draw_growth(run.path, 0, tmp_path / "b.png"))
    assert {line["class"]: line["map_max"] for line in growth} == {"ant": "1", "bee": "0", "dog $x_1$": ""}
    beside = numbers(draw_beside(run.path, run.path, 1, tmp_path / "c.png"))
    assert [line["map_max"] for line in beside[:5]] == ["1", "0", "", "", ""]


def test_maps_of_cells_cover_what_the_model_sees(tmp_path: Path, data: Dataset) -> None:
    run = make_run(tmp_path / "run", data, Views(geometry="imagenet"))
    watch(run, 0, [0], SCORES[:1], maps=constant_maps(SCORES[:1], 2))
    image = np.zeros((30, 60, 3), np.uint8)
    assert seen_of(run, image, "heat_maps") == (0, 0, 1, 1)
    assert seen_of(run, image, "maps") == pytest.approx((0.28125, 0.0625, 0.4375, 0.875))
    squashed = make_run(tmp_path / "squashed", data)
    watch(squashed, 0, [0], SCORES[:1], maps=constant_maps(SCORES[:1], 2))
    assert seen_of(squashed, image, "maps") == (0, 0, 1, 1)
    draw_heat_maps(run.path, [0], 1, tmp_path / "a.png")
    assert is_image(tmp_path / "a.png")
