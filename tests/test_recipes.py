"""Every recipe is a configuration that works, its commands are understood, its numbers are the papers'."""

import csv
import shlex
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from sparselabel import cli
from sparselabel.compare import plan
from sparselabel.config import Recipe, Settings, TrainConfig
from sparselabel.errors import ConfigError
from sparselabel.method.catalog import METHODS, combinations, make_method
from sparselabel.recipes import file_of, load, names, text_of

ROOT = Path(__file__).parent.parent
NAMES = names()
RECIPES = {name: load(name) for name in NAMES}


def words_of(command: str) -> list[str]:
    program, *words = shlex.split(command)
    assert program == "sparselabel"
    return words


@cache
def understood(command: str) -> tuple[Any, dict[str, Any]]:
    """The function that a command would run, and its arguments, the recipe's settings included."""
    verb, bound, _ = cli.app.parse_args(words_of(command), exit_on_error=False, print_error=False)
    return verb, bound.arguments


def commands(part: str) -> list[Any]:
    return [
        pytest.param(name, command, id=f"{name} {number}")
        for name, (_, recipe) in RECIPES.items()
        for number, command in enumerate(getattr(recipe, part))
    ]


@pytest.fixture(params=NAMES)
def recipe(request: pytest.FixtureRequest) -> tuple[str, TrainConfig, Recipe]:
    return request.param, *RECIPES[request.param]


def test_a_recipe_is_a_configuration_of_its_method(recipe: tuple[str, TrainConfig, Recipe]) -> None:
    name, config, about = recipe
    make_method(config.method, **config.settings.given())
    assert config.method in next(iter(about.published.values()))  # the number that the list shows
    _, arguments = understood(f"sparselabel train data --recipe {name} --out run")
    assert arguments["config"] == config
    assert arguments["out"] == Path("run")


def test_methods_are_ours_and_numbers_are_per_cent(recipe: tuple[str, TrainConfig, Recipe]) -> None:
    about = recipe[2]
    assert about.published
    for values in about.published.values():
        assert set(values) <= {*METHODS, *combinations()}
        assert all(10 < value < 100 for value in values.values())
    for measured in about.ours:
        assert set(measured.values) <= {*METHODS, *combinations()}
        assert measured.measure in about.published


def test_everything_is_said(recipe: tuple[str, TrainConfig, Recipe]) -> None:
    _, _, about = recipe
    assert about.prepare
    assert about.train
    assert "measured" in about.cost
    assert bool(about.ours) != ("Not run here" in about.remarks)


@pytest.mark.parametrize(("name", "command"), commands("prepare"))
def test_prepare_commands_are_understood(name: str, command: str) -> None:
    assert words_of(command)[0] == "prepare"
    _, arguments = understood(command)
    assert arguments["out"].name.partition("-")[0] == name.partition("/")[2].partition("-")[0]


@pytest.mark.parametrize(("name", "command"), commands("train"))
def test_train_commands_do_what_the_recipe_says(name: str, command: str) -> None:
    config, about = RECIPES[name]
    _, arguments = understood(command)
    prepared = {understood(prepare)[1]["out"] for prepare in about.prepare}
    assert arguments["data"] in prepared
    given, phase = arguments["config"], next(iter(config.phases))
    # Batch, fine-tuning rate and settings are what commands choose from; the rest is the recipe's.
    chosen = {key: replace(getattr(given, key), batch=getattr(config, key).batch) for key in ("head", "full")}
    if len(config.phases) == 2:
        chosen["full"] = replace(chosen["full"], learning_rate=config.full.learning_rate)
    rates = arguments.get("learning_rates") or ()
    if "--recipe" not in command:  # flags alone: what is off does not matter
        off = "full" if phase == "head" else "head"
        chosen[off] = getattr(config, off)
        chosen[phase] = replace(chosen[phase], learning_rate=getattr(config, phase).learning_rate)
    assert replace(given, method=config.method, settings=config.settings, **chosen) == config
    planned = plan(given, arguments["methods"], rates, arguments.get("seeds") or (0,), arguments["out"])
    assert planned
    for run in planned:
        make_method(run.method, **run.config.settings.given())


def test_every_published_method_is_trained() -> None:
    for name, (_, about) in RECIPES.items():
        trained = {method for command in about.train for method in understood(command)[1]["methods"]}
        assert set(next(iter(about.published.values()))) <= trained, name


def test_no_two_commands_write_to_one_place() -> None:
    for _, about in RECIPES.values():
        places = [understood(command)[1]["out"] for command in (*about.prepare, *about.train)]
        assert len(set(places)) == len(places)


def test_backbones_exist() -> None:
    import timm

    for config, _ in RECIPES.values():
        known = timm.list_pretrained() if config.weights == "pretrained" else timm.list_models()
        assert config.backbone in known


