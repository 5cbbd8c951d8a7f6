"""Tables of calibration and of the classes' own thresholds, for `evaluate`."""

from typing import Any

from rich.table import Table

from sparselabel.cli.terminal import names_first, plain_console
from sparselabel.errors import counted, listing


def show_decided(decided: dict[str, Any]) -> None:
    """Calibration, F1 at the classes' own thresholds, and how far each can be trusted."""
    console = plain_console()
    table = Table(title=_title(decided["chosen_from"]))
    table.add_column("measure")
    table.add_column("value", justify="right")
    for key in ("micro_f1", "macro_f1", "micro_precision", "micro_recall"):
        table.add_row(key.replace("_", " ").replace("f1", "F1"), f"{100 * decided[key]:.2f}")
    calibration = decided["calibration"]
    if calibration is not None:
        for key, name in (("ece", "calibration error (ECE)"), ("brier", "Brier score")):
            table.add_row(f"{name}, calibrated scores", f"{100 * calibration[key]:.2f}")
            table.add_row(f"{name}, the model's own", f"{100 * calibration[f'{key}_of_raw_scores']:.2f}")
    console.print(table)
    if calibration is None:
        console.print("calibration is not measured: nobody knows which unknown labels are there")
    else:
        _show_reliability(calibration)
    classes = names_first("class", "from score", "precision", "95 % of", "recall", "F1", "trust")
    for column in classes.columns[1:-1]:
        column.justify = "right"
    for row in decided["classes"]:
        between = row["precision_interval"]
        classes.add_row(
            row["name"],
            f"{row['threshold']:.3f}",
            f"{100 * row['precision']:.1f}",
            "" if between is None else f"{100 * between[0]:.0f}–{100 * between[1]:.0f}",
            f"{100 * row['recall']:.1f}",
            f"{100 * row['f1']:.1f}",
            row["trust"],
        )
    console.print(classes)
    for why, names in _reasons(decided["classes"]).items():
        console.print(f"{listing(names)}: {why}")


def _title(chosen: dict[str, Any]) -> str:
    if not chosen["pictures"]:
        return "from score 0.5 on: no validation labels to choose by"
    return (
        f"at the classes' own thresholds, chosen from {counted(chosen['pictures'], 'validation picture')} "
        f"({chosen['labels']} labels)"
    )


def _show_reliability(calibration: dict[str, Any]) -> None:
    """Of the scores of a tenth, how many are really there."""
    table = Table("calibrated score", "entries", "mean score, %", "really there, %")
    for column in table.columns[1:]:
        column.justify = "right"
    for row in calibration["bins"]:
        if row["count"]:
            table.add_row(
                f"{row['from']:.1f} to {row['to']:.1f}",
                f"{row['count']:,}",
                f"{100 * row['mean_score']:.1f}",
                f"{100 * row['share_there']:.1f}",
            )
    plain_console().print(table)


def _reasons(classes: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Why classes are poor, each reason once."""
    found: dict[str, list[str]] = {}
    for row in classes:
        if row["trust"] == "poor":
            found.setdefault(row["why"], []).append(row["name"])
    return found
