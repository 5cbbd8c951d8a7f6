"""Evaluate finished runs on any split of their data, and published networks."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sparselabel.config import AUTO
from sparselabel.data.dataset import PreparedSplit, evaluation_labels
from sparselabel.data.loaders import ImageLoader, in_order
from sparselabel.data.prepared_files import open_prepared
from sparselabel.data.transforms import imagenet_test, squashed
from sparselabel.errors import ConfigError, DataError, RunError, command, param
from sparselabel.files import write_json
from sparselabel.inference.class_thresholds import load_class_thresholds, threshold_metrics
from sparselabel.inference.engine import TORCH, choose_engine
from sparselabel.inference.saved_scores import keep_scores, new_scores
from sparselabel.inference.scorer import (
    BATCH,
    Scorer,
    best_device,
    evaluation_loader,
    full_precision,
    load_scorer,
)
from sparselabel.locks import locked
from sparselabel.metrics.imagenet_real import real_metrics_of
from sparselabel.metrics.label_metrics import label_metrics
from sparselabel.metrics.localization import GroundTruth, LocalizationMetric
from sparselabel.metrics.thresholds import check_threshold
from sparselabel.metrics.tiled_scores import ScoreMatrix
from sparselabel.models.backbone import NONE, PRETRAINED
from sparselabel.models.classifier import Classifier
from sparselabel.models.pretrained_classifier import (
    PublishedClassifier,
    imagenet_synsets,
    make_published,
    make_released,
)
from sparselabel.models.tscam import coupled
from sparselabel.models.weights import is_released, read_tensors
from sparselabel.resources import keep_freed_memory
from sparselabel.run import Run


def evaluate_run(
    run: Run,
    split: str,
    *,
    threshold: float = 0.5,
    workers: int | None = None,
    ground_truth: GroundTruth = "any",
    engine: str = AUTO,
    report: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """Score every image of a split once; writes scores-SPLIT.npz and evaluation-SPLIT.json into the run.

    Where boxes or masks are known, maps are evaluated by them too, and location-SPLIT.npz is written;
    ``ground_truth`` says by which of the two.
    """
    check_threshold(threshold)
    keep_freed_memory()
    run.require_finished()
    with locked(run.path, shared=True):
        prepared_split = run.split(split)
        localization = LocalizationMetric(prepared_split, ground_truth)
        look, maps = localization.update if localization.pairs else None, bool(localization.pairs)
        scorer = load_scorer(run, engine=engine, images=len(prepared_split))
        loader = evaluation_loader(run.config(), prepared_split, workers, scorer.device)
        into = new_scores(run, prepared_split)
        scores = scorer.score_matrix(loader, into, len(prepared_split), maps=maps, report=report, look=look)
        return keep_evaluation(run, prepared_split, scores, localization, scorer.engine_used, threshold)


def keep_evaluation(
    run: Run,
    prepared_split: PreparedSplit,
    scores: ScoreMatrix,
    localization: LocalizationMetric,
    engine: str,
    threshold: float = 0.5,
) -> dict[str, Any]:
    """Measure scores and maps of a split's images, and write both and the measures into the run."""
    split, labels = prepared_split.name, evaluation_labels(prepared_split)
    about = {"run": str(run.path), "split": split, "recovery": run.result()["recovery"], "engine": engine}
    measured = about | label_metrics(scores, labels, threshold)
    measured["real"] = real_metrics_of(scores, prepared_split)
    measured["location"] = localization.compute(scores)
    run.evaluation_file(split).unlink(missing_ok=True)  # it belongs to the scores before
    scores = keep_scores(run, prepared_split, scores)
    localization.save(run.location_file(split))
    measured["decided"] = threshold_metrics(scores, labels, load_class_thresholds(run))
    write_json(run.evaluation_file(split), measured)
    return measured


