"""Evaluation of a finished run on any split of its data."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from sparselabel.data.dataset import PreparedSplit, evaluation_labels, open_prepared
from sparselabel.data.loaders import ImageLoader, in_order
from sparselabel.data.transforms import imagenet_test, squashed, views_of
from sparselabel.errors import ConfigError, DataError, RunError, is_out_of_memory
from sparselabel.files import write_json
from sparselabel.inference.class_thresholds import (
    has_class_thresholds,
    load_class_thresholds,
    threshold_metrics,
)
from sparselabel.inference.saved_scores import keep_scores, split_of
from sparselabel.inference.scores import score
from sparselabel.metrics.evaluation import measures
from sparselabel.metrics.localization import Located, Places
from sparselabel.metrics.ranking import Scores
from sparselabel.metrics.real import real_measures_of
from sparselabel.models.backbone import NONE, PRETRAINED, Backbone, make_backbone
from sparselabel.models.classifier import HEAD, Classifier, Head
from sparselabel.models.heads import make_head
from sparselabel.models.pretrained_classifier import (
    PublishedClassifier,
    imagenet_synsets,
    make_published,
    make_released,
)
from sparselabel.models.query2label import head_like
from sparselabel.models.tscam import coupled
from sparselabel.models.weights import is_released, read_tensors
from sparselabel.resources import keep_freed_memory
from sparselabel.run import Run


def evaluate_run(
    path: Path,
    split: str,
    *,
    data: Path | None = None,
    threshold: float = 0.5,
    workers: int = 0,
    places: Places = "any",
    report: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """Score every image of a split once; writes scores-SPLIT.npz and evaluation-SPLIT.json into the run.

    ``data`` is where the run's prepared data is now, if it was moved. Where boxes or masks are known, maps
    are judged by them too, and location-SPLIT.npz is written; ``places`` says by which of the two.
    """
    if not 0 <= threshold <= 1:
        raise ConfigError(f"threshold must be a score in [0, 1], not {threshold}")
    keep_freed_memory()
    run = Run(path)
    run.result()  # refuses a run that is not finished
    part = split_of(run, split, data)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = load_classifier(run).to(device).eval()
    loader = ImageLoader(part, views_of(run.config().views)[1], workers=workers)
    located = Located(part, places)
    seeing = partial(model, maps=True) if located.pairs else model
    look = located.see if located.pairs else None
    scores = score(seeing, loader, len(part), device, report=report, look=look).float().numpy()
    return keep_evaluation(run, part, scores, located, threshold, data)


def keep_evaluation(
    run: Run,
    part: PreparedSplit,
    scores: Scores,
    located: Located,
    threshold: float = 0.5,
    data: Path | None = None,
) -> dict[str, Any]:
    """Measure scores and maps of a split's images, and write both and the measures into the run."""
    split = part.name
    about = {"run": str(run.path), "split": split, "recovery": run.result()["recovery"]}
    measured = about | measures(scores, evaluation_labels(part), threshold)
    measured["real"] = real_measures_of(scores, part)
    measured["location"] = located.measures(scores)
    keep_scores(run, part, scores)
    located.keep(run.location_file(split))
    decisions = load_class_thresholds(run.path, data) if has_class_thresholds(run) else None
    measured["decided"] = decisions and threshold_metrics(scores, evaluation_labels(part), decisions)
    write_json(run.evaluation_file(split), measured)
    return measured


def load_classifier(run: Run) -> Classifier:
    """The trained classifier of a finished run."""
    config = run.config()
    backbone = make_backbone(
        config.backbone, NONE, size=config.views.size, output_stride=config.output_stride
    )
    classes = len(run.about()["classes"])
    if not run.model_file.is_file():
        raise RunError(f"{run.path} has no model.safetensors: train it (again)")
    try:
        weights = load_file(run.model_file)
        if config.classifier == "query2label":  # its widths may be those of the checkpoint it began with
            own = {name.removeprefix(HEAD): value for name, value in weights.items() if name.startswith(HEAD)}
            head: Head = head_like(own, backbone.width, classes)
        else:
            head = make_head(config.classifier, backbone.width, classes, config.boost)
        classifier = Classifier(backbone, head)
        classifier.load_state_dict(weights)
    except (SafetensorError, RuntimeError, KeyError) as error:
        if is_out_of_memory(error):
            raise
        said = " ".join(str(error).split())[:300]  # torch lists every tensor that does not fit
        raise RunError(f"{run.model_file} is damaged ({said}): train it again with --force") from error
    return classifier


