"""Attention in figures has its own name and color range."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from sparselabel.data.dataset import Dataset
from sparselabel.report.figures.heatmap_figures import draw_beside, draw_growth, draw_heat_maps
from sparselabel.report.figures.panels import colored
from sparselabel.report.figures.watched_images import Watched
from tests.report.figures.made_up import constant_maps, make_data, make_run, watch

SCORES = np.array([[0.9, 0.5, 0.2, 0.3, 0.1]])
BAR = "attention, by each map's highest"
NO_SCORE = (
    "Attention is where the model looked for a class, not a score: the shares of a map's cells add up to 1, "
    "and its colors go from 0 to its highest."
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return make_data(tmp_path_factory.mktemp("made-up"))


def numbers(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def looked() -> np.ndarray:
    """(1, 5, 14, 14) Attention that is even, but twice as high in the first cell."""
    shares = np.ones((1, 5, 14, 14))
    shares[:, :, 0, 0] = 2
    return (shares / 197).astype(np.float16)


@pytest.fixture
def words(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What figures say above the images, in one line, and beside the colors."""
    said: list[str] = []
    title, bar = Figure.suptitle, Figure.colorbar

    def suptitle(self: Figure, text: str, **how: Any) -> Any:
        said.append(text.replace("\n", " "))
        return title(self, text, **how)

    def colorbar(self: Figure, *given: Any, **how: Any) -> Any:
        said.append(how["label"])
        return bar(self, *given, **how)

    monkeypatch.setattr(Figure, "suptitle", suptitle)
    monkeypatch.setattr(Figure, "colorbar", colorbar)
    return said


def test_attention_is_named_and_has_colors_of_its_own(
    tmp_path: Path, data: Dataset, words: list[str]
) -> None:
    run = make_run(tmp_path / "q2l", data)
    for epoch in (1, 2):
        watch(run, epoch, [0], SCORES, attention=looked())
    values = Watched(run.path).last.map("attention", 0, 1)
    assert values is not None
    assert colored(values, "attention")[0].tolist() == [1.0, *[pytest.approx(0.5, abs=1e-3)] * 13]
    assert colored(values, "maps") is values
    found = numbers(draw_heat_maps(run.path, [0], 1, tmp_path / "a.png"))
    found += numbers(draw_growth(run.path, 0, tmp_path / "b.png"))
    assert len(found) == 3 + 6
    assert {line["map"] for line in found} == {"attention"}
    assert [float(line["map_mean"]) for line in found] == pytest.approx([1 / 196] * 9, rel=1e-3)
    assert [float(line["map_max"]) for line in found] == pytest.approx([2 / 197] * 9, rel=1e-3)
    for label, title in (words[:2], words[2:]):
        assert label == BAR
        assert title.endswith(f"image. Colors: {BAR}. {NO_SCORE}")
    with Image.open(tmp_path / "a.png") as image:  # on a scale from 0 to 1 all of it would be black
        colors = np.asarray(image.convert("RGB")).reshape(-1, 3)
    assert (colors[:, 0].astype(int) - colors[:, 2] > 60).mean() > 0.1


def test_attention_beside_scores_of_cells(tmp_path: Path, data: Dataset, words: list[str]) -> None:
    run, other = make_run(tmp_path / "an", data), make_run(tmp_path / "q2l", data)
    watch(run, 1, [0], SCORES, maps=constant_maps(SCORES, 2))
    watch(other, 1, [0], SCORES / 2, attention=looked())
    found = numbers(draw_beside(run.path, other.path, 1, tmp_path / "a.png"))
    assert [(line["run"], line["map"]) for line in found] == [("an", "maps")] * 5 + [("q2l", "attention")] * 5
    assert float(found[0]["map_max"]) == pytest.approx(0.9, abs=1e-3)
    assert float(found[5]["map_max"]) == pytest.approx(2 / 197, rel=1e-3)
    label, title = words
    cells = "the model's score of each cell"
    assert label == f"{cells}\n{BAR}"
    assert title.endswith(f"Colors: {cells} and, of the second run, {BAR}. {NO_SCORE}")
