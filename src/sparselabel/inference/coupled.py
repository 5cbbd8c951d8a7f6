"""mAP-loc of TS-CAM's own localisation maps: class maps times the class token's attention (its eq. 5)."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from sparselabel.data.loaders import PictureFeed
from sparselabel.data.transforms import views_of
from sparselabel.errors import ConfigError, DataError
from sparselabel.inference.evaluate import load_classifier
from sparselabel.inference.saved_scores import split_of
from sparselabel.inference.scores import score
from sparselabel.json_file import write_json
from sparselabel.metrics.located import Located, Places
from sparselabel.models.tscam import coupled
from sparselabel.run import RunFolder


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
    run = RunFolder(path)
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
    feed = PictureFeed(part, views_of(config.views)[1], workers=workers)
    seeing = partial(coupled, model)
    scores = score(seeing, feed, len(part), device, report=report, look=located.see).float().numpy()
    return located.measures(scores) or {}


def keep_coupled(path: Path, measured: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """Write a run's evaluation again, with this beside ``location``."""
    measured = measured | {"location_coupled": found}
    write_json(RunFolder(path).evaluation_file(measured["split"]), measured)
    return measured