def images_in(path: Path, split: str, data: Path | None = None) -> int:
    """How many images a split of a run's data has."""
    run = Run(path)
    run.result()  # refuses a run that is not finished
    return len(split_of(run, split, data))


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
    """Score every image of a split once by the network's own classes; the scores are softmax probabilities.

    Where ``weights`` is a file of a whole Query2Label model, as its authors released them, it is that model
    on images squashed to ``size``, and the scores are its own.

    Verelst 2023 does not say by which scores it ranks the softmax network: "real_by_logits" has ReaL's
    measures by the logits themselves, whose top-1 is the same.
    """
    if not 0 <= threshold <= 1:
        raise ConfigError(f"threshold must be a score in [0, 1], not {threshold}")
    prepared = open_prepared(data)
    part = prepared.split(split)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if weights not in (PRETRAINED, NONE) and is_released(read_tensors(Path(weights))):
        released, side = make_released(name, Path(weights), size)
        refuse_other_number(weights, len(released.head.query_embed.weight), len(prepared.classes))  # type: ignore[union-attr, arg-type]
        loader = ImageLoader(part, squashed(side), workers=workers)
        scores = score(released.to(device), loader, len(part), device, report=report).float().numpy()
        about = {"run": weights, "split": split, "recovery": None, "real": real_measures_of(scores, part)}
        return about | measures(scores, evaluation_labels(part), threshold)
    if size is not None:
        raise ConfigError(
            f"size {size} is for a file of a Query2Label model (--weights FILE): {name} has its own"
        )
    model = make_published(name, weights)
    refuse_other_classes(name, model, prepared.classes)
    loader = ImageLoader(part, replace(imagenet_test(model.size), center=model.center), workers=workers)
    # Doubles: probabilities next to 1 must not become ties.
    logits = score(model.to(device), loader, len(part), device, report=report, scores_of=Tensor.double)
    scores = logits.softmax(dim=1).numpy()
    measured: dict[str, Any] = {"run": name, "split": split, "recovery": None}
    measured |= measures(scores, evaluation_labels(part), threshold)
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


BATCH = 32


@torch.no_grad()
def evaluate_together(
    paths: Sequence[Path], split: str, *, workers: int = 0, report: Callable[[int], None] | None = None
) -> None:
    """Score a split with each run, and judge its maps, as ``evaluate_run`` does; writes the same files.

    All must have been trained on the same images, seen in the same way, and have the same backbone.
    """
    keep_freed_memory()
    runs = [Run(path) for path in paths]
    part = split_of(runs[0], split)
    views = runs[0].config().views
    for run in runs[1:]:
        if split_of(run, split).digest != part.digest or run.config().views != views:
            raise RunError(f"{run.path} and {runs[0].path} have other images or views: evaluate them apart")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    backbone, heads = _loaded(runs)
    backbone.to(device)
    for head in heads:
        head.to(device)
    located = Located(part)
    judged = [located.another() for _ in runs]
    scores = [np.zeros(part.truth.values.shape, np.float32) for _ in runs]
    needs_token = any(head.reads_token for head in heads)
    loader = ImageLoader(part, views_of(views)[1], workers=workers)
    for rows, inputs, geometries in loader(in_order(np.arange(len(part)), BATCH), 0):
        seen = inputs[0].to(device)
        features, token = backbone.with_token(seen) if needs_token else (backbone(seen), None)
        outputs = []
        for head, own in zip(heads, scores, strict=True):
            output = head(features, maps=bool(located.pairs), token=token if head.reads_token else None)
            own[rows.numpy()] = torch.sigmoid(output.logits.float()).cpu().numpy()
            outputs.append(output)
        if located.pairs:
            located.see_all(rows, geometries[0], list(zip(judged, outputs, strict=True)))
        if report is not None:
            report(len(rows))
    for run, own, places in zip(runs, scores, judged, strict=True):
        keep_evaluation(run, part, own, places)


def _loaded(runs: Sequence[Run]) -> tuple[Backbone, list[Head]]:
    """The backbone of all, and the head of each."""
    first = load_classifier(runs[0]).eval()
    weights = first.backbone.state_dict()
    heads = [first.head]
    for run in runs[1:]:
        classifier = load_classifier(run).eval()
        other = classifier.backbone.state_dict()
        if weights.keys() != other.keys() or not all(torch.equal(weights[k], other[k]) for k in weights):
            raise RunError(
                f"{run.path} and {runs[0].path} have different backbones, as after --finetune.epochs: "
                "evaluate them apart"
            )
        heads.append(classifier.head)
    return first.backbone, heads


def evaluate_coupled(
    path: Path,
    split: str,
    *,
    data: Path | None = None,
    workers: int = 0,
    places: Places = "any",
    report: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """How well a TS-CAM's coupled maps show where things are; raises for other classifiers and data."""
    run = Run(path)
    run.result()  # refuses a run that is not finished
    config = run.config()
    if config.classifier != "tscam":
        raise ConfigError(
            "--coupled multiplies TS-CAM's class maps by the class token's attention, but "
            f"{path} has --classifier {config.classifier}: leave --coupled out, or train with "
            "--classifier tscam on a ViT or DeiT"
        )
    part = split_of(run, split, data)
    located = Located(part, places)
    if not located.pairs:
        raise DataError(
            f"--coupled judges maps by masks or boxes, and split {split!r} has none of classes that are "
            "there: leave --coupled out"
        )
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = load_classifier(run).to(device).eval()
    loader = ImageLoader(part, views_of(config.views)[1], workers=workers)
    seeing = partial(coupled, model)
    scores = score(seeing, loader, len(part), device, report=report, look=located.see).float().numpy()
    return located.measures(scores) or {}


def keep_coupled(path: Path, measured: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """Write a run's evaluation again, with this beside ``location``."""
    measured = measured | {"location_coupled": found}
    write_json(Run(path).evaluation_file(measured["split"]), measured)
    return measured
