"""``sparselabel recipes``: published tables, and the commands that repeat them."""

import statistics
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.table import Table

from sparselabel.cli.methods import PAPERS
from sparselabel.cli.terminal import fitting_tables, names_first, plain_console

if TYPE_CHECKING:
    from sparselabel.config import Recipe


def recipes(name: str | None = None, /) -> None:
    """List the recipes of published tables, or show one with its commands and numbers.

    `sparselabel compare DATA --recipe NAME --out DIR` trains its methods; as a recipe is a configuration too,
    `sparselabel train DATA --recipe NAME --out RUN` trains the main one.

    Example: `sparselabel recipes scl/voc`

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
    table = names_first("recipe", "paper", "method", "published", "ours")
    for known in names():
        config, recipe = load(known)
        number = next((f"{values[0]} {measure}" for measure, values in _of(recipe, config.method)), "")
        table.add_row(known, recipe.paper, config.method, number, "yes" if recipe.ours else "no")
    console.print(table)
    console.print(PAPERS)
    console.print("`sparselabel recipes NAME` shows one with the numbers of all its methods.")


def _show(name: str) -> None:
    from sparselabel.recipes import file_of, load

    _, recipe = load(name)
    console = plain_console()
    console.print(f"{name}: {recipe.paper}", style="bold")
    for command in (*recipe.prepare, *recipe.train, *recipe.draw):
        console.print(f"  {command}")
    console.print(f"  methods: {' '.join(recipe.compare.methods)}; seeds: {_words(recipe.compare.seeds)}")
    for what, settings in (("varied", recipe.compare.vary), ("chosen by validation", recipe.compare.choose)):
        for setting, values in settings.items():
            console.print(f"  {what}: {setting}: {_words(values)}")
    if recipe.compare.staged:
        console.print("  chosen in two stages: the head's settings, then those of fine-tuning")
    if recipe.published or recipe.ours:
        for table in _numbers(recipe, console.width):
            console.print(table)
    console.print(f"Cost: {recipe.cost}")
    if recipe.remarks:
        console.print(recipe.remarks.strip())
    for measured in recipe.ours:
        seeds = _words(measured.seeds)
        console.print(f"Ours ({measured.date}, seeds {seeds}): {measured.command}")
    console.print(f"All settings: {file_of(name)}")


def _of(recipe: "Recipe", method: str) -> Iterator[tuple[str, list[float]]]:
    """A method's published numbers by measure, at whatever value of what is varied."""
    for measure, values in recipe.published.items():
        own = [number for name, number in values.items() if name.partition(" ")[0] == method]
        if own:
            yield measure, own


def _words(values: Sequence[object]) -> str:
    return ", ".join(f"{value:g}" if isinstance(value, float) else str(value) for value in values)


def _numbers(recipe: "Recipe", width: int) -> list[Table]:
    """Published numbers and ours with their spread, a row per method; several tables if it is wide."""
    ours: dict[str, dict[str, tuple[float, ...]]] = {}
    for measured in recipe.ours:
        ours.setdefault(measured.measure, {}).update(measured.values)
    titles = ["method", *recipe.published, *(f"ours, {measure}" for measure in ours)]
    methods = [method for values in recipe.published.values() for method in values]
    methods += [method for values in ours.values() for method in values]
    lines = []
    for method in dict.fromkeys(methods):
        published = [str(values.get(method, "")) for values in recipe.published.values()]
        lines.append([method, *published, *(_spread(values.get(method, ())) for values in ours.values())])
    return fitting_tables(titles, lines, width)


def _spread(values: Sequence[float]) -> str:
    """Mean ± standard deviation over the seeds."""
    if not values:
        return ""
    spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.2f}{spread}"
