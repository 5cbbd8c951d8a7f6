"""``SparseLoss``: a method in a training loop of your own, used as PyTorch's losses are.

    criterion = SparseLoss("en+scl", labels, expected_positives=2.9)
    for epoch in range(epochs):
        criterion.set_epoch(epoch)
        for images, index in loader:
            loss = criterion(model(images), index)

What a method remembers of an image (running scores, heat maps, estimates) is taken from a step's outputs
when the next step comes, or ``set_epoch``, or ``state_dict``: after the optimizer's step, and without a
second call.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.data import Sampler

from sparselabel.data.labels import NEGATIVE, POSITIVE, UNKNOWN, Labels, LabelTable
from sparselabel.data.loaders import epoch_batches, in_order, rows_of
from sparselabel.data.spatial_labels import SpatialLabels
from sparselabel.data.view_geometry import ViewGeometry
from sparselabel.errors import ConfigError, DataError, DataWarning, param
from sparselabel.losses.base import Layout, Progress, Step
from sparselabel.losses.heatmaps import HeatMaps
from sparselabel.losses.registry import make_method
from sparselabel.models.classifier import Output

SCAN_BATCH = 64  # images that a scan asks for at once


class SparseLoss(nn.Module):
    """The loss of a method for labels that are positive, negative or unknown.

    Parameters
    ----------
    method
        Its name, or a combination, as ``en+scl`` (`sparselabel methods` lists them).
    labels
        (N, L) of the whole training set: 1, 0, and -1 or NaN for unknown, as a tensor, an array, a DataFrame
        or a ``LabelTable``. Of a SciPy sparse matrix stored entries are known and all others unknown.
    epochs
        How many epochs there will be; some methods (gr, em+apl) follow a schedule.
    head_epochs
        The first epochs, in which the head alone is trained: what is remembered is not relied on yet.
    lr
        The learning rate, or the optimizer, whose rate is read in every step; for role.
    truth
        (N, L) complete labels, for oracles (bce, bce-ls, iun).
    spatial_labels
        Points and boxes of the training set, for patchml and csl-p.
    seed
        Of what a method draws at random.
    settings
        The method's own (`sparselabel methods NAME`).

    Calling it with the logits (B, L) of a batch and its images' ``index`` (B,) in the training set returns a
    scalar; ``last`` has its terms. Methods with heat maps also need ``maps`` (B, L, h, w), logits of cells,
    and the views' ``geometry``. Two views of an image (fixmatch) are given as two logits. In evaluation mode
    nothing is remembered. With several processes every process keeps what belongs to its own images: those of
    ``ShardedSampler``.
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
        given = {"epochs": epochs, "head_epochs": head_epochs, "truth": truth, "seed": seed}
        self._arguments = (method, labels, given | {"spatial_labels": spatial_labels} | settings)
        self.method_name = method
        self.method = make_method(method, **settings)
        self.observed = torch.from_numpy(labels_of(labels))
        self.truth = None if truth is None else torch.from_numpy(labels_of(truth))
        self.spatial_labels = spatial_labels
        self.epochs, self.head_epochs, self.lr, self.seed = epochs, head_epochs, lr, seed
        self.needs = self.method.needs
        self._refuse_missing()
        self._rank, self._world = _process()
        rows = torch.from_numpy(rows_of(len(self.observed), self._rank, self._world))
        count = len(self.observed)
        self.method.prepare(Layout(rows, self.observed[rows], count, seed, self._world, keep="ram"))
        self._has_memory = any(hasattr(part, "layout") for part in self.method.parts())
        self.epoch: int | None = None
        self.last = {}
        self._pending: Step | None = None
        self._seen = 0
        self._state: dict[str, Any] | None = None
        self.register_load_state_dict_post_hook(lambda module, _: module._restore())  # type: ignore[no-untyped-call]

    def set_epoch(self, epoch: int) -> None:
        """Begin an epoch, counted from 0: call it before the first step of each."""
        self._remember()
        self.epoch, self._seen = epoch, 0
        self.method.begin_epoch(self._progress())

    def forward(
        self,
        logits: Tensor | Sequence[Tensor],
        index: Tensor,
        maps: Tensor | None = None,
        geometry: ViewGeometry | None = None,
        features: Tensor | None = None,
    ) -> Tensor:
        """The loss of a batch, a scalar over all processes."""
        self._remember()
        step = self._step(logits, index, maps, geometry, features)
        losses = self.method(step)
        self.last = {name: loss.detach() for name, loss in losses.items()}
        if self.training:
            self._pending = _detached(step)
            self._count(len(index))
        return torch.stack([*losses.values()]).sum()

    def scan(self, predict: Callable[[Tensor], Tensor | Output]) -> None:
        """Show the training set to a method that looks at it before an epoch (em+apl, +cluster).

        ``predict(index)`` returns the model's logits for these images (B,), seen whole, in evaluation mode;
        or an ``Output`` with maps and features of cells, where the method needs them.
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

    def get_extra_state(self) -> dict[str, Any]:
        """What ``state_dict`` has beside buffers: all that the method remembers of the images."""
        self._remember()
        grids = {
            name: torch.tensor(part.size) // part.scale
            for name, part in self.method.named_modules()
            if isinstance(part, HeatMaps) and part.size is not None
        }
        return {
            "process": torch.tensor([self._rank, self._world, len(self.observed)]),
            "grids": grids,
            "stores": {name: store.state() for name, store in self.method.row_stores().items()},
        }

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Take what ``get_extra_state`` gave; it is put in place when all buffers are."""
        rank, world, count = state["process"].tolist()
        if (rank, world) != (self._rank, self._world):
            raise ConfigError(
                f"this state of {self.method_name} is of process {rank} of {world}, and this is process "
                f"{self._rank} of {self._world}: what a method remembers is kept by the process of an image",
                "save and load criterion.state_dict() in every process, each its own",
                "go on with as many processes as before",
            )
        if count != len(self.observed):
            raise DataError(
                f"this state is of {count:,} images, and the labels are of {len(self.observed):,}",
                "give the labels it was made with",
            )
        self._state = state

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (self._arguments, self.lr, self.epoch, self.training, self.state_dict())

    def _restore(self) -> None:
        """Put a loaded state in place, once all buffers are loaded."""
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
        """Let the method remember the step before, now that the optimizer has moved."""
        step, self._pending = self._pending, None
        if step is not None:
            self.method.update(step)

    def _progress(self) -> Progress:
        if self.epoch is None:
            raise ConfigError(
                "set_epoch was not called, which methods put to use what they have learned by",
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
        views = (logits,) if isinstance(logits, Tensor) else tuple(logits)
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
        wrong = [tuple(view.shape) for view in views if tuple(view.shape) != batch]
        if index.ndim != 1 or index.is_floating_point() or wrong:
            raise DataError(
                f"logits must be {batch}, a row for each index (B,) and a column for each class, not "
                f"{wrong[0] if wrong else tuple(views[0].shape)} for an index of {tuple(index.shape)}",
                what="logits",
            )
        if len(views) < self.needs.views:
            raise DataError(
                f"{self.method_name} compares {self.needs.views} views of every image, not {len(views)}",
                "give their logits as a tuple, the weak view first",
                what="logits",
            )
        if self.needs.maps and maps is None:
            raise DataError(
                f"{self.method_name} looks at cells", "give maps=, their logits (B, L, h, w)", what="maps"
            )
        if self.needs.maps and geometry is None:
            raise DataError(
                f"{self.method_name} needs to know where in the image each cell is",
                "give geometry=, as ViewGeometry.from_boxes(boxes, flipped)",
                "ViewGeometry.whole(B), where views show images whole",
                what="geometry",
            )
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
        """Warn where epochs go by and nobody says so: memories would never be put to use."""
        self._seen += images
        most = 2 * -(-len(self.observed) // self._world)
        if self._has_memory and self._seen - images <= most < self._seen:
            warnings.warn(
                DataWarning(
                    f"epoch {self.epoch} has seen twice as many images as there are",
                    "call criterion.set_epoch(epoch) before the first step of every epoch",
                ),
                stacklevel=3,
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
        if self.truth is not None and (self.truth == UNKNOWN).any():
            raise DataError("truth must be complete, and has unknown labels", what="truth")


class ShardedSampler(Sampler[int]):
    """Shuffles the images of this process, the same ones in every epoch, for ``SparseLoss``.

    As torch's ``DistributedSampler``, with ``set_epoch``; but an image never changes its process, so that
    what a method remembers of it is where it comes. Every process has as many images, so that at most one of
    each is left out in an epoch.
    """

    def __init__(self, count: int, seed: int = 0) -> None:
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


def labels_of(given: object) -> Labels:
    """(N, L) int8 labels from whatever holds them."""
    if isinstance(given, LabelTable):
        return np.asarray(given.values)
    if hasattr(given, "tocoo"):  # a SciPy sparse matrix, or array
        entries = given.tocoo()
        values = np.full(entries.shape, UNKNOWN, dtype=np.float64)
        values[entries.row, entries.col] = entries.data
    elif isinstance(given, Tensor):
        values = given.detach().cpu().numpy()
    else:
        values = given.to_numpy() if hasattr(given, "to_numpy") else np.asarray(given)
    if values.ndim != 2 or 0 in values.shape:
        raise DataError(f"labels must be (N, L), with at least one of each, not of shape {values.shape}")
    if values.dtype == bool:
        raise DataError(
            "labels are booleans, which say nothing of what is unknown",
            "give 1, 0 and -1 (or NaN), as numpy.where(positive, 1, -1)",
            what="labels",
        )
    if values.dtype.kind in "iu" and values.min() >= UNKNOWN and values.max() <= POSITIVE:
        return values.astype(np.int8)  # a million images are not copied as floats
    numbers = values.astype(np.float64)
    numbers[np.isnan(numbers)] = UNKNOWN
    strange = ~np.isin(numbers, (POSITIVE, NEGATIVE, UNKNOWN))
    if strange.any():
        row, column = (int(one[0]) for one in np.nonzero(strange))
        raise DataError(
            f"labels must be 1, 0, and -1 or NaN for unknown, but row {row}, column {column} has "
            f"{values[row, column]!r}",
            what="labels",
            where=(row, column),
            value=values[row, column],
        )
    return numbers.astype(np.int8)


def _process() -> tuple[int, int]:
    """The number of this process, and how many there are."""
    if not (dist.is_available() and dist.is_initialized()):
        return 0, 1
    return dist.get_rank(), dist.get_world_size()


def _detached(step: Step) -> Step:
    outputs = tuple(
        Output(*(None if value is None else value.detach() for value in output))  # type: ignore[arg-type]
        for output in step.outputs
    )
    # The same object for what a part has looked up for this step.
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
    criterion = SparseLoss(method, labels, lr=lr, **given)
    criterion.load_state_dict(state)
    if epoch is not None:
        criterion.set_epoch(epoch)
        criterion.load_state_dict(state)  # beginning an epoch chooses anew, by what is remembered by now
    criterion.train(training)
    return criterion
