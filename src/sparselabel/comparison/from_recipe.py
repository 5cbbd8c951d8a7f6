"""What a comparison takes from a recipe, where nobody says otherwise."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sparselabel.comparison.grid import CHOOSE, VARY, Varied
from sparselabel.comparison.planned_runs import has_preset, settings_known
from sparselabel.comparison.recipe_differences import differences_from_recipe
from sparselabel.config import Recipe, TrainConfig
from sparselabel.errors import command

if TYPE_CHECKING:
    from sparselabel.data.dataset import Dataset


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
    told: FromRecipe | None,
) -> tuple[list[str], list[Varied], Varied | None, TrainConfig]:
    """What to compare: what was asked for, else what the recipe says."""
    if told is None:
        return list(methods or []), choose or [], vary, config
    asked = told.recipe.compare
    named = list(methods or asked.methods)
    chosen = _of_recipe(asked.choose, named, CHOOSE) if choose is None else choose
    varied = next(iter(_of_recipe(asked.vary, named, VARY)), None) if vary is None else vary
    return named, chosen, varied, _without_others_settings(config, named, told)


def notes_on(data: "Dataset", config: TrainConfig, told: FromRecipe | None) -> list[str]:
    """Notes for readers of the table."""
    notes = []
    if not {"val", "test"} & {*data.splits}:
        notes.append(
            "the data has neither a validation nor a test split, so nothing is measured: prepare it with "
            f"one ({command('prepare', '...', validation=0.2)})"
        )
    if told is not None and told.recipe.published:
        notes.append(differences_from_recipe(told.recipe, told.config, data, config))
    return [note for note in notes if note]


def _of_recipe(values: dict[str, tuple[Any, ...]], methods: Sequence[str], flag: str) -> list[Varied]:
    """A recipe's settings to vary or to choose from, those that one of the methods has."""
    settings = [Varied.of([name, *several], flag) for name, several in values.items()]
    known = settings_known(methods)
    return [one for one in settings if any(one.concerns(method, known[method]) for method in methods)]


def _without_others_settings(config: TrainConfig, methods: Sequence[str], told: FromRecipe) -> TrainConfig:
    """Without a recipe's settings that none of the methods has: they are for others of its table."""
    known = {name for settings in settings_known(methods).values() for name in settings}
    if not any(has_preset(method, config.settings.get("preset")) for method in methods):
        known.discard("preset")
    recipes_own = told.config.settings
    own = {name for name, value in config.settings.items() if recipes_own.get(name) != value}
    settings = {name: value for name, value in config.settings.items() if name in known | own}
    return replace(config, settings=settings)
