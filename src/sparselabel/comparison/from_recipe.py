"""What a comparison takes from a recipe unless arguments set it, and notes on how it differs from it."""

import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from sparselabel.comparison.grid import CHOOSE, VARY, Varied
from sparselabel.comparison.planned_runs import has_preset, settings_known
from sparselabel.config import Preparation, Recipe, TrainConfig
from sparselabel.errors import command, listing
from sparselabel.run import flat_settings

if TYPE_CHECKING:
    from sparselabel.data.dataset import Dataset

PAPERS_DATA = {
    "voc": (20, 5823),
    "coco": (80, 40137),
    "objects365": (365, 80000),
    "nuswide": (81, 60260),
    "cub": (312, 5794),
    "imagenet": (1000, 50000),
}
"""Classes and test images of the papers, by the reader or the folder of a recipe's `prepare`."""
HIDDEN_BY = (
    "sparsify",
    "positives",
    "negatives",
    "share",
    "prefer",
    "keep_train",
    "annotate",
    "budget",
    "answers",
    "cost",
)
NUMBERS = {"budget": float, "answers": int}
"""Types of settings whose default is None."""
NOT_COMPARED = ("method", "seed", "settings", "watch")
"""Settings that are a table's rows, or that change no number."""


@dataclass(frozen=True)
class FromRecipe:
    """A recipe, and its own configuration."""

    recipe: Recipe
    config: TrainConfig

    @staticmethod
    def load(name: str) -> "FromRecipe":
        """One of the package's recipes, by name."""
        from sparselabel.recipes import load

        config, recipe = load(name)
        return FromRecipe(recipe, config)


def asked_for(
    config: TrainConfig,
    methods: Sequence[str] | None,
    choose: list[Varied] | None,
    vary: Varied | None,
    loaded: FromRecipe | None,
) -> tuple[list[str], list[Varied], Varied | None, TrainConfig]:
    """Methods and grids to compare: the given ones, or else the recipe's."""
    if loaded is None:
        return list(methods or []), choose or [], vary, config
    compared = loaded.recipe.compare
    named = list(methods or compared.methods)
    chosen = _of_recipe(compared.choose, named, CHOOSE) if choose is None else choose
    varied = next(iter(_of_recipe(compared.vary, named, VARY)), None) if vary is None else vary
    return named, chosen, varied, _without_others_settings(config, named, loaded)


def notes_on(data: "Dataset", config: TrainConfig, loaded: FromRecipe | None) -> list[str]:
    """Notes for readers of the table."""
    notes = []
    if not {"val", "test"} & {*data.splits}:
        notes.append(
            "the data has neither a validation nor a test split, so nothing is measured: prepare it with "
            f"one ({command('prepare', '...', validation=0.2)})"
        )
    if loaded is not None and loaded.recipe.published:
        notes.append(differences_from_recipe(loaded.recipe, loaded.config, data, config))
    return [note for note in notes if note]


def _of_recipe(values: dict[str, tuple[Any, ...]], methods: Sequence[str], flag: str) -> list[Varied]:
    """A recipe's settings to vary or to choose from, if one of the methods has them."""
    settings = [Varied.of([name, *several], flag) for name, several in values.items()]
    known = settings_known(methods)
    return [one for one in settings if any(one.concerns(method, known[method]) for method in methods)]


def _without_others_settings(config: TrainConfig, methods: Sequence[str], loaded: FromRecipe) -> TrainConfig:
    """The configuration without settings of the recipe that none of the methods has."""
    known = {name for settings in settings_known(methods).values() for name in settings}
    if not any(has_preset(method, config.settings.get("preset")) for method in methods):
        known.discard("preset")
    recipes_own = loaded.config.settings
    own = {name for name, value in config.settings.items() if recipes_own.get(name) != value}
    settings = {name: value for name, value in config.settings.items() if name in known | own}
    return replace(config, settings=settings)


def differences_from_recipe(recipe: Recipe, theirs: TrainConfig, data: "Dataset", ours: TrainConfig) -> str:
    """A note on what differs from the recipe in data and settings; "" for nothing."""
    differences = [*_data(recipe, data), *_settings(_compared(theirs), _compared(ours))]
    if not differences:
        return ""
    return f"published numbers are of other conditions ({recipe.paper}). Here: {listing(differences)}"


def _data(recipe: Recipe, data: "Dataset") -> list[str]:
    """How prepared data differs from what the recipe's commands prepare."""
    commands = [shlex.split(command)[2:] for command in recipe.prepare]
    names = [words[1].lower() if words[1].lower() in PAPERS_DATA else words[0] for words in commands]
    known = [PAPERS_DATA[name] for name in names if name in PAPERS_DATA]
    size = len(data.classes), len(data.splits["test"]) if "test" in data.splits else 0
    differences = []
    if known and size != known[0]:
        classes, images = known[0]
        differences.append(
            f"data {data.name} with {size[0]:,} classes and {size[1]:,} test images (the paper's has "
            f"{classes:,} and {images:,})"
        )
    made = {name: data.made["preparation"][name] for name in HIDDEN_BY}
    wanted = [_preparation(flags) for flags in map(_flags, commands) if "labels" not in flags]
    if wanted and made not in wanted:
        differ = [
            f"{name.replace('_', '-')} {made[name]}" for name in HIDDEN_BY if made[name] != wanted[0][name]
        ]
        differences.append(f"prepared with {', '.join(differ)}")
    return differences


def _flags(words: list[str]) -> dict[str, str]:
    """The flags of a command by the names of their parameters, each with the word after it."""
    return {
        flag[2:].replace("-", "_"): value
        for flag, value in zip(words, [*words[1:], ""], strict=True)
        if flag.startswith("--")
    }


def _preparation(flags: dict[str, str]) -> dict[str, Any]:
    """The preparation that a command with these flags makes, with defaults for missing flags."""
    defaults = asdict(Preparation())
    return {
        name: NUMBERS.get(name, type(defaults[name]))(flags[name]) if name in flags else defaults[name]
        for name in HIDDEN_BY
    }


def _settings(theirs: dict[str, Any], ours: dict[str, Any]) -> list[str]:
    return [
        f"{name} {ours.get(name)} (not {theirs.get(name)})"
        for name in {**theirs, **ours}
        if ours.get(name) != theirs.get(name)
    ]


def _compared(config: TrainConfig) -> dict[str, Any]:
    """The compared settings, by the names of their flags."""
    flat = flat_settings(asdict(config)).items()
    return {
        name.replace("_", "-"): value for name, value in flat if name.partition(".")[0] not in NOT_COMPARED
    }
