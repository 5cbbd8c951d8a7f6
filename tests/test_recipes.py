"""Every recipe is a configuration that works, its commands are understood, its numbers are the papers'."""

import csv
import re
import shlex
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from sparselabel import cli
from sparselabel.cli.arguments import recipe_in
from sparselabel.cli.compare import compare
from sparselabel.comparison.from_recipe import asked_for
from sparselabel.comparison.grid import Varied, choices
from sparselabel.comparison.planned_runs import Outcome, plan_runs
from sparselabel.comparison.staged_selection import first_stage, refuse_stages, second_stage
from sparselabel.config import Recipe, TrainConfig
from sparselabel.data.sparsify import split_rows
from sparselabel.errors import ConfigError
from sparselabel.losses.registry import METHODS, combinations
from sparselabel.recipes import file_of, load, names, text_of
from sparselabel.training.resolve import method_of, with_boosted_preset

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
    arguments = dict(bound.arguments)
    if "to" in arguments:  # of prepare: where to, and how
        arguments |= vars(arguments["to"])
    if verb is compare:  # what it does with them, in so far as it is not training
        choose, vary = arguments.get("choose"), arguments.get("vary")
        chosen = None if choose is None else choices(choose)
        given = arguments.get("methods"), chosen, None if vary is None else Varied.of(vary)
        told = recipe_in(arguments["given"]) if "given" in arguments else None
        arguments |= {"asked": asked_for(arguments["config"], *given, told), "told": told}
    return verb, arguments


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
    assert config.method in about.compare.methods
    method_of(config)
    _, arguments = understood(f"sparselabel train data --recipe {name} --out run")
    assert arguments["config"] == config
    assert arguments["out"] == Path("run")


def methods_of(values: Iterable[str]) -> set[str]:
    """The methods of published numbers: "an", or "an 0.8" at a value of what is varied."""
    return {name.partition(" ")[0] for name in values}


def test_methods_are_ours_and_numbers_are_per_cent(recipe: tuple[str, TrainConfig, Recipe]) -> None:
    about = recipe[2]
    for values in about.published.values():
        assert methods_of(values) <= {*METHODS, *combinations()}
        assert all(5 < value < 100 for value in values.values())
    for measured in about.ours:
        assert set(measured.values) <= {*METHODS, *combinations()}
        assert measured.measure in about.published
    if not about.published:
        assert recipe[0] in ("scl/coco-distances", "patchml/coco-equal", "other/openimages")


def test_published_numbers_belong_to_rows(recipe: tuple[str, TrainConfig, Recipe]) -> None:
    about = recipe[2]
    rows = set()
    for command in about.train:
        arguments = understood(command)[1]
        methods, chosen, varied, config = arguments["asked"]
        rows |= {
            f"{run.method} {run.value}".strip()
            for run in plan_runs(config, methods, (0,), arguments["out"], chosen, varied)
        }
    own = [values for measure, values in about.published.items() if "reported by" not in measure]
    assert {name for values in own for name in values} <= rows


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


IN_PROSE = re.compile(r"`(sparselabel [^`]+)`")


def commands_in_prose() -> list[Any]:
    """Commands that remarks and costs name, and those that gave our own numbers."""
    return [
        pytest.param(command, id=f"{name} {number}")
        for name, (_, recipe) in RECIPES.items()
        for number, command in enumerate(
            [
                *(" ".join(text.split()) for text in IN_PROSE.findall(recipe.remarks + recipe.cost)),
                *(measured.command for measured in recipe.ours),
            ]
        )
        if len(command.split()) > 2  # not a verb alone
    ]


@pytest.mark.parametrize("command", commands_in_prose())
def test_commands_in_prose_are_understood(command: str) -> None:
    verb, arguments = understood(command)
    assert verb.__name__.replace("_", "-") in words_of(command)
    assert arguments


