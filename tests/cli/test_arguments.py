"""Configuration files and recipes, integer arguments, and surplus words."""

import re
import shlex
from pathlib import Path

import pytest

from sparselabel.cli import app
from sparselabel.cli.help import too_many
from tests.cli.conftest import Captured, Command

READERS = (
    *("voc", "coco", "nuswide", "cub", "imagenet", "table", "folder", "scenes"),
    *("label-studio", "cvat", "fiftyone"),
)
FIGURES = ("heat-maps", "growth", "beside", "scores", "sizes", "sweep")
COMMANDS = [
    *(
        "data",
        "labels",
        "report",
        "methods",
        "recipes",
        "expect",
        "train",
        "evaluate",
        "compare",
        "differ",
        "demo",
    ),
    *("prepare", *(f"prepare {name}" for name in READERS)),
    *("figure", *(f"figure {name}" for name in FIGURES)),
]
TAKES_A_FILE = {"train", "compare", "expect", *(f"prepare {name}" for name in READERS)}


@pytest.mark.parametrize("name", COMMANDS)
def test_help_shows_its_own_example_and_files_where_they_apply(command: Command, name: str) -> None:
    done = command(*name.split(), "--help")
    assert done == 0
    examples = re.findall(r"^Example: (sparselabel .*?)\s*$", done.out, flags=re.MULTILINE)
    assert len(examples) == 1
    assert examples[0].startswith(f"sparselabel {name} ")
    _, bound, _ = app.parse_args(shlex.split(examples[0])[1:], exit_on_error=False, print_error=False)
    assert bound.arguments
    assert ("--config" in done.out) == (name in TAKES_A_FILE)
    assert ("--recipe STR" in done.out) == (name in ("train", "compare"))


def test_a_recipe_where_it_means_nothing_is_an_unknown_option(command: Command) -> None:
    done = command("data", "prepared", "--recipe", "scl/voc")
    assert done == 2
    assert "Unknown option: --recipe." in done.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("train prepared --out run --head.epochs 2.7", "--head.epochs must be a whole number, not 2.7"),
        ("compare prepared --methods an --out c --seeds 0 1.5", "--seeds must be a whole number, not 1.5"),
        ("prepare scenes --train 10.5 --out d", "--train must be a whole number, not 10.5"),
        ("train prepared --out run --config c.toml", "--finetune.epochs must be a whole number, not 0.5"),
    ],
)
def test_fractions_are_not_rounded(command: Command, captured: Captured, words: str, said: str) -> None:
    Path("c.toml").write_text("[finetune]\nepochs = 0.5\n")
    done = command(*words.split())
    assert done == 2
    assert f"sparselabel: error: {said}" in done.err
    assert captured == []


def test_a_whole_number_may_have_a_point(command: Command, captured: Captured) -> None:
    assert (
        command("train", "prepared", "--out", "run", "--head.epochs", "3.0", "--head.grad-clip", "0.5") == 0
    )
    assert (captured.config.head.epochs, captured.config.head.grad_clip) == (3, 0.5)


def test_a_file_spells_as_flags_or_as_fields(command: Command, captured: Captured) -> None:
    for spelling in ("batch-size", "batch_size"):
        Path("c.toml").write_text(f"[head]\n{spelling} = 24\n")
        assert command("train", "prepared", "--out", "run", "--config", "c.toml") == 0
        assert captured.config.head.batch_size == 24
    Path("c.toml").write_text("config = 'other.toml'")
    done = command("train", "prepared", "--out", "run", "--config", "c.toml")
    assert (done, "c.toml names another file (config): one file has all settings" in done.err) == (2, True)


def test_a_number_after_a_sparsifier(command: Command) -> None:
    done = command("prepare", "folder", "photos", "--out", "d", "--sparsify", "positive-share", "0.3")
    assert done == 2
    assert "write --sparsify positive-share --share 0.3." in done.err
    words = ["--sparsify", "per-class", "5"]
    assert too_many(words, ["5"]).endswith("write --sparsify per-class --positives 5 --negatives 0.")
    words = ["--sparsify", "single-positive", "1"]
    assert (
        too_many(words, ["1"])
        == "1 is one word too many after --sparsify single-positive: it takes no number."
    )
    assert too_many(["a", "b"], ["b"]).startswith("b: not understood.")
