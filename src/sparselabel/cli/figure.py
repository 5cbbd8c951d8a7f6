"""``sparselabel figure``: the analyses of the papers, each as a PNG and a CSV of its numbers."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import App, Parameter

from sparselabel.cli.help import HELP_FLAGS
from sparselabel.cli.terminal import plain_console

app = App(
    name="figure",
    help="""Draw a figure from runs: a PNG in the current folder or where --out says, and its numbers as CSV.

    Example: `sparselabel figure heat-maps runs/scl --out heat-maps.png`
    """,
    help_flags=HELP_FLAGS,
)

Listed = Parameter(consume_multiple=True)
Out = Annotated[Path, Parameter(help="PNG file to write; its numbers become a CSV beside it.")]
Split = Annotated[str, Parameter(help="Which split of the data: test, val or train.")]
Watched = Annotated[Path, Parameter(help="Folder of a run that watched images (`--watch`).")]


@app.command
def heat_maps(
    run: Watched,
    /,
    *,
    rows: Annotated[list[int] | None, Listed] = None,
    count: int = 4,
    out: Out = Path("heat-maps.png"),
) -> None:
    """Where a run sees the classes of watched training images, in the last epoch.

    For each image it shows the highest-scored class that is annotated, that is present but not annotated, and
    that is absent. It draws heat maps if the method keeps them (+scl), else the model's score of each cell;
    for query2label, attention.

    Example: `sparselabel figure heat-maps runs/scl --rows 0 12 --out heat-maps.png`

    Parameters
    ----------
    rows
        Rows of the training images to show; default: those with a class of each kind first.
    count
        Number of images, if --rows is not given.
    """
    from sparselabel.report.figures.heatmap_figures import draw_heat_maps

    _draw(draw_heat_maps, run, rows or (), count, out=out)


@app.command
def growth(run: Watched, /, *, row: int | None = None, out: Out = Path("growth.png")) -> None:
    """How the maps of an image's classes develop from epoch to epoch.

    It shows the highest-scored class that is annotated, that is present but not annotated, and that is
    absent.

    Example: `sparselabel figure growth runs/scl --row 0 --out growth.png`

    Parameters
    ----------
    row
        Row of the training image; default: the first watched one with a class of each kind.
    """
    from sparselabel.report.figures.heatmap_figures import draw_growth

    _draw(draw_growth, run, row, out=out)


@app.command
def beside(run: Path, other: Path, /, *, count: int = 4, out: Out = Path("beside.png")) -> None:
    """The maps of two runs side by side: the first watched images, and the first run's top 5 classes.

    It draws heat maps if both runs keep them, else the score of each cell (for query2label, attention). To
    see what the spatial loss alone does, compare with a run of the same method with `--settings.weight 0`: it
    keeps heat maps without using them.

    Example: `sparselabel figure beside runs/scl runs/no-scl --out beside.png`

    Parameters
    ----------
    run
        Folder of a run that watched images (`--watch`); its scores choose the classes.
    other
        Folder of another run on the same data.
    count
        Number of images.
    """
    from sparselabel.report.figures.heatmap_figures import draw_beside

    _draw(draw_beside, run, other, count, out=out)


@app.command
def scores(*runs: Path, split: Split = "val", out: Out = Path("scores.png")) -> None:
    """The distribution of an image's 1st to 4th highest score, for each run.

    It reads what `sparselabel evaluate RUN --split val` wrote.

    Example: `sparselabel figure scores runs/an runs/scl --split val --out scores.png`

    Parameters
    ----------
    runs
        Folders of evaluated runs.
    """
    from sparselabel.report.figures.score_histogram import draw_scores

    _draw(draw_scores, runs, split, out=out)


@app.command
def hidden_positives(*runs: Path, out: Out = Path("hidden-positives.png")) -> None:
    """How unobserved positives are scored during training, epoch by epoch (Cole 2021 figure 2).

    For runs on data whose full labels are known. Each column is a histogram that adds up to 1.

    Example: `sparselabel figure hidden-positives comparison --out hidden-positives.png`

    Parameters
    ----------
    runs
        Folders of finished runs, or of a comparison, from which the first seed of each row is taken.
    """
    from sparselabel.comparison.compare import INDEX, Comparison
    from sparselabel.report.figures.hidden_positives import draw_hidden_positives

    folders = [
        folder
        for path in runs
        for folder in (Comparison.open(path).best_runs() if (path / INDEX).is_file() else [path])
    ]
    _draw(draw_hidden_positives, folders, out=out)


@app.command
def sizes(
    baseline: Path, /, *runs: Path, bins: int = 5, split: Split = "test", out: Out = Path("sizes.png")
) -> None:
    """The gain of each run over a baseline on small and large objects (data with boxes).

    It reads what `sparselabel evaluate RUN --split test` wrote. Positives are sorted by the area of their
    largest box into bins of equal count; the mAP of a bin is that of its positives against all negatives.

    Example: `sparselabel figure sizes runs/an runs/scl --bins 5 --out sizes.png`

    Parameters
    ----------
    baseline
        Folder of the evaluated run to compare with, for example of `an`.
    runs
        Folders of other evaluated runs.
    bins
        Number of bins.
    """
    from sparselabel.report.figures.object_sizes import draw_sizes

    _draw(draw_sizes, baseline, runs, bins, split, out=out)


@app.command
def sweep(*tables: Path, split: str = "test", out: Out = Path("sweep.png")) -> None:
    """What a setting does to the mAP: lines from the table of a comparison in which it was varied.

    Several tables become several curves, for example those of three comparisons with different values of
    `--settings.distance`. A table-by-labels.csv becomes a panel for each number of labels.

    Example: `sparselabel figure sweep comparison --split val --out sweep.png`

    Parameters
    ----------
    tables
        What `sparselabel compare ... --vary NAME V1 V2` wrote: its folder (for the table.csv in it),
        table.csv or table-by-labels.csv.
    split
        Split of the mAP: test or val.
    """
    from sparselabel.report.figures.sweep_curve import draw_sweep, table_in

    _draw(draw_sweep, tables, split, out=out, inputs=[table_in(path) for path in tables])


@app.command
def labels(*tables: Path, out: Out = Path("labels.png")) -> None:
    """How the test mAP grows with the number of labels: points from comparisons on more and more data.

    Example: `sparselabel figure labels tenth/table.csv half/table.csv --out labels.png`

    Parameters
    ----------
    tables
        table.csv of each comparison, for example on data prepared with `--keep-train .1`, `--keep-train .2`
        and so on.
    """
    from sparselabel.report.figures.sweep_curve import draw_label_numbers

    _draw(draw_label_numbers, tables, out=out, inputs=tables)


@app.command
def localization(
    *runs: Path, count: int = 4, split: Split = "test", out: Out = Path("localization.png")
) -> None:
    """Good and failed localizations: where runs see a class, beside the outlines of its objects.

    It reads what `sparselabel evaluate RUN` wrote for data with boxes or masks. It shows maps of the last run
    that are right at every threshold (those that gain most over the first run come first), and maps that are
    right at none (the highest scores come first).

    Example: `sparselabel figure localization runs/image runs/points --count 4 --out localization.png`

    Parameters
    ----------
    runs
        Folders of evaluated runs on the same data; one or more.
    count
        Number of good and number of failed examples.
    """
    from sparselabel.inference.maps import write_maps
    from sparselabel.report.figures.localization_examples import choose, draw_localization, read_evaluated

    def draw(out: Path) -> Path:
        evaluated = read_evaluated(runs, split)
        examples = choose(evaluated, count)
        for run in (one.saved.run for one in evaluated):
            write_maps(run, split, examples.rows, examples.classes, file=run.located_maps_file(split))
        return draw_localization(evaluated, examples, split, out)

    _draw(draw, out=out)


@app.command
def budgets(
    *runs: Path,
    measure: Literal["mAP", "mAP-loc"] = "mAP",
    split: str = "test",
    out: Out = Path("budgets.png"),
) -> None:
    """The gain from annotation budgets: a curve for each kind of annotation, over the share of the full cost.

    For runs on data prepared with `--sparsify budget`. Runs of the same method, kind and budget (draws of the
    annotations, seeds) become one point with its spread.

    Example: `sparselabel figure budgets runs/i-1 runs/i-2 runs/sp-1 runs/sp-2 --out budgets.png`

    Parameters
    ----------
    runs
        Folders of finished runs.
    measure
        mAP, or mAP-loc, for which runs must be evaluated.
    split
        Split of the data: test, val or train; for val and train, runs must be evaluated.
    """
    from sparselabel.report.figures.budget_curve import draw_budgets

    _draw(draw_budgets, runs, measure, split, out=out)


def _draw(draw: Callable[..., Path], *given: Any, out: Path, inputs: Iterable[Path] = ()) -> None:
    """Draw into a file, which must not replace an input, and print its name."""
    from sparselabel.report.figures.style import checked_out

    numbers = draw(*given, checked_out(out, inputs))
    plain_console().print(f"written: {out}, {numbers}")
