"""``sparselabel compare``: several methods on one data set."""

import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from rich.table import Table

from sparselabel.cli.arguments import FROM_FILE_OR_RECIPE, FromFileOrRecipe, Told, told_by
from sparselabel.cli.run_progress import exit_if_failed, runs_shown
from sparselabel.cli.terminal import first_process, plain_console
from sparselabel.cli.train import CONFIG, MACHINE, Flat
from sparselabel.config import Machine, Recipe, TrainConfig
from sparselabel.errors import ConfigError, listing

if TYPE_CHECKING:
    from sparselabel.comparison.grid import Varied
    from sparselabel.comparison.result_tables import Sheet
    from sparselabel.comparison.summary import Row
    from sparselabel.data.dataset import Prepared

Listed = Parameter(consume_multiple=True)
WIDE = 240


def compare(
    data: Path,
    /,
    *,
    out: Path,
    methods: Annotated[list[str] | None, Listed] = None,
    seeds: Annotated[list[int] | None, Listed] = None,
    choose: Annotated[list[str] | None, Listed] = None,
    vary: Annotated[list[str] | None, Listed] = None,
    against: str | None = None,
    cluster: str | None = None,
    cluster_cores: int = 1,
    config: Annotated[TrainConfig, Flat] = CONFIG,
    machine: Annotated[Machine, Flat] = MACHINE,
    given: Annotated[FromFileOrRecipe, Flat] = FROM_FILE_OR_RECIPE,
) -> None:
    """Train several methods and make a table: test mAP, spread, what is more than chance, what it costs.

    Finished runs are skipped, so a comparison that was stopped goes on where it was. A run that fails does
    not stop the others; then the exit code is 1.

    Example: `sparselabel compare prepared --methods an an-ls --seeds 0 1 2 --frozen --out comparison`

    With `--choose head.lr 1e-2 1e-3 --choose head.batch-size 8 16` every combination is trained, and
    each method takes the one with the best mean validation mAP. `--choose '*cl:settings.weight' .1 1` is for
    the methods whose names end in cl only.

    With `--vary settings.momentum .6 .8 .9` every method is trained with each value of that setting (once, if
    it does not have it); `sparselabel figure sweep comparison/table.csv` draws it.

    With `--recipe scl/voc` methods, seeds and what is chosen or varied are those of a published table, unless
    flags say otherwise, and the published numbers stand beside ours.

    Parameters
    ----------
    data
        Prepared data, as `sparselabel prepare` wrote it.
    out
        Folder of the runs, of table.csv, table.md and table.tex, and of table-by-labels.csv (mAP of images
        with 1, 2, ... labels).
    methods
        The methods (--method is ignored); each takes those of the --settings that it has, and its own default
        where it does not have the preset.
    seeds
        Seeds; default 0.
    choose
        A setting, named as its flag is without dashes, and the values to choose from by validation mAP; may
        be given several times.
    vary
        A setting, named in the same way, and its values: a row of the table for each.
    against
        The method that the others are compared with, by a paired bootstrap over test images; default an.
    cluster
        Address of a Ray cluster (`auto` for the one that this machine belongs to) to send the runs to. Data
        and --out must be on a disk that all its nodes share. Needs the extra `cluster`.
    cluster_cores
        Cores of a run on the cluster.
    """
    from sparselabel.comparison.planned_runs import note_on_preset, plan_runs
    from sparselabel.comparison.ray_runs import Cluster
    from sparselabel.comparison.result_tables import sheet_of
    from sparselabel.comparison.runner import compare as run_all
    from sparselabel.comparison.summary import BASELINE, with_differences
    from sparselabel.data.dataset import open_prepared

    told = told_by(given)
    recipe = None if told is None else told.recipe
    named, chosen, varied, config = asked_for(config, methods, choose, vary, told)
    seeds = seeds or (list(recipe.compare.seeds) if recipe else [0])
    planned = plan_runs(config, named, seeds, out, chosen, varied)
    if against is not None and against not in named:
        raise ConfigError(f"--against {against} is none of the methods: {listing(named)}")
    against = against or BASELINE
    ray = None if cluster is None else Cluster(cluster, cluster_cores)
    with runs_shown(len(planned)) as shown:
        prepared = open_prepared(data)
        rows = run_all(prepared, planned, machine, shown, sys.argv, ray)
    if not first_process():
        return
    console = plain_console()
    rows = with_differences(rows, against, console.print)
    name = None if varied is None else varied.name
    notes = notes_on(prepared, config, told) + note_on_preset(named, config.settings.get("preset"))
    sheet = sheet_of(rows, name, against, recipe, notes)
    write_all(rows, sheet, out, name, recipe)
    show(sheet)
    console.print(f"written to {out / 'table.csv'}, table.md and table.tex")
    if best := best_of_each(rows, against):
        runs = " ".join(shlex.quote(str(path)) for path in best)
        console.print(f"next: sparselabel report {runs} --out {shlex.quote(str(out / 'report.html'))}")
    exit_if_failed(sum(len(row.failed) for row in rows), len(planned))


