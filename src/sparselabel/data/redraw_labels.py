"""Redraw the observed labels of prepared data whose full labels are known: another seed, or another kind.

Labels are hidden anew from the images that are trained on, by the preparation's own setting or another one,
and any seed; so they differ from those of ``prepare`` with that setting, which hides labels before it holds
out validation. The preparation's own setting and seed give the data itself.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from itertools import product
from typing import Any

import numpy as np

from sparselabel.config import Sparsify, from_dict
from sparselabel.data.annotation_budget import annotate, buys_nothing, refuse_budget, refuse_more_than_all
from sparselabel.data.dataset import Dataset, PreparedSplit
from sparselabel.data.label_table import LabelTable
from sparselabel.data.labels import NEGATIVE, POSITIVE, UNKNOWN, LabelMatrix, Labels, SparseLabels, compact
from sparselabel.data.prepared_files import SPARSE_PARTS, SPATIAL_LABEL_COLUMNS
from sparselabel.data.readers.raw_dataset import RawSplit
from sparselabel.data.sparsify import Weights, sparsify
from sparselabel.data.split_writer import seen_spatial_labels
from sparselabel.errors import ConfigError, DataError, param

EXAMPLE = "budget,annotate=I/SP,budget=0.02/0.05"


def kinds_of_annotation(texts: Sequence[str]) -> list[str]:
    """Their names, ``KIND,NAME=VALUE,...``: what ``sparsify`` is, then its settings as ``Sparsify`` has them.

    Several values, as in ``single-positive,prefer=any/larger``, give all combinations.
    """
    names = []
    for text in texts:
        kind, *settings = text.split(",")
        pairs = [setting.partition("=") for setting in settings]
        if any(not equals for _, equals, _ in pairs) or "label_seed" in (name for name, _, _ in pairs):
            raise ConfigError(
                f"{param('annotations', text)} must be a kind and settings of it that have a value, as in "
                f"{EXAMPLE}; seeds are {param('label_seeds')}",
                what="annotations",
                value=text,
            )
        for values in product(*(several.split("/") for _, _, several in pairs)):
            given = [f"{name}={_plain(value)}" for (name, _, _), value in zip(pairs, values, strict=True)]
            names.append(",".join([kind, *given]))
            setting_of(names[-1])  # refuses what it cannot be
    return names


def setting_of(annotation: str) -> Sparsify:
    """The setting that a kind's name stands for."""
    kind, *settings = annotation.split(",")
    where = param("annotations", annotation)
    given: dict[str, Any] = {"sparsify": kind}
    for setting in settings:
        name, _, value = setting.partition("=")
        given[name] = _parsed(value)
    try:
        return from_dict(Sparsify, given, where)
    except ConfigError as error:
        problem = error.problem if where in error.problem else f"{where}: {error.problem}"
        raise ConfigError(problem, *error.remedies, what="annotations", value=annotation) from error


def _parsed(text: str) -> float | int | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _plain(text: str) -> str:
    """A value in its canonical form: .40 and 0.4 are the same."""
    value = _parsed(text)
    return text if isinstance(value, str) else f"{value:g}"


def redraw_labels(data: Dataset, label_seed: int | None = None, annotation: str = "") -> Dataset:
    """The data with observed labels of another seed or kind; nothing is written.

    The default seed is the preparation's.
    """
    own = _preparation(data)
    how = _refuse_to_redraw(data, own, annotation)
    how = replace(how, label_seed=own.label_seed if label_seed is None else label_seed)
    if how == own:
        return data
    names = ["train"]
    if "val" in data.splits and data.made["preparation"].get("validation_labels") == "observed":
        names.append("val")
    frequency = data.train.truth.counts()
    same_kind = replace(how, label_seed=own.label_seed) == own
    redrawn, bought = {}, {}
    for number, name in enumerate(names):
        redrawn[name], bought[name] = _redrawn(data.splits[name], how, number, frequency, same_kind)
    made = {"preparation": data.made["preparation"] | asdict(how), "bought": bought}
    return replace(
        data,
        splits=data.splits | redrawn,
        made=data.made | made,
        label_seed=label_seed,
        annotation=annotation,
    )


