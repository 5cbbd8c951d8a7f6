"""Spatial consistency, image by image, cell by cell, in plain Python: slow and obvious."""

from typing import NamedTuple

from torch import Tensor


class View(NamedTuple):
    left: float
    top: float
    width: float
    height: float
    flip: bool


def tent(place: float, reach: float, cells: int) -> list[float]:
    """Weights that fall off linearly with the distance of each cell's center from a place (in cells)."""
    weights = [max(0.0, 1 - abs(cell + 0.5 - place) / reach) for cell in range(cells)]
    return [weight / sum(weights) for weight in weights]


def box(place: float, reach: float, cells: int) -> list[float]:
    """How much of each cell an interval of a length around a place covers."""
    low, high = place - reach / 2, place + reach / 2
    weights = [max(0.0, min(high, cell + 1) - max(low, cell)) for cell in range(cells)]
    return [weight / sum(weights) for weight in weights]


def seen(heat_map: Tensor, view: View, size: tuple[int, int]) -> list[list[float]]:
    """A heat map (H, W) through a view, on the model's cells (eq. 7: resize(T(H)))."""
    high, wide = heat_map.shape
    values = heat_map.tolist()
    result = []
    for row in range(size[0]):
        down = (row + 0.5) / size[0]
        vertical = tent((view.top + view.height * down) * high, max(1, view.height * high / size[0]), high)
        line = []
        for column in range(size[1]):
            along = (column + 0.5) / size[1]
            along = 1 - along if view.flip else along
            place = (view.left + view.width * along) * wide
            horizontal = tent(place, max(1, view.width * wide / size[1]), wide)
            line.append(
                sum(
                    vertical[y] * horizontal[x] * values[y][x]
                    for y in range(high)
                    for x in range(wide)
                    if vertical[y] and horizontal[x]
                )
            )
        result.append(line)
    return result


def averaged(heat_map: Tensor, scores: Tensor, view: View, momentum: float) -> list[list[float]]:
    """A heat map (H, W) after a view in which the cells said ``scores`` (h, w), before rounding."""
    high, wide = heat_map.shape
    rows, columns = scores.shape
    said, result = scores.tolist(), heat_map.tolist()
    for y in range(high):
        down = ((y + 0.5) / high - view.top) / view.height
        for x in range(wide):
            along = ((x + 0.5) / wide - view.left) / view.width
            if not (0 <= down < 1 and 0 <= along < 1):
                continue
            along = 1 - along if view.flip else along
            vertical = box(down * rows, max(1, rows / (view.height * high)), rows)
            horizontal = box(along * columns, max(1, columns / (view.width * wide)), columns)
            value = sum(vertical[r] * horizontal[c] * said[r][c] for r in range(rows) for c in range(columns))
            result[y][x] = momentum * result[y][x] + (1 - momentum) * value
    return result
