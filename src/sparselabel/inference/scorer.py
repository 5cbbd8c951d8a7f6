"""``Scorer``: the one way to run images through a trained model, and the scores of a split.

Validation in training, `evaluate`, `predict`, reviews and reports all score with a ``Scorer``, so an image
gets the same scores from a run everywhere.
"""

import copy
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from sparselabel.checksums import require_checksum
from sparselabel.config import AUTO, TrainConfig
from sparselabel.data.dataset import PreparedSplit
from sparselabel.data.loaders import CPU, ImageLoader, Loader, in_order, rows_of
from sparselabel.data.transforms import View, views_of
from sparselabel.data.view_geometry import ViewGeometry
from sparselabel.distributed import default_precision
from sparselabel.errors import ModelError, RunError, command, is_out_of_memory
from sparselabel.inference.engine import (
    TORCH,
    CellFeatures,
    CompiledNetwork,
    NetworkLogits,
    QueryOutputs,
    choose_engine,
    missing_packages,
)
from sparselabel.metrics.tiled_scores import ScoreMatrix, TiledScores
from sparselabel.models.backbone import NONE, Backbone, make_backbone, own_backbone
from sparselabel.models.classifier import HEAD, Classifier, Head, LinearHead, Output
from sparselabel.models.heads import make_head
from sparselabel.models.pretrained_classifier import PublishedClassifier
from sparselabel.models.query2label import QueryHead, head_like
from sparselabel.models.weights import no_larger_than
from sparselabel.run import Run

BATCH = 32  # images at a time; the same everywhere, as rounding may depend on it


class Scored(NamedTuple):
    """A batch: rows (B,), the model's output, and the geometry of the views."""

    rows: Tensor
    output: Output
    geometry: ViewGeometry


