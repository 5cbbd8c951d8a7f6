"""``sparselabel data``: what prepared data holds."""

import json as json_format
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from sparselabel.cli.terminal import plain_console

if TYPE_CHECKING:
    from sparselabel.data.dataset import Prepared


EXPLAINED = """\
positive: the class is there; negative: it is not. observed: training sees it (in val: validation, in
test: evaluation); unknown: hidden from that, or known to nobody.
"""


def data(folder: Path, /, *, json: bool = False) -> None:
    """Describe prepared data: pictures, classes, and how much of the labels training may see.

    Example: `sparselabel data prepared`

    Parameters
    ----------
    folder
        Prepared data, as `sparselabel prepare` wrote it.
    json
        Print JSON instead of tables.
    """
    from sparselabel.data.dataset import open_prepared

    prepared = open_prepared(folder)
    if json:
        scored = {"scored": prepared.made["scored"]} if "scored" in prepared.made else {}
        plain_console().print_json(json_format.dumps(prepared.description() | scored))
    else:
        describe(prepared)


def describe(prepared: "Prepared") -> None:
    """Tables of the splits and of the classes."""
    from sparselabel.data.labels import UNKNOWN

    console = plain_console()
    splits = Table(title=f"{prepared.name}: {len(prepared.classes)} classes", title_justify="left")
    splits.add_column("split")
    counted = ("positives", "observed positives", "observed negatives")
    for name in ("pictures", *(f"{what}\na picture" for what in counted), "unknown, of\nall labels"):
        splits.add_column(name, justify="right")
    for name, split in prepared.splits.items():
        observed = split.observed
        unknown = (observed.values == UNKNOWN).mean()
        known = f"{split.truth.per_picture().mean():.2f}" if split.truth.complete else "not known"
        splits.add_row(
            name,
            f"{len(split):,}",
            known,
            f"{observed.per_picture(1).mean():.2f}",
            f"{observed.per_picture(0).mean():.2f}",
            f"{unknown:.1%}",
        )
    console.print(splits)
    console.print(EXPLAINED)
    train = prepared.description()["splits"]["train"]["classes"]
    classes = Table(title="classes in training: number of pictures where it is ...", title_justify="left")
    classes.add_column("class")
    for name in ("positive", "observed positive", "observed negative"):
        classes.add_column(name, justify="right")
    shown = train if len(train) <= 40 else train[:40]
    for row in shown:
        classes.add_row(
            row["name"],
            f"{row['positive']:,}",
            f"{row['observed_positive']:,}",
            f"{row['observed_negative']:,}",
        )
    console.print(classes)
    if len(shown) < len(train):
        console.print(f"... and {len(train) - len(shown):,} more classes (--json lists all)")
    if "scored" in prepared.made:
        _describe_scores(prepared)


def _describe_scores(prepared: "Prepared") -> None:
    """What scores of another model did to labels of training, and how far they can be trusted."""
    made, console = prepared.made["scored"], plain_console()
    names = ("set_positive", "set_negative", "positive_missed", "negative_missed")
    table = Table(title="labels of training set by scores of another model", title_justify="left")
    table.add_column("class")
    for name in (
        "set positive",
        "set negative",
        "observed positive,\nscored negative",
        "observed negative,\nscored positive",
    ):
        table.add_column(name, justify="right")
    columns = [made[name] for name in names]
    beside = [None, None, made["positive"], made["negative"]]
    rows = [
        (name, index)
        for index, name in enumerate(prepared.classes)
        if any(column[index] for column in columns)
    ]
    for name, index in rows[:40]:
        table.add_row(
            name,
            *(
                f"{column[index]:,}" + (f" of {of[index]:,}" if of is not None else "")
                for column, of in zip(columns, beside, strict=True)
            ),
        )
    console.print(table)
    totals = [sum(column) for column in columns]
    console.print(
        f"all classes: {totals[0]:,} set positive, {totals[1]:,} set negative; where the label was observed "
        f"and the score decided, it was wrong for {totals[2]:,} of {sum(made['positive']):,} positives and "
        f"{totals[3]:,} of {sum(made['negative']):,} negatives; {made['unscored']:,} pictures had no score"
    )
