"""What a method is given: a ``Step`` of training, and before that the ``Layout`` of the labels.

    once, before training   Layout     the rows of this process and their labels; room for memories
    every epoch             Progress   which epoch of how many, and the learning rate
    every step              Step       the batch: rows, labels, outputs of the model, geometry of the views

A *row* is the position of an image in the training set. Memories are keyed by row.
"""

from collections.abc import Callable, Iterable
from dataclasses import InitVar, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from sparselabel.data.labels import (
    NEGATIVE,
    Indices,
    LabelMatrix,
    SparseLabels,
    count_per_class,
    count_per_image,
    take_rows,
)
from sparselabel.data.spatial_labels import SpatialLabels
from sparselabel.data.view_geometry import ViewGeometry
from sparselabel.distributed import all_reduce_sum, is_alone
from sparselabel.errors import ConfigError, DataError
from sparselabel.models.classifier import Output


@dataclass(frozen=True)
class Progress:
    """How far training is: ``epoch`` of ``epochs``, from 0; the first ``head_epochs`` train the head alone.

    ``lr`` is the learning rate: a tensor (R,) where R runs are trained side by side.
    """

    epoch: int
    epochs: int
    head_epochs: int
    lr: float | Tensor

    @property
    def warmed_up(self) -> bool:
        """Whether memories can be relied on: after the head-only epochs, or after the first without any."""
        return self.epoch >= max(self.head_epochs, 1)


@dataclass(frozen=True)
class Step:
    """One training step as a method sees it: B images, L classes, an output and a geometry per view.

    Each row is visited once per epoch. Labels are on the outputs' device. Keep rows and geometries on the
    CPU, where memories are: reading them from a GPU would synchronize. ``check``: raise if a point or box is
    in a row or class out of range, or of a class labeled absent.

    A step of R runs side by side has rows (R, B), labels and logits (R, B, L), and no padding.
    """

    rows: Tensor  # (B,) the images' rows in the training set; -1 is padding, which is ignored
    observed: Tensor  # (B, L) POSITIVE, NEGATIVE or UNKNOWN; never written to
    outputs: tuple[Output, ...]  # per view: logits (B, L), maps of cell logits (B, L, h, w), features
    geometries: tuple[ViewGeometry, ...]  # per view: the crop and flip of each image
    progress: Progress
    spatial_labels: SpatialLabels | None = None  # points and boxes; their rows are positions in the batch
    truth: Tensor | None = None  # (B, L) all labels, where a part needs them
    check: InitVar[bool] = True

    def __post_init__(self, check: bool) -> None:
        # The trainer turns it off: prepared data is checked already, and checking synchronizes with a GPU.
        if check and self.spatial_labels is not None:
            refuse_spatial_labels(self.spatial_labels, self.observed)

    @cached_property
    def valid(self) -> Tensor:
        """(B,) bool Which rows are not padding, on the outputs' device."""
        return (self.rows >= 0).to(self.outputs[0].logits.device)

    @cached_property
    def padded(self) -> bool:
        """Whether some rows are padding."""
        return self.rows.numel() > 0 and int(self.rows.min()) < 0

    @cached_property
    def size(self) -> Tensor | int:
        """Images of the batch without padding, over all processes; (R,) of runs side by side, or one number.

        Its first use is a collective: use it in all processes alike.
        """
        if is_alone() and not self.padded:
            return self.rows.shape[-1]
        return all_reduce_sum(self.valid.sum(-1))


def refuse_spatial_labels(spatial_labels: SpatialLabels, observed: Tensor) -> None:
    """Raise if a point or box is outside the labels (B, L) of a batch, or of a class labeled absent."""
    rows, classes = torch.from_numpy(spatial_labels.rows), torch.from_numpy(spatial_labels.classes).long()
    beyond = (rows >= observed.shape[0]) | (classes >= observed.shape[1])
    if beyond.any():
        first = int(beyond.int().argmax())
        raise DataError(
            f"a spatial label has row {int(rows[first])} and class {int(classes[first])}, but the labels of "
            f"the step are {observed.shape[0]} × {observed.shape[1]}: its rows are positions in the batch"
        )
    absent = observed[rows.to(observed.device), classes.to(observed.device)] == NEGATIVE
    if bool(absent.any()):
        first = int(absent.int().argmax())
        kind = "point" if spatial_labels.is_point[first] else "box"
        center = ", ".join(f"{number:.4g}" for number in spatial_labels.centers[first])
        raise DataError(
            f"a {kind} at {center} of class {int(classes[first])} in row {int(rows[first])} of the step, "
            "where it is labeled absent (0)",
            "remove it",
            "label the class present (1)",
        )


def not_begun(progress: Progress) -> ConfigError:
    """The error for a step of an epoch for which ``begin_epoch`` was not called."""
    return ConfigError(
        f"a step of epoch {progress.epoch + 1} came before that epoch began",
        f"call criterion.set_epoch({progress.epoch}), which counts from 0, before its first step",
    )


