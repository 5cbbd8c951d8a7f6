"""Expected positives of prepared data, before training: given, counted, or estimated from features."""

import time
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sparselabel.config import Machine, TrainConfig
from sparselabel.data.answers import COLUMNS, Answer, last_words, lay_over, read_answers
from sparselabel.data.dataset import Prepared
from sparselabel.data.labels import NEGATIVE, POSITIVE, UNKNOWN, Labels, LabelTable
from sparselabel.data.readers import table
from sparselabel.data.readers.csv_parquet import open_cells
from sparselabel.data.readers.table import label_code
from sparselabel.distributed import start
from sparselabel.errors import ConfigError, DataError, DataWarning, counted, listing
from sparselabel.expected_positives.class_counts import ClassCounts, How, read_expected
from sparselabel.expected_positives.counted import counted_positives
from sparselabel.expected_positives.estimate import MOST_IMAGES, estimate_positives, needs_features
from sparselabel.losses.registry import parse, settings_of
from sparselabel.run import Run
from sparselabel.training.inputs import Inputs
from sparselabel.training.logger import Log
from sparselabel.training.network import Learner
from sparselabel.training.resolve import DEFAULT

AUTO = "auto"
SAMPLE = 500  # images that tell how long estimating takes


def with_expected_positives(config: TrainConfig, data: Prepared) -> TrainConfig:
    """K, where a method needs it and nobody gave it: counted in fully labeled validation data (Verelst 2023
    §4.1).

    A file of expected positives is read already now, to find what is wrong with it.
    """
    if "expected_positives" not in settings_of(config.method):
        return config
    given = config.settings.get("expected_positives")
    if isinstance(given, int | float):
        _refuse_impossible(given, data)
    if given == "counted":
        raise ConfigError(
            "counting needs complete labels of some images: `sparselabel expect DATA --how counted "
            "--labels TABLE --out FILE`, then give the FILE as expected_positives"
        )
    if isinstance(given, str) and given != AUTO:
        if not Path(given).is_file():
            hint = "; auto is written in small letters" if given.lower() == AUTO else ""
            raise ConfigError(
                "--settings.expected-positives must be a number above 0, auto, or a file that `sparselabel "
                f"expect` wrote, and there is no file {given!r}{hint}"
            )
        _of_file(Path(given), data)
    if given is not None:
        return config
    val = data.splits.get("val")
    if val is None or not val.observed.complete:
        if parse(config.method).base == DEFAULT:  # it must work for who knows nothing
            return replace(config, settings=config.settings | {"expected_positives": AUTO})
        raise ConfigError(
            f"{config.method} needs the mean number of classes in an image, and there is no fully labeled "
            "validation data to count it in: give --settings.expected-positives: a number, auto, or a file "
            "of `sparselabel expect`"
        )
    counted = round(float(val.observed.per_image(POSITIVE).mean()), 3)
    return replace(config, settings=config.settings | {"expected_positives": counted})


def _refuse_impossible(given: float, data: Prepared) -> None:
    """K is above 0, and at most the number of classes; below what is annotated it contradicts the data."""
    classes, seen = len(data.classes), float(data.train.observed.per_image(POSITIVE).mean())
    if not 0 < given <= classes:
        raise ConfigError(
            f"--settings.expected-positives is the mean number of classes in an image: above 0 and at most "
            f"{classes}, the number of classes, not {given:g}"
        )
    if given < round(seen, 3):
        warnings.warn(
            f"--settings.expected-positives is {given:g}, but already {seen:.3f} labels per image are "
            "annotated as present: the true number cannot be smaller",
            DataWarning,
            stacklevel=4,
        )


def expected_file(config: TrainConfig) -> Path | None:
    """The file of expected positives that the configuration names, if its method has a use for it."""
    given = config.settings.get("expected_positives")
    named = isinstance(given, str) and given != AUTO and "expected_positives" in settings_of(config.method)
    return Path(str(given)) if named else None


def is_estimated(config: TrainConfig) -> bool:
    """Whether expected positives are to be estimated before training."""
    given = config.settings.get("expected_positives")
    return given == AUTO and "expected_positives" in settings_of(config.method)


