"""How good a model is on a split."""

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor, nn

from sparselabel.data.labels import LabelTable
from sparselabel.errors import DataWarning
from sparselabel.evaluate.ranking import average_precision, mean_average_precision
from sparselabel.evaluate.score import score
from sparselabel.method.across import total
from sparselabel.train.inputs import Inputs
from sparselabel.train.learner import in_evaluation

if TYPE_CHECKING:
    import numpy.typing as npt


def scores_of(
    module: nn.Module, inputs: Inputs, phase: str, split: str, report: Callable[[int], None] | None = None
) -> Tensor:
    """(N, L) The model's scores of a whole split, in every process."""
    fabric = inputs.fabric
    here = score(
        in_evaluation(module, fabric),
        inputs.evaluation(phase, split),
        len(inputs.data.split(split)),
        fabric.device,
        shard=fabric.global_rank,
        shards=fabric.world_size,
        report=report,
    )
    return total(here)


def judged(scores: "npt.ArrayLike", labels: LabelTable) -> dict[str, Any]:
    """The mAP of scores, and its name: "observed-label mAP" where unknown labels were counted as absent."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # empty classes were named when the data was prepared
        ap = average_precision(scores, labels.values, unknown="negative")
    name = "mAP" if labels.complete else "observed-label mAP"
    return {"name": name, "value": mean_average_precision(ap, np.asarray(labels.values)).mean}
