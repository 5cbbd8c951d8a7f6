"""Evaluation of several runs that share a frozen backbone: it sees every picture once for all of them."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

from sparselabel.allocator import keep_freed_memory
from sparselabel.data.loaders import PictureFeed, in_order
from sparselabel.data.transforms import views_of
from sparselabel.errors import RunError
from sparselabel.inference.evaluate import keep_evaluation, load_classifier
from sparselabel.inference.saved_scores import split_of
from sparselabel.metrics.located import Located
from sparselabel.models.backbone import Backbone
from sparselabel.models.classifier import Head
from sparselabel.run import RunFolder

BATCH = 32


@torch.no_grad()
def evaluate_together(
    paths: Sequence[Path], split: str, *, workers: int = 0, report: Callable[[int], None] | None = None
) -> None:
    """Score a split with each run, and judge its maps, as ``evaluate_run`` does; writes the same files.

    All must have been trained on the same pictures, seen in the same way, and have the same backbone.
    """
    keep_freed_memory()
    runs = [RunFolder(path) for path in paths]
    part = split_of(runs[0], split)
    views = runs[0].config().views
    for run in runs[1:]:
        if split_of(run, split).digest != part.digest or run.config().views != views:
            raise RunError(f"{run.path} and {runs[0].path} have other pictures or views: evaluate them apart")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    backbone, heads = _loaded(runs)
    backbone.to(device)
    for head in heads:
        head.to(device)
    located = Located(part)
    judged = [located.another() for _ in runs]
    scores = [np.zeros(part.truth.values.shape, np.float32) for _ in runs]
    needs_token = any(head.reads_token for head in heads)
    feed = PictureFeed(part, views_of(views)[1], workers=workers)
    for rows, inputs, frames in feed(in_order(np.arange(len(part)), BATCH), 0):
        seen = inputs[0].to(device)
        features, token = backbone.with_token(seen) if needs_token else (backbone(seen), None)
        outputs = []
        for head, own in zip(heads, scores, strict=True):
            output = head(features, maps=bool(located.pairs), token=token if head.reads_token else None)
            own[rows.numpy()] = torch.sigmoid(output.logits.float()).cpu().numpy()
            outputs.append(output)
        if located.pairs:
            located.see_all(rows, frames[0], list(zip(judged, outputs, strict=True)))
        if report is not None:
            report(len(rows))
    for run, own, places in zip(runs, scores, judged, strict=True):
        keep_evaluation(run, part, own, places)


def _loaded(runs: Sequence[RunFolder]) -> tuple[Backbone, list[Head]]:
    """The backbone of all, and the head of each."""
    first = load_classifier(runs[0]).eval()
    weights = first.backbone.state_dict()
    heads = [first.head]
    for run in runs[1:]:
        classifier = load_classifier(run).eval()
        other = classifier.backbone.state_dict()
        if weights.keys() != other.keys() or not all(torch.equal(weights[k], other[k]) for k in weights):
            raise RunError(
                f"{run.path} and {runs[0].path} have different backbones, as after --full.epochs: evaluate "
                "them apart"
            )
        heads.append(classifier.head)
    return first.backbone, heads