@pytest.mark.parametrize(("name", "command"), commands("train"))
def test_train_commands_do_what_the_recipe_says(name: str, command: str) -> None:
    config, about = RECIPES[name]
    verb, arguments = understood(command)
    assert verb is compare
    prepared = {understood(prepare)[1]["out"] for prepare in about.prepare}
    assert arguments["data"] in prepared
    assert f"--recipe {name} " in command
    given = arguments["config"]
    # Batches and settings are what commands choose from; the rest is the recipe's.
    batches = {
        key: replace(getattr(given, key), batch_size=getattr(config, key).batch_size)
        for key in ("head", "finetune")
    }
    assert replace(given, settings=config.settings, **batches) == config
    methods, chosen, varied, config = arguments["asked"]
    planned = plan_runs(
        config, methods, arguments.get("seeds") or about.compare.seeds, arguments["out"], chosen, varied
    )
    assert planned
    for run in planned:
        method_of(replace(run.config, method=run.method))


@pytest.mark.parametrize(("name", "command"), commands("draw"))
def test_figures_are_drawn_of_what_was_trained(name: str, command: str) -> None:
    about = RECIPES[name][1]
    _, arguments = understood(command)
    trained = set()
    for line in about.train:
        made = understood(line)[1]
        methods, chosen, varied, config = made["asked"]
        trained |= {made["out"] / "table.csv", made["out"] / "table-by-labels.csv"}
        trained |= {run.path for run in plan_runs(config, methods, (0,), made["out"], chosen, varied)}
    read = [value for key, value in arguments.items() if key in ("run", "runs", "baseline", "tables")]
    assert {
        path for paths in read for path in (paths if isinstance(paths, tuple | list) else [paths])
    } <= trained


def test_how_many_runs_a_recipe_has() -> None:
    counts = {}
    for name, (_, about) in RECIPES.items():
        planned = 0
        for command in about.train:
            arguments = understood(command)[1]
            methods, chosen, varied, config = arguments["asked"]
            seeds = arguments.get("seeds") or about.compare.seeds
            runs = plan_runs(config, methods, seeds, arguments["out"], chosen, varied)
            if about.compare.staged:  # of the head's settings only the chosen ones are fine-tuned with
                refuse_stages(config, chosen, varied)
                alone, of_head, out = first_stage(config, chosen, arguments["out"])
                heads = plan_runs(alone, methods, seeds, out, of_head, varied)
                runs, _ = second_stage(
                    runs, [Outcome(run, {"validation": None, "test": None}) for run in heads]
                )
            planned += len(runs)
        counts[name] = planned
        said = re.search(r"(\d+) (?:short )?runs?\b", about.cost)
        assert said is not None
        assert int(said[1]) == planned, name
    assert counts["scl/voc"] == 11
    assert counts["spml/voc-linear"] == 72
    assert counts["spml/voc-linear-init"] == 16


def test_every_published_method_is_trained() -> None:
    for name, (_, about) in RECIPES.items():
        trained = {method for command in about.train for method in understood(command)[1]["asked"][0]}
        measures = [values for measure, values in about.published.items() if "reported by" not in measure]
        assert {method for values in measures for method in methods_of(values)} <= trained, name


def test_no_two_commands_write_to_one_place() -> None:
    for _, about in RECIPES.values():
        places = [understood(command)[1]["out"] for command in (*about.prepare, *about.train)]
        assert len(set(places)) == len(places)


def test_backbones_exist() -> None:
    import timm

    for config, _ in RECIPES.values():
        known = timm.list_pretrained() if config.weights == "pretrained" else timm.list_models()
        assert config.backbone in (*known, "cvt_w24")