def evaluate_published(
    name: str,
    data: Path,
    split: str,
    *,
    weights: str = PRETRAINED,
    size: int | None = None,
    threshold: float = 0.5,
    workers: int | None = None,
    engine: str = AUTO,
    report: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """Score every image of a split by the network's own classes; the scores are softmax probabilities.

    If ``weights`` is a file of a whole Query2Label model, as its authors released them, that model scores
    images squashed to ``size``.

    Verelst 2023 does not say by which scores it ranks the softmax network, so "real_by_logits" has ReaL's
    metrics by logits too.
    """
    check_threshold(threshold)
    prepared = open_prepared(data)
    prepared_split = prepared.split(split)
    device = best_device() if engine in (AUTO, TORCH) else torch.device("cpu")
    chosen = choose_engine(engine, device, images=len(prepared_split))
    if weights not in (PRETRAINED, NONE) and is_released(read_tensors(Path(weights))):
        released, side = make_released(name, Path(weights), size)
        refuse_other_number(weights, len(released.head.query_embed.weight), len(prepared.classes))  # type: ignore[union-attr, arg-type]
        loader = ImageLoader(prepared_split, squashed(side), workers=workers, device=device)
        scorer = Scorer(released, device, engine=chosen)
        scores = scorer.scores(loader, len(prepared_split), report=report).numpy()
        about: dict[str, Any] = {"run": weights, "split": split, "recovery": None}
        about["engine"] = scorer.engine_used
        about |= {"real": real_metrics_of(scores, prepared_split)}
        return about | label_metrics(scores, evaluation_labels(prepared_split), threshold)
    if size is not None:
        raise ConfigError(
            f"{param('size', size)} is for a file of a Query2Label model ({param('weights')}), and {name} "
            "has its own",
            f"leave {param('size')} out",
            what="size",
            value=size,
        )
    model = make_published(name, weights)
    refuse_other_classes(name, model, prepared.classes)
    view = replace(imagenet_test(model.size), center=model.center)
    loader = ImageLoader(prepared_split, view, workers=workers, device=device)
    # Doubles: probabilities next to 1 must not become ties.
    scorer = Scorer(model, device, engine=chosen)
    logits = scorer.scores(
        loader, len(prepared_split), report=report, scores_of=lambda logits: logits.cpu().double()
    )
    scores = logits.softmax(dim=1).numpy()
    measured: dict[str, Any] = {"run": name, "split": split, "recovery": None, "engine": scorer.engine_used}
    measured |= label_metrics(scores, evaluation_labels(prepared_split), threshold)
    measured["real"] = real_metrics_of(scores, prepared_split)
    measured["real_by_logits"] = real_metrics_of(logits.numpy(), prepared_split)
    return measured


def refuse_other_number(name: str, outputs: int, classes: int) -> None:
    """Raise unless a head has as many outputs as the data has classes."""
    if outputs != classes:
        raise ConfigError(
            f"{name} has a head for {outputs:,} classes, the data has {classes:,}: they must be the same",
            "train a classifier for other classes",
        )


def refuse_other_classes(name: str, model: PublishedClassifier, classes: Sequence[str]) -> None:
    """Raise unless the data's classes are those of the network's head, in its order."""
    refuse_other_number(name, model.classes, len(classes))
    synsets = imagenet_synsets()
    if model.classes != len(synsets):
        return
    for index, (wanted, name_of_class) in enumerate(zip(synsets, classes, strict=True)):
        if name_of_class.split(" ")[0] != wanted:
            raise ConfigError(
                f"output {index} of {name} is {wanted}, but class {index} of the data is {name_of_class!r}",
                f"prepare ImageNet with {command('prepare', 'imagenet')}",
            )


def evaluate_together(
    runs: Sequence[Run],
    split: str,
    *,
    workers: int | None = None,
    report: Callable[[int], None] | None = None,
) -> None:
    """Score a split with each run, and evaluate its maps, as ``evaluate_run`` does; writes the same files.

    All must have been trained on the same images, seen in the same way, and have the same backbone.
    """
    keep_freed_memory()
    prepared_split, config = runs[0].split(split), runs[0].config()
    for run in runs[1:]:
        if run.split(split).digest != prepared_split.digest or run.config().views != config.views:
            raise RunError(f"{run.path} and {runs[0].path} have other images or views", "evaluate them apart")
    scorers = _with_one_backbone(runs, len(prepared_split))
    localization = LocalizationMetric(prepared_split)
    evaluated = [localization.new() for _ in runs]
    dtype = np.float64 if config.precision == "64-true" else np.float32
    scores = [np.zeros(prepared_split.truth.matrix.shape, dtype) for _ in runs]
    heads = [scorer.head for scorer in scorers]
    needs_token = any(head.reads_token for head in heads)
    loader = evaluation_loader(config, prepared_split, workers, scorers[0].device)
    for rows, inputs, geometries in loader(in_order(np.arange(len(prepared_split)), BATCH), 0):
        features, token = scorers[0].features(inputs[0], needs_token)
        outputs = [
            scorer.head_output(features, token if head.reads_token else None, bool(localization.pairs))
            for scorer, head in zip(scorers, heads, strict=True)
        ]
        for output, own in zip(outputs, scores, strict=True):
            own[rows.numpy()] = torch.sigmoid(full_precision(output.logits)).cpu().numpy()
        if localization.pairs:
            localization.update_all(rows, geometries[0], list(zip(evaluated, outputs, strict=True)))
        if report is not None:
            report(len(rows))
    for run, own, metric in zip(runs, scores, evaluated, strict=True):
        keep_evaluation(run, prepared_split, own, metric, scorers[0].engine_used)


def _with_one_backbone(runs: Sequence[Run], images: int) -> list[Scorer]:
    """Scorers that share the backbone of the first; refuses runs with others."""
    first = load_scorer(runs[0], images=images)
    weights = first.backbone.state_dict()
    scorers = [first]
    for run in runs[1:]:
        scorer = load_scorer(run, first.device, images=images)
        other = scorer.backbone.state_dict()
        same = weights.keys() == other.keys() and all(torch.equal(weights[k], other[k]) for k in weights)
        if not same or (scorer.precision, scorer.stored) != (first.precision, first.stored):
            raise RunError(
                f"{run.path} and {runs[0].path} have different backbones (after fine-tuning) or precisions",
                "evaluate them apart",
            )
        scorers.append(replace(scorer, model=Classifier(first.backbone, scorer.head)))
    return scorers


def evaluate_coupled(
    run: Run,
    split: str,
    *,
    workers: int | None = None,
    ground_truth: GroundTruth = "any",
    report: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """How well a TS-CAM's coupled maps show where things are; raises for other classifiers and data."""
    run.require_finished()
    config = run.config()
    if config.classifier != "tscam":
        raise ConfigError(
            f"{param('coupled')} multiplies TS-CAM's class maps by the class token's attention, but "
            f"{run.path} has {param('classifier', config.classifier)}",
            f"leave {param('coupled')} out",
            f"train with {param('classifier', 'tscam')} on a ViT or DeiT",
            what="coupled",
            value=config.classifier,
            allowed="tscam",
        )
    prepared_split = run.split(split)
    localization = LocalizationMetric(prepared_split, ground_truth)
    if not localization.pairs:
        raise DataError(
            f"{param('coupled')} evaluates maps by masks or boxes, and split {split!r} has none of "
            "classes that are there",
            f"leave {param('coupled')} out",
        )
    scorer = load_scorer(run, engine=TORCH)  # other engines do not return attention
    seeing = replace(scorer, model=partial(coupled, scorer.classifier))
    loader = evaluation_loader(config, prepared_split, workers, scorer.device)
    scores = seeing.scores(loader, len(prepared_split), report=report, look=localization.update)
    return localization.compute(scores.numpy()) or {}


def keep_coupled(run: Run, measured: dict[str, Any], coupled_maps: dict[str, Any]) -> dict[str, Any]:
    """Write a run's evaluation again, with these metrics beside ``location``."""
    measured = measured | {"location_coupled": coupled_maps}
    write_json(run.evaluation_file(measured["split"]), measured)
    return measured
