"""Evaluation of a finished run on any split of its data."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from sparselabel.allocator import keep_freed_memory
from sparselabel.data.dataset import PreparedSplit
from sparselabel.data.loaders import PictureFeed
from sparselabel.data.transforms import views_of
from sparselabel.errors import ConfigError, RunError, is_out_of_memory
from sparselabel.inference.class_thresholds import decisions_of, has_decisions
from sparselabel.inference.saved_scores import judging_labels, keep_scores, split_of
from sparselabel.inference.scores import score
from sparselabel.json_file import write_json
from sparselabel.metrics.decided import decided_measures
from sparselabel.metrics.evaluation import measures
from sparselabel.metrics.located import Located, Places
from sparselabel.metrics.ranking import Scores
from sparselabel.metrics.real import real_measures_of
from sparselabel.models.backbone import NONE, make_backbone
from sparselabel.models.classifier import HEAD, Classifier, Head
from sparselabel.models.heads import make_head
from sparselabel.models.query2label import head_like
from sparselabel.run import RunFolder


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
    """Score every picture of a split once; writes scores-SPLIT.npz and evaluation-SPLIT.json into the run.

    ``data`` is where the run's prepared data is now, if it was moved. Where boxes or masks are known, maps
    are judged by them too, and location-SPLIT.npz is written; ``places`` says by which of the two.
    """
    if not 0 <= threshold <= 1:
        raise ConfigError(f"threshold must be a score in [0, 1], not {threshold}")
    keep_freed_memory()
    run = RunFolder(path)
    run.result()  # refuses a run that is not finished
    part = split_of(run, split, data)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = load_classifier(run).to(device).eval()
    feed = PictureFeed(part, views_of(run.config().views)[1], workers=workers)
    located = Located(part, places)
    seeing = partial(model, maps=True) if located.pairs else model
    look = located.see if located.pairs else None
    scores = score(seeing, feed, len(part), device, report=report, look=look).float().numpy()
    return keep_evaluation(run, part, scores, located, threshold, data)


def keep_evaluation(
    run: RunFolder,
    part: PreparedSplit,
    scores: Scores,
    located: Located,
    threshold: float = 0.5,
    data: Path | None = None,
) -> dict[str, Any]:
    """Measure scores and maps of a split's pictures, and write both and the measures into the run."""
    split = part.name
    about = {"run": str(run.path), "split": split, "recovery": run.result()["recovery"]}
    measured = about | measures(scores, judging_labels(part), threshold)
    measured["real"] = real_measures_of(scores, part)
    measured["location"] = located.measures(scores)
    keep_scores(run, part, scores)
    located.keep(run.location_file(split))
    decisions = decisions_of(run.path, data) if has_decisions(run) else None
    measured["decided"] = decisions and decided_measures(scores, judging_labels(part), decisions)
    write_json(run.evaluation_file(split), measured)
    return measured


def load_classifier(run: RunFolder) -> Classifier:
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


def pictures_in(path: Path, split: str, data: Path | None = None) -> int:
    """How many pictures a split of a run's data has."""
    run = RunFolder(path)
    run.result()  # refuses a run that is not finished
    return len(split_of(run, split, data))