def _preparation(data: Dataset) -> Sparsify:
    """The settings by which the preparation hid labels."""
    made = data.made.get("preparation", {})
    return Sparsify(**{field.name: made[field.name] for field in fields(Sparsify) if field.name in made})


def _refuse_to_redraw(data: Dataset, own: Sparsify, annotation: str) -> Sparsify:
    """The settings for hiding labels; raises if hidden labels are unknown, or nothing is to be hidden."""
    setting = "annotations" if annotation else "label_seeds"
    leave = f"leave {param(setting)} out"
    unknown = data.train.truth.matrix.size - data.train.truth.known
    if unknown:
        raise DataError(
            f"{param(setting)} draws labels anew from full ones, but {unknown:,} training labels of "
            f"{data.folder} are unknown",
            leave,
            what=setting,
            value=unknown,
        )
    if not annotation and own.sparsify == "none":
        raise DataError(
            f"{param(setting)} hides labels as the preparation did, but that of {data.folder} hid none",
            f"prepare it with {param('sparsify')}",
            f"give {param('annotations')}",
            leave,
            what=setting,
            value="none",
        )
    if data.made.get("preparation", {}).get("scores") or data.answers:
        added = "reviewers' answers" if data.answers else "another model's scores"
        raise DataError(
            f"labels of {data.folder} were set by {added}, which {param(setting)} would lose",
            leave,
            what=setting,
            value=added,
        )
    return setting_of(annotation) if annotation else own


def _redrawn(
    split: PreparedSplit, how: Sparsify, number: int, frequency: Weights, same_kind: bool
) -> tuple[PreparedSplit, dict[str, Any] | None]:
    """A split with other labels, and what a budget bought for it."""
    truth, spatial_labels = split.truth.values, split.spatial_labels
    bought: dict[str, Any] | None = None
    observed: LabelMatrix
    if how.sparsify == "budget":
        raw = RawSplit(split.truth, split.paths, spatial_labels, masks=split.masks)
        refuse_budget(split.name, raw, how)
        refuse_more_than_all(raw, how)
        observed, seen, bought = annotate(raw, how, number)
        if not bought["answers"]:
            raise buys_nothing(split.name, raw, how)
    else:
        # Another stream for validation: it must not repeat that of training.
        seeded = replace(how, label_seed=(how.label_seed + number * 2**31) % 2**32)
        if how.sparsify == "per-class" and same_kind:
            observed = _as_many(truth, split.observed, seeded.label_seed)
        else:
            observed = sparsify(truth, seeded, spatial_labels, frequency)
        observed = compact(observed)
        seen = seen_spatial_labels(truth, observed, spatial_labels)
    digest = hashlib.blake2b(split.digest.encode(), digest_size=16)
    parts = [getattr(observed, part) for part in SPARSE_PARTS] if isinstance(observed, SparseLabels) else []
    for array in (*(parts or [observed]), *(getattr(seen, column) for column in SPATIAL_LABEL_COLUMNS)):
        digest.update(np.ascontiguousarray(array).tobytes())
    table = LabelTable(split.truth.ids, split.truth.classes, observed, check=False)
    return replace(split, observed=table, seen=seen, digest=digest.hexdigest()), bought


def _as_many(truth: Labels, observed: LabelTable, seed: int) -> Labels:
    """As many labels of each class as are observed now: some of those asked for may be in validation."""
    counts = {value: observed.counts(value).tolist() for value in (POSITIVE, NEGATIVE)}
    random = np.random.default_rng(seed)
    redrawn = np.full_like(truth, UNKNOWN)
    for column in range(truth.shape[1]):
        for value in (POSITIVE, NEGATIVE):
            rows = random.permutation(np.flatnonzero(truth[:, column] == value))
            redrawn[rows[: counts[value][column]], column] = value
    return redrawn
