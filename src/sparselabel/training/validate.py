"""How good a model is on a split."""

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor, nn

from sparselabel.config import TrainConfig
from sparselabel.data.labels import LabelTable
from sparselabel.distributed import all_reduce_sum
from sparselabel.errors import DataWarning, ResourceError, RunError
from sparselabel.inference.scorer import Scorer
from sparselabel.metrics.label_metrics import map_name_of
from sparselabel.metrics.ranking import average_precision, mean_average_precision
from sparselabel.training.inputs import Inputs

if TYPE_CHECKING:
    import numpy.typing as npt


def scores_of(
    module: nn.Module, inputs: Inputs, phase: str, split: str, report: Callable[[int], None] | None = None
) -> Tensor:
    """(N, L) The model's scores of a whole split, in every process; they are numbers, or it is an error."""
    fabric = inputs.fabric
    scores = Scorer(module, fabric.device, inputs.config.precision).scores(
        inputs.evaluation(phase, split),
        len(inputs.data.split(split)),
        shard=fabric.global_rank,
        shards=fabric.world_size,
        report=report,
    )
    scores = all_reduce_sum(scores)
    if not bool(scores.isfinite().all()):
        raise diverged(inputs.config, phase, f"scores of split {split!r} are not finite")
    return scores


def diverged(config: TrainConfig, phase: str, found: str) -> RunError:
    """The error to raise when losses or scores are no longer numbers."""
    rate = config.phases[phase].lr
    return RunError(
        f"training diverged in phase {phase} (learning rate {rate:g}): {found}. "
        f"Begin anew (--force) with a smaller --{phase}.lr, "
        f"or limit the norm of the gradient (--{phase}.grad-clip 1)"
    )


def too_large(config: TrainConfig, phase: str, error: Exception) -> ResourceError:
    """The error to raise when a step does not fit into the memory of the device."""
    now, said = config.phases[phase], str(error).partition(". ")[0]
    ways = [f"--{phase}.micro-batches {min(now.batch_size, 2 * now.micro_batches)} (parts of the batch)"]
    if phase == "finetune" and not config.finetune.grad_checkpointing:
        ways.insert(0, "--finetune.grad-checkpointing")
    if config.precision == "32-true":
        ways.append("--precision bf16-mixed")
    if config.query.width is not None:
        ways.append(f"a --query.width below {config.query.width}")
    return ResourceError(
        f"a step of phase {phase} ({now.batch_size} images of {config.views.size} pixels, "
        f"{config.backbone}) does not fit: {said}. Ways out: {', '.join(ways)}, or a smaller "
        f"--{phase}.batch-size or --views.size; --dry-run measures each"
    )


def validate(scores: "npt.ArrayLike", labels: LabelTable) -> dict[str, Any]:
    """The mAP of scores, and its name; unknown labels count as absent."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # empty classes were named when the data was prepared
        ap = average_precision(scores, labels.values, unknown="negative")
    return {"name": map_name_of(labels), "value": mean_average_precision(ap, np.asarray(labels.values)).mean}
