"""From points and boxes to labels of cells (P2 §3.1).

P2 = PatchML. A point makes the cell it lies in positive for its class, a box the cells it covers; every cell
of an observed negative is negative; all else is unknown. Marks go through the crop and flip of the view, and
one that leaves the view makes no cell positive.
"""

from typing import Literal

import torch
from torch import Tensor

from sparselabel.data.labels import NEGATIVE, POSITIVE, UNKNOWN
from sparselabel.data.spatial_labels import Marks
from sparselabel.data.view_geometry import Frame, cell_centres
from sparselabel.errors import DataError

BoxRule = Literal["half", "any"]
"""Which cells a box makes positive: those it covers by half or more, or all that it meets."""

_LEAST: dict[BoxRule, float] = {"half": 0.5, "any": 0.0}
BOX_RULES = tuple(_LEAST)
ROUNDING = 1e-6  # of a cell: a box that ends where a cell begins must not meet it by a rounding error


def cell_labels(
    observed: Tensor, marks: Marks, frame: Frame, grid: tuple[int, int], box_rule: BoxRule = "half"
) -> Tensor:
    """(B, L, h, w) int8 labels of the cells of a view; ``marks`` have positions in the batch as their rows.

    A box that covers no cell by half still has the cell of its centre, or small things would be lost (ours).
    Where a view is hidden (cutout) no cell is positive: of a box those cells whose centres are hidden.
    """
    batch, classes = observed.shape
    labels = observed.new_full((batch, classes, *grid), UNKNOWN)
    labels[observed == NEGATIVE] = NEGATIVE
    where = _positive_cells(marks, frame, grid, _LEAST[box_rule]).to(observed.device)
    labels[tuple(where)] = POSITIVE
    return labels


def refuse_marks(marks: Marks, observed: Tensor) -> None:
    """Raise if a mark is of no row of a batch's labels (B, L), or of a class that is marked absent there."""
    rows, classes = torch.from_numpy(marks.rows), torch.from_numpy(marks.classes).long()
    beyond = (rows >= observed.shape[0]) | (classes >= observed.shape[1])
    if beyond.any():
        first = int(beyond.int().argmax())
        raise DataError(
            f"a mark has row {int(rows[first])} and class {int(classes[first])}, but the labels of the step "
            f"are {observed.shape[0]} × {observed.shape[1]}: rows of its marks are positions in the batch"
        )
    absent = observed[rows.to(observed.device), classes.to(observed.device)] == NEGATIVE
    if bool(absent.any()):
        first = int(absent.int().argmax())
        kind = "point" if marks.is_point[first] else "box"
        place = ", ".join(f"{number:.4g}" for number in marks.centres[first])
        raise DataError(
            f"a {kind} at {place} of class {int(classes[first])} in row {int(rows[first])} of the step, where"
            " it is marked absent (0): remove the mark, or mark the class present (1)"
        )


def _positive_cells(marks: Marks, frame: Frame, grid: tuple[int, int], least: float) -> Tensor:
    """(4, n) Picture, class, row and column of the cells that marks make positive."""
    pictures = torch.from_numpy(marks.rows)
    seen = frame.to("cpu")[pictures]
    centres, sizes = seen.boxes_to_view(torch.from_numpy(marks.centres), torch.from_numpy(marks.sizes))
    covered = _covered(centres[:, 1], sizes[:, 1], grid[0])[:, :, None]
    covered = covered * _covered(centres[:, 0], sizes[:, 0], grid[1])[:, None, :]
    enough = (covered >= least - ROUNDING) & (covered > ROUNDING)
    centre = _covered(centres[:, 1], torch.zeros(len(marks)), grid[0])[:, :, None]
    centre = centre * _covered(centres[:, 0], torch.zeros(len(marks)), grid[1])[:, None, :]
    covers = enough.flatten(1).any(dim=1)[:, None, None]
    chosen = torch.where(covers, enough, centre > 0)
    if seen.hidden is not None:  # nobody sees there what the mark is on
        by_cell = covers & (sizes > 0).any(dim=1)[:, None, None]  # others stand for one place, their own
        places = torch.where(by_cell[..., None], cell_centres(grid).to(centres), centres[:, None, None])
        chosen &= ~seen.hides(places)
    number, down, across = chosen.nonzero(as_tuple=True)
    return torch.stack([pictures[number], torch.from_numpy(marks.classes).long()[number], down, across])


def _covered(centres: Tensor, sizes: Tensor, cells: int) -> Tensor:
    """(M, cells) The share of each cell that an interval covers; of a point's cell all, of others nothing."""
    edges = torch.arange(cells + 1, dtype=torch.float64) / cells
    low, high = (centres - sizes / 2).double()[:, None], (centres + sizes / 2).double()[:, None]
    share = (torch.minimum(high, edges[1:]) - torch.maximum(low, edges[:-1])).clamp(min=0) * cells
    place = centres.double()[:, None]
    inside = (place >= edges[:-1]) & ((place < edges[1:]) | ((place <= 1) & (edges[1:] == 1)))
    return torch.where((sizes == 0)[:, None], inside.double(), share)
