"""Other draws of observed labels from prepared data whose full labels are known.

Labels are hidden anew from the images that are trained on, by the preparation's own setting and another seed;
so they are not those of ``prepare`` with that seed, which hides labels before it holds out validation. The
preparation's own seed is the data as it is.
"""

import hashlib
from dataclasses import fields, replace

import numpy as np

from sparselabel.config import Sparsify
from sparselabel.data.annotation_budget import annotate, buys_nothing
from sparselabel.data.dataset import SPATIAL_LABEL_COLUMNS, Dataset, PreparedSplit
from sparselabel.data.labels import NEGATIVE, POSITIVE, UNKNOWN, Labels, LabelTable
from sparselabel.data.readers.raw_dataset import RawSplit
from sparselabel.data.sparsify import Weights, sparsify
from sparselabel.data.split_writer import seen_spatial_labels
from sparselabel.errors import DataError, param


def redraw_labels(data: Dataset, label_seed: int) -> Dataset:
    """The data with another draw of what training observes; nothing is written."""
    how = refuse_to_redraw(data)
    if label_seed == how.label_seed:
        return data
    how = replace(how, label_seed=label_seed)
    names = ["train"]
    if "val" in data.splits and data.made["preparation"].get("validation_labels") == "observed":
        names.append("val")
    frequency = data.train.truth.counts()
    redrawn = {name: _redrawn(data.splits[name], how, number, frequency) for number, name in enumerate(names)}
    return replace(data, splits=data.splits | redrawn, label_seed=label_seed)


def refuse_to_redraw(data: Dataset) -> Sparsify:
    """How labels were hidden; raises where they were not, or where it is not known what was."""
    made = data.made.get("preparation", {})
    how = Sparsify(**{field.name: made[field.name] for field in fields(Sparsify) if field.name in made})
    leave = f"leave {param('label_seeds')} out"
    unknown = int((data.train.truth.values == UNKNOWN).sum())
    if unknown:
        raise DataError(
            f"{param('label_seeds')} draws labels anew from full ones, but {unknown:,} training labels of "
            f"{data.folder} are unknown",
            leave,
            what="label_seeds",
            value=unknown,
        )
    if how.sparsify == "none":
        raise DataError(
            f"{param('label_seeds')} hides labels as the preparation did, but that of {data.folder} hid none",
            f"prepare it with {param('sparsify')}",
            leave,
            what="label_seeds",
            value="none",
        )
    if made.get("scores") or data.answers:
        added = "another model's scores" if made.get("scores") else "reviewers' answers"
        raise DataError(
            f"labels of {data.folder} were set by {added}, which {param('label_seeds')} would lose",
            leave,
            what="label_seeds",
            value=added,
        )
    return how


def _redrawn(split: PreparedSplit, how: Sparsify, number: int, frequency: Weights) -> PreparedSplit:
    truth, spatial_labels = split.truth.values, split.spatial_labels
    if how.sparsify == "budget":
        raw = RawSplit(split.truth, split.paths, spatial_labels, masks=split.masks)
        observed, seen, bought = annotate(raw, how, number)
        if not bought["answers"]:
            raise buys_nothing(split.name, raw, how)
    else:
        # Another stream for validation: it must not repeat that of training.
        seeded = replace(how, label_seed=(how.label_seed + number * 2**31) % 2**32)
        if how.sparsify == "per-class":
            observed = _as_many(truth, split.observed.values, seeded.label_seed)
        else:
            observed = sparsify(truth, seeded, spatial_labels, frequency)
        seen = seen_spatial_labels(truth, observed, spatial_labels)
    digest = hashlib.blake2b(split.digest.encode(), digest_size=16)
    for array in (observed, *(getattr(seen, column) for column in SPATIAL_LABEL_COLUMNS)):
        digest.update(np.ascontiguousarray(array).tobytes())
    table = LabelTable(split.truth.ids, split.truth.classes, observed, check=False)
    return replace(split, observed=table, seen=seen, digest=digest.hexdigest())


def _as_many(truth: Labels, observed: Labels, seed: int) -> Labels:
    """As many labels of each class as are observed now: some of those asked for may be in validation."""
    random = np.random.default_rng(seed)
    redrawn = np.full_like(truth, UNKNOWN)
    for column in range(truth.shape[1]):
        for value in (POSITIVE, NEGATIVE):
            count = int((observed[:, column] == value).sum())
            rows = random.permutation(np.flatnonzero(truth[:, column] == value))
            redrawn[rows[:count], column] = value
    return redrawn
