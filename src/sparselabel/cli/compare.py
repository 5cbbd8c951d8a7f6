"""``sparselabel compare``: several methods on one data set."""

import shlex
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from rich.console import Console
from rich.table import Table

from sparselabel.cli.given import FROM_FILE_OR_RECIPE, FromFileOrRecipe
from sparselabel.cli.terminal import first_process, plain_console
from sparselabel.cli.train import CONFIG, MACHINE, Flat
from sparselabel.config import Machine, TrainConfig
from sparselabel.place import require_folder_to_write

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
    vary: Annotated[list[str] | None, Listed] = None,
    config: Annotated[TrainConfig, Flat] = CONFIG,
    machine: Annotated[Machine, Flat] = MACHINE,
    given: Annotated[FromFileOrRecipe, Flat] = FROM_FILE_OR_RECIPE,
) -> None:
    """Train several methods and print a table: test mAP, its spread, the share of the oracle gap recovered.

    Finished runs are skipped, so a comparison that was stopped goes on where it was.

    Example: `sparselabel compare prepared --methods an an-ls --seeds 0 1 2 --frozen --out comparison`

    With `--vary settings.momentum .6 .8 .9` every method is trained with each value of that setting (once, if
    it does not have it); `sparselabel figure sweep comparison/table.csv` draws it.

    Parameters
    ----------
    data
        Prepared data, as `sparselabel prepare` wrote it.
    methods
        The methods (--method is ignored); each takes those of the --settings that it has.
    out
        Folder of the runs, of table.csv, and of table-by-labels.csv (mAP of pictures with 1, 2, ... labels).
    learning_rates
        Learning rates of the first phase to choose from, by validation mAP.
    seeds
        Seeds; default 0.
    vary
        A setting, named as its flag is without dashes, and its values.
    """
    from sparselabel.compare import compare as run_all
    from sparselabel.compare import plan, write_by_labels, write_table
    from sparselabel.data.dataset import open_prepared
    from sparselabel.vary import Varied

    require_folder_to_write(out)
    varied = None if vary is None else Varied.of(vary)
    planned = plan(config, methods, learning_rates or (), seeds or (0,), out, varied)
    rows = run_all(open_prepared(data), planned, machine, say_run, sys.argv)
    if not first_process():
        return
    name = None if varied is None else varied.name
    write_table(rows, out / "table.csv", name)
    write_by_labels(rows, out / "table-by-labels.csv", name)
    show(rows, name)
    console = plain_console()
    console.print(f"written to {out / 'table.csv'}")
    chosen = " ".join(shlex.quote(str(run.path)) for run in best_of_each(planned, rows))
    console.print(f"next: sparselabel report {chosen} --out {shlex.quote(str(out / 'report.html'))}")


def say_run(run: "Planned", number: int, total: int) -> None:
    """Which run comes now."""
    state = " (finished before)" if (run.path / "result.json").exists() else ""
    value = f" with {run.value}" if run.value else ""
    which = f"{run.method}{value}, learning rate {run.learning_rate:g}, seed {run.seed}"
    text = f"[{number + 1}/{total}] {which}{state}"
    Console(stderr=True, highlight=False).print(text, markup=False)


def best_of_each(planned: "Sequence[Planned]", rows: "Sequence[Row]") -> "list[Planned]":
    """For each line of the table the run of its learning rate with the first seed."""
    found = {(run.method, run.value, run.learning_rate): run for run in reversed(planned)}
    return [found[row.method, row.value, row.learning_rate] for row in rows]


def show(rows: "Sequence[Row]", varied: str | None = None) -> None:
    """The comparison as a table: mean mAP over the seeds, with its spread."""
    table = Table("method", *([varied] if varied else []))
    for name in ("learning rate", "validation mAP", "test mAP"):
        table.add_column(name, justify="right")
    judged = any(row.recovered is not None for row in rows)
    if judged:
        table.add_column("an → bce gap recovered", justify="right")
    for row in rows:
        validation = f"{100 * statistics.fmean(row.validation):.1f}" if row.validation else "-"
        spread = "" if row.spread is None else f" ± {100 * row.spread:.1f}"
        test = f"{100 * row.mean:.1f}{spread}" if row.test else "-"
        share = [] if not judged else ["" if row.recovered is None else f"{row.recovered:.0%}"]
        own = [row.method, row.value] if varied else [row.method]
        table.add_row(*own, f"{row.learning_rate:g}", validation, test, *share)
    plain_console().print(table)