@dataclass(frozen=True, eq=False)
class Scorer:
    """A model in evaluation mode on a device, in one of Fabric's precisions.

    ``model`` is a ``Classifier``, a head for stored features, or any function from views to an ``Output``.
    ``stored``: the head was trained on stored features of a frozen backbone, so features are computed and
    rounded as they were stored. ``engine`` runs the networks (``inference.engine``).
    """

    model: Callable[..., Output]
    device: torch.device
    precision: str = "32-true"
    stored: bool = False
    engine: str = TORCH
    _compiled: dict[str, CompiledNetwork] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        if isinstance(self.model, nn.Module):
            self.model.to(self.device).eval()

    @torch.no_grad()
    def __call__(self, inputs: Tensor, maps: bool = False) -> Output:
        """The output for a batch of views or features, on the device."""
        if isinstance(self.model, Classifier):
            features, token = self.features(inputs, self.head.reads_token)
            return self.head_output(features, token, maps)
        inputs = inputs.to(self.device, non_blocking=True)
        if self.engine != TORCH and isinstance(self.model, PublishedClassifier):
            return Output(*self._by_engine("network", partial(NetworkLogits, self.model), inputs))
        with default_precision(self.precision), self._autocast():
            if isinstance(self.model, nn.Module) and inputs.is_floating_point():
                inputs = inputs.to(next(self.model.parameters()).dtype)
            return self.model(inputs, maps=True) if maps else self.model(inputs)

    @torch.no_grad()
    def features(self, views: Tensor, with_token: bool = False) -> tuple[Tensor, Tensor | None]:
        """Cell features (B, D, h, w) of views, and the class token (B, D) ``with_token``."""
        views, backbone = views.to(self.device, non_blocking=True), self.backbone
        if self.engine != TORCH:
            name = f"backbone, {'with' if with_token else 'no'} token"
            features, *token = self._by_engine(
                name, partial(CellFeatures, backbone, with_token), views, self._logits_of_features
            )
            return features, token[0] if token else None
        with default_precision(self.precision), nullcontext() if self.stored else self._autocast():
            return backbone.with_token(views) if with_token else (backbone(views), None)

    @torch.no_grad()
    def head_output(self, features: Tensor, token: Tensor | None = None, maps: bool = False) -> Output:
        """The output for cell features; logits are the same with and without ``maps``."""
        head = self.head
        pools_first = isinstance(head, LinearHead) and head.boost is None
        if self.stored:  # pooled ones are stored as floats, those of cells in half precision
            features = (features.float() if pools_first else features.half()).contiguous()
            dtype = next(head.parameters()).dtype
        else:
            dtype = features.dtype
        if self.engine != TORCH and isinstance(head, QueryHead) and not self.precision.endswith("-mixed"):
            logits, attention = self._by_engine("head", partial(QueryOutputs, head), features.to(dtype))
            return Output(logits, None, features, attention if maps else None)
        with default_precision(self.precision), self._autocast():
            pooled = features.mean(dim=(2, 3)) if pools_first else features
            output: Output = head(pooled.to(dtype), maps=maps and not pools_first, token=token)
            if maps and pools_first:
                output = output._replace(maps=head(features.to(dtype), maps=True).maps)
        return output._replace(features=features)

    def _by_engine(
        self,
        name: str,
        module: Callable[[], nn.Module],
        inputs: Tensor,
        logits: Callable[..., Tensor] = lambda first, *_: first,
    ) -> tuple[Tensor, ...]:
        """Outputs of a network, which is compiled at its first use."""
        if name not in self._compiled:
            self._compiled[name] = CompiledNetwork(module(), self.engine, logits)
        return self._compiled[name](inputs)

    def _logits_of_features(self, features: Tensor, token: Tensor | None = None) -> Tensor:
        """The head's logits of an engine's features, to check the engine."""
        return full_precision(replace(self, engine=TORCH).head_output(features, token).logits)

    @property
    def engine_used(self) -> str:
        """The engine, or PyTorch if that took over."""
        return TORCH if any(one.engine == TORCH for one in self._compiled.values()) else self.engine

    @property
    def backbone(self) -> Backbone:
        """The classifier's backbone."""
        return self.classifier.backbone

    @property
    def head(self) -> Head:
        """The classifier's head."""
        return self.classifier.head

    @property
    def classifier(self) -> Classifier:
        """The model, which must be a classifier."""
        if not isinstance(self.model, Classifier):
            raise ModelError(f"{type(self.model).__name__} has no backbone and head of its own")
        return self.model

    def _autocast(self) -> AbstractContextManager[object]:
        if not self.precision.endswith("-mixed"):
            return nullcontext()
        half = self.precision == "16-mixed" and self.device.type != "cpu"  # where Fabric takes bfloat16 too
        return torch.autocast(self.device.type, torch.float16 if half else torch.bfloat16)

    def batches(
        self,
        loader: Loader,
        rows: npt.NDArray[np.int64],
        *,
        batch: int = BATCH,
        maps: bool = False,
        report: Callable[[int], None] | None = None,
    ) -> Iterator[Scored]:
        """Outputs for rows, in order; ``report`` gets the number of images after each batch."""
        for numbers, inputs, geometries in loader(in_order(rows, batch), 0):
            yield Scored(numbers, self(inputs[0], maps=maps), geometries[0])
            if report is not None:
                report(len(numbers))

    def score_matrix(
        self,
        loader: Loader,
        into: TiledScores | None,
        count: int,
        *,
        maps: bool = False,
        report: Callable[[int], None] | None = None,
        look: Callable[[Tensor, Output, ViewGeometry], None] | None = None,
    ) -> ScoreMatrix:
        """(count, L) Scores of all rows in 0..1, written ``into`` a file if one is given."""
        if into is None:
            return self.scores(loader, count, maps=maps, report=report, look=look).numpy()
        for scored in self.batches(loader, np.arange(count), maps=maps, report=report):
            if look is not None:
                look(*scored)
            into.append(torch.sigmoid(full_precision(scored.output.logits)).float().cpu().numpy())
        return into

    def scores(
        self,
        loader: Loader,
        count: int,
        *,
        shard: int = 0,
        shards: int = 1,
        maps: bool = False,
        report: Callable[[int], None] | None = None,
        look: Callable[[Tensor, Output, ViewGeometry], None] | None = None,
        scores_of: Callable[[Tensor], Tensor] = torch.sigmoid,
    ) -> Tensor:
        """(count, L) Scores of all rows on the CPU, in 0..1 by default; ``look`` is called with each batch.

        Rows of other shards are 0, so that all shards add up.
        """
        scores: Tensor | None = None
        for scored in self.batches(loader, rows_of(count, shard, shards), maps=maps, report=report):
            if look is not None:
                look(*scored)
            values = scores_of(full_precision(scored.output.logits)).cpu()
            if scores is None:
                scores = torch.zeros(count, values.shape[1], dtype=values.dtype)
            scores[scored.rows] = values
        return scores if scores is not None else torch.zeros(count, 0)