def asked_for(
    config: TrainConfig,
    methods: list[str] | None,
    choose: list[str] | None,
    vary: list[str] | None,
    told: Told | None,
) -> "tuple[list[str], list[Varied], Varied | None, TrainConfig]":
    """What to compare: what the flags say, else the recipe."""
    from sparselabel.comparison.grid import CHOOSE, VARY, Varied, choices

    if told is None:
        return methods or [], choices(choose or []), Varied.of(vary) if vary is not None else None, config
    asked = told.recipe.compare
    named = methods or list(asked.methods)
    chosen = _of_recipe(asked.choose, named, CHOOSE) if choose is None else choices(choose)
    varied = next(iter(_of_recipe(asked.vary, named, VARY)), None) if vary is None else Varied.of(vary)
    return named, chosen, varied, _without_others_settings(config, named, told)


def notes_on(data: "Prepared", config: TrainConfig, told: Told | None) -> list[str]:
    """Notes for readers of the table."""
    from sparselabel.comparison.recipe_differences import differences_from_recipe

    notes = []
    if not {"val", "test"} & {*data.splits}:
        notes.append(
            "the data has neither a validation nor a test split, so nothing is measured: prepare it with "
            "--validation 0.2, or with a test split"
        )
    if told is not None and told.recipe.published:
        notes.append(differences_from_recipe(told.recipe, told.config, data, config))
    return [note for note in notes if note]


def best_of_each(rows: "Sequence[Row]", against: str) -> list[Path]:
    """For each line of the table the run of its chosen settings with the first seed.

    A report compares with its first run: that is ``against``. Oracles come last.
    """
    ordered = sorted(rows, key=lambda row: (row.method != against, row.oracle))
    return [row.paths[min(row.paths)] for row in ordered if row.paths]


def _of_recipe(values: "dict[str, tuple[Any, ...]]", methods: Sequence[str], flag: str) -> "list[Varied]":
    """A recipe's settings to vary or to choose from, those that one of the methods has."""
    from sparselabel.comparison.grid import Varied
    from sparselabel.comparison.planned_runs import settings_known

    settings = [Varied.of([name, *several], flag) for name, several in values.items()]
    known = settings_known(methods)
    return [one for one in settings if any(one.concerns(method, known[method]) for method in methods)]


def _without_others_settings(config: TrainConfig, methods: Sequence[str], told: Told) -> TrainConfig:
    """Without a recipe's settings that none of the methods has: they are for others of its table."""
    from sparselabel.comparison.planned_runs import has_preset, settings_known

    known = {name for settings in settings_known(methods).values() for name in settings}
    if not any(has_preset(method, config.settings.get("preset")) for method in methods):
        known.discard("preset")
    own = {name for name, value in config.settings.items() if told.settings.get(name) != value}
    settings = {name: value for name, value in config.settings.items() if name in known | own}
    return replace(config, settings=settings)


def write_all(
    rows: "Sequence[Row]", sheet: "Sheet", out: Path, varied: str | None = None, recipe: Recipe | None = None
) -> None:
    """Write the tables of a comparison."""
    from sparselabel.comparison.result_tables import write_by_labels, write_latex, write_markdown, write_table

    write_table(rows, out / "table.csv", varied, recipe)
    write_by_labels(rows, out / "table-by-labels.csv", varied)
    write_markdown(sheet, out / "table.md")
    write_latex(sheet, out / "table.tex")


def show(sheet: "Sheet") -> None:
    """Print the table of a comparison."""
    table = Table()
    for number, name in enumerate(sheet.columns):
        table.add_column(name, justify="left" if number < sheet.words else "right", overflow="fold")
    for line in sheet.lines:
        table.add_row(*line)
    console = plain_console()
    for note in sheet.notes:
        console.print(f"note: {note}")
    if not console.is_terminal:  # a file or a pipe has no width that the table must fit into
        console.width = max(console.width, WIDE)
    console.print(table)
