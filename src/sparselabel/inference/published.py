"""Evaluation of a published classifier with its own head on data of its own classes (a row of P1 table 3)."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sparselabel.data.dataset import open_prepared
from sparselabel.data.loaders import PictureFeed
from sparselabel.data.transforms import imagenet_test, squashed
from sparselabel.errors import ConfigError
from sparselabel.inference.saved_scores import judging_labels
from sparselabel.inference.scores import score
from sparselabel.metrics.evaluation import measures
from sparselabel.metrics.real import real_measures_of
from sparselabel.models.backbone import NONE, PRETRAINED
from sparselabel.models.pretrained_classifier import (
    PublishedClassifier,
    imagenet_synsets,
    make_published,
    make_released,
)
from sparselabel.models.released import is_released
from sparselabel.models.weights import read_tensors


def evaluate_published(
    name: str,
    data: Path,
    split: str,
    *,
    weights: str = PRETRAINED,
    size: int | None = None,
    threshold: float = 0.5,
    workers: int = 0,
    report: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """Score every picture of a split once by the network's own classes; the scores are softmax probabilities.

    Where ``weights`` is a file of a whole Query2Label model, as its authors released them, it is that model
    on pictures squashed to ``size``, and the scores are its own.

    P1 does not say by which scores it ranks the softmax network: "real_by_logits" has ReaL's measures by the
    logits themselves, whose top-1 is the same.
    """
    if not 0 <= threshold <= 1:
        raise ConfigError(f"threshold must be a score in [0, 1], not {threshold}")
    prepared = open_prepared(data)
    part = prepared.split(split)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if weights not in (PRETRAINED, NONE) and is_released(read_tensors(Path(weights))):
        released, side = make_released(name, Path(weights), size)
        refuse_other_number(weights, len(released.head.query_embed.weight), len(prepared.classes))  # type: ignore[union-attr, arg-type]
        feed = PictureFeed(part, squashed(side), workers=workers)
        scores = score(released.to(device), feed, len(part), device, report=report).float().numpy()
        about = {"run": weights, "split": split, "recovery": None, "real": real_measures_of(scores, part)}
        return about | measures(scores, judging_labels(part), threshold)
    if size is not None:
        raise ConfigError(
            f"size {size} is for a file of a Query2Label model (--weights FILE): {name} has its own"
        )
    model = make_published(name, weights)
    refuse_other_classes(name, model, prepared.classes)
    feed = PictureFeed(part, replace(imagenet_test(model.size), centre=model.centre), workers=workers)
    # Doubles: probabilities next to 1 must not become ties.
    logits = score(model.to(device), feed, len(part), device, report=report, scores_of=Tensor.double)
    scores = logits.softmax(dim=1).numpy()
    measured: dict[str, Any] = {"run": name, "split": split, "recovery": None}
    measured |= measures(scores, judging_labels(part), threshold)
    measured["real"] = real_measures_of(scores, part)
    measured["real_by_logits"] = real_measures_of(logits.numpy(), part)
    return measured


def refuse_other_number(name: str, outputs: int, classes: int) -> None:
    """Raise unless a head has as many outputs as the data has classes."""
    if outputs != classes:
        raise ConfigError(
            f"{name} has a head for {outputs:,} classes, the data has {classes:,}: they must be "
            "the same; train a classifier for other classes"
        )


def refuse_other_classes(name: str, model: PublishedClassifier, classes: Sequence[str]) -> None:
    """Raise unless the data's classes are those of the network's head, in its order."""
    refuse_other_number(name, model.classes, len(classes))
    synsets = imagenet_synsets()
    if model.classes != len(synsets):
        return
    for index, (wanted, found) in enumerate(zip(synsets, classes, strict=True)):
        if found.split(" ")[0] != wanted:
            raise ConfigError(
                f"output {index} of {name} is {wanted}, but class {index} of the data is {found!r}: prepare "
                "ImageNet with `sparselabel prepare imagenet`"
            )
