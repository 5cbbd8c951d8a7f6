"""``sparselabel compare``: several methods on one data set."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from rich.console import Console
from rich.table import Table

from sparselabel.cli.terminal import plain_console
from sparselabel.cli.train import CONFIG, MACHINE, Flat
from sparselabel.config import Machine, TrainConfig

if TYPE_CHECKING:
    from sparselabel.compare import Planned, Row

Listed = Parameter(consume_multiple=True)


def compare(
    data: Path,
    /,
    *,
    methods: Annotated[list[str], Listed],
    out: Path,
    learning_rates: Annotated[list[float] | None, Listed] = None,
    seeds: Annotated[list[int] | None, Listed] = None,
    config: Annotated[TrainConfig, Flat] = CONFIG,
    machine: Annotated[Machine, Flat] = MACHINE,
) -> None:
    """Train several methods and print a table: test mAP, its spread, the share of the oracle gap recovered.

    Finished runs are skipped, so a comparison that was stopped goes on where it was.

    Example: `sparselabel compare prepared --methods bce an role --seeds 0 1 2 --frozen --out comparison`

    Parameters
    ----------
    data
        Prepared data, as `sparselabel prepare` wrote it.
    methods
        The methods (--method is ignored); each takes those of the --settings that it has.
    out
        Folder of the runs and of table.csv.
    learning_rates
        Learning rates of the first phase to choose from, by validation mAP.
    seeds
        Seeds; default 0.
    """
    from sparselabel.compare import compare as run_all
    from sparselabel.compare import plan, write_table
    from sparselabel.data.dataset import open_prepared

    planned = plan(config, methods, learning_rates or (), seeds or (0,), out)
    rows = run_all(open_prepared(data), planned, machine, say_run, sys.argv)
    if os.environ.get("RANK", "0") != "0":  # under torchrun one process speaks for all
        return
    write_table(rows, out / "table.csv")
    show(rows)
    plain_console().print(f"written to {out / 'table.csv'}")


def say_run(run: "Planned", number: int, total: int) -> None:
    """Which run comes now."""
    state = " (finished before)" if (run.path / "result.json").exists() else ""
    text = f"[{number + 1}/{total}] {run.method}, learning rate {run.learning_rate:g}, seed {run.seed}{state}"
    Console(stderr=True, highlight=False).print(text, markup=False)


def show(rows: "Sequence[Row]") -> None:
    """The comparison as a table."""
    table = Table(title="test mAP", title_justify="left")
    for name, side in (("method", "left"), ("learning rate", "right"), ("test mAP", "right")):
        table.add_column(name, justify=side)  # type: ignore[arg-type]
    table.add_column("an → bce gap recovered", justify="right")
    for row in rows:
        spread = "" if row.spread is None else f" ± {100 * row.spread:.1f}"
        shown = f"{100 * row.mean:.1f}{spread}" if row.test else "no test split"
        share = "" if row.recovered is None else f"{row.recovered:.0%}"
        table.add_row(row.method, f"{row.learning_rate:g}", shown, share)
    plain_console().print(table)