@pytest.mark.parametrize(
    ("name", "measure", "method", "value"),
    [
        ("scl/voc", "test mAP", "en+scl", 88.8),
        ("scl/voc", "test mAP", "an", 86.0),
        ("scl/coco", "test mAP", "role", 69.9),
        ("scl/coco", "validation mAP", "epr+scl", 72.3),
        ("scl/coco", "validation mAP", "ep+cl", 65.8),
        ("scl/nus", "test mAP", "en+cl", 49.0),
        ("scl/cub", "test mAP", "an-ls", 16.0),
        ("scl/voc-scratch", "test mAP", "wan", 44.4),
        ("scl/coco-scratch", "test mAP", "en+cl", 55.0),
        ("scl/imagenet", "ReaL mAP", "en+scl", 82.3),
        ("scl/imagenet", "ReaL mAP, 3 labels", "en+cl", 36.6),
        ("scl/coco-75", "test mAP", "en+scl", 79.3),
        ("scl/coco-40", "test mAP", "en+cl", 75.8),
        ("scl/coco-single", "test mAP, reported by Zhang et al.", "pseudo", 69.77),
        ("patchml/coco", "test mAP, SP, 0.25 %", "patchml", 43.19),
        ("patchml/coco", "test mAP-loc, SB, 4 %", "patchml", 37.21),
        ("patchml/coco", "test mAP, I, 1 %", "csl-i", 55.53),
        ("patchml/coco-all", "test mAP, AB, 1 %", "patchml", 54.75),
        ("patchml/coco-unlabeled", "test mAP, SP, 0.5 %", "patchml+cluster", 56.04),
        ("patchml/coco-unlabeled", "test mAP, I, 4 %", "csl-i+cluster", 67.29),
        ("patchml/coco-unlabeled", "test mAP, I, 0.5 %, selective", "csl-i", 49.85),
        ("patchml/coco-token", "test mAP, I, 2 %", "csl-i", 58.82),
        ("patchml/coco-384", "test mAP, SP, 2 %", "patchml", 68.16),
        ("spml/voc-linear", "test mAP", "role", 86.5),
        ("spml/voc-linear", "all training labels, mAP", "role", 90.3),
        ("spml/coco-linear", "test mAP", "iu", 60.8),
        ("spml/nus-end-to-end", "test mAP", "bce-ls", 53.5),
        ("spml/cub-end-to-end", "test mAP", "wan", 20.3),
        ("spml/cub-linear-init", "test mAP", "an-ls", 16.6),
        ("scl/coco-momentum", "validation mAP", "en+scl 0.8", 73.7),
        ("scl/coco-crops", "validation mAP", "en+cl 0.25", 72.4),
        ("spml/voc-wrong-k", "test mAP", "epr 1.5", 83.8),
        ("spml/voc-fewer-images", "test mAP, all images", "bce", 86.7),
        ("q2l/coco-r101-448", "test mAP", "asl", 84.9),
        ("q2l/coco-r101-576", "test mAP", "asl", 86.5),
        ("q2l/coco-tresnet-l", "test mAP", "asl", 87.3),
        ("q2l/coco-tresnet-l-22k", "test mAP", "asl", 89.2),
        ("q2l/coco-swin-l", "test mAP", "asl", 90.5),
        ("q2l/coco-cvt-w24", "test mAP", "asl", 91.3),
        ("q2l/coco-role-linear", "test mAP", "role", 66.3),
        ("other/voc-large-losses", "test mAP", "ll-r", 89.4),
        ("other/cub-large-losses", "test mAP", "ll-ct", 21.8),
        ("q2l/coco-role-end-to-end", "test mAP", "role", 66.9),
        ("q2l/coco-role-end-to-end", "test mAP, reported by Cole 2021", "role", 66.3),
    ],
)
def test_numbers_of_the_papers(name: str, measure: str, method: str, value: float) -> None:
    assert RECIPES[name][1].published[measure][method] == value


