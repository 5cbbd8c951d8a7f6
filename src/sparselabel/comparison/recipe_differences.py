"""How a comparison differs from the recipe whose published numbers its table shows."""

import shlex
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from sparselabel.config import Preparation, Recipe, TrainConfig
from sparselabel.errors import listing

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
"""Settings that are not given by default, and what they are if they are."""
NOT_COMPARED = ("method", "seed", "settings", "watch")
"""Settings that are a table's rows, or that change no number."""


def differences_from_recipe(recipe: Recipe, theirs: TrainConfig, data: "Dataset", ours: TrainConfig) -> str:
    """A note on what differs from the recipe, in data and settings; nothing where nothing is known to."""
    differences = [*_data(recipe, data), *_settings(_flat(asdict(theirs)), _flat(asdict(ours)))]
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
    defaults = asdict(Preparation())  # data of older versions does not say all
    made = {name: data.made["preparation"].get(name, defaults[name]) for name in HIDDEN_BY}
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
    """How a command with these flags hides labels; the defaults where they say nothing."""
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


def _flat(values: dict[str, Any], table: str = "") -> dict[str, Any]:
    """Settings by the names that their flags have."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flag = f"{table}{name.replace('_', '-')}"
        if not table and name in NOT_COMPARED:
            continue
        flat |= _flat(value, f"{flag}.") if isinstance(value, dict) else {flag: value}
    return flat
