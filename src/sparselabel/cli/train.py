"""``sparselabel train``: one training run."""

import shlex
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from rich.table import Table

from sparselabel.cli.arguments import (
    FROM_FILE_OR_RECIPE,
    GIVEN_FLAGS,
    TABLE,
    FromFileOrRecipe,
    TableColumns,
    run_folder,
)
from sparselabel.cli.report import report
from sparselabel.cli.terminal import first_process, plain_console
from sparselabel.config import AUTO, Handling, Machine, TrainConfig, without_none
from sparselabel.errors import ConfigError, DataError, spell

if TYPE_CHECKING:
    from sparselabel.data.dataset import Dataset
    from sparselabel.training.dry_run import RunCost


Flat = Parameter(name="*")
Several = Parameter(consume_multiple=True)
CONFIG, MACHINE, HANDLING = TrainConfig(), Machine(), Handling()


def train(
    data: Path,
    /,
    *,
    labels: Path | None = None,
    table: Annotated[TableColumns, Flat] = TABLE,
    out: Path | None = None,
    answers: Annotated[list[Path] | None, Several] = None,
    cluster: str | None = None,
    processes: int | None = None,
    scores: str | None = None,
    config: Annotated[TrainConfig, Flat] = CONFIG,
    machine: Annotated[Machine, Flat] = MACHINE,
    handling: Annotated[Handling, Flat] = HANDLING,
    given: Annotated[FromFileOrRecipe, Flat] = FROM_FILE_OR_RECIPE,
) -> None:
    """Train a classifier on a folder of images, or on prepared data.

    Example: `sparselabel train photos --labels labels.csv`

    For a folder of images, network and schedule are chosen unless flags set them.

    Parameters
    ----------
    data
        A folder of images, with --labels or in class folders; or what `sparselabel prepare` wrote.
    labels
        Table of the images' labels: columns image and label, or a column for each class (1, 0, empty).
    out
        Folder of the run; default: runs/NAME, named after the data.
    answers
        Files of `sparselabel review`; later ones count. Settings that are not given come from their run.
    cluster
        Address of a Ray cluster (`auto` for the one that this machine belongs to) to train on. Data and --out
        must be on a disk that all its nodes share. Needs the extra `cluster`.
    processes
        Processes on the cluster; default: one per GPU, or one per node without GPUs.
    scores
        Another model's scores of the training images, as evidence for pu and en: a table by image and class
        (as for `sparselabel prepare --scores`), or text:MODEL, which scores the classes' names (open_clip).
    """
    from sparselabel.data.answers import with_files

    if scores is not None:
        _refuse_scores(config.method)
        config = replace(config, settings=config.settings | {"scores": scores})
    own, backbone = data.is_dir() and not (data / "dataset.json").exists(), None  # a folder of images
    out = out or run_folder(data)
    if own:
        from sparselabel.training.train_folder import choose_for_folder

        given_flags = {flag.removeprefix("--").replace("-", "_") for flag in GIVEN_FLAGS}
        columns = without_none(asdict(table))
        chosen = choose_for_folder(
            data, labels, out, config, given_flags, machine, handling, _teller(handling), columns
        )
        prepared, config, backbone = chosen.data, chosen.config, chosen.backbone
    else:
        prepared = _open(data, labels)
    prepared = with_files(prepared, answers or ())
    if handling.dry_run and cluster is None:
        from sparselabel.training.dry_run import dry_run

        cost = dry_run(prepared, config, out, machine, handling, sys.argv)
        if first_process():
            show(cost)
        return
    from sparselabel.inference.expected_quality import is_meaningless
    from sparselabel.training.train_run import train_somewhere

    result = train_somewhere(
        prepared, config, out, machine, handling, sys.argv, backbone, cluster=cluster, processes=processes
    )
    if handling.quiet or not first_process():
        return
    console = plain_console()
    _tell_quality(result, prepared, out)
    which = " of the last phase" if len(config.phases) > 1 else ""
    if result["epochs"] > 1:
        console.print(f"best epoch{which}: {result['best_epoch']} of {result['epochs']}")
    for split in ("validation", "test"):
        if result[split] is not None and not is_meaningless(result[split]):
            console.print(f"{split} {result[split]['name']}: {100 * result[split]['value']:.2f}")
    if result["recovery"] is not None:
        model, estimates = result["recovery"]["model"], result["recovery"]["estimates"]
        known = f"model {100 * model:.2f}"
        if estimates is not None:
            known += f", estimates (they contain the observed ones) {100 * estimates:.2f}"
        console.print(f"all training labels, mAP: {known}")
    run = shlex.quote(str(out))
    if not own:
        console.print(f"next: sparselabel report {run}")
        return
    report(out, out=out / "report.html", workers=machine.workers, force=True)
    console.print(f"next: sparselabel predict {run} MORE-IMAGES --out tags.csv  # what is in other images")
    asks = len(prepared.classes) > 1 and not prepared.train.observed.complete
    review = f"      sparselabel review {run}  # confirm or reject likely labels: they make it better\n"
    console.print(review if asks else "", end="")