def test_settings_of_the_papers() -> None:
    expected = {name: config.settings.get("expected_positives") for name, (config, _) in RECIPES.items()}
    assert {name: k for name, k in expected.items() if name.count("-") == 0} == {
        "other/openimages": "auto", "patchml/objects365": None,
        "patchml/coco": None, "scl/voc": 1.5, "scl/coco": 2.9, "scl/nus": 1.9, "scl/cub": 31.5,
        "scl/imagenet": 1.22,
    }  # fmt: skip
    assert expected["spml/cub-linear"] == 31.4
    coco, scratch, imagenet = (RECIPES[f"scl/{name}"][0] for name in ("coco", "coco-scratch", "imagenet"))
    assert (coco.head.epochs, coco.head.lr, coco.head.batch_size) == (5, 1e-3, 8)
    assert (coco.finetune.epochs, coco.finetune.lr, coco.finetune.batch_size) == (25, 1e-5, 8)
    assert (coco.views.size, coco.views.smallest_crop, coco.finetune.schedule) == (448, 0.25, "cosine")
    assert (scratch.weights, scratch.head.epochs, scratch.finetune.epochs) == ("none", 0, 100)
    assert (scratch.finetune.lr, scratch.finetune.schedule) == (1e-4, "cosine")
    assert (imagenet.views.smallest_crop, imagenet.settings.get("top_maps")) == (0.08, 10)
    assert (imagenet.head.lr, imagenet.head.weight_decay) == (1e-4, 1e-4)
    linear, tuned, both = (RECIPES[f"spml/voc-{name}"][0] for name in ("linear", "end-to-end", "linear-init"))
    assert (linear.frozen, linear.head.epochs, linear.views.smallest_crop) == (True, 25, 1.0)
    assert (tuned.finetune.epochs, tuned.finetune.schedule, tuned.frozen) == (10, "constant", False)
    assert (both.head, both.finetune.epochs, both.finetune.start) == (linear.head, 5, "best")


@pytest.mark.parametrize(
    ("data", "optimizer", "rate", "shares"),
    [
        ("voc", "sgd", 5e-3, (0.002, 0.002, 0.001)),
        ("coco", "adam", 1e-5, (0.004, 0.002, 0.002)),
        ("nus", "adam", 1e-5, (0.004, 0.002, 0.002)),
        ("cub", "adam", 7.5e-5, (0.004, 0.004, 0.002)),
    ],
)
def test_large_losses_are_trained_as_their_authors_did(
    data: str, optimizer: str, rate: float, shares: tuple[float, ...]
) -> None:
    config, about = RECIPES[f"other/{data}-large-losses"]
    full = config.finetune
    assert (full.optimizer, full.lr, full.head_rate) == (optimizer, rate, 10)
    assert (full.batch_size, full.epochs, config.head.epochs, config.boost) == (16, 10, 0, None)
    for boost, wanted in ((None, shares), (5.0, (0.005, 0.002, 0.001))):
        configs = [replace(config, method=name, boost=boost) for name in about.compare.methods]
        made = [method_of(with_boosted_preset(each)) for each in configs]
        assert tuple(float(vars(method.label_loss.rule)["share"]) for method in made) == wanted


def test_what_was_run_is_what_the_recipe_says() -> None:
    config, about = RECIPES["spml/voc-linear-mobilenet"]
    for measured in about.ours:
        _, arguments = understood(measured.command)
        given = replace(arguments["config"], method=config.method, settings={})
        assert given == replace(config, settings={})
        assert tuple(arguments["seeds"]) == measured.seeds
        assert set(arguments["methods"]) == set(measured.values)


def test_our_values_are_those_of_the_results() -> None:
    with (ROOT / "results/voc2012-linear.csv").open(newline="", encoding="utf-8") as file:
        results = {
            row["method"]: tuple(float(row[f"test_{seed}"]) for seed in range(3))
            for row in csv.DictReader(file)
        }
    ours = RECIPES["spml/voc-linear-mobilenet"][1].ours
    assert {method: values for measured in ours for method, values in measured.values.items()} == results


