"""``figure`` and ``differ`` as commands."""

from pathlib import Path

import numpy as np
import pytest

from sparselabel.config import FinetunePhase, Machine, Preparation, Views
from sparselabel.inference.evaluate import evaluate_run
from sparselabel.run import Run
from sparselabel.training.train_run import train_run
from tests.cli.conftest import Command, in_a_subprocess
from tests.report.figures.made_up import constant_maps, make_data, make_run, score, watch
from tests.training.conftest import small_scenes, tiny

LABELS = np.eye(5, dtype=np.int8)[[0, 1, 2, 3, 4, 0, 1, 2]]
FIGURES = (
    "heat-maps", "growth", "beside", "scores", "hidden-positives", "sizes", "sweep", "localization",
    "budgets",
)  # fmt: skip


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_has_help(command: Command, name: str) -> None:
    done = command("figure", name, "--help")
    assert done == 0
    assert f"Usage: sparselabel figure {name}" in done.out
    assert "--out" in done.out


def test_a_wrong_out_is_refused_first(command: Command) -> None:
    for name in FIGURES:
        done = command(
            "figure", name, *["nothing"] * (2 if name in ("beside", "sizes") else 1), "--out", "a.pdf"
        )
        assert (done, done.err) == (
            2,
            "sparselabel: error: a figure is a PNG file: --out must end in .png, but is a.pdf\n",
        )


def test_a_table_is_never_overwritten(command: Command) -> None:
    Path("table.csv").write_text("method,varied,value,test,spread\nan,settings.weight,1,50,\n")
    done = command("figure", "sweep", "table.csv", "--out", "table.png")
    assert done == 2
    assert "the figure's numbers would replace table.csv" in done.err
    assert command("figure", "sweep", ".", "--out", "table.png") == 2  # the same table, by its folder
    assert command("figure", "sweep", ".") == 0
    assert Path("sweep.csv").read_text().splitlines()[1] == "an,settings.weight,1,,50,"


def test_where_nothing_can_be_written_is_found_first(command: Command) -> None:
    Path("file").write_text("")
    for name in FIGURES:
        words = ["nothing"] * (2 if name in ("beside", "sizes") else 1)
        done = command("figure", name, *words, "--out", "file/a.png")
        assert done == 1
        assert "file/a.png cannot be written (" in done.err
        assert "is a file, not a folder): choose another --out" in done.err


def test_figures_of_a_trained_run(command: Command, tmp_path: Path) -> None:
    data = small_scenes(tmp_path / "data", 20, 12, Preparation(sparsify="single-positive"))
    train_run(data, tiny("en+scl"), tmp_path / "run", Machine(accelerator="cpu", workers=0))
    evaluate_run(Run(tmp_path / "run"), "test")
    done = command("figure", "heat-maps", "run", "--rows", "0", "15", "--out", "maps.png")
    assert (done, done.out) == (0, "written: maps.png, maps.csv\n")
    assert {line.split(",")[0] for line in Path("maps.csv").read_text().splitlines()[1:]} == {"0", "15"}
    assert command("figure", "growth", "run", "--row", "15") == 0
    assert {line.split(",")[2] for line in Path("growth.csv").read_text().splitlines()[1:]} == set("1234")
    assert command("figure", "beside", "run", "run", "--count", "1") == 0
    assert len(Path("beside.csv").read_text().splitlines()) == 1 + 2 * 5
    assert command("figure", "scores", "run", "--split", "test") == 0
    assert command("figure", "sizes", "run", "run", "--bins", "2") == 0
    done = command("figure", "scores", "run", "--split", "train")
    assert done == 1
    assert "`sparselabel evaluate run --split train` writes it" in done.err
    for name in ("maps", "growth", "beside", "scores", "sizes"):
        assert Path(f"{name}.png").read_bytes().startswith(b"\x89PNG"), name
    done = command("differ", "run", "run", "--samples", "50")
    assert done == 0
    assert done.out.startswith("test: 12 images, mAP\n  run  ")


def test_figures_of_attention(command: Command, tmp_path: Path) -> None:
    data = small_scenes(tmp_path / "data", 20, 12, Preparation(sparsify="single-positive"))
    machine = Machine(accelerator="cpu", workers=0)
    train_run(data, tiny(classifier="query2label", views=Views(size=64)), tmp_path / "q2l", machine)
    for name in ("heat-maps", "growth"):
        assert command("figure", name, "q2l") == 0
        lines = [line.split(",") for line in Path(f"{name}.csv").read_text().splitlines()]
        assert lines[0][-3:] == ["map", "map_mean", "map_max"]
        found = {(line[-3], round(float(line[-2]), 3)) for line in lines[1:]}
        assert found == {("attention", 0.25)}  # of 2 x 2 cells
    train_run(data, tiny(frozen=True, finetune=FinetunePhase(epochs=0)), tmp_path / "frozen", machine)
    done = command("figure", "heat-maps", "frozen")
    assert done == 1
    assert "frozen kept no maps of its watched images, as it was trained on stored features" in done.err
    assert "`sparselabel report frozen`" in done.err


def test_differ(command: Command, tmp_path: Path) -> None:
    data = make_data(tmp_path, LABELS)
    wrong = LABELS[::-1].copy()
    for name, scores in (("good", LABELS), ("bad", wrong)):
        score(make_run(tmp_path / name, data), data, "test", scores * 0.5)
    done = command("differ", "bad", "good", "--samples", "100")
    assert done == 0
    lines = done.out.splitlines()
    assert lines[0] == "test: 8 images, mAP"
    assert lines[2] == "  good  100.00"
    assert lines[3].startswith("difference +")
    assert lines[3].endswith("% of 100 draws have its sign")
    done = command("differ", "good", "good", "--samples", "100")
    assert done.out.splitlines()[3] == "no difference, 95 % interval +0.00 to +0.00 over 100 draws"
    done = command("differ", "bad", "good", "--split", "train")
    assert (done, "scores-train.npz: `sparselabel evaluate bad --split train` writes it" in done.err) == (
        1,
        True,
    )


def test_differ_refuses_what_cannot_be_paired(command: Command, tmp_path: Path) -> None:
    for name, labels in (("one", LABELS), ("shorter", LABELS[:-1]), ("other", LABELS[::-1].copy())):
        data = make_data(tmp_path / name, labels)
        score(make_run(tmp_path / name / "run", data), data, "test", labels * 0.5)
    done = command("differ", "one/run", "shorter/run")
    assert (done, "have other images or classes in split 'test'" in done.err) == (1, True)
    done = command("differ", "one/run", "other/run")
    assert (done, "have other labels in split 'test'" in done.err) == (1, True)


def test_figures_need_no_torch(tmp_path: Path) -> None:
    data = make_data(tmp_path, LABELS)
    run = make_run(tmp_path / "run", data)
    score(run, data, "test", LABELS * 0.5)
    watch(run, 0, [0], [[0.5] * 5], maps=constant_maps([[0.5] * 5], 2))
    (tmp_path / "torch.py").write_text("raise ImportError('torch was imported')")
    for words in (("scores", "run", "--split", "test"), ("heat-maps", "run")):
        done = in_a_subprocess("figure", *words, cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
