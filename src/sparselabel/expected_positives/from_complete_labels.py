"""K from complete labels of some random images, by counting."""

from pathlib import Path

import numpy as np

from sparselabel.data.answers import COLUMNS, Answer, answered_labels, last_words, lay_over, read_answers
from sparselabel.data.dataset import Dataset
from sparselabel.data.label_table import LabelTable
from sparselabel.data.labels import NEGATIVE, POSITIVE, UNKNOWN, all_unknown, count_per_image
from sparselabel.errors import DataError, command, counted, listing
from sparselabel.expected_positives.class_counts import (
    DRAWS,
    ClassCounts,
    annotated_positives,
    bounded,
    shared_out,
    wilson,
)

OWN_COUNT = 20.0
"""Images that the share by annotated labels weighs beside a class's own count in the counted sample."""
FEWEST_COUNTED = 30


def counted_positives(complete: LabelTable, observed: LabelTable, seed: int = 0) -> ClassCounts:
    """Expected positives from some random images with complete labels.

    K is their mean number of classes. Classes share K·N by their annotated labels (Verelst 2023 eq. 3); the
    larger the sample, the more a class's own count in it weighs; a class is in at most all images, and the
    others share the rest. K's spread is a bootstrap over the counted images. A class's is Wilson's interval
    of its own count, which has a width for a class that was never seen, too.
    """
    if complete.classes != observed.classes:
        raise DataError("the counted images must have the data's classes, in the same order")
    if not complete.complete:
        raise DataError(
            "counted images must have all labels, 1 or 0", "complete them", "leave those rows out"
        )
    if len(complete) < 2:
        raise DataError(
            f"{len(complete)} counted images say nothing", "label a few dozen random ones completely"
        )
    annotated = annotated_positives(observed.matrix)
    counts = (complete.values == POSITIVE).astype(np.float64)
    size, images = len(counts), len(observed)
    own = counts.mean(0) * images
    weight = size / (size + OWN_COUNT * len(annotated))
    mixed = weight * own + (1 - weight) * own.sum() * annotated / annotated.sum()
    most = images - observed.counts(NEGATIVE)
    known = annotated > 0
    expected = np.zeros(len(annotated))
    expected[known] = shared_out(own.sum(), mixed[known], annotated[known], most[known])
    each, random = counts.sum(1), np.random.default_rng(seed)
    drawn = [each[random.integers(0, size, size)].mean() for _ in range(DRAWS)]  # one at a time is in memory
    k = expected.sum() / images
    k_low, k_high = np.quantile(drawn, (0.025, 0.975))
    # What is annotated is there for sure.
    k_low, k_high = min(max(k_low, annotated.sum() / images), k), max(k_high, k)
    low, high = (bounded(images * share, observed.matrix) for share in wilson(counts.sum(0), size))
    low, high = np.minimum(low, expected), np.maximum(high, expected)
    few = size < FEWEST_COUNTED
    why = f"counted in {size:,} images" + (f": fewer than {FEWEST_COUNTED}" if few else "")
    return ClassCounts(
        "counted", observed.classes, len(observed), annotated, expected, low, high,
        (float(k_low), float(k_high)), not few, why,
    )  # fmt: skip


def complete_labels(file: Path, data: Dataset) -> LabelTable:
    """Complete labels of some training images, from a table as `prepare table` reads it.

    A list of present classes (one label per row, no value but 1) is taken as complete: all others are absent.
    In a table with a column per class an empty cell is unknown, as everywhere.
    """
    from sparselabel.data.readers import table

    answered = _answered(file)
    if answered is not None:
        return _complete_answers(file, answered, data)
    naming = f"name images relative to {data.train.root}, as {str(data.train.paths[0])!r}"
    try:
        labels = table.read(file, images=data.train.root, unlabeled=None).splits["train"].labels
    except DataError as error:  # the folder of the images is that of the data, and no parameter
        remedies = (naming,) if "images" in error.parameters else error.remedies
        raise DataError(error.problem, *remedies, what=error.what, where=error.where) from error
    strangers = sorted({*labels.ids.tolist()} - {*data.train.paths.tolist()})
    for name, split in data.splits.items():
        elsewhere = sorted({*strangers} & {*split.paths.tolist()})
        if elsewhere:
            raise DataError(
                f"{file}: {len(elsewhere):,} of {counted(len(labels), 'image')} are in {name}, not in "
                f"training: {listing(elsewhere)}",
                "leave them out",
                what=file,
                where=name,
                value=len(elsewhere),
            )
    if strangers:
        raise DataError(
            f"{file}: {len(strangers):,} of {counted(len(labels), 'image')} not in training of "
            f"{data.folder}: {listing(strangers)}",
            naming,
        )
    unknown = [name for name in labels.classes if name not in data.classes]
    if unknown:
        raise DataError(
            f"{file}: the data has no {listing(unknown)}; its classes: {listing(data.classes, 30)}"
        )
    values = np.full((len(labels), len(data.classes)), UNKNOWN, dtype=np.int8)
    values[:, [data.classes.index(name) for name in labels.classes]] = labels.values
    if _lists_what_is_there(file):
        values[values == UNKNOWN] = NEGATIVE
    incomplete = np.flatnonzero((values == UNKNOWN).any(1))
    if len(incomplete):
        cells = [
            f"{data.classes[int(np.argmax(values[row] == UNKNOWN))]} on {labels.ids[row]}"
            for row in incomplete[:3].tolist()
        ]
        raise DataError(
            f"{file}: {len(incomplete):,} of {counted(len(labels), 'image')} have unknown labels "
            f"({', '.join(cells)}): every class needs 1 or 0; or make it a list of all that is there, with "
            "columns image and label"
        )
    return LabelTable(labels.ids, data.classes, values)


def _answered(file: Path) -> list[Answer] | None:
    """The answers in a file that `sparselabel review` wrote; None if it is another kind of table."""
    from sparselabel.data.readers.table_files import open_cells

    with open_cells(file, "image") as cells:
        if cells.header != COLUMNS:
            return None
    return read_answers(file)


def _complete_answers(file: Path, answers: list[Answer], data: Dataset) -> LabelTable:
    """The images of which every class was answered, as a review of complete images asks."""
    nothing = all_unknown((len(data.train), len(data.classes)))
    names = data.train.truth.ids, data.train.paths
    values = lay_over(last_words(answers), nothing, names, data.classes, str(file)).values
    rows = np.flatnonzero(count_per_image(values, UNKNOWN) == 0)
    if not len(rows):
        raise DataError(
            f"{file} has no image of which every class was answered",
            f"make some with {command('review', 'RUN', goal='count')}",
        )
    return LabelTable(np.asarray(data.train.paths)[rows], data.classes, values[rows])


def complete_answers(data: Dataset) -> LabelTable:
    """The training images of which reviewers answered every class: a review that counts asks random ones."""
    values, answered = answered_labels(data.train, data.answers)
    counts = np.bincount(answered[:, 0], minlength=len(data.train))
    rows = np.flatnonzero(counts == len(data.classes))
    return LabelTable(np.asarray(data.train.paths)[rows], data.classes, values[rows])


def _lists_what_is_there(file: Path) -> bool:
    """Whether a table has one label per row, all of them present."""
    from sparselabel.data.readers.table import label_code
    from sparselabel.data.readers.table_files import open_cells

    with open_cells(file, "image") as cells:
        if "label" not in cells.header:
            return False
        if "value" not in cells.header:
            return True
        at = cells.header.index("value")
        return all(label_code(cells, line, "value", row[at]) == POSITIVE for line, row in cells.rows)