def test_files_are_found_by_name() -> None:
    assert len(NAMES) == 51
    assert text_of("scl/voc") == file_of("scl/voc").read_text(encoding="utf-8")
    with pytest.raises(ConfigError, match="there is no recipe 'scl/vocc': did you mean 'scl/voc'"):
        text_of("scl/vocc")
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
    listed = [
        line.split("`")[1]
        for line in page.splitlines()
        if line.startswith(("| `scl/", "| `patchml/", "| `spml/", "| `q2l/", "| `other/"))
    ]
    assert sorted(listed) == NAMES


def test_query2label_says_where_it_is_not_the_authors_program() -> None:
    named = [name for name in NAMES if RECIPES[name][0].classifier == "query2label"]
    assert len(named) == 6
    for name in named:
        config, about = RECIPES[name]
        assert config.finetune.patience == 9
        assert "the average alone is evaluated, and\ntraining stops 9 epochs after its best." in about.remarks
        assert all("--keep-empty" in command for command in about.prepare)
        assert "Query2Label §5.1 counts 82,081 and 40,137 images, those with a label" in about.remarks


def test_p2_budgets_are_shares_of_all_training_images() -> None:
    """Without the validation images they buy as many answers as all of COCO's do (PatchML table 1)."""
    images, prices = 82_783, {"I": 1, "SP": 84.9 / 80, "SB": 101 / 80}
    trained = len(split_rows(images, 0.05)[0])
    answers: dict[str, dict[float, int]] = {"I": {}, "SP": {}, "SB": {}}
    for command in RECIPES["patchml/coco"][1].prepare:
        how = understood(command)[1]["how"]
        share = float(command.rpartition("-")[2])
        seconds = how.budget * trained * 80
        assert seconds == pytest.approx(share / 100 * images * 80, abs=1)
        answers[how.annotate][share] = int(seconds / prices[how.annotate])
    assert answers == {
        "I": {0.25: 16_556, 0.5: 33_113, 1: 66_226, 2: 132_452, 4: 264_905},
        "SP": {0.25: 15_601, 0.5: 31_202, 1: 62_404, 2: 124_808, 4: 249_616},
        "SB": {0.25: 13_114, 0.5: 26_228, 1: 52_456, 2: 104_913, 4: 209_826},
    }
    used = {
        "patchml/coco",
        "patchml/coco-all",
        "patchml/coco-unlabeled",
        "patchml/coco-token",
        "patchml/coco-384",
    }
    budgets = {understood(command)[1]["how"].budget for name in used for command in RECIPES[name][1].prepare}
    assert budgets == {0.00263158, 0.00526316, 0.0105263, 0.0210526, 0.0421052}


def test_p2_equal_numbers_are_those_of_answers_alone() -> None:
    """Every kind is asked as many questions as table 1's budgets buy answers."""
    asked: dict[str, list[int]] = {}
    for command in RECIPES["patchml/coco-equal"][1].prepare:
        how = understood(command)[1]["how"]
        asked.setdefault(how.annotate, []).append(how.answers)
    assert asked == {kind: [16_556, 33_113, 66_226, 132_452, 264_905] for kind in ("I", "SP", "SB")}


def test_p2_objects365_is_table_5() -> None:
    about = RECIPES["patchml/objects365"][1]
    shares = ("0.05", "0.1", "0.2", "0.5", "1")
    found = {
        kind: [about.published[f"test mAP, {kind}, {share} %"][method] for share in shares]
        for kind, method in (("I", "csl-i"), ("SP", "patchml"))
    }
    assert found == {"I": [5.95, 7.25, 7.76, 10.6, 14.09], "SP": [10.01, 11.7, 11.38, 15.63, 18.47]}
    for command in about.prepare:
        how = understood(command)[1]["how"]
        assert how.cost == "flat-objects365"
        share = float(command.rpartition("-")[2]) / 100
        assert how.budget * (1 - how.validation) == pytest.approx(share, rel=1e-5)
