"""How good a model is on a split."""

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor, nn

from sparselabel.config import TrainConfig
from sparselabel.data.labels import LabelTable
from sparselabel.distributed import all_reduce_sum
from sparselabel.errors import DataWarning, ResourceError, RunError, param
from sparselabel.inference.scorer import Scorer
from sparselabel.metrics.label_metrics import map_name_of
from sparselabel.metrics.ranking import average_precision, mean_average_precision
from sparselabel.training.phase_loaders import Inputs

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
        f"training diverged in phase {phase} (learning rate {rate:g}), as {found}",
        f"begin anew ({param('force', True)}) with a smaller {param(f'{phase}.lr')}",
        f"limit the norm of the gradient ({param(f'{phase}.grad_clip', 1)})",
        what=f"{phase}.lr",
        value=rate,
    )


def too_large(config: TrainConfig, phase: str, error: Exception) -> ResourceError:
    """The error to raise when a step does not fit into the memory of the device."""
    now, reason = config.phases[phase], str(error).partition(". ")[0]
    more = min(now.batch_size, 2 * now.micro_batches)
    remedies = [f"split the batch with {param(f'{phase}.micro_batches', more)}"]
    if phase == "finetune" and not config.finetune.grad_checkpointing:
        remedies.insert(0, f"take {param('finetune.grad_checkpointing', True)}")
    if config.precision == "32-true":
        remedies.append(f"take {param('precision', 'bf16-mixed')}")
    if config.query.width is not None:
        remedies.append(f"a {param('query.width')} below {config.query.width}")
    return ResourceError(
        f"a step of phase {phase} ({now.batch_size} images of {config.views.size} pixels, "
        f"{config.backbone}) does not fit ({reason})",
        *remedies,
        f"a smaller {param(f'{phase}.batch_size')} or {param('views.size')} ({param('dry_run', True)} "
        "measures "
        "each)",
    )


def validate(scores: "npt.ArrayLike", labels: LabelTable) -> dict[str, Any]:
    """The mAP of scores, and its name; unknown labels count as absent."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # empty classes were named when the data was prepared
        ap = average_precision(scores, labels.values, unknown="negative")
    return {"name": map_name_of(labels), "value": mean_average_precision(ap, np.asarray(labels.values)).mean}
