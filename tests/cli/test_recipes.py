"""The recipes as the command shows and takes them."""

from pathlib import Path

import pytest

from sparselabel.config import HeadPhase
from sparselabel.recipes import load, names, text_of
from sparselabel.run import Run
from tests.cli.conftest import Captured, Command


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("│")[1:-1]]


def test_all_are_listed(command: Command) -> None:
    done = command("recipes")
    assert done == 0
    rows = [cells(line) for line in done.out.splitlines() if line.startswith("│")]
    assert [row[0] for row in rows] == names()
    assert ["scl/voc", "Verelst 2023 table 1, VOC12, ImageNet start", "en+scl", "88.8 test mAP", "no"] in rows
    assert [row[0] for row in rows if row[-1] == "yes"] == ["spml/voc-linear-mobilenet"]


def test_one_is_shown_with_its_commands_and_numbers(command: Command) -> None:
    done = command("recipes", "spml/voc-linear-mobilenet")
    assert done == 0
    _, recipe = load("spml/voc-linear-mobilenet")
    for line in (*recipe.prepare, *recipe.train):
        assert f"  {line}\n" in done.out
    assert "  methods: bce bce-ls iun an an-ls wan epr role pseudo; seeds: 0, 1, 2\n" in done.out
    assert "  chosen by validation: head.lr: 0.01, 0.001, 0.0001, 1e-05\n" in done.out
    assert "  chosen by validation: head.batch-size: 8, 16\n" in done.out
    rows = [cells(line) for line in done.out.splitlines() if line.startswith("│")]
    assert ["role", "86.5", "77.56 ± 0.09"] in rows
    assert ["iu", "82.6", "75.37 ± 0.01"] in rows
    assert ["pseudo", "", "78.11 ± 0.08"] in rows
    assert recipe.cost in done.out
    path = done.out.splitlines()[-1].removeprefix("All settings: ")
    assert Path(path).read_text(encoding="utf-8") == text_of("spml/voc-linear-mobilenet")


