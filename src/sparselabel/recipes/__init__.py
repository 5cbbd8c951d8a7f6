"""Recipes: the settings, commands and numbers of published tables, one TOML file each (docs/recipes.md).

A file is a training configuration with one table more, ``[recipe]``. Its name is its path: ``scl/voc``.
"""

from importlib.resources import files
from importlib.resources.abc import Traversable

from sparselabel.config import Recipe, TrainConfig, from_dict, take_recipe
from sparselabel.errors import ConfigError, nearest
from sparselabel.file_formats import parse_toml

SUFFIX = ".toml"


def names() -> list[str]:
    """The names of all recipes, sorted."""
    papers = [folder for folder in files(__name__).iterdir() if folder.is_dir()]
    return sorted(
        f"{folder.name}/{file.name.removesuffix(SUFFIX)}"
        for folder in papers
        for file in folder.iterdir()
        if file.name.endswith(SUFFIX)
    )


def file_of(name: str) -> Traversable:
    """The file of a recipe; an unknown name is an error that names the nearest."""
    known = names()
    if name not in known:
        raise ConfigError(
            f"there is no recipe {name!r}", nearest(name, known), what="recipe", value=name, allowed=known
        )
    return files(__name__).joinpath(name + SUFFIX)


def text_of(name: str) -> str:
    """A recipe's file as it is."""
    return file_of(name).read_text(encoding="utf-8")


def load(name: str) -> tuple[TrainConfig, Recipe]:
    """A recipe's configuration and its [recipe] table."""
    values, where = parse_toml(text_of(name), f"recipe {name}"), f"recipe {name}"
    recipe = take_recipe(values, where)
    if recipe is None:
        raise ConfigError(f"{where} has no table [recipe]: it is only a configuration", what=name)
    return from_dict(TrainConfig, values, where), recipe
