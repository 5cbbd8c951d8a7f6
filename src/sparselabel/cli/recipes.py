"""``sparselabel recipes``: published tables, and the commands that repeat them."""

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.table import Table

from sparselabel.cli.methods import PAPERS
from sparselabel.cli.terminal import names_first, plain_console

if TYPE_CHECKING:
    from sparselabel.config import Recipe


def recipes(name: str | None = None, /) -> None:
    """List the recipes of published tables, or show one with its commands and numbers.

    A recipe is a configuration: `sparselabel train DATA --recipe NAME --out RUN`.

    Example: `sparselabel recipes p1/voc`

    Parameters
    ----------
    name
        The recipe to show.
    """
    from sparselabel.recipes import load, names

    if name is not None:
        _show(name)
        return
    console = plain_console()
    table = names_first("recipe", "paper", "its method", "published", "run here")
    for known in names():
        config, recipe = load(known)
        measure, values = next(iter(recipe.published.items()))
        number = f"{values[config.method]} {measure}"
        table.add_row(known, recipe.paper, config.method, number, "yes" if recipe.ours else "no")
    console.print(table)
    console.print(PAPERS)
    console.print("`sparselabel recipes NAME` shows one with the numbers of all its methods.")


def _show(name: str) -> None:
    from sparselabel.recipes import file_of, load

    _, recipe = load(name)
    console = plain_console()
    console.print(f"{name}: {recipe.paper}", style="bold")
    for command in (*recipe.prepare, *recipe.train):
        console.print(f"  {command}")
    console.print(_numbers(recipe))
    console.print(f"Cost: {recipe.cost}")
    if recipe.remarks:
        console.print(recipe.remarks.strip())
    for measured in recipe.ours:
        seeds = ", ".join(map(str, measured.seeds))
        console.print(f"Ours ({measured.date}, seeds {seeds}): {measured.command}")
    console.print(f"All settings: {file_of(name)}")


def _numbers(recipe: "Recipe") -> Table:
    """Published numbers and ours with their spread, a row a method."""
    ours: dict[str, dict[str, tuple[float, ...]]] = {}
    for measured in recipe.ours:
        ours.setdefault(measured.measure, {}).update(measured.values)
    table = names_first("method")
    for title in (*recipe.published, *(f"ours, {measure}" for measure in ours)):
        table.add_column(title, justify="right")
    methods = [method for values in recipe.published.values() for method in values]
    methods += [method for values in ours.values() for method in values]
    for method in dict.fromkeys(methods):
        published = [str(values.get(method, "")) for values in recipe.published.values()]
        table.add_row(method, *published, *(_spread(values.get(method, ())) for values in ours.values()))
    return table


def _spread(values: Sequence[float]) -> str:
    """Mean ± standard deviation over the seeds."""
    if not values:
        return ""
    spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.2f}{spread}"
