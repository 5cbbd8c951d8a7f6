"""The validation metric of an epoch."""

import warnings
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from sparselabel.data.label_table import LabelTable
from sparselabel.distributed import all_reduce_sum
from sparselabel.errors import DataError, DataWarning, ResourceError, param
from sparselabel.inference.saved_scores import new_scores
from sparselabel.inference.scorer import Scorer
from sparselabel.metrics import tiled_scores
from sparselabel.metrics.average_precision import average_precision, mean_average_precision
from sparselabel.metrics.label_metrics import map_name_of
from sparselabel.metrics.tiled_scores import ScoreMatrix, Scores, TiledScores
from sparselabel.resources import format_bytes
from sparselabel.training.phase_loaders import PhaseLoaders
from sparselabel.training.phases import diverged

if TYPE_CHECKING:
    import numpy.typing as npt


def score_matrix_of(module: nn.Module, loaders: PhaseLoaders, phase: str, split: str) -> ScoreMatrix:
    """(N, L) The model's scores of a split; in a file of the run if they are too many for memory."""
    fabric, prepared_split = loaders.fabric, loaders.data.split(split)
    size = 4 * prepared_split.truth.matrix.size
    if size <= tiled_scores.LARGEST_SCORES:
        scores: Scores = scores_of(module, loaders, phase, split).numpy()
        return scores
    if fabric.world_size > 1:
        raise ResourceError(
            f"the scores of split {split!r} take {format_bytes(size)} in every process, to be added up",
            f"prepare fewer images of it ({param('keep_test')}, {param('keep_validation')})",
            "train in one process, which keeps them in a file",
            what="scores",
            value=size,
            allowed=tiled_scores.LARGEST_SCORES,
        )
    scorer = Scorer(module, fabric.device, loaders.config.precision)
    into = new_scores(loaders.log.run, prepared_split)
    try:
        return scorer.score_matrix(loaders.evaluation(phase, split), into, len(prepared_split))
    except DataError as error:
        if error.what != "scores":
            raise
        raise diverged(loaders.config, phase, f"scores of split {split!r} are not finite") from error


def scores_of(module: nn.Module, loaders: PhaseLoaders, phase: str, split: str) -> Tensor:
    """(N, L) The model's scores of a split, the same in every process; raises if some are not finite."""
    fabric = loaders.fabric
    scores = Scorer(module, fabric.device, loaders.config.precision).scores(
        loaders.evaluation(phase, split),
        len(loaders.data.split(split)),
        shard=fabric.global_rank,
        shards=fabric.world_size,
    )
    return finite_scores(all_reduce_sum(scores), loaders, phase, split)


def finite_scores(scores: Tensor, loaders: PhaseLoaders, phase: str, split: str) -> Tensor:
    """The scores of a split; raises if some are not finite."""
    if not bool(scores.isfinite().all()):
        raise diverged(loaders.config, phase, f"scores of split {split!r} are not finite")
    return scores


def validate(scores: "npt.ArrayLike | TiledScores", labels: LabelTable) -> dict[str, Any]:
    """The mAP of scores, and its name; unknown labels count as absent."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # empty classes were named when the data was prepared
        ap = average_precision(scores, labels.matrix, unknown="negative")
    return {"name": map_name_of(labels), "value": mean_average_precision(ap, labels.matrix).mean}