@pytest.mark.parametrize("name", names())
def test_numbers_are_whole_on_a_narrow_terminal(
    command: Command, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    done = command("recipes", name)
    lines = [line for line in done.out.splitlines() if line[:1] in "┏┡│└"]
    assert max(map(len, lines), default=0) <= 80
    shown = {cell for line in lines for cell in cells(line)}
    published = load(name)[1].published
    assert {str(number) for values in published.values() for number in values.values()} <= shown
    assert {method for values in published.values() for method in values} <= shown


def test_an_unknown_one(command: Command) -> None:
    for words in (["recipes", "scl/vocc"], ["train", "prepared", "--out", "run", "--recipe", "scl/vocc"]):
        done = command(*words)
        assert done == 2
        assert "error: there is no recipe 'scl/vocc': did you mean 'scl/voc'?" in done.err


def test_training_by_name_and_by_file(command: Command, captured: Captured) -> None:
    config, _ = load("scl/coco")
    assert command("train", "prepared", "--out", "run", "--recipe", "scl/coco") == 0
    assert captured.config == config
    Path("mine.toml").write_text(text_of("scl/coco"), encoding="utf-8")
    assert command("train", "prepared", "--out", "run", "--config", "mine.toml", "--seed", 3) == 0
    assert captured.config.seed == 3
    assert captured.config.settings == config.settings


def test_epochs_of_a_head_that_was_computed_are_not_those_of_another_method(
    command: Command, captured: Captured
) -> None:
    Path("soft.toml").write_text(
        'method = "soft"\nfrozen = true\n[head]\nepochs = 1\nlr = 0.5\n', encoding="utf-8"
    )
    assert command("train", "prepared", "--out", "run", "--config", "soft.toml", "--method", "an") == 0
    assert (captured.config.method, captured.config.head) == ("an", HeadPhase(lr=0.5))


@pytest.mark.parametrize(("method", "table"), [("pu", "settings"), ("pu", "head"), ("soft", "head")])
def test_a_table_of_a_file_must_be_one(
    command: Command, captured: Captured, method: str, table: str
) -> None:  # a number was an AttributeError, or counted for nothing
    Path("c.toml").write_text(f'method = "{method}"\n{table} = 5\n', encoding="utf-8")
    done = command("train", "prepared", "--out", "run", "--config", "c.toml")
    assert done == 2
    assert f"c.toml: {table} must be a table ([{table}]), not 5" in done.err
    assert captured == []


def test_a_file_and_a_recipe_are_one_too_many(command: Command, captured: Captured) -> None:
    done = command("train", "prepared", "--out", "run", "--recipe", "scl/voc", "--config", "c.toml")
    assert done == 2
    assert "error: --config c.toml and --recipe scl/voc cannot both be given" in done.err
    assert captured == []


RECIPE = '[recipe]\npaper = "P9"\nprepare = []\ntrain = []\ncost = "?"\ncompare = {methods = ["an"]}\n'
PUBLISHED = "[recipe.published.mAP]\nan = 50\n"
OURS = '[[recipe.ours]]\ncommand = ""\ndate = ""\nseeds = [0, 1]\nvalues = {an = [50]}\n'
WHOLE = RECIPE + PUBLISHED


@pytest.mark.parametrize(
    ("toml", "said"),
    [
        (WHOLE.replace("cost", "costs"), "[recipe] has an unknown key 'costs': did you mean 'cost'?"),
        (
            RECIPE.replace("compare = {methods", "# {methods"),
            "c.toml[recipe] has no 'compare': it must be given",
        ),
        (
            RECIPE.replace("}", ", vary = {seed = [1], watch = [2]}}"),
            "a recipe varies one setting, not seed, watch: write a file for each",
        ),
        (
            RECIPE.replace("}", ", choose = {seed = [[1]]}}"),
            "c.toml[recipe][compare][choose]: seed 1 must be a number or a text in quotes or true or false",
        ),
        ("recipe = 3", "c.toml: recipe must be a table ([recipe]), not 3"),
        (WHOLE.replace("train = []", "train = 5"), "[recipe]: train must be a list ([...]), not 5"),
        (WHOLE.replace("train = []", "train = [5]"), "[recipe]: train 1 must be a text in quotes, not 5"),
        (RECIPE + "published = 4", "c.toml[recipe]: published must be a table ([published]), not 4"),
        (WHOLE.replace("50", "'x'"), "c.toml[recipe][published][mAP]: an must be a number, not 'x'"),
        (WHOLE + OURS, "values of an must be one for each of the 2 seeds, not 1"),
    ],
)
def test_a_wrong_recipe_is_refused(command: Command, captured: Captured, toml: str, said: str) -> None:
    Path("c.toml").write_text(toml, encoding="utf-8")
    done = command("train", "prepared", "--out", "run", "--config", "c.toml")
    assert done == 2
    assert said in done.err
    assert captured == []
    Path("c.toml").write_text(WHOLE, encoding="utf-8")
    assert command("train", "prepared", "--out", "run", "--config", "c.toml") == 0


@pytest.mark.filterwarnings("ignore::sparselabel.errors.DataWarning")  # classes of which nothing is seen
def test_a_recipe_is_really_run(command: Command) -> None:
    """Cole 2021's linear protocol by its recipe, on a few scenes and a tiny network."""
    flags = ["--train", 30, "--test", 15, "--size", 32, "--sparsify", "single-positive", "--out", "scenes"]
    assert command("prepare", "scenes", *flags) == 0
    small = ["--backbone", "test_resnet", "--weights", "none", "--views.size", 32, "--head.epochs", 1]
    fewer = ["--methods", "an", "role", "--choose", "head.lr", "1e-2", "1e-3", "--workers", 0]
    again = ["compare", "scenes", "--recipe", "spml/voc-linear", *small, *fewer, "--out", "table-1"]
    done = command(*again)
    assert (done, len(list(Path("table-1").glob("*/result.json")))) == (0, 4)
    head, _, an, role, *notes = Path("table-1/table.md").read_text(encoding="utf-8").splitlines()
    assert notes[1].startswith(
        "Note: published numbers are of other conditions (Cole 2021 tables 1 and 2, VOC12"
    )
    assert "data scenes with 12 classes and 15 test images (the paper's has 20 and 5,823)" in notes[1]
    assert "backbone test_resnet (not resnet50.tv_in1k)" in notes[1]
    assert notes[1].removeprefix("Note: ") in done.out
    assert "as in Cole 2021 table 2" in notes[3]
    assert [cell.strip() for cell in head.split("|")[1:-1]] == [
        "method", "lr", "validation mAP", "test mAP", "over an", "mAP-loc", "all training labels, mAP",
        "published test mAP", "published all training labels, mAP", "time", "memory",
    ]  # fmt: skip
    assert [cell.strip() for cell in an.split("|")[1:-1]][7:9] == ["84.2", "85.8"]
    assert [cell.strip() for cell in role.split("|")[1:-1]][7:9] == ["86.5", "90.3"]
    config = Run(next(Path("table-1").glob("role-*seed0"))).config()
    assert (config.settings.get("expected_positives"), config.frozen, config.head.batch_size) == (
        1.5,
        True,
        16,
    )
    done = command(*again)
    assert "4 of 4 runs were finished before" in done.err
