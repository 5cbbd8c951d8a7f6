"""``SparseLoss``: any method as a loss for your own PyTorch training loop.

    criterion = SparseLoss("en+scl", labels, expected_positives=2.9)
    for epoch in range(epochs):
        criterion.set_epoch(epoch)
        for images, index in loader:
            loss = criterion(model(images), index)

What a method stores about an image (running scores, heat maps, estimates) is updated from a step's outputs at
the next step, ``set_epoch`` or ``state_dict``: after the optimizer's step, without a second call.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.data import Sampler

from sparselabel.data.label_conversion import label_matrix_of, labels_of
from sparselabel.data.labels import NEGATIVE, POSITIVE, UNKNOWN
from sparselabel.data.loaders import epoch_batches, in_order, rows_of
from sparselabel.data.spatial_labels import SpatialLabels
from sparselabel.data.view_geometry import ViewGeometry
from sparselabel.errors import ConfigError, DataError, DataWarning, param
from sparselabel.losses.base import LossPart
from sparselabel.losses.heatmaps import HeatMaps
from sparselabel.losses.loss_arguments import (
    STACK_LEVEL,
    index_of,
    kind_of,
    refuse_counts,
    refuse_geometry,
    refuse_logits,
    refuse_maps,
    warn_of_scores,
)
from sparselabel.losses.registry import METHODS, make_method, parse
from sparselabel.losses.setting_checks import below_observed
from sparselabel.losses.step import LabelRows, Layout, Progress, Step, count_labels, observed_rows
from sparselabel.losses.target_rules import no_negatives
from sparselabel.models.classifier import Output

SCAN_BATCH = 64  # images per call of ``predict`` in a scan


class SparseLoss(nn.Module):
    """The loss of a method for labels that are positive, negative or unknown.

    ``criterion.set_epoch(epoch)`` begins every epoch, from 0 on. ``criterion(logits, index)`` is the loss of
    a batch, a scalar: ``index`` (B,) are the positions of its images in the labels. Methods with heat maps
    take ``criterion(logits, index, maps, geometry)``; ``forward`` explains them.

    Parameters
    ----------
    method
        Its name, or a combination, as ``en+scl`` (`sparselabel methods` lists them).
    labels
        (N, L) of the whole training set: 1, 0, and -1 or NaN for unknown, as a tensor, an array, a DataFrame
        or a ``LabelTable``. In a sparse matrix, SciPy's or torch's, stored entries are known and all others
        unknown; it is never made dense.
    epochs
        The total number of epochs, for methods that follow a schedule (gr, em+apl).
    head_epochs
        The number of first epochs that train only the head, in which stored scores are not used.
    lr
        The classifier's learning rate, or its optimizer, whose rate is read in every step (for role).
    truth
        (N, L) complete labels, for oracles (bce, bce-ls, iun).
    spatial_labels
        Points and boxes of the training set, for patchml and csl-p.
    seed
        Random seed of the method.
    settings
        The method's own (`sparselabel methods NAME`).
    """

    last: dict[str, Tensor]

    def __init__(
        self,
        method: str,
        labels: object,
        *,
        epochs: int | None = None,
        head_epochs: int = 0,
        lr: "float | torch.optim.Optimizer | None" = None,
        truth: object = None,
        spatial_labels: SpatialLabels | None = None,
        seed: int = 0,
        **settings: Any,
    ) -> None:
        super().__init__()
        if not isinstance(method, str):
            raise ConfigError(
                f"method must be a name, as 'en+scl', not {kind_of(method)}",
                "give the method first, then the labels",
                what="method",
                value=type(method).__name__,
            )
        given = {"epochs": epochs, "head_epochs": head_epochs, "truth": truth, "seed": seed}
        self._arguments = (method, labels, given | {"spatial_labels": spatial_labels} | settings)
        self.method_name = method
        with _settings_as_given():
            self.method = make_method(method, **settings)
        refuse_counts(epochs=(epochs, 1), head_epochs=(head_epochs, 0), seed=(seed, 0))
        self.observed = observed_rows(label_matrix_of(labels))
        self.truth = None if truth is None else torch.from_numpy(labels_of(truth))
        self.spatial_labels = spatial_labels
        self.epochs, self.head_epochs, self.lr, self.seed = epochs, head_epochs, lr, seed
        self.needs = self.method.needs
        self._refuse_missing()
        self._warn_of_arguments(settings.get("expected_positives"))
        self._rank, self._world = _process()
        own, count = rows_of(len(self.observed), self._rank, self._world), len(self.observed)
        rows = torch.from_numpy(own)
        compressed = self.observed.labels if isinstance(self.observed, LabelRows) else None
        observed = self.observed[rows] if compressed is None else observed_rows(compressed, own)
        with _settings_as_given():
            self.method.prepare(Layout(rows, observed, count, seed, self._world, keep="ram"))
        self._has_memory = any(hasattr(part, "layout") for part in self.method.parts())
        self._updates = any(type(part).update is not LossPart.update for part in self.method.parts())
        self.epoch: int | None = None
        self.last = {}
        self._pending: Step | None = None
        self._finite: Tensor | None = None
        self._seen = 0
        self._logits_checked = False
        self._state: dict[str, Any] | None = None
        self.register_load_state_dict_post_hook(lambda module, _: module._restore())  # type: ignore[no-untyped-call]

    def set_epoch(self, epoch: int) -> None:
        """Begin an epoch, counted from 0: call it before the first step of each."""
        if not isinstance(epoch, int | np.integer) or isinstance(epoch, bool) or epoch < 0:
            raise ConfigError(
                f"epoch must be a whole number, from 0 on, not {epoch!r}",
                what="epoch",
                value=epoch,
                allowed="a whole number, from 0 on",
            )
        epoch = int(epoch)
        self._remember()
        self.epoch, self._seen = epoch, 0
        with _settings_as_given():
            self.method.begin_epoch(self._progress())

    def forward(
        self,
        logits: Tensor | Sequence[Tensor],
        index: "Tensor | Sequence[int] | np.ndarray[Any, Any] | None" = None,
        maps: Tensor | None = None,
        geometry: ViewGeometry | None = None,
        features: Tensor | None = None,
    ) -> Tensor:
        """The loss of a batch, a scalar over all processes; ``last`` has its terms.

        ``logits`` (B, L) are of the images at ``index`` (B,) in the training set; index -1 is padding and
        counts for nothing. Methods with heat maps also need ``maps`` (B, L, h, w), logits of cells, and the
        views' ``geometry``. Two views of an image (fixmatch) are given as two logits. Nothing is stored in
        evaluation mode, nor from a step whose loss, logits or maps are not finite: its loss is returned, as
        torch's losses are, and the step has no other effect.
        """
        self._remember()
        step = self._step(logits, index_of(index), maps, geometry, features)
        losses = self.method(step)
        self.last = {name: loss.detach() for name, loss in losses.items()}
        loss = torch.stack([*losses.values()]).sum()
        if self.training:
            if not self._logits_checked:  # once: reading values on a GPU waits for it
                self._logits_checked = True
                warn_of_scores(step.outputs[0].logits)
            self._pending = _detached(step)
            self._finite = _is_finite(loss.detach(), step) if self._updates else None
            self._count(len(step.rows))
        return loss

    def scan(self, predict: Callable[[Tensor], Tensor | Output]) -> None:
        """Let a method scan the training set before an epoch (em+apl, +cluster).

        ``predict(index)`` returns the model's logits for these images (B,), uncropped and in evaluation mode;
        or an ``Output`` with maps and features of cells, if the method needs them.
        """
        self._remember()

        def steps(rows: Tensor | None) -> Iterator[Step]:
            own = rows_of(len(self.observed), self._rank, self._world) if rows is None else rows.numpy()
            for some in in_order(own, SCAN_BATCH):
                index = torch.from_numpy(some)
                output = predict(index)
                output = output if isinstance(output, Output) else Output(output)
                whole = ViewGeometry.whole(len(index))
                yield self._step((output.logits,), index, output.maps, whole, output.features)

        with torch.no_grad():
            self.method.scan(steps)

    def extra_repr(self) -> str:
        """The text in the parentheses of ``repr``."""
        images, classes = self.observed.shape
        return f"{self.method_name!r}, {images:,} images, {classes:,} classes"

    def get_extra_state(self) -> dict[str, Any]:
        """State for ``state_dict`` besides buffers: all that the method stores about the images."""
        self._remember()
        grids = {
            name: torch.tensor(part.size) // part.scale
            for name, part in self.method.named_modules()
            if isinstance(part, HeatMaps) and part.size is not None
        }
        return {
            "method": self.method_name,
            "process": torch.tensor([self._rank, self._world]),
            "labels": torch.tensor(self.observed.shape),
            "grids": grids,
            "stores": {name: store.state() for name, store in self.method.row_stores().items()},
        }

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Keep the state from ``get_extra_state`` until all buffers are loaded."""
        if not isinstance(state, dict) or state.get("method") != self.method_name:
            of = state.get("method") if isinstance(state, dict) else None
            raise ConfigError(
                f"this is the state of {of or 'no method'}, and the method is {self.method_name}",
                "load what criterion.state_dict() gave, of the same method",
                what="method",
                value=of,
                allowed=self.method_name,
            )
        rank, world = state["process"].tolist()
        if (rank, world) != (self._rank, self._world):
            raise ConfigError(
                f"this state of {self.method_name} is of process {rank} of {world}, and this is process "
                f"{self._rank} of {self._world}: what a method remembers is kept by the process of an image",
                "save and load criterion.state_dict() in every process, each its own",
                "go on with as many processes as before",
            )
        shape, own = tuple(state["labels"].tolist()), tuple(self.observed.shape)
        if shape != own:
            raise DataError(
                f"this state is of labels of shape {shape}, and the labels are of shape {own}",
                "give the labels it was made with",
                what="labels",
                value=own,
                allowed=shape,
            )
        self._state = state

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (self._arguments, self.lr, self.epoch, self.training, self.state_dict())

    def _restore(self) -> None:
        """Apply a loaded state, once all buffers are loaded."""
        state, self._state, self._pending = self._state, None, None
        if state is None:
            return
        for name, grid in state["grids"].items():
            part = self.method.get_submodule(name)
            if isinstance(part, HeatMaps) and part.size is None:
                part.make_room((int(grid[0]), int(grid[1])))
        for name, store in self.method.row_stores().items():
            store.restore(state["stores"][name])

    def _remember(self) -> None:
        """Update the method from the previous step, now that the optimizer has stepped."""
        step, self._pending = self._pending, None
        finite, self._finite = self._finite, None
        # Read here, where memories wait for the GPU anyway.
        if step is not None and (finite is None or bool(finite)):
            self.method.update(step)

    def _progress(self) -> Progress:
        if self.epoch is None:
            raise ConfigError(
                "set_epoch was not called: methods begin to use what they remember when an epoch begins",
                "call criterion.set_epoch(epoch), from 0 on, before the first step of every epoch",
            )
        rate = self.lr.param_groups[0]["lr"] if isinstance(self.lr, torch.optim.Optimizer) else self.lr
        return Progress(self.epoch, self.epochs or self.epoch + 1, self.head_epochs, rate or 0.0)

    def _step(
        self,
        logits: Tensor | Sequence[Tensor],
        index: Tensor,
        maps: Tensor | None,
        geometry: ViewGeometry | None,
        features: Tensor | None,
    ) -> Step:
        progress = self._progress()
        if isinstance(logits, Output):  # a tuple, but not one of views
            raise DataError(
                "logits must be a tensor, not an Output",
                "give output.logits, and maps=output.maps where the method looks at cells",
                what="logits",
                value="Output",
            )
        views = tuple(logits) if isinstance(logits, tuple | list) and len(logits) else (logits,)
        views = cast("tuple[Tensor, ...]", views)  # _check verifies it
        self._check(views, index, maps, geometry)
        device, rows = views[0].device, index.detach().cpu()
        real = rows.clamp(min=0)
        outputs = (Output(views[0], maps, features), *(Output(other) for other in views[1:]))
        located = self.spatial_labels.take(rows.numpy()) if self.spatial_labels is not None else None
        truth = None if self.truth is None else self.truth[real].to(device)
        whole = ViewGeometry.whole(len(rows)) if geometry is None else geometry.to("cpu")
        observed = self.observed[real].to(device)
        return Step(rows, observed, outputs, (whole,) * len(views), progress, located, truth, check=False)

    def _check(
        self, views: tuple[Tensor, ...], index: Tensor, maps: Tensor | None, geometry: ViewGeometry | None
    ) -> None:
        count, classes = self.observed.shape
        batch = (len(index), classes)
        for view in views:
            refuse_logits(view, batch)
        if len(views) < self.needs.views:
            raise DataError(
                f"{self.method_name} compares {self.needs.views} views of every image, not {len(views)}",
                "give their logits as a tuple, the weak view first",
                what="logits",
            )
        if self.needs.maps:
            refuse_maps(self.method_name, maps, batch)
        if self.needs.maps or geometry is not None:
            refuse_geometry(self.method_name, geometry, len(index))
        beyond = index[(index >= count) | (index < -1)]
        if len(beyond):
            raise DataError(
                f"index {int(beyond[0])} is none of the {count:,} images that have labels", what="index"
            )
        foreign = index[(index >= 0) & (index % self._world != self._rank)]
        if self._has_memory and len(foreign):
            raise DataError(
                f"index {int(foreign[0])} came to process {self._rank}, and what {self.method_name} "
                f"remembers of it is kept by process {int(foreign[0]) % self._world}: a sampler that moves "
                "images between processes, as DistributedSampler, would lose it",
                "use sparselabel.ShardedSampler",
                what="index",
                value=int(foreign[0]),
            )

    def _count(self, images: int) -> None:
        """Warn if epochs pass without ``set_epoch``: memories and schedules would not advance."""
        self._seen += images
        most = 2 * -(-len(self.observed) // self._world)
        if self._seen - images <= most < self._seen:
            warnings.warn(
                DataWarning(
                    f"epoch {self.epoch} has seen twice as many images as there are",
                    "call criterion.set_epoch(epoch) before the first step of every epoch",
                ),
                stacklevel=STACK_LEVEL,
            )

    def _refuse_missing(self) -> None:
        missing = [
            (name, what)
            for name, needed, value, what in (
                ("truth", self.needs.truth, self.truth, "is an oracle: it sees complete labels"),
                ("epochs", self.needs.epochs, self.epochs, "follows a schedule over all epochs"),
                ("lr", self.needs.lr, self.lr, "moves its estimates with the classifier's learning rate"),
                ("spatial_labels", self.needs.spatial_labels, self.spatial_labels, "needs points or boxes"),
            )
            if needed and value is None
        ]
        for name, what in missing:
            raise ConfigError(f"{self.method_name} {what}", f"give {param(name)}", what=name)
        known = {label: count_labels(self.observed, label).sum() for label in (POSITIVE, NEGATIVE)}
        if self.needs.negatives and not known[NEGATIVE]:
            raise no_negatives(self.method_name)
        if self.truth is not None and (self.truth == UNKNOWN).any():
            raise DataError("truth must be complete, and has unknown labels", what="truth")
        if self.truth is not None and self.truth.shape != self.observed.shape:
            shape, own = tuple(self.truth.shape), tuple(self.observed.shape)
            problem = f"truth must be of the labels' shape, {own}, not {shape}"
            raise DataError(problem, what="truth", value=shape, allowed=own)
        if not known[POSITIVE] and not known[NEGATIVE]:
            raise DataError("all labels are unknown: there is nothing to learn from", what="labels")

    def _warn_of_arguments(self, expected: object) -> None:
        """Warn of a method without a loss, of labels without unknown ones, of a K that contradicts them."""
        oracle = METHODS[parse(self.method_name).base].all_known
        if self.needs.solves:
            warning = DataWarning(
                f"{self.method_name} computes a head from features, and in steps it is the loss of an",
                "take SparseLabelClassifier, or train(..., frozen=True)",
                what="method",
                value=self.method_name,
            )
            warnings.warn(warning, stacklevel=3)
        if not oracle and not count_labels(self.observed, UNKNOWN).any():
            warning = DataWarning(
                f"nothing is unknown in the labels, and {self.method_name} is for unknown labels",
                "give -1 or NaN for what nobody looked at",
                "take torch.nn.BCEWithLogitsLoss, where all is known",
                what="labels",
            )
            warnings.warn(warning, stacklevel=3)
        positives = count_labels(self.observed, POSITIVE).numpy()
        if (low := below_observed(expected, positives, len(self.observed))) is not None:
            warnings.warn(low, stacklevel=3)


class ShardedSampler(Sampler[int]):
    """A sampler for ``SparseLoss``: it shuffles, and each process keeps its images in all epochs.

    Like torch's ``DistributedSampler`` it has ``set_epoch``, but an image never changes its process, so what
    a method stores about it is in the process that sees it. All processes yield equally many images; a
    process leaves out at most one in an epoch.
    """

    def __init__(self, count: int, seed: int = 0) -> None:
        refuse_counts(count=(count, 1), seed=(seed, 0))
        self.count, self.seed, self.epoch = count, seed, 0
        self._rank, self._world = _process()

    def set_epoch(self, epoch: int) -> None:
        """Shuffle anew, by the seed and the epoch."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        batches = epoch_batches(self.count, self._world, self.seed, self.epoch, self._rank, self._world)
        order = np.concatenate(batches)
        return iter(order[order >= 0][: len(self)].tolist())

    def __len__(self) -> int:
        return self.count // self._world


def _process() -> tuple[int, int]:
    """The number of this process, and how many there are."""
    if not (dist.is_available() and dist.is_initialized()):
        return 0, 1
    return dist.get_rank(), dist.get_world_size()


@contextmanager
def _settings_as_given() -> Iterator[None]:
    """Errors name a setting as it is given here, not as in a configuration."""
    try:
        yield
    except ConfigError as error:
        raise error.without_prefix("settings.") from None


def _is_finite(loss: Tensor, step: Step) -> Tensor:
    """Whether the loss and the model's outputs are finite, as a tensor, to avoid synchronizing with a GPU."""
    outputs = [
        value for output in step.outputs for value in (output.logits, output.maps) if value is not None
    ]
    return torch.stack([value.detach().isfinite().all() for value in (loss, *outputs)]).all()


def _detached(step: Step) -> Step:
    outputs = tuple(
        Output(*(None if value is None else value.detach() for value in output))  # type: ignore[arg-type]
        for output in step.outputs
    )
    # The same object: parts cache what they looked up for this step.
    object.__setattr__(step, "outputs", outputs)
    return step


def _rebuilt(
    arguments: tuple[str, object, Mapping[str, Any]],
    lr: Any,
    epoch: int | None,
    training: bool,
    state: dict[str, Any],
) -> SparseLoss:
    method, labels, given = arguments
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # given when the first one was made
        criterion = SparseLoss(method, labels, lr=lr, **given)
    criterion.load_state_dict(state)
    if epoch is not None:
        criterion.set_epoch(epoch)
        criterion.load_state_dict(state)  # set_epoch selects anew from what is stored
    criterion.train(training)
    return criterion
