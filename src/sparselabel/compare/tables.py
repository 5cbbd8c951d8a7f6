"""A comparison as tables for programs: CSV, mAP in per cent."""

import csv
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

from sparselabel.compare.summary import Row
from sparselabel.config import Recipe

MEGABYTE = 1e6
DIFFERENCE = ("difference", "low", "high")


def write_table(
    rows: Sequence[Row], path: Path, varied: str | None = None, recipe: Recipe | None = None
) -> None:
    """The rows with all numbers: what was chosen, a column for each seed's test, what was published."""
    chosen, seeds = names_chosen(rows), sorted({seed for row in rows for seed in row.test})
    measures = measures_published(rows, recipe)
    others = list(dict.fromkeys(name for row in rows for name in row.measures))
    columns = [
        *chosen, "validation", "test", "spread", "validation_spread", "gap_recovered", "difference",
        "difference_low", "difference_high", "hidden_model", "hidden_estimates", "training_labels",
        "seconds", "memory_mb", "failed",
        *others, *(f"published {measure}" for measure in measures), *(f"test_{seed}" for seed in seeds),
    ]  # fmt: skip
    lines = []
    for row in rows:
        found, values = row.difference, dict(row.chosen)
        lines.append(
            [
                *(values.get(name, "") for name in chosen),
                percent(row.validation.values()),
                percent(row.test.values()),
                _of(row.spread, 100),
                _of(row.validation_spread, 100),
                _of(row.recovered, 1, 3),
                *(_of(None if found is None else getattr(found, name), 100) for name in DIFFERENCE),
                *(percent(row.hidden.get(name, ())) for name in ("model", "estimates")),
                "" if row.labels is None else str(row.labels),
                f"{statistics.fmean(row.seconds):.1f}" if row.seconds else "",
                f"{max(row.memory) / MEGABYTE:.0f}" if row.memory else "",
                str(len(row.failed)),
                *(percent(row.measures.get(name, ())) for name in others),
                *(_of(published(row, recipe, measure), 1, 2) for measure in measures),
                *(_of(row.test.get(seed), 100) for seed in seeds),
            ]
        )
    _write(path, rows, columns, lines, varied)


def write_by_labels(rows: Sequence[Row], path: Path, varied: str | None = None) -> None:
    """The mAP on pictures with 1, 2, ... labels: mean and spread over the seeds."""
    owners, lines = [], []
    for row in rows:
        for (split, labels), found in row.by_labels.items():
            spread = f"{100 * statistics.stdev(found):.2f}" if len(found) > 1 else ""
            owners.append(row)
            lines.append([split, labels, percent(found), spread])
    _write(path, owners, ["split", "labels", "mAP", "spread"], lines, varied)


def _write(
    path: Path, rows: Sequence[Row], columns: list[str], lines: Sequence[list[str]], varied: str | None
) -> None:
    """Lines beside the method and the varied setting that each belongs to."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["method", *(["varied", "value"] if varied else []), *columns])
        for row, line in zip(rows, lines, strict=True):
            writer.writerow([row.method, *([varied, row.value] if varied else []), *line])


def names_chosen(rows: Sequence[Row]) -> list[str]:
    """The settings that were chosen by validation, for one method or another."""
    return list(dict.fromkeys(name for row in rows for name, _ in row.chosen))


def name_of_measure(rows: Sequence[Row], split: str) -> str:
    """What is measured on a split: mAP, or observed-label mAP where labels are not complete."""
    return next((row.names[split] for row in rows if split in row.names), "mAP")


def measures_published(rows: Sequence[Row], recipe: Recipe | None) -> list[str]:
    """The measures of which a recipe has a published number for one of the rows."""
    measures = () if recipe is None else recipe.published
    return [name for name in measures if any(published(row, recipe, name) is not None for row in rows)]


def published(row: Row, recipe: Recipe | None, measure: str) -> float | None:
    """The number that a paper has for a row, in per cent."""
    return None if recipe is None else recipe.number(measure, row.method, row.value)


def percent(values: Iterable[float], digits: int = 2) -> str:
    """The mean of values in 0..1; nothing where there are none."""
    found = list(values)
    return f"{100 * statistics.fmean(found):.{digits}f}" if found else ""


def _of(value: float | None, factor: float, digits: int = 2) -> str:
    return "" if value is None else f"{factor * value:.{digits}f}"
