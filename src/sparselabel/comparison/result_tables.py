"""The results of a comparison: CSV with all numbers; tables for screen, Markdown and LaTeX; a figure."""

import csv
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sparselabel.comparison.planned_runs import RunKey
from sparselabel.comparison.summary import BASELINE, MAP_LOC, ORACLE, Pair, Row
from sparselabel.config import Recipe
from sparselabel.files import atomic_write, write_text
from sparselabel.progress import duration

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MEGABYTE = 1e6
DIFFERENCE = ("difference", "low", "high")


Cell = str | int | float | None
DIGITS = {"gap_recovered": 3, "seconds": 1, "memory_mb": 0}
"""Of numbers in CSV; others have two."""


def table_columns(
    rows: Sequence[Row], varied: str | None = None, recipe: Recipe | None = None
) -> dict[str, list[Cell]]:
    """The rows with all numbers: what was chosen, a column for each seed's test, what was published.

    Measures are in percent; None where there is nothing to say.
    """
    columns = _identity(rows, varied)
    columns |= {name: [dict(row.chosen).get(name, "") for row in rows] for name in names_chosen(rows)}
    columns["validation"] = [_mean(row.validation.values(), 100) for row in rows]
    columns["test"] = [_mean(row.test.values(), 100) for row in rows]
    for name in ("low", "high"):
        columns[f"test_{name}"] = [_times(getattr(row.interval, name, None), 100) for row in rows]
    columns["spread"] = [_times(row.spread, 100) for row in rows]
    columns["validation_spread"] = [_times(row.validation_spread, 100) for row in rows]
    columns["gap_recovered"] = [row.recovered for row in rows]
    for name in DIFFERENCE:
        column = name if name == "difference" else f"difference_{name}"
        columns[column] = [_times(getattr(row.difference, name, None), 100) for row in rows]
    columns["zero_outside"] = [getattr(row.difference, "zero_outside", None) for row in rows]
    for name in ("model", "estimates"):
        columns[f"hidden_{name}"] = [_mean(row.hidden.get(name, ()), 100) for row in rows]
    columns["training_labels"] = [row.labels for row in rows]
    columns["seconds"] = [_mean(row.seconds) for row in rows]
    columns["memory_mb"] = [max(row.memory) / MEGABYTE if row.memory else None for row in rows]
    columns["failed"] = [len(row.failed) for row in rows]
    for name in dict.fromkeys(name for row in rows for name in row.measures):
        columns[name] = [_mean(row.measures.get(name, ()), 100) for row in rows]
    for measure in measures_published(rows, recipe):
        columns[f"published {measure}"] = [published(row, recipe, measure) for row in rows]
    for key in sorted({key for row in rows for key in row.test}, key=_as_tuple):
        name = f"test_{key}" if isinstance(key, int) else f"test_labels{key[0]}_seed{key[1]}"
        columns[name] = [_times(row.test.get(key), 100) for row in rows]
    return columns


def _identity(rows: Sequence[Row], varied: str | None) -> dict[str, list[Cell]]:
    """The columns that tell rows apart."""
    columns: dict[str, list[Cell]] = {"method": [row.method for row in rows]}
    if any(row.annotation for row in rows):
        columns["annotation"] = [row.annotation for row in rows]
    if varied:
        columns |= {"varied": [varied for _ in rows], "value": [row.value for row in rows]}
    return columns


def write_table(
    rows: Sequence[Row], path: Path, varied: str | None = None, recipe: Recipe | None = None
) -> None:
    """The rows with all numbers, as CSV."""
    _write_csv(path, table_columns(rows, varied, recipe))


def _write_csv(path: Path, columns: dict[str, list[Cell]]) -> None:
    texts = [[_text(cell, DIGITS.get(name, 2)) for cell in cells] for name, cells in columns.items()]
    with atomic_write(path) as partial, partial.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([columns, *zip(*texts, strict=True)])


def difference_columns(pairs: Sequence[Pair], varied: str | None = None) -> dict[str, list[Cell]]:
    """Pairs of methods: the difference of their test mAP in points, and its 95 % interval."""
    columns: dict[str, list[Cell]] = {
        "method": [pair.row.method for pair in pairs],
        "other": [pair.other.method for pair in pairs],
    }
    if any(pair.row.annotation for pair in pairs):
        columns["annotation"] = [pair.row.annotation for pair in pairs]
        columns["other_annotation"] = [pair.other.annotation for pair in pairs]
    if varied:
        columns[varied] = [pair.row.value or pair.other.value for pair in pairs]
    for name in DIFFERENCE:
        columns[name] = [100 * getattr(pair.difference, name) for pair in pairs]
    columns["zero_outside"] = [pair.difference.zero_outside for pair in pairs]
    return columns