Scan = Callable[[Tensor | None], Iterable[Step]]
"""Rows (n,) of this process, or None for all of them -> steps in which each of these rows occurs once."""


ENTRIES_AT_ONCE = 2**19
"""Maximum number of labels (rows × classes) processed at once: a mask over a million rows would take
gigabytes, and ``topk_per_class`` takes about 200 bytes per label."""


def rows_at_once(classes: int) -> int:
    """How many rows have at most ``ENTRIES_AT_ONCE`` labels; at least one."""
    return max(1, ENTRIES_AT_ONCE // max(1, classes))


def in_chunks(values: Tensor) -> tuple[Tensor, ...]:
    """Rows (n, L) in chunks (c, L) of a bounded size, at least one chunk."""
    return torch.split(values, rows_at_once(values.shape[1]))


class LabelRows:
    """Sparse labels (n, L) that are indexed like a dense tensor: ``labels[rows]`` is a dense (B, L).

    Only the rows of a step become dense, so a step takes equally long for any n.
    """

    def __init__(self, labels: SparseLabels) -> None:
        self.labels = labels
        self.shape = torch.Size(labels.shape)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, rows: "Tensor | slice") -> Tensor:
        return torch.from_numpy(self.labels[rows if isinstance(rows, slice) else rows.numpy()])

    def index_select(self, dim: int, rows: Tensor) -> Tensor:
        """(B, L) The labels of some rows, as ``Tensor.index_select`` with ``dim`` 0."""
        return self[rows]


Observed = Tensor | LabelRows
"""Labels (n, L): a tensor, or sparse labels that are indexed like one."""


def observed_rows(labels: LabelMatrix, rows: Indices | None = None) -> Observed:
    """The labels, or those of some rows, in the form that a ``Layout`` takes."""
    some = labels if rows is None else take_rows(labels, rows)
    return LabelRows(some) if isinstance(some, SparseLabels) else torch.from_numpy(some)


def count_labels(observed: Observed, label: int) -> Tensor:
    """(L,) int64 How many labels of every class are ``label``."""
    return torch.from_numpy(count_per_class(_matrix_of(observed), label))


def _matrix_of(observed: Observed) -> LabelMatrix:
    return observed.labels if isinstance(observed, LabelRows) else observed.cpu().numpy()


class Memory:
    """A large per-row array: in RAM, or in a file with two slots per row (``memory/``).

    ``by_row`` lists the state tensors with one entry per row. They can be redistributed when the number of
    processes changes (``memory/reshard.py``).
    """

    by_row: tuple[str, ...] = ()

    def bytes_still_needed(self) -> tuple[int, int]:
        """Bytes of RAM and of disk that it has yet to allocate."""
        return 0, 0

    def state(self) -> dict[str, Tensor]:
        """The tensors that a checkpoint saves."""
        raise TypeError(f"{type(self).__name__} must define state()")

    def restore(self, state: dict[str, Tensor]) -> None:
        """Load the tensors that ``state`` returned."""
        raise TypeError(f"{type(self).__name__} must define restore()")

    def on_checkpoint_saved(self) -> None:
        """Called once the checkpoint is on disk. Older data may now be overwritten."""


@dataclass(frozen=True)
class Layout:
    """The training labels of this process, and where memories go: what every part gets before training."""

    rows: Tensor  # (n,) the rows of this process, sorted
    observed: Observed  # (n, L) their labels
    total: int  # the number of rows of all processes
    seed: int = 0
    processes: int = 1
    folder: Path | None = None  # for memories too large for RAM; None: RAM only
    keep: Literal["auto", "ram", "file"] = "auto"  # where memories go
    grid: tuple[int, int] | None = None  # height and width of the model's maps, if they are known already
    memories: list[Memory] = field(default_factory=list, repr=False)  # made so far: together they must fit

    @cached_property
    def has_negatives(self) -> bool:
        """Whether any label of this process is an observed negative."""
        return bool(self.counts(NEGATIVE).any())

    def counts(self, label: int) -> Tensor:
        """(L,) int64 How many labels of every class are ``label``, in this process."""
        return count_labels(self.observed, label)

    def per_image(self, label: int) -> Tensor:
        """(n,) int64 How many labels of every image of this process are ``label``."""
        return torch.from_numpy(count_per_image(_matrix_of(self.observed), label))

    def local_index(self, rows: Tensor) -> Tensor:
        """(B,) The positions of ``rows`` (B,) in ``self.rows``; any position for padding."""
        # numpy is faster than torch on so few numbers.
        own, wanted = self.rows.numpy(), rows.cpu().numpy()
        local_index = np.minimum(own.searchsorted(wanted), len(own) - 1)
        unknown_rows = (own[local_index] != wanted) & (wanted >= 0)
        if unknown_rows.any():
            raise DataError(
                f"row {wanted[unknown_rows][0]} is none of the {len(own):,} rows that the method was "
                "prepared for: rows in a Step are rows of the labels it was built with"
            )
        return torch.from_numpy(local_index)