@pytest.mark.parametrize(
    ("name", "measure", "method", "value"),
    [
        ("p1/voc", "test mAP", "en+scl", 88.8),
        ("p1/voc", "test mAP", "an", 86.0),
        ("p1/coco", "test mAP", "role", 69.9),
        ("p1/coco", "validation mAP", "epr+scl", 72.3),
        ("p1/coco", "validation mAP", "ep+cl", 65.8),
        ("p1/nus", "test mAP", "en+cl", 49.0),
        ("p1/cub", "test mAP", "an-ls", 16.0),
        ("p1/voc-scratch", "test mAP", "wan", 44.4),
        ("p1/coco-scratch", "test mAP", "en+cl", 55.0),
        ("p1/imagenet", "ReaL mAP", "en+scl", 82.3),
        ("p1/imagenet", "ReaL mAP, 3 labels", "en+cl", 36.6),
        ("p1/coco-75", "test mAP", "en+scl", 79.3),
        ("p1/coco-40", "test mAP", "en+cl", 75.8),
        ("p1/coco-single", "test mAP, reported by Zhang et al.", "pseudo", 69.77),
        ("p3/voc-linear", "test mAP", "role", 86.5),
        ("p3/voc-linear", "hidden training labels, mAP", "role", 90.3),
        ("p3/coco-linear", "test mAP", "iu", 60.8),
        ("p3/nus-end-to-end", "test mAP", "bce-ls", 53.5),
        ("p3/cub-end-to-end", "test mAP", "wan", 20.3),
        ("p3/cub-linear-init", "test mAP", "an-ls", 16.6),
    ],
)
def test_numbers_of_the_papers(name: str, measure: str, method: str, value: float) -> None:
    assert RECIPES[name][1].published[measure][method] == value


def test_settings_of_the_papers() -> None:
    expected = {name: config.settings.expected_positives for name, (config, _) in RECIPES.items()}
    assert {name: k for name, k in expected.items() if name.count("-") == 0} == {
        "p1/voc": 1.5, "p1/coco": 2.9, "p1/nus": 1.9, "p1/cub": 31.5, "p1/imagenet": 1.22,
    }  # fmt: skip
    assert expected["p3/cub-linear"] == 31.4
    coco, scratch, imagenet = (RECIPES[f"p1/{name}"][0] for name in ("coco", "coco-scratch", "imagenet"))
    assert (coco.head.epochs, coco.head.learning_rate, coco.head.batch) == (5, 1e-3, 8)
    assert (coco.full.epochs, coco.full.learning_rate, coco.full.batch) == (25, 1e-5, 8)
    assert (coco.views.size, coco.views.smallest_crop, coco.full.schedule) == (448, 0.25, "cosine")
    assert (scratch.weights, scratch.head.epochs, scratch.full.epochs) == ("none", 0, 100)
    assert (scratch.full.learning_rate, scratch.full.schedule) == (1e-4, "cosine")
    assert (imagenet.views.smallest_crop, imagenet.settings.top_maps) == (0.08, 10)
    assert (imagenet.head.learning_rate, imagenet.head.weight_decay) == (1e-4, 1e-4)
    linear, tuned, both = (RECIPES[f"p3/voc-{name}"][0] for name in ("linear", "end-to-end", "linear-init"))
    assert (linear.frozen, linear.head.epochs, linear.views.smallest_crop) == (True, 25, 1.0)
    assert (tuned.full.epochs, tuned.full.schedule, tuned.frozen) == (10, "constant", False)
    assert (both.head, both.full.epochs, both.full.start) == (linear.head, 5, "best")


def test_what_was_run_is_what_the_recipe_says() -> None:
    config, about = RECIPES["p3/voc-linear-mobilenet"]
    for measured in about.ours:
        _, arguments = understood(measured.command)
        given = replace(arguments["config"], method=config.method, settings=Settings())
        assert given == replace(config, settings=Settings())
        assert tuple(arguments["seeds"]) == measured.seeds
        assert set(arguments["methods"]) == set(measured.values)


def test_our_values_are_those_of_the_results() -> None:
    with (ROOT / "results/voc2012-linear.csv").open(newline="", encoding="utf-8") as file:
        results = {
            row["method"]: tuple(float(row[f"test_{seed}"]) for seed in range(3))
            for row in csv.DictReader(file)
        }
    ours = RECIPES["p3/voc-linear-mobilenet"][1].ours
    assert {method: values for measured in ours for method, values in measured.values.items()} == results


def test_files_are_found_by_name() -> None:
    assert len(NAMES) == 23
    assert text_of("p1/voc") == file_of("p1/voc").read_text(encoding="utf-8")
    with pytest.raises(ConfigError, match="there is no recipe 'p1/vocc': did you mean 'p1/voc'"):
        text_of("p1/vocc")
    with pytest.raises(ConfigError, match="there is no recipe"):
        text_of("../pyproject")


def test_all_are_in_the_package_and_on_the_page() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    pattern = next(
        glob for glob in project["tool"]["setuptools"]["package-data"]["sparselabel"] if "toml" in glob
    )
    assert len(list((ROOT / "src/sparselabel").glob(pattern))) == len(NAMES)
    page = (ROOT / "docs/recipes.md").read_text(encoding="utf-8")
    listed = [line.split("`")[1] for line in page.splitlines() if line.startswith(("| `p1/", "| `p3/"))]
    assert sorted(listed) == NAMES
