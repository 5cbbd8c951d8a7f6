"""What a recipe says beside its configuration: which published numbers it is there to repeat, and how."""

from dataclasses import dataclass
from typing import Any

from sparselabel.config.files import from_dict
from sparselabel.errors import ConfigError

TABLE = "recipe"
"""The table of a configuration file that holds it; training looks at nothing in it."""


@dataclass(frozen=True)
class Measured:
    """Values that we measured with a recipe.

    Parameters
    ----------
    command
        The command that gave them.
    date
        When, as 2026-01-31.
    seeds
        The seeds of the runs.
    values
        Per cent by method, one value a seed.
    measure
        What was measured, in the words of ``published``.
    """

    command: str
    date: str
    seeds: tuple[int, ...]
    values: dict[str, tuple[float, ...]]
    measure: str = "test mAP"

    def __post_init__(self) -> None:
        for method, values in self.values.items():
            if len(values) != len(self.seeds):
                raise ConfigError(
                    f"values of {method} must be one for each of the {len(self.seeds)} seeds, "
                    f"not {len(values)}"
                )


@dataclass(frozen=True)
class Recipe:
    """A published table, or a part of one, and how to repeat it.

    Parameters
    ----------
    paper
        Paper, table and columns.
    prepare
        Commands that prepare the data.
    train
        Commands that train, with this recipe as their configuration.
    published
        The paper's numbers in per cent, by measure and method.
    cost
        What the runs cost, and whether that was measured.
    remarks
        What the paper leaves open, what we do otherwise, what is missing.
    ours
        What we measured; empty if nobody has run it.
    """

    paper: str
    prepare: tuple[str, ...]
    train: tuple[str, ...]
    published: dict[str, dict[str, float]]
    cost: str
    remarks: str = ""
    ours: tuple[Measured, ...] = ()


def take_recipe(values: dict[str, Any], where: str) -> Recipe | None:
    """Take the recipe out of a file's values, so that the configuration is left; None if there is none."""
    if TABLE not in values:
        return None
    table = values.pop(TABLE)
    if not isinstance(table, dict):
        raise ConfigError(f"{where}: {TABLE} must be a table ([{TABLE}]), not {table!r}")
    return from_dict(Recipe, table, f"{where}[{TABLE}]")
