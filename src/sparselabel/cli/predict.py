"""``sparselabel predict``: predict labels of images with a finished run."""

import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from sparselabel.cli.arguments import FLAGS
from sparselabel.config import Engine, ShardFormat
from sparselabel.errors import ConfigError, DataError, RunError, counted, listing, param, spell
from sparselabel.progress import progress_bar, status_console

if TYPE_CHECKING:
    from sparselabel.inference.predict_on_ray import Done
    from sparselabel.inference.prediction_sidecars import PredictionFile
    from sparselabel.inference.predictor import Predictor

Hyphen = Parameter(allow_leading_hyphen=True)  # - is standard input, or output


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
    column: str | None = None,
    cluster: str | None = None,
    cluster_cores: int | None = None,
    out_format: ShardFormat | None = None,
    batch: int = 32,
    workers: int | None = None,
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
        Files, folders (searched recursively), glob patterns, .txt lists of paths, or - for paths from stdin;
        also tars and Parquet tables that contain images. All but - may be URLs (s3://, https://).
    out
        File to write, .csv or .jsonl; - is CSV on standard output. With --cluster a folder.
    precision
        Choose thresholds so that this share of each class's labels is right, for example 0.9.
    threshold
        One threshold of the calibrated score for all classes, for example 0.5.
    all_scores
        Also write the scores of all classes.
    maps
        Folder for heat maps (attention maps of query2label): a PNG per image and predicted class.
    gallery
        HTML file to write: thumbnails with their labels, searchable by label.
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
    column
        Column of Parquet tables with the images, as bytes or as paths; default: image, jpg, path or the like.
    cluster
        Address of a Ray cluster (`auto` for the one that this machine belongs to) to predict on. The run and
        --out must be on a disk that all its nodes share. Needs the extra `cluster`.
    cluster_cores
        Cores per worker on the cluster, by default 1. If nodes have GPUs, each worker has one.
    out_format
        Format of the files in --out with --cluster; by default parquet. There is a file for each tar, or for
        about 1,000 images.
    batch
        Images per batch.
    workers
        Processes that load images; by default none for a CPU, where threads do it.
    engine
        What runs the network on a CPU; auto takes the first one that is installed, and torch for few images.
    resume
        Continue a file that was interrupted.
    force
        Replace files.
    """
    from sparselabel.data.image_paths import check_image_words
    from sparselabel.files import require_folder_to_write
    from sparselabel.inference.prediction_csv import PredictionWriter, check_out

    if batch < 1:
        raise ConfigError(f"{param('batch')} must be at least 1 image, not {batch}", what="batch")
    _refuse_flags(images)
    whole = {"gallery": gallery, "fiftyone": fiftyone, "label_studio": label_studio}
    more_asked = {"maps": maps, "write_xmp": write_xmp or None, "sort_into": sort_into, **whole}
    beside = [name for name, given in more_asked.items() if given is not None]
    if cluster is not None:
        _refuse_on_cluster(out, beside, {"workers": workers, "links": links or None})
        from sparselabel.inference.predict_on_ray import Place, predict_on_cluster
        from sparselabel.run import Run

        cores = 1 if cluster_cores is None else cluster_cores
        total = predict_on_cluster(
            Run.open(run), images, Path(out), Place(cluster, cores), out_format=out_format or "parquet",
            all_scores=all_scores, precision=precision, threshold=threshold, batch=batch, column=column,
            engine=engine, resume=resume, force=force,
        )  # fmt: skip
        _summary_of_cluster(out, total)
        return
    _refuse_without_cluster({"cluster_cores": cluster_cores, "out_format": out_format})
    check_image_words(images, column)
    check_out(out, force=force, resume=resume)
    _refuse_without_files(images, beside)
    if maps is not None:
        require_folder_to_write(maps, f"choose another {param('maps')}")
        _refuse_inside(images, "maps", maps)
    _check_more(whole, sort_into, links, force=force, resume=resume)
    if sort_into is not None:
        _refuse_inside(images, "sort_into", sort_into)
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
        whole, sort_into, images, predictor, run, write_xmp=write_xmp, links=links, force=force or resume
    )
    output = PredictionWriter(out, predictor.classes, about, all_scores=all_scores, resume=resume)
    try:
        seen = _write(predictor, images, output, maps, batch, workers, column, more)
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
    _summary(run, predictor, seen, out, precision, rely=threshold is None)


def _refuse_flags(words: Sequence[str]) -> None:
    """Raise if a word is a mistyped flag, and no image."""
    for word in words:
        if word.startswith("--"):
            near = get_close_matches(word.partition("=")[0], FLAGS, n=1)
            remedies = [f"give {near[0]}"] if near else []
            remedies.append("look them up (`sparselabel predict --help`)")
            raise ConfigError(f"there is no flag {word}", *remedies, what=word)


def _refuse_inside(images: Sequence[str], name: str, folder: Path) -> None:
    """Raise if what is written would be found among the images, and predicted too."""
    for word in images:
        if Path(word).is_dir() and folder.resolve().is_relative_to(Path(word).resolve()):
            raise ConfigError(
                f"{param(name, folder)} is inside {word}, and so its images would be predicted too",
                f"choose a folder beside {word}",
                what=name,
                value=folder,
            )


def _refuse_without_cluster(asked: dict[str, int | str | None]) -> None:
    """Raise if something is asked for that only a cluster has."""
    for name, value in asked.items():
        if value is not None:
            raise ConfigError(
                f"{param(name)} is for prediction on a cluster, and none is given",
                f"name it ({param('cluster', 'auto')})",
                f"leave {param(name)} out",
                what=name,
                value=value,
            )


def _refuse_on_cluster(out: str, beside: list[str], asked: dict[str, int | None]) -> None:
    """Raise if something is asked for that a cluster does not write or have."""
    if beside:
        raise ConfigError(
            f"{param(beside[0])} is written on one machine, not on a cluster",
            f"leave {param(beside[0])} out",
            f"leave {param('cluster')} out",
            what=beside[0],
        )
    for name, value in asked.items():
        if value is not None:
            raise ConfigError(
                f"{param(name)} is for prediction on one machine, not on a cluster",
                f"leave {param(name)} out",
                f"leave {param('cluster')} out",
                what=name,
                value=value,
            )
    if out == "-" or Path(out).suffix.lower() in (".csv", ".jsonl", ".parquet"):
        raise ConfigError(
            f"{param('out')} is a folder where a cluster writes files, not {out}",
            f"name one, and the files' format by {param('out_format')}",
            what="out",
            value=out,
        )


def _refuse_without_files(words: tuple[str, ...], beside: list[str]) -> None:
    """Raise if something is asked for that needs image files, and images are in shards or at addresses."""
    from sparselabel.data.image_paths import STANDARD_INPUT, image_paths
    from sparselabel.data.image_shards import is_shard
    from sparselabel.data.remote_files import is_address

    for path in image_paths(word for word in words if word != STANDARD_INPUT) if beside else ():
        if is_shard(path) or is_address(path):
            raise ConfigError(
                f"{param(beside[0])} needs image files, and {path} is none",
                f"leave {param(beside[0])} out",
                "copy the images to a folder",
                what=beside[0],
                value=path,
            )


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
    images: Sequence[str],
    predictor: "Predictor",
    run: Path,
    *,
    write_xmp: bool,
    links: bool,
    force: bool,
) -> "list[PredictionFile]":
    """What predictions are written to beside the table."""
    from sparselabel.data.image_paths import common_folder
    from sparselabel.inference.prediction_sidecars import (
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
        base = common_folder(images)
        files.append(SortedImages(sort_into, predictor.classes, links=links, force=force, base=base))
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
    workers: int | None,
    column: str | None,
    more: "Sequence[PredictionFile]",
) -> dict[str, int]:
    """Predict and write all; how many images, labels and images that cannot be read there were."""
    from sparselabel.data.image_paths import common_folder, count_images, image_paths, no_images, other_files
    from sparselabel.data.image_paths import images as images_at
    from sparselabel.inference.prediction_csv import NAMED
    from sparselabel.inference.prediction_sidecars import MapFolder

    console = status_console()
    base = common_folder(words)
    folder = None if maps is None else MapFolder(maps, predictor.classes, predictor.view, base)
    seen = {"images": 0, "labels": 0, "broken": 0, "before": output.done}
    left = output.skip(images_at(image_paths(words), column))
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
                if seen["broken"] <= NAMED:
                    console.print(f"skipped: {prediction.error}")
            bar.advance()
    if not seen["images"] + output.done:
        output.discard()
        raise no_images(words)
    output.finish()
    if others := other_files(words):
        kinds = [f"{number:,} {suffix}" for suffix, number in others.most_common()]
        what = "that is not an image" if others.total() == 1 else "that are not images"
        console.print(f"skipped: {counted(others.total(), 'file')} {what} ({listing(kinds)})")
    if not output.done:
        _refuse_all_broken(seen["images"], seen["broken"])
    return seen


def _refuse_all_broken(images: int, broken: int) -> None:
    if broken == images:
        raise DataError(
            f"none of {counted(images, 'image')} could be read; the first reasons are above",
            "check that they are whole images",
            "name others",
        )


def _counts(images: int, labels: int, broken: int, engine: str) -> str:
    """A sentence with the counts."""
    read = images - broken
    counts = f"{counted(read, 'image')}, {counted(labels, 'label')}"
    counts += f" ({labels / read:.2f} per image), by {engine}" if read else ""
    return counts + (f"; {counted(broken, 'image')} could not be read" if broken else "")


def _summary_of_cluster(out: str, total: "Done") -> None:
    """Say what a cluster found."""
    counts = _counts(total["images"], total["labels"], total["broken"], total["engine"])
    status_console().print(f"{out}: {counts}")
    _refuse_all_broken(total["images"], total["broken"])


def _summary(
    run: Path,
    predictor: "Predictor",
    seen: dict[str, int],
    out: str,
    precision: float | None,
    *,
    rely: bool,
) -> None:
    """Say what was found; ``rely`` on the classes' own thresholds, if those were used."""
    from sparselabel.inference.expected_quality import trust_in

    console = status_console()
    counts = _counts(seen["images"], seen["labels"], seen["broken"], predictor.engine)
    if seen["before"]:
        counts += f"; {seen['before']:,} were there before"
    console.print(f"{'' if out == '-' else f'{out}: '}{counts}")
    if precision is not None:
        by_class = zip(predictor.classes, predictor.thresholds, strict=True)
        unsure = [name for name, threshold in by_class if threshold >= precision]
        if unsure:
            console.print(
                f"no validation image reaches precision {precision:g}, so the threshold is a score of "
                f"{precision:g}: {listing(unsure)}"
            )
    if rely:
        for sentence in trust_in(predictor.class_thresholds, run):
            console.print(spell(sentence))
    sys.stderr.flush()