def _as_tuple(key: RunKey) -> tuple[int, ...]:
    return (key,) if isinstance(key, int) else key


def _mean(values: Iterable[float], factor: float = 1) -> float | None:
    numbers = list(values)
    return factor * statistics.fmean(numbers) if numbers else None


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else factor * value


def _text(cell: Cell, digits: int) -> str:
    if cell is None:
        return ""
    return f"{cell:.{digits}f}" if isinstance(cell, float) else str(cell)


def write_by_labels(rows: Sequence[Row], path: Path, varied: str | None = None) -> None:
    """The mAP on images with 1, 2, ... labels: mean and spread over the seeds."""
    cells = [(row, *key, values) for row in rows for key, values in row.by_labels.items()]
    columns = _identity([row for row, *_ in cells], varied) | {
        "split": [split for _, split, _, _ in cells],
        "labels": [labels for _, _, labels, _ in cells],
        "mAP": [_mean(values, 100) for *_, values in cells],
        "spread": [100 * statistics.stdev(values) if len(values) > 1 else None for *_, values in cells],
    }
    _write_csv(path, columns)


def names_chosen(rows: Sequence[Row]) -> list[str]:
    """The settings that were chosen by validation, for one method or another."""
    return list(dict.fromkeys(name for row in rows for name, _ in row.chosen))


def name_of_measure(rows: Sequence[Row], split: str) -> str:
    """The metric of a split: mAP, or observed-label mAP if labels are incomplete."""
    return next((row.names[split] for row in rows if split in row.names), "mAP")


def measures_published(rows: Sequence[Row], recipe: Recipe | None) -> list[str]:
    """The measures of which a recipe has a published number for one of the rows."""
    measures = () if recipe is None else recipe.published
    return [name for name in measures if any(published(row, recipe, name) is not None for row in rows)]


def published(row: Row, recipe: Recipe | None, measure: str) -> float | None:
    """The number that a paper has for a row, in percent."""
    return None if recipe is None else recipe.number(measure, row.method, row.value)


def percent(values: Iterable[float], digits: int = 2) -> str:
    """The mean of values in 0..1; nothing where there are none."""
    numbers = list(values)
    return f"{100 * statistics.fmean(numbers):.{digits}f}" if numbers else ""


HIDDEN = "all training labels, mAP"
"""How recipes call the mAP of training images against all their labels (Cole 2021 table 2)."""
ABOUT_HIDDEN = f"{HIDDEN}: as in Cole 2021 table 2; observed labels are among them, and in the estimates"


CHANCE = "n.s."
ABOUT_CHANCE = f"{CHANCE}: not significant; the 95 % interval contains 0, so the difference may be chance"


@dataclass(frozen=True)
class Sheet:
    """Cells of a table, a line a row; the first columns, ``words`` of them, are text, the others numbers."""

    columns: list[str]
    lines: list[list[str]]
    words: int = 1
    notes: tuple[str, ...] = ()
    """What must be known to read it."""


def sheet_of(
    rows: Sequence[Row],
    varied: str | None = None,
    against: str | None = None,
    recipe: Recipe | None = None,
    notes: Sequence[str] = (),
) -> Sheet:
    """The columns that are not empty for these rows."""
    measures, chosen = measures_published(rows, recipe), names_chosen(rows)
    columns = [("method", [row.method for row in rows]), ("annotation", [row.annotation for row in rows])]
    if varied:
        columns.append((varied, [row.value for row in rows]))
    columns += [(_short(name, chosen), [dict(row.chosen).get(name, "") for row in rows]) for name in chosen]
    words = len(columns)
    validation, test = (f"{split} {name_of_measure(rows, split)}" for split in ("validation", "test"))
    columns += [
        (validation, [percent(row.validation.values(), 1) for row in rows]),
        (test, [_test(row) for row in rows]),
        (f"over {against}", [_difference(row) for row in rows]),
        (f"gap {BASELINE} → {ORACLE}", [_share(row.recovered) for row in rows]),
    ]
    columns.append((MAP_LOC, [percent(row.measures.get(MAP_LOC, ()), 1) for row in rows]))
    if HIDDEN in measures:
        columns.append((HIDDEN, [_hidden(row) for row in rows]))
    columns += [(name, [percent(row.measures.get(name, ()), 1) for row in rows]) for name in measures]
    for name in measures:
        numbers = [published(row, recipe, name) for row in rows]
        columns.append((f"published {name}", ["" if value is None else f"{value:g}" for value in numbers]))
    columns += [
        ("time", [duration(statistics.fmean(row.seconds)) if row.seconds else "" for row in rows]),
        ("memory", [f"{max(row.memory) / MEGABYTE:,.0f} MB" if row.memory else "" for row in rows]),
        ("failed", [str(len(row.failed) or "") for row in rows]),
    ]
    filled = [
        (number < words, name, cells)
        for number, (name, cells) in enumerate(columns)
        if any(cells) or name == "method"
    ]
    lines = [list(line) for line in zip(*(cells for _, _, cells in filled), strict=True)]
    names = [name for _, name, _ in filled]
    notes = [*notes, *([ABOUT_HIDDEN] if HIDDEN in names else [])]
    if any(cell.endswith(CHANCE) for line in lines for cell in line):
        notes.append(ABOUT_CHANCE)
    return Sheet(names, lines, sum(text for text, _, _ in filled), tuple(notes))


