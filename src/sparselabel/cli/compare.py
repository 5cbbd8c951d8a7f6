"""``sparselabel compare``: several methods on one data set."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from sparselabel.cli.arguments import FROM_FILE_OR_RECIPE, FromFileOrRecipe, recipe_in
from sparselabel.cli.terminal import exit_if_failed, first_process, fitting_tables, plain_console
from sparselabel.cli.train import CONFIG, MACHINE, Flat
from sparselabel.config import Machine, TrainConfig

if TYPE_CHECKING:
    from sparselabel.comparison.result_tables import Sheet

Listed = Parameter(consume_multiple=True)
WIDE = 240


def compare(
    data: Path,
    /,
    *,
    out: Path,
    methods: Annotated[list[str] | None, Listed] = None,
    seeds: Annotated[list[int] | None, Listed] = None,
    label_seeds: Annotated[list[int] | None, Listed] = None,
    annotations: Annotated[list[str] | None, Listed] = None,
    choose: Annotated[list[str] | None, Listed] = None,
    staged: bool | None = None,
    vary: Annotated[list[str] | None, Listed] = None,
    against: str | None = None,
    cluster: str | None = None,
    cluster_cores: int = 1,
    config: Annotated[TrainConfig, Flat] = CONFIG,
    machine: Annotated[Machine, Flat] = MACHINE,
    given: Annotated[FromFileOrRecipe, Flat] = FROM_FILE_OR_RECIPE,
) -> None:
    """Train several methods and make a table: test mAP, spread, significant differences, and cost.

    Finished runs are skipped, so a stopped comparison continues where it was. A run that fails does not stop
    the others; the exit code is then 1.

    Example: `sparselabel compare prepared --methods an an-ls --seeds 0 1 2 --frozen --out comparison`

    With `--choose head.lr 1e-2 1e-3 --choose head.batch-size 8 16` every combination is trained, and
    each method takes the one with the best mean validation mAP. `--choose '*cl:settings.weight' .1 1` is for
    the methods whose names end in cl only.

    With `--vary settings.momentum .6 .8 .9` every method is trained with each value of that setting (once, if
    it does not have it); `sparselabel figure sweep comparison/table.csv` draws it.

    `--recipe scl/voc` takes methods, seeds and the settings to choose or vary from a published table, unless
    flags set them, and shows the published numbers beside yours.

    Parameters
    ----------
    data
        Prepared data, as `sparselabel prepare` wrote it.
    out
        Folder of the runs, of table.csv, table.md and table.tex, and of table-by-labels.csv (mAP of images
        with 1, 2, ... labels).
    methods
        The methods (--method is ignored). Each takes those of the --settings that it has, and its own
        defaults if it does not have the preset.
    seeds
        Random seeds; default: 0.
    label_seeds
        Repeat all on other draws of the observed labels, given by their seeds: labels are hidden as in the
        preparation, so the full ones must be known. The preparation's own seed is the data as it is.
    annotations
        Kinds of annotation to compare, each with all methods; full labels must be known. A kind is what
        `prepare --sparsify` takes, and its settings: `single-positive,prefer=larger`. Several values are
        several kinds: `budget,annotate=I/SP,budget=.02/.05` are four.
    choose
        A setting, named as its flag without dashes, and the values to choose from by validation mAP; may be
        given several times.
    staged
        Choose in two stages: train the head alone, on stored features, with all its settings; then
        fine-tune with the chosen ones only. By default as in the recipe, if its choices are taken.
    vary
        A setting, named in the same way, and its values; each value is a row of the table.
    against
        The method to compare the others with, by a paired bootstrap over labels, seeds and test images;
        default: an.
    cluster
        Address of a Ray cluster (`auto` for the one that this machine belongs to) to send the runs to. Data
        and --out must be on a disk that all its nodes share. Needs the extra `cluster`.
    cluster_cores
        Cores per run on the cluster.
    """
    from sparselabel.comparison.compare import compare as run_comparison
    from sparselabel.comparison.grid import Varied, choices

    loaded = recipe_in(given)
    comparison = run_comparison(
        data,
        methods,
        out=out,
        seeds=seeds or (list(loaded.recipe.compare.seeds) if loaded else 1),
        label_seeds=label_seeds,
        annotations=annotations or (),
        choose=None if choose is None else choices(choose),
        staged=staged,
        vary=None if vary is None else Varied.of(vary),
        against=against,
        config=config,
        recipe=loaded,
        cluster=cluster,
        cluster_cores=cluster_cores,
        command=sys.argv,
        **vars(machine),
    )
    if not first_process():
        return
    show(comparison.sheet())
    console = plain_console()
    console.print(f"written to {out / 'table.csv'}, table.md and table.tex")
    if best := comparison.best_runs():
        runs = " ".join(shlex.quote(str(path)) for path in best)
        console.print(f"next: sparselabel report {runs} --out {shlex.quote(str(out / 'report.html'))}")
    exit_if_failed(len(comparison.failed), len(comparison.outcomes))


def show(sheet: "Sheet") -> None:
    """Print the table of a comparison."""
    console = plain_console()
    for note in sheet.notes:
        console.print(f"note: {note}")
    # A file or a pipe has no width that the table must fit into.
    console.width = console.width if console.is_terminal else max(console.width, WIDE)
    for table in fitting_tables(sheet.columns, sheet.lines, console.width, sheet.words):
        console.print(table)
