"""What ``sparselabel train --dry-run`` prints."""

from typing import TYPE_CHECKING

from rich.table import Table

from sparselabel.cli.terminal import plain_console

if TYPE_CHECKING:
    from sparselabel.training.run_cost import RunCost


def show(cost: "RunCost") -> None:
    """A table of the phases, and what the whole run needs and finds."""
    from sparselabel.resources import in_words

    console = plain_console()
    table = Table("phase", "epochs", "steps an epoch", "pictures a step", "seconds a step", "time", "RAM")
    for column in table.columns[1:]:
        column.justify = "right"
    if cost.gpu:
        table.add_column("GPU", justify="right")
    for phase in cost.phases:
        numbers = (phase.epochs, phase.steps, phase.batch)
        table.add_row(
            phase.name,
            *(f"{number:,}" for number in numbers),
            f"{phase.seconds:.3g}",
            duration(phase.time),
            in_words(phase.ram),
            *([in_words(phase.gpu)] if cost.gpu else []),
        )
    console.print(table)
    before = [
        f"{duration(seconds)} {what}"
        for seconds, what in (
            (cost.features_time, "for features"),
            (cost.expected_time, "to estimate expected positives"),
            (cost.prior_time, "for the run that finds the prior"),
        )
        if seconds
    ]
    first = f", of which {', '.join(before)}" if before else ""
    console.print(f"time: about {duration(cost.seconds)}{first}")
    if cost.gpu:
        console.print(f"GPU: {in_words(cost.gpu)} of {in_words(cost.gpu_there)}")
    held = cost.features_in_ram
    beside = f", {in_words(held)} of them stored features" if held else ""
    console.print(
        f"RAM: {in_words(cost.ram)} a process, without its loaders{beside}; "
        f"{in_words(cost.ram_there)} more were free"
    )
    if cost.ram_short:
        console.print(
            "that may not fit: end other programs, or take a smaller --full.batch, --full.recompute, "
            "--full.accumulate or --memories file"
        )
    files = f", {in_words(cost.files)} of them what the method remembers" if cost.files else ""
    console.print(f"disk: {in_words(cost.disk)}{files}; {in_words(cost.disk_there)} are free at --out")
    if cost.disk > cost.disk_there:
        console.print("that may not fit: make room, or take an --out on a larger disk")
    if cost.features:
        console.print(f"features to be kept beside the data: {in_words(cost.features)}")
    console.print("nothing was written")


def duration(seconds: float) -> str:
    """Seconds in words that are easy to read: 40 s, 12 min, 3 h 20 min, 2 days 5 h."""
    minutes, hours = round(seconds / 60), round(seconds / 3600)
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    if minutes < 100:
        return f"{minutes} min"
    if hours < 48:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{hours // 24} days {hours % 24} h"