def write_markdown(sheet: Sheet, path: Path) -> None:
    """A table for a README or an issue."""
    ruler = [":--" if number < sheet.words else "--:" for number in range(len(sheet.columns))]
    lines = [sheet.columns, ruler, *sheet.lines]
    escaped = [[cell.replace("|", "\\|") for cell in line] for line in lines]
    table = "".join(f"| {' | '.join(line)} |\n" for line in escaped)
    write_text(path, table + "".join(f"\nNote: {note}\n" for note in sheet.notes))


def write_latex(sheet: Sheet, path: Path) -> None:
    r"""A tabular for a paper; it needs \usepackage{booktabs}."""
    kinds = "l" * sheet.words + "r" * (len(sheet.columns) - sheet.words)
    head, *body = [" & ".join(map(latex, line)) + r" \\" for line in (sheet.columns, *sheet.lines)]
    lines = [
        r"% needs \usepackage{booktabs}",
        *(f"% note: {note}" for note in sheet.notes),
        rf"\begin{{tabular}}{{{kinds}}}",
        r"\toprule", head, r"\midrule", *body, r"\bottomrule",
        r"\end{tabular}",
    ]  # fmt: skip
    write_text(path, "\n".join(lines) + "\n")


SPECIAL = {character: f"\\{character}" for character in "&%$#_{}"} | {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$",
    "→": r"$\to$", "−": "$-$", "<": "$<$", ">": "$>$",
}  # fmt: skip


def latex(text: str) -> str:
    """A text as LaTeX shows it."""
    return "".join(SPECIAL.get(character, character) for character in text)


def _test(row: Row) -> str:
    spread = "" if row.spread is None else f" ± {100 * row.spread:.1f}"
    return percent(row.test.values(), 1) + spread if row.test else ""


def _difference(row: Row) -> str:
    """The difference with its 95 % interval, and whether it may be chance."""
    if row.difference is None:
        return ""
    numbers = (row.difference.low, row.difference.difference, row.difference.high)
    low, middle, high = (f"{100 * number:+.1f}" for number in numbers)
    text = f"{middle} ({low} to {high})".replace("-", "−")
    return text if row.difference.zero_outside else f"{text} {CHANCE}"


def _share(recovered: float | None) -> str:
    return "" if recovered is None else f"{round(100 * recovered) or 0}%".replace("-", "−")  # no minus zero


def _hidden(row: Row) -> str:
    estimates = percent(row.hidden.get("estimates", ()), 1)
    return percent(row.hidden.get("model", ()), 1) + (f" (estimates {estimates})" if estimates else "")


def _short(name: str, others: Sequence[str]) -> str:
    """A setting without its table, where no other one ends alike."""
    end = name.rpartition(".")[2]
    return end if [other.rpartition(".")[2] for other in others].count(end) == 1 else name


def draw_comparison(rows: Sequence[Row], varied: str | None = None) -> "Figure":
    """A line for each tested row, the first on top: a point for each run, their mean and its interval."""
    from sparselabel.report.figures.style import COLORS, GRAY, inline_figure, style

    tested = [row for row in rows if row.test]
    with style():
        figure = inline_figure(5.2, 0.9 + 0.32 * max(1, len(tested)))
        axes = figure.subplots()
        for line, row in enumerate(tested):
            runs = [100 * value for value in row.test.values()]
            axes.plot(runs, [line] * len(runs), "o", color=GRAY, alpha=0.5, markersize=3)
            axes.plot(100 * row.mean, line, "D", color=COLORS[0])
            if row.interval is not None:
                axes.hlines(line, 100 * row.interval.low, 100 * row.interval.high, color=COLORS[0])
        names = [_row_name(row, varied) for row in tested]
        axes.set_yticks(range(len(tested)), names)
        axes.invert_yaxis()
        axes.set_xlabel(f"test {name_of_measure(tested, 'test')}, %")
    return figure


def _row_name(row: Row, varied: str | None) -> str:
    value = f"{varied} {row.value}" if row.value else ""
    return ", ".join(word for word in (row.method, value, row.annotation) if word)
