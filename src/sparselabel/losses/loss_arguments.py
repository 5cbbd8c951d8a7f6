"""Checks of the arguments of ``SparseLoss``: an error names what was given and what is needed."""

import warnings
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from sparselabel.data.view_geometry import ViewGeometry
from sparselabel.errors import ConfigError, DataError, DataWarning, counted, param

STACK_LEVEL = 5  # a warning in a step names the caller's line: two frames are torch's
INDEX = "the position of every image of the batch in the labels, as whole numbers (B,)"
GEOMETRY = (
    "give geometry=, as ViewGeometry.from_params(parameters) of RandomView or TrackedTransform",
    "ViewGeometry.from_boxes(boxes, flipped), of crops of your own",
    "ViewGeometry.whole(B), where views show images whole",
)


def index_of(given: "Tensor | Sequence[int] | np.ndarray[Any, Any] | None") -> Tensor:
    """(B,) The index of a batch as a tensor."""
    if given is None:
        raise DataError(f"index is missing: {INDEX}", "give it after the logits", what="index")
    try:
        index = given if isinstance(given, Tensor) else torch.from_numpy(np.asarray(given))
    except (TypeError, ValueError) as error:
        raise DataError(
            f"index must be {INDEX}, not {kind_of(given)}", what="index", value=type(given).__name__
        ) from error
    if index.ndim != 1 or index.is_floating_point() or index.is_complex() or index.dtype == torch.bool:
        raise DataError(
            f"index must be {INDEX}, not {kind_of(index)}",
            *(("give numpy.flatnonzero(mask), where it is a mask",) if index.dtype == torch.bool else ()),
            what="index",
            value=(tuple(index.shape), index.dtype),
            allowed="whole numbers (B,)",
        )
    return index.long()


def refuse_counts(**given: tuple[object, int]) -> None:
    """Raise if a number is no whole number or below its minimum; None passes."""
    for name, (value, least) in given.items():
        whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
        if value is not None and not (whole and cast("int", value) >= least):
            allowed = f"a whole number from {least} on"
            problem = f"{param(name)} must be {allowed}, not {kind_of(value)}"
            raise ConfigError(problem, what=name, value=value, allowed=allowed)


def kind_of(given: object) -> str:
    """A description of an argument for an error."""
    if isinstance(given, Tensor | np.ndarray):
        kind = "a tensor" if isinstance(given, Tensor) else "an array"
        return f"{kind} of shape {tuple(given.shape)} and {str(given.dtype).removeprefix('torch.')}"
    return repr(given) if given is None or isinstance(given, str | int | float) else type(given).__name__


def refuse_logits(view: object, batch: tuple[int, int]) -> None:
    """Raise unless these are logits of this shape."""
    problem = None
    if not isinstance(view, Tensor):
        problem = "logits must be a tensor, or a tuple of one for each view"
    elif not view.is_floating_point():
        problem = "logits must be floating-point numbers, the model's outputs before the sigmoid"
    elif tuple(view.shape) != batch:
        problem = f"logits must be {batch}, a row for each index and a column for each class"
    if problem is not None:
        value = (tuple(view.shape), view.dtype) if isinstance(view, Tensor) else type(view).__name__
        raise DataError(f"{problem}, not {kind_of(view)}", what="logits", value=value, allowed=batch)


def refuse_maps(method: str, maps: object, batch: tuple[int, int]) -> None:
    """Raise unless these are logits of the cells of a batch."""
    cells = f"logits of cells, {(*batch, 'h', 'w')}".replace("'", "")
    if maps is None:
        raise DataError(f"{method} looks at cells", f"give maps=, {cells}", what="maps")
    if not isinstance(maps, Tensor):
        raise DataError(
            f"maps must be a tensor of {cells}, not {kind_of(maps)}", what="maps", value=type(maps).__name__
        )
    if maps.ndim != 4 or tuple(maps.shape[:2]) != batch or 0 in maps.shape or not maps.is_floating_point():
        raise DataError(
            f"maps must be {cells}, not {kind_of(maps)}",
            what="maps",
            value=(tuple(maps.shape), maps.dtype),
            allowed=(*batch, "h", "w"),
        )


def refuse_geometry(method: str, geometry: object, images: int) -> None:
    """Raise unless this is the geometry of the views of so many images."""
    if geometry is None:
        raise DataError(f"{method} needs to know where in the image each cell is", *GEOMETRY, what="geometry")
    if not isinstance(geometry, ViewGeometry):
        raise DataError(
            f"geometry must be a ViewGeometry, not {kind_of(geometry)}",
            *GEOMETRY,
            what="geometry",
            value=type(geometry).__name__,
        )
    if len(geometry) != images:
        raise DataError(
            f"geometry must be that of the batch's {counted(images, 'image')}, not of {len(geometry):,}",
            what="geometry",
            value=len(geometry),
            allowed=images,
        )


def warn_of_scores(logits: Tensor) -> None:
    """Warn if the first batch looks like scores instead of logits."""
    if not logits.numel():
        return
    low, high = (float(value) for value in logits.detach().aminmax())
    if 0 <= low < high <= 1:
        warning = DataWarning(
            f"the logits of the first batch are in {low:.3g}..{high:.3g}, as after a sigmoid",
            "give the model's outputs before it: the loss applies it",
            what="logits",
            value=(low, high),
        )
        warnings.warn(warning, stacklevel=STACK_LEVEL)
