"""Evaluation of a published classifier with its own head on data of its own classes (a row of P1 table 3)."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sparselabel.data.augment import imagenet_test
from sparselabel.data.dataset import open_prepared
from sparselabel.data.feed import PictureFeed
from sparselabel.errors import ConfigError
from sparselabel.evaluate.measures import measures
from sparselabel.evaluate.real import real_measures_of
from sparselabel.evaluate.saved import judging_labels
from sparselabel.evaluate.score import score
from sparselabel.model.backbone import PRETRAINED
from sparselabel.model.published import PublishedClassifier, imagenet_synsets, make_published


def evaluate_published(
    name: str,
    data: Path,
    split: str,
    *,
    weights: str = PRETRAINED,
    threshold: float = 0.5,
    workers: int = 0,
    report: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """Score every picture of a split once by the network's own classes; the scores are softmax probabilities.

    P1 does not say by which scores it ranks the softmax network: "real_by_logits" has ReaL's measures by the
    logits themselves, whose top-1 is the same.
    """
    if not 0 <= threshold <= 1:
        raise ConfigError(f"threshold must be a score in [0, 1], not {threshold}")
    prepared = open_prepared(data)
    part = prepared.split(split)
    model = make_published(name, weights)
    refuse_other_classes(name, model, prepared.classes)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    feed = PictureFeed(part, replace(imagenet_test(model.size), centre=model.centre), workers=workers)
    # Doubles: probabilities next to 1 must not become ties.
    logits = score(model.to(device), feed, len(part), device, report=report, scores_of=Tensor.double)
    scores = logits.softmax(dim=1).numpy()
    measured: dict[str, Any] = {"run": name, "split": split, "recovery": None}
    measured |= measures(scores, judging_labels(part), threshold)
    measured["real"] = real_measures_of(scores, part)
    measured["real_by_logits"] = real_measures_of(logits.numpy(), part)
    return measured


def refuse_other_classes(name: str, model: PublishedClassifier, classes: Sequence[str]) -> None:
    """Raise unless the data's classes are those of the network's head, in its order."""
    if model.classes != len(classes):
        raise ConfigError(
            f"{name} has a head for {model.classes:,} classes, the data has {len(classes):,}: they must be "
            "the same; train a classifier for other classes"
        )
    synsets = imagenet_synsets()
    if model.classes != len(synsets):
        return
    for index, (wanted, found) in enumerate(zip(synsets, classes, strict=True)):
        if found.split(" ")[0] != wanted:
            raise ConfigError(
                f"output {index} of {name} is {wanted}, but class {index} of the data is {found!r}: prepare "
                "ImageNet with `sparselabel prepare imagenet`"
            )
