import itertools
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor
from torch.nn.functional import interpolate

from sparselabel.data.transforms import render
from sparselabel.data.view_geometry import ViewGeometry
from sparselabel.errors import DataError

seeds = st.integers(0, 2**32 - 1)
sides = st.integers(1, 12)


def random_geometry(generator: torch.Generator, batch: int = 3, smallest: float = 0.05) -> ViewGeometry:
    size = smallest + (1 - smallest) * torch.rand(batch, 2, generator=generator, dtype=torch.float64)
    corner = (1 - size) * torch.rand(batch, 2, generator=generator, dtype=torch.float64)
    flip = torch.rand(batch, generator=generator) < 0.5
    return ViewGeometry(torch.cat([corner, size], dim=1), flip)


def uniform(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.rand(*shape, generator=generator, dtype=torch.float64)


def centers(cells: int) -> Tensor:
    return (torch.arange(cells, dtype=torch.float64) + 0.5) / cells


def plane(points: Tensor) -> Tensor:
    return 0.3 + 2 * points[..., 0] - 5 * points[..., 1]


def grid_points(height: int, width: int, batch: int) -> Tensor:
    """(batch, height, width, 2) The centers of a grid's cells as (x, y)."""
    y, x = torch.meshgrid(centers(height), centers(width), indexing="ij")
    return torch.stack([x, y], dim=-1).expand(batch, -1, -1, -1)


# Points and boxes


def test_a_point_by_hand() -> None:
    geometry = ViewGeometry(torch.tensor([[0.2, 0.5, 0.4, 0.25]] * 2), torch.tensor([False, True]))
    seen = geometry.to_view(torch.tensor([[[0.3, 0.6]]] * 2))
    torch.testing.assert_close(seen, torch.tensor([[[0.25, 0.4]], [[0.75, 0.4]]]))


@settings(max_examples=50)
@given(seeds)
def test_to_image_undoes_to_view(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    geometry = random_geometry(generator)
    points = uniform(generator, 3, 4, 5, 2) * 3 - 1
    torch.testing.assert_close(geometry.to_image(geometry.to_view(points)), points, atol=1e-12, rtol=0)
    torch.testing.assert_close(geometry.to_view(geometry.to_image(points)), points, atol=1e-12, rtol=0)


@settings(max_examples=50)
@given(seeds)
def test_boxes_move_with_their_corners(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    geometry = random_geometry(generator)
    center, size = uniform(generator, 3, 7, 2), uniform(generator, 3, 7, 2)
    seen_center, seen_size = geometry.boxes_to_view(center, size)
    corners = torch.stack([geometry.to_view(center - size / 2), geometry.to_view(center + size / 2)])
    torch.testing.assert_close(seen_center - seen_size / 2, corners.amin(dim=0), atol=1e-10, rtol=0)
    torch.testing.assert_close(seen_center + seen_size / 2, corners.amax(dim=0), atol=1e-10, rtol=0)


@settings(max_examples=30)
@given(seeds, st.booleans())
def test_a_painted_dot_is_found_where_the_geometry_says(seed: int, flip: bool) -> None:
    random = np.random.default_rng(seed)
    height, width, size = 160, 200, 128
    wide, high = random.uniform(0.4, 1, 2)
    left, top = random.uniform(0, 1 - wide), random.uniform(0, 1 - high)
    numbers = np.array([left, top, wide, high, flip])
    # A dot of 6 × 6 pixels well inside the crop, so that all of its light is in the view.
    x = int(random.uniform(left + 0.1 * wide, left + 0.9 * wide) * width)
    y = int(random.uniform(top + 0.1 * high, top + 0.9 * high) * height)
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[y - 3 : y + 3, x - 3 : x + 3] = 255
    view = render(Image.fromarray(pixels), numbers, size)[1].astype(float)
    place = (centers(size).numpy() * view.sum(0)).sum(), (centers(size).numpy() * view.sum(1)).sum()
    found = torch.tensor(place, dtype=torch.float64)[None] / view.sum()
    said = ViewGeometry.from_params(numbers[None]).to_view(
        torch.tensor([[x / width, y / height]], dtype=torch.float64)
    )
    torch.testing.assert_close(found, said, atol=0.1 / size, rtol=0)  # a tenth of a view's pixel


# Grids: against a slow program that goes cell by cell


def slow_cut(grid: Tensor, box: list[float], flip: bool, size: tuple[int, int]) -> Tensor:
    """One grid (H, W) through one view, as the definition reads."""

    def weights(start: float, length: float, cells: int, grid_cells: int) -> Tensor:
        rows = []
        for o in range(cells):
            c = (start + length * (o + 0.5) / cells) * grid_cells - 0.5
            support = max(length * grid_cells / cells, 1.0)
            row = [max(0.0, 1 - abs(i - c) / support) for i in range(grid_cells)]
            rows.append([value / sum(row) for value in row])
        return torch.tensor(rows, dtype=torch.float64)

    left, top, width, height = box
    down = weights(top, height, size[0], grid.shape[0])
    across = weights(left, width, size[1], grid.shape[1])
    seen = torch.zeros(size, dtype=torch.float64)
    for r, c in itertools.product(range(size[0]), range(size[1])):
        seen[r, size[1] - 1 - c if flip else c] = (down[r][:, None] * across[c][None] * grid).sum()
    return seen


def slow_paste(view: Tensor, box: list[float], flip: bool, size: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """One map (h, w) back through one view: interpolation and area average as two different things."""
    view = view.flip(1) if flip else view

    def weights(start: float, length: float, i: int, grid_cells: int, cells: int) -> list[float] | None:
        if not start <= (i + 0.5) / grid_cells < start + length:
            return None
        low, high = (((i + step) / grid_cells - start) / length * cells for step in (0, 1))
        if high - low > 1:
            row = [max(0.0, min(high, j + 1) - max(low, j)) for j in range(cells)]
            return [value / sum(row) for value in row]
        place = min(max((low + high) / 2 - 0.5, 0), cells - 1)
        return [max(0.0, 1 - abs(j - place)) for j in range(cells)]

    left, top, width, height = box
    grid = torch.zeros(size, dtype=torch.float64)
    visible = torch.zeros(size, dtype=torch.bool)
    for r, c in itertools.product(range(size[0]), range(size[1])):
        down = weights(top, height, r, size[0], view.shape[0])
        across = weights(left, width, c, size[1], view.shape[1])
        if down is not None and across is not None:
            visible[r, c] = True
            grid[r, c] = sum(
                d * a * float(view[i, j]) for i, d in enumerate(down) for j, a in enumerate(across) if d * a
            )
    return grid, visible


@settings(max_examples=30)
@given(seeds, sides, sides, sides, sides)
def test_cut_is_the_definition(seed: int, height: int, width: int, h: int, w: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    geometry, grids = random_geometry(generator, 2), uniform(generator, 2, 2, height, width)
    seen = geometry.crop_maps(grids, (h, w))
    for b, label in itertools.product(range(2), range(2)):
        slow = slow_cut(grids[b, label], geometry.box[b].tolist(), bool(geometry.flip[b]), (h, w))
        torch.testing.assert_close(seen[b, label], slow, atol=1e-12, rtol=0)


@settings(max_examples=30)
@given(seeds, sides, sides, sides, sides)
def test_paste_is_the_definition(seed: int, height: int, width: int, h: int, w: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    geometry, maps = random_geometry(generator, 2), uniform(generator, 2, 2, h, w)
    grids, visible = geometry.uncrop_maps(maps, (height, width))
    for b, label in itertools.product(range(2), range(2)):
        slow, seen = slow_paste(
            maps[b, label], geometry.box[b].tolist(), bool(geometry.flip[b]), (height, width)
        )
        torch.testing.assert_close(grids[b, label], slow, atol=1e-12, rtol=0)
        assert torch.equal(visible[b], seen)


# Grids: properties


@settings(max_examples=50)
@given(seeds, sides, sides, sides, st.integers(2, 12))
def test_cut_of_the_whole_is_antialiased_interpolation(
    seed: int, height: int, width: int, h: int, w: int
) -> None:
    # Not for w = 1: there torch gives wrong numbers on the CPU, [1, 1, 1] for a column [1, 2] made 3 high.
    grids = uniform(torch.Generator().manual_seed(seed), 2, 3, height, width)
    seen = ViewGeometry.whole(2, dtype=torch.float64).crop_maps(grids, (h, w))
    expected = interpolate(grids, (h, w), mode="bilinear", antialias=True, align_corners=False)
    torch.testing.assert_close(seen, expected, atol=1e-12, rtol=0)


@settings(max_examples=50)
@given(seeds, st.integers(4, 20), st.integers(20, 40))
def test_cut_of_a_plane_is_the_plane_at_the_mapped_centers(seed: int, cells: int, size: int) -> None:
    geometry = random_geometry(torch.Generator().manual_seed(seed), smallest=0.3)
    seen = geometry.crop_maps(plane(grid_points(cells, cells, 3))[:, None], (size, size))[:, 0]
    places = geometry.to_image(grid_points(size, size, 3))
    interior = ((places >= 0.5 / cells) & (places <= 1 - 0.5 / cells)).all(dim=-1)
    torch.testing.assert_close(seen[interior], plane(places)[interior], atol=1e-12, rtol=0)
    assert interior.any()


@settings(max_examples=50)
@given(seeds, st.integers(5, 8), st.integers(32, 40))
def test_cut_undoes_paste_for_planes(seed: int, size: int, cells: int) -> None:
    geometry = random_geometry(torch.Generator().manual_seed(seed), smallest=0.6)
    grids, _ = geometry.uncrop_maps(plane(grid_points(size, size, 3))[:, None], (cells, cells))
    # Not at the view's edges, where the map was clamped, nor where unwritten cells beyond the crop are read.
    margin = 0.5 / size + 1.5 / (0.6 * cells)
    places = grid_points(cells, cells, 3)
    inner = ((places > margin) & (places < 1 - margin)).all(dim=-1)
    back = geometry.crop_maps(grids, (cells, cells))[:, 0]
    torch.testing.assert_close(back[inner], plane(places)[inner], atol=1e-12, rtol=0)
    assert inner.any()
    # Read back at the map's own size a tent spans several cells and sees a slope up to 1/20 of a cell off.
    places = grid_points(size, size, 3)[:, 2:-2, 2:-2]
    back = geometry.crop_maps(grids, (size, size))[:, 0, 2:-2, 2:-2]
    torch.testing.assert_close(back, plane(places), atol=0.05 * 7 / (0.6 * cells), rtol=0)


@settings(max_examples=50)
@given(seeds, sides, sides)
def test_cells_beyond_the_crop_stay_invisible_and_zero(seed: int, height: int, width: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    geometry = random_geometry(generator)
    grids, visible = geometry.uncrop_maps(uniform(generator, 3, 2, 4, 5) + 1, (height, width))
    seen = geometry.to_view(grid_points(height, width, 3))
    assert torch.equal(visible, ((seen >= 0) & (seen <= 1)).all(dim=-1))
    assert torch.equal(grids != 0, visible[:, None].expand_as(grids))


def test_the_crop_is_half_open_and_the_whole_shows_all() -> None:
    # The centers of four cells are 1/8, 3/8, 5/8, 7/8: this crop starts on one and ends on another.
    geometry = ViewGeometry(torch.tensor([[0.125, 0.375, 0.5, 0.5]]), torch.tensor([True]))
    grids, visible = geometry.uncrop_maps(torch.ones(1, 1, 3, 3), (4, 4))
    shown = torch.tensor([False, True, True, False])[:, None] & torch.tensor([True, True, False, False])
    assert torch.equal(visible[0], shown)
    torch.testing.assert_close(grids[0, 0], shown.float())
    assert ViewGeometry.whole(2).uncrop_maps(torch.ones(2, 1, 3, 3), (7, 5))[1].all()


def test_many_cells_become_one_by_their_mean() -> None:
    maps = torch.tensor([[1.0, 2, 3, 4, 5, 6]])[None, None]
    grids, _ = ViewGeometry.whole(1).uncrop_maps(maps, (1, 2))
    torch.testing.assert_close(grids, torch.tensor([[[[2.0, 5.0]]]]))
    grids, _ = ViewGeometry(torch.tensor([[0.0, 0.0, 1.0, 1.0]]), torch.tensor([True])).uncrop_maps(
        maps, (1, 4)
    )
    torch.testing.assert_close(grids, torch.tensor([[[[17 / 3, 13 / 3, 8 / 3, 4 / 3]]]]))


def test_cut_reads_across_the_crops_edge() -> None:
    grids = torch.tensor([[0.0, 0, 8, 8]]).expand(1, 1, 4, 4)
    geometry = ViewGeometry(torch.tensor([[0.0, 0.0, 0.5, 1.0]]), torch.tensor([False]))
    # Four view cells over two grid cells: the last one's center is 1/4 of a cell from the third cell's reach.
    torch.testing.assert_close(geometry.crop_maps(grids, (1, 4))[0, 0, 0], torch.tensor([0.0, 0.0, 0.0, 2.0]))


# The value itself


def test_gradients_and_precision_pass_through() -> None:
    geometry = ViewGeometry.whole(1, dtype=torch.float64)
    grids = torch.rand(1, 2, 6, 6, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        seen = geometry.crop_maps(grids, (3, 3))
    assert seen.dtype == torch.float32
    expected = interpolate(grids, (3, 3), mode="bilinear", antialias=True)
    torch.testing.assert_close(seen, expected)  # bfloat16 would be off by 1e-3
    (gradient,) = torch.autograd.grad(seen.sum(), grids)
    assert float(gradient.sum()) == pytest.approx(2 * 9)
    assert (
        geometry.uncrop_maps(torch.ones(1, 1, 2, 2, dtype=torch.bfloat16), (3, 3))[0].dtype == torch.bfloat16
    )


def test_geometry_is_built_moved_and_chosen() -> None:
    rows = np.array([[0.1, 0.2, 0.3, 0.4, 0], [0.5, 0.5, 0.5, 0.5, 1]])
    geometry = ViewGeometry.from_params(rows)
    assert len(geometry) == 2
    assert geometry.box.dtype == torch.float64
    assert geometry.box.tolist() == rows[:, :4].tolist()
    assert geometry.flip.tolist() == [False, True]
    assert geometry.to("cpu", torch.float32).box.dtype == torch.float32
    assert geometry[1:].box.tolist() == [[0.5] * 4]
    assert geometry[torch.tensor([1, 0, 1])].flip.tolist() == [True, False, True]
    assert geometry[geometry.flip].box.tolist() == [[0.5] * 4]
    assert ViewGeometry.whole(0).crop_maps(torch.ones(0, 3, 4, 4), (2, 2)).shape == (0, 3, 2, 2)


def test_wrong_geometry_is_refused() -> None:
    flip = torch.tensor([False])
    with pytest.raises(DataError, match=r"must be \(B, 4\)"):
        ViewGeometry(torch.ones(1, 5), flip)
    with pytest.raises(DataError, match=r"must be \(B, 4\)"):
        ViewGeometry(torch.ones(2, 4), flip)
    with pytest.raises(DataError, match="float32 or float64"):
        ViewGeometry(torch.ones(1, 4, dtype=torch.float16), flip)
    with pytest.raises(DataError, match="image 1 has left"):
        ViewGeometry(torch.tensor([[0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 0.0, 1.0]]), torch.tensor([False, False]))
    with pytest.raises(DataError, match="inside its image"):
        ViewGeometry(torch.tensor([[0.5, 0.0, 0.6, 1.0]]), flip)
    with pytest.raises(DataError, match="inside its image"):
        ViewGeometry(torch.tensor([[float("nan"), 0.0, 0.6, 1.0]]), flip)
    with pytest.raises(DataError, match=r"\(B, 5\)"):
        ViewGeometry.from_params(torch.ones(2, 4))


def test_things_of_another_batch_are_refused() -> None:
    geometry = ViewGeometry.whole(2)
    with pytest.raises(DataError, match=r"must be \(2, \.\.\., 2\), not \(1, 2\)"):
        geometry.to_view(torch.ones(1, 2))
    with pytest.raises(DataError, match=r"not torch.float32 \(1, 3, 4, 4\)"):
        geometry.crop_maps(torch.ones(1, 3, 4, 4), (2, 2))
    with pytest.raises(DataError, match="must be floating-point"):
        geometry.uncrop_maps(torch.ones(2, 3, 4, 4, dtype=torch.uint8), (2, 2))


def test_what_is_hidden_is_not_visible_in_the_image() -> None:
    """The left half of a view of the image's right half, mirrored: the image's last quarter."""
    box = torch.tensor([[0.5, 0.0, 0.5, 1.0]] * 2)
    geometry = ViewGeometry(box, torch.tensor([False, True]), torch.tensor([[0.0, 0.0, 0.5, 1.0]] * 2))
    _, visible = geometry.uncrop_maps(torch.ones(2, 1, 4, 4), (8, 8))
    assert visible[0].all(dim=0).tolist() == [False] * 6 + [True] * 2
    assert visible[1].all(dim=0).tolist() == [False] * 4 + [True] * 2 + [False] * 2
    assert geometry[1:].to(dtype=torch.float64).hides(torch.tensor([[[0.2, 0.5], [0.6, 0.5]]])).tolist() == [
        [True, False]
    ]


def test_cutout_is_read_with_the_rest_of_the_row() -> None:
    rows = torch.tensor([[0.0, 0.0, 1.0, 1.0, 1.0, 0.1, 0.2, 0.3, 0.4]])
    geometry = ViewGeometry.from_params(rows)
    assert geometry.cutout is not None
    assert geometry.cutout.tolist() == rows[:, 5:].tolist()
    assert ViewGeometry.from_params(rows[:, :5]).cutout is None
    with pytest.raises(DataError, match=r"\(B, 5\) .* or \(B, 9\) .*\(1, 7\)"):
        ViewGeometry.from_params(rows[:, :7])
    with pytest.raises(DataError, match=r"cutout must be \(1, 4\) as box is, not \(1, 3\)"):
        ViewGeometry(rows[:, :4], torch.tensor([True]), rows[:, 5:8])


def test_hidden_cells_are_those_whose_centers_are() -> None:
    geometry = ViewGeometry(
        torch.tensor([[0.0, 0, 1, 1]] * 2),
        torch.tensor([False, True]),
        torch.tensor([[0.0, 0, 0.5, 0.4], [0.8, 0, 0, 0]]),
    )
    assert geometry.hides_cells((4, 2)).int().tolist() == [[[1, 0], [1, 0], [0, 0], [0, 0]], [[0, 0]] * 4]
    assert not ViewGeometry.whole(3).hides_cells((2, 2)).any()


def test_crops_in_pixels_and_in_shares_are_the_same() -> None:
    sizes = torch.tensor([[200, 100], [50, 80]])
    pixels = torch.tensor([[20, 10, 100, 50], [0, 8, 25, 40]])
    shares = torch.tensor([[0.1, 0.1, 0.5, 0.5], [0.0, 0.1, 0.5, 0.5]])
    made = ViewGeometry.from_boxes(pixels, [True, False], sizes)
    torch.testing.assert_close(made.box, shares)
    assert made.flip.tolist() == [True, False]
    plain = ViewGeometry.from_boxes(shares.numpy())
    torch.testing.assert_close(plain.box, shares)
    assert not plain.flip.any()


@pytest.mark.parametrize(
    ("boxes", "flipped", "sizes", "what"),
    [
        (torch.zeros(2, 5), None, None, "boxes"),
        ([torch.zeros(2)] * 4, None, None, "boxes"),  # what a loader makes of tuples
        ([torch.zeros(4)] * 4, None, None, "boxes"),
        ([[0, 0, 5, 5]] * 2, None, (10, 10), "sizes"),
        ([[0, 0, 5, 5]] * 2, None, [[10, 10]], "sizes"),
        ([[0, 0, 5, 5]] * 2, None, None, "box"),  # pixels
        ([[0, 0, 1, 1]] * 2, True, None, "flipped"),
        ([[0, 0, 1, 1]] * 2, [0.3, 1], None, "flipped"),
    ],
)
def test_crops_of_another_shape_are_refused_by_name(boxes: Any, flipped: Any, sizes: Any, what: str) -> None:
    with pytest.raises(DataError) as refused:
        ViewGeometry.from_boxes(boxes, flipped, sizes)
    assert refused.value.what == what