def new_counts(config: TrainConfig, inputs: Inputs) -> ClassCounts | None:
    """The expected positives of every class, if they come from a file or are to be estimated now."""
    data, fabric, file = inputs.data, inputs.fabric, expected_file(config)
    if file is not None:
        return _of_file(file, data)
    if not is_estimated(config):
        return None
    features = inputs.features("train").numpy() if needs_features(_annotations(data)) else None
    return fabric.broadcast(_estimated(features, data, config.seed))


def _annotations(data: Prepared) -> Labels:
    """The labels to estimate from: not reviewers' answers, as what they were asked about is no random choice.

    Taken for annotations, they say that many images have one class and some have several: K is far too low.
    """
    before = np.asarray(data.annotations.values)
    return before if (before == POSITIVE).any() else np.asarray(data.train.observed.values)


def _estimated(features: npt.NDArray[np.float32] | None, data: Prepared, seed: int) -> ClassCounts:
    found = estimate_positives(features, _annotations(data), data.classes, seed)
    return found.within(np.asarray(data.train.observed.values))


def seconds_to_estimate(config: TrainConfig, inputs: Inputs) -> float:
    """How long estimating will take, once there are features: measured with made-up ones of some images.

    Two sizes tell what comes once and what comes for each image.
    """
    labels = _annotations(inputs.data)
    if not needs_features(labels):
        return _seconds(None, labels, inputs.data, config.seed)
    width = inputs.features("train").shape[1]
    random = np.random.default_rng(config.seed)
    rows = random.permutation(np.flatnonzero((labels == POSITIVE).any(1)))
    made_up = random.standard_normal((min(len(rows), SAMPLE), width), dtype=np.float32)
    whole = _seconds(made_up, labels[rows[:SAMPLE]], inputs.data, config.seed)
    if len(rows) <= SAMPLE:
        return whole
    half = _seconds(made_up[: SAMPLE // 2], labels[rows[: SAMPLE // 2]], inputs.data, config.seed)
    more = (min(len(rows), MOST_IMAGES) - SAMPLE) / (SAMPLE - SAMPLE // 2)
    return whole + more * max(whole - half, 0.0)


def _seconds(features: npt.NDArray[np.float32] | None, labels: Labels, data: Prepared, seed: int) -> float:
    began = time.monotonic()
    estimate_positives(features, labels, data.classes, seed)
    return time.monotonic() - began


def kept_counts(
    config: TrainConfig, inputs: Inputs, run: Run, counts: ClassCounts | None
) -> ClassCounts | None:
    """The counts of a run, kept in it so that it resumes with the very same, whatever became of a file."""
    if not run.expected_file.exists():
        counts = counts or new_counts(config, inputs)
        if counts is None:
            return None
        if inputs.fabric.is_global_zero:
            counts.write(run.expected_file)
        inputs.fabric.barrier()
    return read_expected(run.expected_file, inputs.data.classes)


def _of_file(file: Path, data: Prepared) -> ClassCounts:
    """The counts in a file, which must be those of this data: they are numbers of images."""
    counts = read_expected(file, data.classes)
    annotated = data.train.observed.counts()
    if counts.images != len(data.train) or not np.array_equal(counts.annotated, annotated):
        raise DataError(
            f"{file} was made for other labels ({counted(counts.images, 'image')} with "
            f"{counts.annotated.sum():,} annotations) than {data.folder} has ({len(data.train):,} with "
            f"{annotated.sum():,}): make it again with `sparselabel expect`"
        )
    return counts


def expected_positives(
    data: Prepared,
    config: TrainConfig,
    how: How = "auto",
    labels: Path | None = None,
    machine: Machine | None = None,
    quiet: bool = False,
) -> ClassCounts:
    """Expected positives of the training split.

    ``auto`` takes the features of the configuration's backbone as it is before training, computed once and
    kept beside the data; ``counted`` reads ``labels``, a table of complete labels of some random training
    images. The truth is never looked at.
    """
    if how == "counted":
        if labels is None:
            raise ConfigError(
                "counted positives need complete labels of some training images: name a table with --labels"
            )
        return counted_positives(complete_labels(labels, data), data.train.observed, config.seed)
    if labels is not None:
        raise ConfigError("a table of labels is for counting: give --how counted, or leave --labels out")
    needed = needs_features(_annotations(data))
    features = training_features(data, config, machine or Machine(), quiet) if needed else None
    return _estimated(features, data, config.seed)


def training_features(
    data: Prepared, config: TrainConfig, machine: Machine, quiet: bool = False
) -> npt.NDArray[np.float32]:
    """(N, D) Features of the training images by the untrained backbone, kept beside the data."""
    fabric = start(machine, config.precision)
    log = Log(Run(data.folder), speaks=fabric.is_global_zero, quiet=quiet)
    inputs = Inputs(data, config, Learner(config, len(data.classes)), fabric, machine.workers, log)
    features: npt.NDArray[np.float32] = inputs.features("train").numpy()
    return features


def complete_labels(file: Path, data: Prepared) -> LabelTable:
    """Complete labels of some training images, from a table as `prepare table` reads it.

    A list of only what is there (one label a row, no value but 1) is taken at its word: all else is not
    there. In a table with a column a class an empty cell is unknown, as everywhere.
    """
    answered = _answered(file)
    if answered is not None:
        return _complete_answers(file, answered, data)
    naming = f"name images relative to {data.train.root}, as {str(data.train.paths[0])!r}"
    try:
        found = table.read(file, images=data.train.root).splits["train"].labels
    except DataError as error:  # the folder of the images is that of the data, and no parameter
        remedies = (naming,) if "images" in error.parameters else error.remedies
        raise DataError(error.problem, *remedies, what=error.what, where=error.where) from error
    strangers = sorted({*found.ids.tolist()} - {*data.train.paths.tolist()})
    if strangers:
        raise DataError(
            f"{file}: {len(strangers):,} of {counted(len(found), 'image')} not in training of "
            f"{data.folder}: {listing(strangers)}",
            naming,
            what=file,
        )
    unknown = [name for name in found.classes if name not in data.classes]
    if unknown:
        raise DataError(
            f"{file}: the data has no {listing(unknown)}; its classes: {listing(data.classes, 30)}"
        )
    values = np.full((len(found), len(data.classes)), UNKNOWN, dtype=np.int8)
    values[:, [data.classes.index(name) for name in found.classes]] = found.values
    if _lists_what_is_there(file):
        values[values == UNKNOWN] = NEGATIVE
    incomplete = np.flatnonzero((values == UNKNOWN).any(1))
    if len(incomplete):
        cells = [
            f"{data.classes[int(np.argmax(values[row] == UNKNOWN))]} on {found.ids[row]}"
            for row in incomplete[:3].tolist()
        ]
        raise DataError(
            f"{file}: {len(incomplete):,} of {counted(len(found), 'image')} have unknown labels "
            f"({', '.join(cells)}): every class needs 1 or 0; or make it a list of all that is there, with "
            "columns image and label"
        )
    return LabelTable(found.ids, data.classes, values)


def _answered(file: Path) -> list[Answer] | None:
    """The answers in a file that `sparselabel review` wrote; None if it is another kind of table."""
    with open_cells(file, "image") as cells:
        if cells.header != COLUMNS:
            return None
    return read_answers(file)


def _complete_answers(file: Path, answers: list[Answer], data: Prepared) -> LabelTable:
    """The images of which every class was answered, as `sparselabel review --complete` asks."""
    nothing = np.full_like(data.train.observed.values, UNKNOWN)
    names = data.train.truth.ids, data.train.paths
    values = lay_over(last_words(answers), nothing, names, data.classes, str(file)).values
    rows = np.flatnonzero((values != UNKNOWN).all(axis=1))
    if not len(rows):
        raise DataError(
            f"{file} has no image of which every class was answered: make some with `sparselabel review "
            "RUN --complete`"
        )
    return LabelTable(np.asarray(data.train.paths)[rows], data.classes, values[rows])


def _lists_what_is_there(file: Path) -> bool:
    """Whether a table has a label a row, each said to be there."""
    with open_cells(file, "image") as cells:
        if "label" not in cells.header:
            return False
        if "value" not in cells.header:
            return True
        at = cells.header.index("value")
        return all(label_code(cells, line, "value", row[at]) == POSITIVE for line, row in cells.rows)
