"""Expected positives of prepared data, before training: estimated from features, or counted."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from sparselabel.config import Machine, TrainConfig
from sparselabel.data.dataset import Prepared
from sparselabel.data.labels import NEGATIVE, UNKNOWN, LabelTable
from sparselabel.data.readers import table
from sparselabel.errors import ConfigError, DataError, listing
from sparselabel.method.class_counts import ClassCounts, How, counted_positives
from sparselabel.method.expected_count import estimate_positives, needs_features
from sparselabel.run_folder import RunFolder
from sparselabel.train.inputs import Inputs
from sparselabel.train.learner import Learner
from sparselabel.train.log import Log
from sparselabel.train.machine import start


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
    pictures. The truth is never looked at.
    """
    if how == "counted":
        if labels is None:
            raise ConfigError(
                "counted positives need complete labels of some training pictures: name a table with --labels"
            )
        return counted_positives(complete_labels(labels, data), data.train.observed, config.seed)
    if labels is not None:
        raise ConfigError("a table of labels is for counting: give --how counted, or leave --labels out")
    observed = np.asarray(data.train.observed.values)
    needed = needs_features(observed)
    features = training_features(data, config, machine or Machine(), quiet) if needed else None
    return estimate_positives(features, observed, data.classes, config.seed)


def training_features(
    data: Prepared, config: TrainConfig, machine: Machine, quiet: bool = False
) -> npt.NDArray[np.float32]:
    """(N, D) Features of the training pictures by the untrained backbone, kept beside the data."""
    fabric = start(machine, config.precision)
    log = Log(RunFolder(data.folder), speaks=fabric.is_global_zero, quiet=quiet)
    inputs = Inputs(data, config, Learner(config, len(data.classes)), fabric, machine.workers, log)
    features: npt.NDArray[np.float32] = inputs.features("train").numpy()
    return features


def complete_labels(file: Path, data: Prepared) -> LabelTable:
    """Complete labels of some training pictures, from a table as `prepare table` reads it.

    A table that says only what is there (no 0 in it) is taken at its word: all else is not there.
    """
    found = table.read(file, images=data.train.root).splits["train"].labels
    strangers = sorted({*found.ids.tolist()} - {*data.train.paths.tolist()})
    if strangers:
        raise DataError(
            f"{file}: {len(strangers):,} pictures are not training pictures of {data.folder}: "
            f"{listing(strangers)}"
        )
    unknown = [name for name in found.classes if name not in data.classes]
    if unknown:
        raise DataError(
            f"{file}: the data has no {listing(unknown)}; its classes: {listing(data.classes, 30)}"
        )
    values = np.full((len(found), len(data.classes)), UNKNOWN, dtype=np.int8)
    values[:, [data.classes.index(name) for name in found.classes]] = found.values
    if not (values == NEGATIVE).any():
        values[values == UNKNOWN] = NEGATIVE
    incomplete = found.ids[(values == UNKNOWN).any(1)]
    if len(incomplete):
        raise DataError(
            f"{file}: {len(incomplete):,} of {len(found):,} pictures have unknown labels "
            f"({listing(incomplete, 3)}): every class needs 1 or 0, or list only the classes that are there"
        )
    return LabelTable(found.ids, data.classes, values)