def _tell_quality(result: dict[str, Any], data: "Dataset", out: Path) -> None:
    """What can be expected of the run, by its test images or those it was validated on; warnings first."""
    from sparselabel.inference.class_thresholds import load_class_thresholds
    from sparselabel.inference.expected_quality import quality_of, says_nothing, trust_in
    from sparselabel.run import Run

    console = plain_console()
    split = "test" if result["test"] is not None else "validation"
    measured = result[split]
    if measured is None or "classes" not in measured:
        return
    for warning in says_nothing(measured, split):
        console.print(f"WARNING: {warning}")
    quality = quality_of(measured, split, data.train)
    if quality is None:
        return
    console.print(" ".join(quality.opening()))
    console.print(quality.rests_on)
    for sentence in trust_in(load_class_thresholds(Run(out)), out):
        console.print(spell(sentence))


def _teller(handling: Handling) -> Callable[[str], None]:
    """A function that prints notes on chosen settings, unless the run is quiet."""
    console = plain_console()
    return lambda text: None if handling.quiet else console.print(spell(text))


def _refuse_scores(method: str) -> None:
    """Raise if a method that was named has no use for another model's scores."""
    from sparselabel.losses.registry import settings_of

    if method != AUTO and "scores" not in settings_of(method):
        raise ConfigError(
            f"{method} has no use for --scores", "take --method pu or en", "leave --scores out", what="scores"
        )


def _open(data: Path, labels: Path | None) -> "Dataset":
    """Dataset data, which brings its own labels."""
    from sparselabel.data.prepared_files import open_prepared

    try:
        if labels is not None and data.exists():
            problem = f"--labels {labels} is for a folder of images, and {data} is not"
            raise ConfigError(problem, "give the folder", "leave --labels out")
        return open_prepared(data)
    except DataError:
        if data.exists():
            raise
        remedy = "give a folder of images, or of prepared data"
        raise DataError(f"there is no folder {data}", remedy, what="data", value=data) from None


def show(cost: "RunCost") -> None:
    """A table of the phases, and what the whole run needs and finds."""
    from sparselabel.progress import duration
    from sparselabel.resources import format_bytes

    console = plain_console()
    table = Table("phase", "epochs", "steps per epoch", "images per step", "seconds per step", "time", "RAM")
    for column in table.columns[1:]:
        column.justify = "right"
    if cost.gpu:
        table.add_column("GPU", justify="right")
    for phase in cost.phases:
        counts = (f"{number:,}" for number in (phase.epochs, phase.steps, phase.batch_size))
        memory = [format_bytes(phase.ram), *([format_bytes(phase.gpu)] if cost.gpu else [])]
        table.add_row(phase.name, *counts, f"{phase.seconds:.3g}", duration(phase.time), *memory)
    console.print(table)
    parts = {
        "for features": cost.features_time,
        "to estimate expected positives": cost.expected_time,
        "for the run that finds the prior": cost.prior_time,
        "for metrics and calibration": cost.measuring,
    }
    before = [f"{duration(seconds)} {what}" for what, seconds in parts.items() if seconds]
    first = f", of which {', '.join(before)}" if before else ""
    console.print(f"time: about {duration(cost.seconds)}{first}")
    if cost.gpu:
        console.print(f"GPU: {format_bytes(cost.gpu)} of {format_bytes(cost.gpu_there)}")
    held = cost.features_in_ram
    beside = f", {format_bytes(held)} of them stored features" if held else ""
    console.print(
        f"RAM: {format_bytes(cost.ram)} per process, without its loaders{beside}; "
        f"{format_bytes(cost.ram_there)} more were free"
    )
    if cost.ram_short:
        console.print(
            "that may not fit: end other programs, or take a smaller --finetune.batch-size, "
            "--finetune.grad-checkpointing, --finetune.micro-batches or --memories file"
        )
    files = f", {format_bytes(cost.files)} of them what the method remembers" if cost.files else ""
    console.print(
        f"disk: {format_bytes(cost.disk)}{files}; {format_bytes(cost.disk_there)} are free at --out"
    )
    if cost.disk > cost.disk_there:
        console.print("that may not fit: make room, or take an --out on a larger disk")
    if cost.features:
        console.print(f"features to be kept beside the data: {format_bytes(cost.features)}")
    console.print("nothing was written")
