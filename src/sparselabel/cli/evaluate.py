"""``sparselabel evaluate``: measure a finished run."""

import json as json_format
from pathlib import Path
from typing import Any

from rich.table import Table

from sparselabel.cli.terminal import names_first, plain_console, progress
from sparselabel.config import Machine
from sparselabel.errors import counted
from sparselabel.place import require_folder_to_write


def evaluate(
    run: Path,
    /,
    *,
    split: str = "test",
    data: Path | None = None,
    threshold: float = 0.5,
    json: bool = False,
    workers: int = Machine().workers,
) -> None:
    """Measure a trained classifier on a split; scores and measures are kept in the run.

    Example: `sparselabel evaluate runs/role --split val`

    Parameters
    ----------
    run
        Folder of a finished run.
    split
        Which split of the data: test, val or train.
    data
        The run's prepared data, if it is no longer where it was.
    threshold
        Score from which a class counts as predicted.
    json
        Print JSON instead of tables.
    workers
        Processes that load pictures.
    """
    from sparselabel.evaluate.run import evaluate_run, pictures_in

    pictures = pictures_in(run, split, data)
    require_folder_to_write(run, "scores are kept in the run: copy it to a folder of yours")
    with progress(pictures, f"scoring {split}") as advance:
        measured = evaluate_run(run, split, data=data, threshold=threshold, workers=workers, report=advance)
    if json:
        plain_console().print_json(json_format.dumps(measured))
    else:
        show(measured)


def show(measured: dict[str, Any]) -> None:
    """Tables of the measures."""
    console = plain_console()
    table = Table(
        title=f"{measured['split']}: {counted(measured['images'], 'picture')}, labels {measured['labels']}"
    )
    table.add_column("measure")
    table.add_column("value", justify="right")
    for rule, value in measured["mean_average_precision"].items():
        table.add_row(f"mAP ({rule})", f"{100 * value['mean']:.2f}")
    for name, value in measured["at_threshold"].items():
        table.add_row(f"{name} at {measured['threshold']}", f"{100 * value:.2f}")
    for name, value in measured["at_threshold_top_3"].items():
        table.add_row(f"{name} at {measured['threshold']}, top 3", f"{100 * value:.2f}")
    for row in measured["at_k"]:
        table.add_row(f"recall at {row['k']}", f"{100 * row['recall']:.2f}")
        table.add_row(f"precision at {row['k']}", f"{100 * row['precision']:.2f}")
    for count, subset in (measured["by_number_of_labels"] or {}).items():
        mean, present = (subset["average_precision"][key] for key in ("mean_of_present", "present"))
        if mean is not None:
            what = f"mAP, pictures with {count} label{'' if count == '1' else 's'} "
            what += f"({subset['images']:,}; {present} class{'' if present == 1 else 'es'})"
            table.add_row(what, f"{100 * mean:.2f}")
    for who, value in (measured["recovery"] or {}).items():
        if value is not None:
            table.add_row(f"hidden training labels: mAP of the {who}", f"{100 * value:.2f}")
    console.print(table)
    classes = names_first("class", "positives", "AP", "precision", "recall", "F1")
    for row in measured["classes"]:
        numbers = (row[key] for key in ("average_precision", "precision", "recall", "f1"))
        classes.add_row(row["name"], f"{row['positive']:,}", *(f"{100 * number:.1f}" for number in numbers))
    console.print(classes)
    if measured["classes_without_positives"]:
        console.print(f"without positives, counted as 0: {', '.join(measured['classes_without_positives'])}")
