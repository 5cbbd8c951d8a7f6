"""Good and failed localizations, and budget curves, of fake runs."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from sparselabel.cli.figure import budgets, localization
from sparselabel.config import Preparation, TrainConfig, save
from sparselabel.data.dataset import Dataset
from sparselabel.data.prepare import prepare
from sparselabel.data.scenes import generate as scenes
from sparselabel.errors import ConfigError, RunError
from sparselabel.files import write_json
from sparselabel.metrics.localization import LocalizationMetric, on_things
from sparselabel.report.figures.localization_examples import (
    Examples,
    choose,
    draw_localization,
    read_evaluated,
)
from sparselabel.report.figures.panels import show_map
from sparselabel.run import Run
from tests.report.figures.made_up import EVALUATION, RESULT, make_run, score

GRID = (12, 12)


def made(folder: Path, how: Preparation) -> Dataset:
    source = scenes.make(folder, train=24, test=16, size=64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warnings.warn", lambda *_, **__: None)  # of classes that nobody bought
        return prepare(source, folder, how)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return made(tmp_path_factory.mktemp("data"), Preparation())


def scored(path: Path, data: Dataset, sharp: float) -> Run:
    """A run whose maps are what they should show, blurred by noise; sharper ones are better."""
    run, part = make_run(path, data), data.split("test")
    random = np.random.default_rng(3)
    score(run, data, "test", random.random((len(part), len(data.classes))))
    located = LocalizationMetric(part)
    whole = np.tile([0.0, 0, 1, 1, 0], (located.pairs, 1))
    covered = located.covered(np.arange(located.pairs), whole, GRID)
    cells = (sharp * covered + random.random(covered.shape)).astype(np.float32)
    located.shares, located.areas = on_things(cells, covered), covered.mean(axis=(1, 2))
    located.save(run.location_file("test"))
    examples = choose(read_evaluated([path], "test"), 3)
    np.savez(path / "all-maps.npz", cells=cells)
    keep_maps(run, examples.numbers)
    return run


def keep_maps(run: Run, numbers: np.ndarray) -> None:
    """Write the maps that the command would have the model make."""
    with np.load(run.location_file("test")) as pairs, np.load(run.path / "all-maps.npz") as maps:
        kept = {name: pairs[name][numbers] for name in ("rows", "classes")}
        cells = maps["cells"][numbers]
        np.savez(run.located_maps_file("test"), **kept, cells=cells, scores=np.zeros(len(numbers)))


def test_examples_of_one_run_and_of_two(data: Dataset, tmp_path: Path) -> None:
    for name, sharp in (("image", 0.4), ("points", 1.5)):
        scored(tmp_path / name, data, sharp)
    out = tmp_path / "two.png"
    found = read_evaluated([tmp_path / "image", tmp_path / "points"], "test")
    examples = choose(found, 3)
    assert (examples.good, len(examples.numbers)) == (3, 6)
    assert len({*examples.classes[:3].tolist()}) == 3  # of different classes
    shares = found[1].shares[examples.numbers]
    assert (shares[:3] >= 0.5).all()
    assert (shares[3:] < 0.5).all()
    gain = (found[1].shares - found[0].shares).mean(axis=1)[(found[1].shares >= 0.5).all(axis=1)]
    first = examples.numbers[0]
    assert (found[1].shares[first] - found[0].shares[first]).mean() == gain.max()
    confident = found[1].scores[(found[1].shares < 0.5).all(axis=1)]
    assert found[1].scores[examples.numbers[3]] == confident.max()
    for one in found:
        keep_maps(one.saved.run, examples.numbers)
    localization(tmp_path / "image", tmp_path / "points", count=3, out=out)
    with out.with_suffix(".csv").open() as file:
        lines = list(csv.DictReader(file))
    assert [(line["example"], line["run"]) for line in lines[:2]] == [("good", "image"), ("good", "points")]
    assert [line["class"] for line in lines[1::2]] == [data.classes[c] for c in examples.classes]
    assert [float(line["IoA_P_at_0.7"]) for line in lines[1::2]] == pytest.approx(shares[:, 1], rel=1e-4)
    assert {line["places"] for line in lines} == {"masks"}
    assert out.read_bytes().startswith(b"\x89PNG")


def test_attention_is_shown_as_it_was_judged(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = scored(tmp_path / "q2l", data, 1.5)
    save(TrainConfig(classifier="query2label"), run.config_file)
    found = read_evaluated([run.path], "test")
    numbers = choose(found, 1)
    shares = np.full((len(numbers.rows), 2, 2), 0.1, np.float32)
    shares[:, 0] = 0.2, 0.6
    kept = {"rows": numbers.rows, "classes": numbers.classes, "cells": np.log(shares / (1 - shares))}
    np.savez(run.located_maps_file("test"), **kept)
    shown: list[np.ndarray] = []
    said: list[str] = []

    def show(axes: Any, image: Any, values: np.ndarray, seen: Any) -> None:
        shown.append(values)
        show_map(axes, image, values, seen)

    monkeypatch.setattr("sparselabel.report.figures.localization_examples.show_map", show)
    monkeypatch.setattr(Figure, "suptitle", lambda _, words, **how: said.append(words))
    draw_localization(found, numbers, "test", tmp_path / "one.png")
    assert len(shown) == len(numbers.rows) == 2
    assert np.stack(shown) == pytest.approx(np.array([[[0.2, 1], [0, 0]]] * 2), abs=1e-5)  # 0.1 to 0.6
    assert said[0].endswith("\nMaps of q2l are attention: where it looked, not scores of cells")


@pytest.mark.parametrize(("sharp", "kind"), [(50.0, "good"), (-50.0, "failed")])
def test_where_all_are_good_or_all_fail_there_is_no_empty_half(
    data: Dataset, tmp_path: Path, sharp: float, kind: str
) -> None:
    scored(tmp_path / "run", data, sharp)
    found = read_evaluated([tmp_path / "run"], "test")
    numbers = choose(found, 2)
    assert numbers.good == (2 if kind == "good" else 0)
    only = Examples(numbers.good, *(of[:2] for of in (numbers.numbers, numbers.rows, numbers.classes)))
    keep_maps(found[0].saved.run, only.numbers)
    table = draw_localization(found, only, "test", tmp_path / "one.png")
    with table.open() as file:
        assert [line["example"] for line in csv.DictReader(file)] == [kind, kind]
    with Image.open(tmp_path / "one.png") as image:
        wide, high = image.size
    assert wide / high == pytest.approx((1.75 * 4 + 0.6) / (1.85 * 2 + 0.9), rel=0.01)


def test_what_cannot_be_shown(data: Dataset, tmp_path: Path) -> None:
    run = scored(tmp_path / "run", data, 1.0)
    with pytest.raises(ConfigError, match="there is nothing to show: name an evaluated run"):
        localization(out=tmp_path / "a.png")
    with pytest.raises(ConfigError, match="`count` must be 1 to 12, not 0"):
        localization(run.path, count=0, out=tmp_path / "a.png")
    other = scored(tmp_path / "other", data, 1.0)
    boxes = LocalizationMetric(data.split("test"), "boxes")
    boxes.save(other.location_file("test"))
    with pytest.raises(
        RunError, match=r"run and .*other were evaluated by another ground truth: evaluate both by"
    ):
        localization(run.path, other.path, out=tmp_path / "a.png")
    run.location_file("test").unlink()
    with pytest.raises(RunError, match=r"location-test.npz: `.*evaluate .*run` with `split=test` write"):
        localization(run.path, out=tmp_path / "a.png")


def test_budgets(tmp_path: Path) -> None:
    values = {("I", 0.1): (30, 34), ("I", 0.4): (50,), ("SP", 0.1): (40,), ("SP", 0.4): (55,)}
    runs = []
    for (kind, share), found in values.items():
        how = Preparation("budget", annotate=kind, budget=share)  # type: ignore[arg-type]
        data = made(tmp_path / f"data-{kind}-{share}", how)
        for number, value in enumerate(found):
            run = make_run(tmp_path / f"{kind}-{share}-{number}", data)
            write_json(
                run.result_file, RESULT | {"method": "patchml", "test": {"name": "mAP", "value": value / 100}}
            )
            write_json(run.evaluation_file("test"), EVALUATION | {"location": {"mean": value / 200}})
            runs.append(run.path)
    for measure, scale in (("mAP", 1), ("mAP-loc", 0.5)):
        out = tmp_path / f"{measure}.png"
        budgets(*runs, measure=measure, out=out)  # type: ignore[arg-type]
        with out.with_suffix(".csv").open() as file:
            lines = list(csv.DictReader(file))
        assert [float(line["value"]) for line in lines] == [scale * n for n in (30, 34, 50, 40, 55)]
        assert [line["annotation"] for line in lines] == ["I", "I", "I", "SP", "SP"]
        spent = [float(line["spent_percent"]) for line in lines]
        assert spent == pytest.approx([10, 10, 40, 10, 40], abs=0.5)
        assert (int(lines[0]["points"]), int(lines[3]["points"]) > 0) == (0, True)
    Run(runs[0]).evaluation_file("test").unlink()
    with pytest.raises(RunError, match=r"evaluation-test.json: `sparselabel evaluate .* writes it"):
        budgets(*runs, measure="mAP-loc", out=out)
    with pytest.raises(ConfigError, match=r"name runs on data prepared with .*`sparsify=budget`"):
        budgets(out=out)


def test_runs_without_a_budget_are_named(data: Dataset, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", data)
    write_json(run.result_file, RESULT | {"test": {"name": "mAP", "value": 0.5}})
    with pytest.raises(RunError, match=r"which no budget bought: prepare data with .*`sparsify=budget`"):
        budgets(run.path, out=tmp_path / "a.png")
