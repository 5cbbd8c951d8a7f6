"""The ``[recipe]`` table of a recipe: which published numbers it reproduces, and how."""

from dataclasses import dataclass, field
from typing import Any

from sparselabel.errors import ConfigError, shown
from sparselabel.schema import from_dict

TABLE = "recipe"
"""The table of a configuration file that holds it; training ignores it."""

Values = tuple[float | str | bool, ...]


@dataclass(frozen=True)
class Comparison:
    """What `sparselabel compare` takes from a recipe unless flags set it.

    Parameters
    ----------
    methods
        The methods, in the order of the paper's table.
    seeds
        The seeds.
    choose
        Settings that the paper chooses by validation, named as for ``choose``, and the values it tries.
    staged
        Whether it chooses the head's first, and then those of fine-tuning.
    vary
        The setting that the paper's figure has on its axis, named as for ``vary``, and its values.
    """

    methods: tuple[str, ...]
    seeds: tuple[int, ...] = (0,)
    choose: dict[str, Values] = field(default_factory=dict)
    staged: bool = False
    vary: dict[str, Values] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.vary) > 1:
            raise ConfigError(
                f"a recipe varies one setting, not {', '.join(self.vary)}", "write a file for each"
            )


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
        Percent by method, one value per seed.
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
    """A published table or figure, or a part of one, and how to repeat it.

    Parameters
    ----------
    paper
        Paper, table and columns.
    prepare
        Commands that prepare the data.
    train
        Commands that train, with this recipe as their configuration.
    cost
        What the runs cost, and whether that was measured.
    compare
        What is compared.
    draw
        Commands that draw a figure of what was trained.
    published
        The paper's numbers in percent, by measure and method; of a figure, "METHOD VALUE" is a method at one
        value of what it varies. Empty where the paper prints none.
    remarks
        What the paper leaves open, what we do otherwise, what is missing.
    ours
        What we measured; empty if nobody has run it.
    """

    paper: str
    prepare: tuple[str, ...]
    train: tuple[str, ...]
    cost: str
    compare: Comparison
    draw: tuple[str, ...] = ()
    published: dict[str, dict[str, float]] = field(default_factory=dict)
    remarks: str = ""
    ours: tuple[Measured, ...] = ()

    def number(self, measure: str, method: str, value: str = "") -> float | None:
        """The published number of a method (at a value of the varied setting), if there is one."""
        return self.published.get(measure, {}).get(f"{method} {value}" if value else method)


def take_recipe(values: dict[str, Any], where: str) -> Recipe | None:
    """Take the recipe out of a file's values, so that the configuration is left; None if there is none."""
    if TABLE not in values:
        return None
    table = values.pop(TABLE)
    if not isinstance(table, dict):
        raise ConfigError(f"{where}: {TABLE} must be a table ([{TABLE}]), not {shown(table)}")
    return from_dict(Recipe, table, f"{where}[{TABLE}]")
