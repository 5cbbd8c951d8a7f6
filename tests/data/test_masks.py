import numpy as np
import numpy.typing as npt
import pytest
from pycocotools import mask as run_lengths

from sparselabel.data import masks as module
from sparselabel.data.masks import MaskColumns, Masks, runs_of, union
from sparselabel.errors import DataError

Pixels = npt.NDArray[np.bool_]


def random_pixels(seed: int, height: int, width: int) -> Pixels:
    """Something with long and short runs, holes and touching edges."""
    random = np.random.default_rng(seed)
    rows, columns = np.mgrid[:height, :width]
    found = random.random((height, width)) < 0.02
    for _ in range(3):
        y, x = random.random(2) * (height, width)
        r, s = random.random(2) * (height, width) / 2 + 0.5
        found ^= ((rows - y) / r) ** 2 + ((columns - x) / s) ** 2 < 1
    return np.asarray(found)


def built(images: list[Pixels | None]) -> Masks:
    columns = MaskColumns()
    for pixels in images:
        encoded = None if pixels is None else run_lengths.encode(np.asfortranarray(pixels, dtype=np.uint8))
        columns.add(encoded)
    masks = columns.build()
    assert masks is not None
    return masks


def drawn(masks: Masks, owner: int, runs: module.Runs) -> Pixels:
    height, width = masks.sizes[owner]
    found = np.zeros(height * width, np.bool_)
    chosen = runs.owners == owner
    for start, end in zip(runs.starts[chosen], runs.ends[chosen], strict=True):
        assert not found[start:end].any()
        found[start:end] = True
    return found.reshape(width, height).T


def test_run_lengths_are_those_of_pycocotools() -> None:
    images: list[Pixels | None] = [random_pixels(seed, 5 + 37 * seed, 90 - 7 * seed) for seed in range(12)]
    images[3] = images[7] = None
    images += [np.zeros((4, 6), np.bool_), np.ones((300, 700), np.bool_), None]
    masks = built(images)
    runs = runs_of(masks)
    assert masks.there.tolist() == [pixels is not None for pixels in images]
    for owner, pixels in enumerate(images):
        if pixels is None:
            assert not (runs.owners == owner).any()
        else:
            np.testing.assert_array_equal(drawn(masks, owner, runs), pixels)
            np.testing.assert_array_equal(masks.decode(owner), pixels)
            assert run_lengths.area(masks.rle(owner)) == pixels.sum()


def test_masks_of_some_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    images: list[Pixels | None] = [random_pixels(seed, 30, 40) for seed in range(9)]
    images[4] = None
    masks = built(images)
    chosen = np.array([8, 4, 4, 0, 3, 3])
    for block in (module.BLOCK, 1, 100):
        monkeypatch.setattr(module, "BLOCK", block)
        taken = masks.take(chosen)
        assert taken.there.tolist() == [True, False, False, True, True, True]
        for place, number in enumerate(chosen.tolist()):
            if images[number] is not None:
                np.testing.assert_array_equal(taken.decode(place), images[number])
    assert len(masks.take(np.empty(0, np.int64))) == 0


def test_a_union_has_every_pixel_once() -> None:
    images = [random_pixels(seed, 31, 23) for seed in range(7)]
    masks = built([*images])
    groups = np.array([0, 0, 0, 1, 2, 2, 2])
    runs = union(runs_of(masks), groups)
    for group in range(3):
        expected = np.any([images[number] for number in np.flatnonzero(groups == group)], axis=0)
        np.testing.assert_array_equal(drawn(masks, group, runs), expected)


def test_no_masks_at_all() -> None:
    assert MaskColumns().build() is None
    none = Masks.none(3)
    assert (len(none), none.there.tolist(), len(runs_of(none).owners)) == (3, [False] * 3, 0)


def test_damaged_run_lengths_are_named() -> None:
    masks = built([np.ones((30, 40), np.bool_)])
    broken = Masks(np.full_like(masks.texts, 255), masks.offsets, masks.sizes)
    with pytest.raises(DataError, match="run lengths are damaged"):
        runs_of(broken)
