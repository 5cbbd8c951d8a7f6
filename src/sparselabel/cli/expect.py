"""``sparselabel expect``: how many positives each class has, without full labels."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter
from rich.table import Table

from sparselabel.cli.arguments import FROM_FILE, FromFile
from sparselabel.cli.terminal import first_process, plain_console
from sparselabel.config import Engine, Machine, TrainConfig, Views
from sparselabel.errors import counted, spell
from sparselabel.files import require_file_to_write

if TYPE_CHECKING:
    from sparselabel.data.dataset import Dataset
    from sparselabel.expected_positives.class_counts import ClassCounts

CONFIG, VIEWS = TrainConfig(), Views()


def expect(
    data: Path,
    /,
    *,
    out: Path,
    how: Literal["auto", "counted"] = "auto",
    labels: Path | None = None,
    answers: Annotated[list[Path] | None, Parameter(consume_multiple=True)] = None,
    backbone: str = CONFIG.backbone,
    weights: str = CONFIG.weights,
    views: Views = VIEWS,
    seed: int = 0,
    workers: int | None = None,
    engine: Engine = "auto",
    given: Annotated[FromFile, Parameter(name="*")] = FROM_FILE,
) -> None:
    """Estimate the expected positives of every class, and K, their number per image.

    Example: `sparselabel expect prepared --backbone mobilenetv2_100 --out expected.json`

    Parameters
    ----------
    data
        Prepared data, as `sparselabel prepare` wrote it.
    out
        JSON file to write.
    how
        auto: estimate from the observed labels and a pretrained backbone's features; counted: count in
        --labels.
    labels
        Table of complete labels of some random training images, as `sparselabel prepare table` reads it or
        `sparselabel review --goal count` writes it. Images are named as in the prepared data, relative to
        the folder of its images.
    answers
        Files of reviewers' answers to add to the observed labels, if training uses them too.
    backbone
        Any timm network.
    weights
        Backbone's weights: pretrained (downloaded), none, or a safetensors or torch file.
    seed
        Random seed of the folds and of the bootstrap.
    workers
        Processes that load images; by default none for a CPU, where threads do it.
    engine
        What runs the network on a CPU; auto takes the first one that is installed, and torch for few images.
    """
    from sparselabel.data.answers import with_files
    from sparselabel.data.prepared_files import open_prepared
    from sparselabel.training.estimate_positives import expected_positives

    require_file_to_write(out)
    config = TrainConfig(backbone=backbone, weights=weights, views=views, seed=seed)
    prepared = with_files(open_prepared(data), answers or ())
    counts = expected_positives(prepared, config, how, labels, Machine(workers=workers, engine=engine))
    if not first_process():
        return
    counts.write(out)
    show(counts, prepared)
    plain_console().print(f"written: {out}")


def show(counts: "ClassCounts", data: "Dataset") -> None:
    """Print the classes' expected positives, beside the truth if it is known."""
    console = plain_console()
    truth = data.train.truth if data.train.truth.complete and not data.train.observed.complete else None
    table = Table(title=f"{data.name}: {counted(counts.images, 'training image')}", title_justify="left")
    table.add_column("class", overflow="fold")
    for name in ("annotated", "expected", "interval", *(() if truth is None else ("truth", "error"))):
        table.add_column(name, justify="right")
    real = None if truth is None else truth.counts()
    for number, name in enumerate(counts.classes):
        expected = float(counts.expected[number])
        row = [f"{counts.annotated[number]:,}", f"{expected:,.0f}"]
        row.append(f"{counts.low[number]:,.0f} – {counts.high[number]:,.0f}")
        if real is not None:
            row += [f"{real[number]:,}", _error(expected, float(real[number]))]
        table.add_row(name, *row)
    console.print(table)
    low, high = counts.interval
    known = ""
    if real is not None:
        k = float(real.sum()) / counts.images
        known = f"; truth {k:.3f}, error {_error(counts.per_image, k)}"
    console.print(f"K, classes per image: {counts.per_image:.3f} ({low:.2f} – {high:.2f}){known}")
    console.print(f"{'trusted' if counts.trusted else 'not trusted'}: {counts.why}")
    if not counts.trusted:
        console.print(f"what to do: {spell(counts.remedy)}")


def _error(expected: float, real: float) -> str:
    return "-" if real == 0 else f"{100 * (expected / real - 1):+.0f} %".replace("-", "−")
