"""mAP-loc of many runs, evaluated in as few passes over the images as possible."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from sparselabel.run import Run
from sparselabel.training.features import weights_identity

if TYPE_CHECKING:
    from sparselabel.data.dataset import Dataset

TOGETHER = 32
"""Runs in one pass: the scores of each are in memory, 13 MB for COCO's 40,000 images."""


def has_places(data: "Dataset") -> bool:
    """Whether the test split has boxes or masks to judge maps by."""
    return "test" in data.splits and not bool(data.splits["test"].spatial_labels.is_point.all())


def maps_to_evaluate(runs: Sequence[Run], split: str) -> list[list[Run]]:
    """The finished runs whose maps have not been evaluated, in groups that share a frozen backbone."""
    groups: dict[Any, list[Run]] = {}
    for run in runs:
        if not run.finished or run.evaluation_file(split).is_file():
            continue
        config = run.config()
        shared = (config.backbone, weights_identity(config), config.output_stride, config.views,
                  config.precision)  # fmt: skip
        alone = config.finetune.epochs or not config.frozen
        groups.setdefault(run.path if alone else shared, []).append(run)
    return [
        group[first : first + TOGETHER]
        for group in groups.values()
        for first in range(0, len(group), TOGETHER)
    ]


def evaluate_maps(
    group: Sequence[Run], split: str, workers: int | None = None, report: Callable[[int], None] | None = None
) -> None:
    """Evaluate runs of one group in one pass; ``report`` gets the number of images after each batch."""
    from sparselabel.inference.evaluate import evaluate_run, evaluate_together

    if len(group) == 1:
        evaluate_run(group[0], split, workers=workers, report=report)
    else:
        evaluate_together(group, split, workers=workers, report=report)