def full_precision(logits: Tensor) -> Tensor:
    """Logits as floats, or as doubles where they are."""
    return logits if logits.dtype == torch.float64 else logits.float()


def cells_of(output: Output) -> Tensor:
    """(B, L, h, w) The maps of an output as logits; of attention, which has shares, their logits."""
    if output.maps is not None:
        return output.maps
    if output.attention is None:
        raise ModelError("the model gave no maps", "ask it for them (maps=True)")
    return torch.logit(output.attention, eps=1e-6)


def load_scorer(
    run: Run, device: torch.device | str | None = None, engine: str = AUTO, images: int = 1
) -> Scorer:
    """The scorer of a finished run, on a given device or the best one; for few images PyTorch runs it.

    A run on stored features is scored by the engine that made these, if it is installed.
    """
    run.require_finished()
    config = run.config()
    stored = config.frozen and run.result()["best_epoch"] <= config.head.epochs
    if device is None:
        where = best_device(config.precision) if engine in (AUTO, TORCH) else torch.device("cpu")
    else:
        where = torch.device(device)
    # Features are stored as floats whatever precision the head has.
    precision = "32-true" if stored and config.precision != "64-true" else config.precision
    recorded = run.metadata().get("engine", TORCH)
    if engine == AUTO and stored and recorded != TORCH and not missing_packages(recorded):
        engine = recorded if where.type == "cpu" else TORCH
    chosen = choose_engine(engine, where, precision, images)
    return Scorer(load_classifier(run), where, config.precision, stored, chosen)


def best_device(precision: str = "32-true") -> torch.device:
    """CUDA, else MPS (which has no doubles), else the CPU."""
    if torch.cuda.is_available():
        return torch.device("cuda")
    if torch.backends.mps.is_available() and precision != "64-true":
        return torch.device("mps")
    return torch.device("cpu")


def evaluation_view(config: TrainConfig) -> View:
    """The view of images in evaluation."""
    return views_of(config.views)[1]


def evaluation_loader(
    config: TrainConfig, split: PreparedSplit, workers: int | None = 0, device: torch.device = CPU
) -> ImageLoader:
    """Images of a split as evaluation sees them, for a model on this device."""
    return ImageLoader(split, evaluation_view(config), workers=workers, device=device)


def load_classifier(run: Run) -> Classifier:
    """The trained classifier of a run, in the precision of its weights, on the CPU."""
    config = run.config()
    if not run.model_file.is_file():
        raise RunError(f"{run.path} has no model.safetensors", "train it again", what=run.model_file)
    classes = len(run.classes)
    again = f"train it again with {command('train', '...', force=True)}"
    if (checksum := run.result().get("model_checksum")) is not None:  # a model from the hub has none
        require_checksum(run.model_file, checksum, "bring it back", again)
    with default_precision(config.precision), no_larger_than(run.model_file):
        if run.own_model is not None:
            backbone = own_backbone(copy.deepcopy(run.own_model), config.views.size, classes).backbone
        else:
            backbone = make_backbone(
                config.backbone, NONE, size=config.views.size, output_stride=config.output_stride
            )
        try:
            weights = load_file(run.model_file)
            if config.classifier == "query2label":  # its widths may be those of the checkpoint it began with
                own = {
                    name.removeprefix(HEAD): value for name, value in weights.items() if name.startswith(HEAD)
                }
                head: Head = head_like(own, backbone.width, classes)
            else:
                head = make_head(config.classifier, backbone.width, classes, config.boost)
            classifier = Classifier(backbone, head)
            classifier.load_state_dict(weights)
        except (SafetensorError, RuntimeError, KeyError) as error:
            if is_out_of_memory(error):
                raise
            reason = " ".join(str(error).split())[:300]  # torch lists every tensor that does not fit
            raise RunError(f"{run.model_file} is damaged ({reason})", again) from error
    return classifier.eval()
