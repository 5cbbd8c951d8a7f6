"""``sparselabel predict``: labels for images, by a finished run."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from sparselabel.config import Engine, Machine
from sparselabel.errors import ConfigError, DataError, RunError, counted, listing, param
from sparselabel.progress import progress_bar, status_console

if TYPE_CHECKING:
    from sparselabel.inference.prediction_files import PredictionFile
    from sparselabel.inference.predictor import Predictor

Hyphen = Parameter(allow_leading_hyphen=True)  # - is standard input, or output
SAID = 20  # images that cannot be read and are named; the output names all


def predict(
    run: Path,
    /,
    *images: Annotated[str, Hyphen],
    out: Annotated[str, Hyphen] = "-",
    precision: float | None = None,
    threshold: float | None = None,
    all_scores: bool = False,
    maps: Path | None = None,
    gallery: Path | None = None,
    write_xmp: bool = False,
    sort_into: Path | None = None,
    links: bool = False,
    fiftyone: Path | None = None,
    label_studio: Path | None = None,
    batch: int = 32,
    workers: int = Machine().workers,
    engine: Engine = "auto",
    resume: bool = False,
    force: bool = False,
) -> None:
    """Label images with a trained classifier: a line per image, as CSV or JSON lines.

    Each class has its own threshold, chosen for the highest F1 on validation, and scores are calibrated: of
    the labels scored 0.8, eight of ten should be right. `sparselabel evaluate RUN` shows how far that holds.

    Example: `sparselabel predict runs/first photos/ --out tags.csv --precision 0.9`

    Parameters
    ----------
    run
        Folder of a finished run.
    images
        Files, folders (with all in them), patterns, .txt lists of paths, or - for paths from stdin.
    out
        File to write, .csv or .jsonl; - is CSV on standard output.
    precision
        Choose thresholds so that this share of each class's labels is right, as 0.9.
    threshold
        One threshold of the calibrated score for all classes, as 0.5.
    all_scores
        Write the scores of all classes too.
    maps
        Folder for heat maps (of query2label attention): a PNG for each image and class found.
    gallery
        HTML file to write: small images with their labels, to look through and to search by label.
    write_xmp
        Write an XMP sidecar beside each image (photo.jpg.xmp), with its labels as keywords.
    sort_into
        Folder to copy images into, a folder for each label.
    links
        Link images in --sort-into instead of copying them.
    fiftyone
        JSON file to write for FiftyOne (FiftyOneImageClassificationDataset).
    label_studio
        JSON file to write for Label Studio: tasks with predictions.
    batch
        Images at a time.
    workers
        Processes that load images.
    engine
        What runs the network on a CPU; auto takes the first that is installed, and torch for few images.
    resume
        Go on with a file that was interrupted.
    force
        Replace files.
    """
    from sparselabel.files import require_folder_to_write
    from sparselabel.inference.image_paths import check_image_words
    from sparselabel.inference.writer import Output, check_out

    if batch < 1:
        raise ConfigError(f"{param('batch')} must be at least 1 image, not {batch}", what="batch")
    for word in images:
        if word.startswith("--"):
            raise ConfigError(f"there is no flag {word}", "`sparselabel predict --help` names all", what=word)
    check_image_words(images)
    check_out(out, force=force, resume=resume)
    if maps is not None:
        require_folder_to_write(maps, f"choose another {param('maps')}")
    whole = {"gallery": gallery, "fiftyone": fiftyone, "label_studio": label_studio}
    _check_more(whole, sort_into, links, force=force, resume=resume)
    from sparselabel.inference.predictor import load_predictor
    from sparselabel.resources import keep_freed_memory

    keep_freed_memory()
    predictor = load_predictor(run, precision=precision, threshold=threshold, engine=engine)
    about = {
        "run": str(run.resolve()),
        "thresholds": [round(value, 6) for value in predictor.thresholds.tolist()],
        "maps": None if maps is None else str(maps),
    }
    more = _more_files(
        whole, sort_into, predictor, run, write_xmp=write_xmp, links=links, force=force or resume
    )
    output = Output(out, predictor.classes, about, all_scores=all_scores, resume=resume)
    try:
        seen = _write(predictor, images, output, maps, batch, workers, more)
    except BrokenPipeError:  # whoever read the output has seen enough, as `| head` has
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123 - Python would flush the broken one at exit
        return
    except KeyboardInterrupt:
        output.stop()
        if output.out is None:
            raise
        raise RunError(
            f"stopped: what was predicted is in {out}.partial",
            f"go on by the same command with {param('resume', True)}",
        ) from None
    except BaseException:
        output.stop()
        raise
    for file in more:
        status_console().print(file.finish())
    _summary(predictor, seen, out, precision, rely=threshold is None)


def _check_more(
    whole: dict[str, Path | None], sort_into: Path | None, links: bool, *, force: bool, resume: bool
) -> None:
    """Raise if what is to be written beside the table cannot be, before any work."""
    from sparselabel.files import require_file_to_write, require_folder_to_write

    for name, file in whole.items():
        if file is None:
            continue
        if resume:
            raise ConfigError(
                f"{param(name)} shows all images, and {param('resume')} goes on with the last ones",
                f"begin anew ({param('force', True)})",
                what=name,
            )
        if name == "gallery":
            from sparselabel.report.gallery import check_gallery

            check_gallery(file, force=force)
            continue
        require_file_to_write(file)
        if file.exists() and not force:
            raise RunError(f"{file} exists already", f"replace it ({param('force', True)})", what=file)
    if sort_into is not None:
        require_folder_to_write(sort_into, f"choose another {param('sort_into')}")
    elif links:
        raise ConfigError(f"{param('links')} is for {param('sort_into')}", "name that folder", what="links")


def _more_files(
    whole: dict[str, Path | None],
    sort_into: Path | None,
    predictor: "Predictor",
    run: Path,
    *,
    write_xmp: bool,
    links: bool,
    force: bool,
) -> "list[PredictionFile]":
    """What predictions are written to beside the table."""
    from sparselabel.inference.prediction_files import (
        FiftyOneFile,
        LabelStudioFile,
        SortedImages,
        XmpSidecars,
    )

    files: list[PredictionFile] = []
    if whole["gallery"] is not None:
        from sparselabel.report.gallery import Gallery

        files.append(Gallery(whole["gallery"], run.resolve().name))
    if write_xmp:
        files.append(XmpSidecars())
    if sort_into is not None:
        files.append(SortedImages(sort_into, predictor.classes, links=links, force=force))
    if whole["fiftyone"] is not None:
        files.append(FiftyOneFile(whole["fiftyone"], predictor.classes))
    if whole["label_studio"] is not None:
        files.append(LabelStudioFile(whole["label_studio"], predictor.classes))
    return files


def _write(
    predictor: "Predictor",
    words: tuple[str, ...],
    output: Any,
    maps: Path | None,
    batch: int,
    workers: int,
    more: "Sequence[PredictionFile]",
) -> dict[str, int]:
    """Predict and write all; how many images, labels and images that cannot be read there were."""
    from sparselabel.inference.image_paths import count_images, image_paths, other_files
    from sparselabel.inference.writer import MapFolder

    console = status_console()
    folder = None if maps is None else MapFolder(maps, predictor.classes, predictor.view)
    seen = {"images": 0, "labels": 0, "broken": 0, "before": output.done}
    left = output.skip(image_paths(words))
    with progress_bar(console, count_images(words), "predicting") as bar:
        bar.skip(output.done)
        for prediction in predictor(left, maps=folder is not None, batch=batch, workers=workers):
            output.write(prediction, None if folder is None else folder.write(prediction))
            for file in more:
                file.write(prediction)
            seen["images"] += 1
            seen["labels"] += len(prediction.labels)
            if prediction.error is not None:
                seen["broken"] += 1
                if seen["broken"] <= SAID:
                    console.print(f"skipped: {prediction.error}")
            bar.advance()
    if not seen["images"] + output.done:
        output.discard()
        raise DataError(f"no images in {listing(words)}", "name files", "folders that have some")
    output.finish()
    if others := other_files(words):
        kinds = [f"{number:,} {suffix}" for suffix, number in others.most_common()]
        console.print(f"skipped: {counted(others.total(), 'file')} that are no images ({listing(kinds)})")
    if seen["broken"] == seen["images"] and not output.done:
        raise DataError(
            f"none of {counted(seen['images'], 'image')} could be read; the first reasons are above"
        )
    return seen


def _summary(
    predictor: "Predictor", seen: dict[str, int], out: str, precision: float | None, *, rely: bool
) -> None:
    """Say what was found; ``rely`` on the classes' own thresholds, if those were used."""
    from sparselabel.metrics.thresholds import NEVER

    console = status_console()
    read = seen["images"] - seen["broken"]
    counts = f"{counted(read, 'image')}, {counted(seen['labels'], 'label')}"
    counts += f" ({seen['labels'] / read:.2f} per image), by {predictor.engine}" if read else ""
    if seen["broken"]:
        counts += f"; {counted(seen['broken'], 'image')} could not be read"
    if seen["before"]:
        counts += f"; {seen['before']:,} were there before"
    console.print(f"{'' if out == '-' else f'{out}: '}{counts}")
    never = [
        name for name, value in zip(predictor.classes, predictor.thresholds, strict=True) if value == NEVER
    ]
    if never and precision is not None:
        console.print(f"never predicted, as no score reaches precision {precision:g}: {listing(never)}")
    poor = [row for row in predictor.class_thresholds.classes if row.trust == "poor"]
    if poor and rely:
        every = len(poor) == len(predictor.classes)
        names = f"all {len(poor)}" if every else listing([row.name for row in poor], 5)
        console.print(f"thresholds not to rely on: {names}; {poor[0].name}: {poor[0].why}")
    sys.stderr.flush()
