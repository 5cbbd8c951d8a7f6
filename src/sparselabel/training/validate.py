"""How good a model is on a split."""

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor, nn

from sparselabel.data.labels import LabelTable
from sparselabel.distributed import all_reduce_sum
from sparselabel.errors import DataWarning
from sparselabel.inference.scorer import Scorer
from sparselabel.metrics.average_precision import average_precision, mean_average_precision
from sparselabel.metrics.label_metrics import map_name_of
from sparselabel.training.phase_loaders import PhaseLoaders
from sparselabel.training.phases import diverged

if TYPE_CHECKING:
    import numpy.typing as npt


def scores_of(module: nn.Module, loaders: PhaseLoaders, phase: str, split: str) -> Tensor:
    """(N, L) The model's scores of a whole split, in every process; they are numbers, or it is an error."""
    fabric = loaders.fabric
    scores = Scorer(module, fabric.device, loaders.config.precision).scores(
        loaders.evaluation(phase, split),
        len(loaders.data.split(split)),
        shard=fabric.global_rank,
        shards=fabric.world_size,
    )
    return finite_scores(all_reduce_sum(scores), loaders, phase, split)


def finite_scores(scores: Tensor, loaders: PhaseLoaders, phase: str, split: str) -> Tensor:
    """The scores of a split; raises if some are no numbers."""
    if not bool(scores.isfinite().all()):
        raise diverged(loaders.config, phase, f"scores of split {split!r} are not finite")
    return scores


def validate(scores: "npt.ArrayLike", labels: LabelTable) -> dict[str, Any]:
    """The mAP of scores, and its name; unknown labels count as absent."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # empty classes were named when the data was prepared
        ap = average_precision(scores, labels.values, unknown="negative")
    return {"name": map_name_of(labels), "value": mean_average_precision(ap, np.asarray(labels.values)).mean}
