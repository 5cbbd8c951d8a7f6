import multiprocessing
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor

from sparselabel.config import Preparation
from sparselabel.data.dataset import PreparedSplit
from sparselabel.data.decode import load
from sparselabel.data.image_source import ImageSource
from sparselabel.data.loaders import (
    PADDING,
    Batch,
    FeatureLoader,
    ImageLoader,
    Loader,
    Rows,
    epoch_batches,
    in_order,
    in_threads,
    rows_of,
    worker_processes,
)
from sparselabel.data.prepare import prepare
from sparselabel.data.transforms import RandAugment, draw, render, squashed, verelst_train
from sparselabel.data.view_geometry import ViewGeometry
from sparselabel.errors import DataError
from tests.data.images import paint, random_labels, read_table

VIEW = verelst_train(16)
COUNT = 7


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> PreparedSplit:
    folder = tmp_path_factory.mktemp("feed")
    for row in range(COUNT):
        paint(folder / f"{row:03}.jpg", row, width=40 + row, height=30)
    source = read_table(folder, random_labels(COUNT))
    return prepare(source, folder / "out", Preparation(validation=0)).train


def rows(*batches: Sequence[int]) -> list[Rows]:
    return [np.array(batch, dtype=np.int64) for batch in batches]


def shown(loader: Loader, batches: list[Rows], epoch: int = 0) -> dict[int, tuple[Tensor, ...]]:
    """What every row was shown as: its views' pixels and frames."""
    seen = {}
    for batch in loader(batches, epoch):
        for place, row in enumerate(batch.rows.tolist()):
            geometries = [
                torch.cat([geometry.box[place], geometry.flip[place, None]]) for geometry in batch.geometries
            ]
            seen[row] = (*(view[place] for view in batch.inputs), *geometries)
    return seen


def same(left: dict[int, tuple[Tensor, ...]], right: dict[int, tuple[Tensor, ...]]) -> bool:
    return left.keys() == right.keys() and all(
        torch.equal(one, other) for row in left for one, other in zip(left[row], right[row], strict=True)
    )


def equal_batches(left: Iterator[Batch], right: Iterator[Batch]) -> int:
    """Assert that all batches are the same, and say how many there are."""
    number = 0
    for one, other in zip(left, right, strict=True):
        number += 1
        assert torch.equal(one.rows, other.rows)
        assert all(map(torch.equal, one.inputs, other.inputs))
        for geometry, twin in zip(one.geometries, other.geometries, strict=True):
            assert torch.equal(geometry.box, twin.box)
            assert torch.equal(geometry.flip, twin.flip)
    return number


def test_a_batch_is_what_its_frames_show(split: PreparedSplit) -> None:
    (batch,) = ImageLoader(split, VIEW, seed=3, views=2)(rows([5, 2]), epoch=4)
    assert batch.rows.tolist() == [5, 2]
    assert [(view.shape, view.dtype) for view in batch.inputs] == [((2, 3, 16, 16), torch.uint8)] * 2
    for number, (view, geometry) in enumerate(zip(batch.inputs, batch.geometries, strict=True)):
        for place, row in enumerate((5, 2)):
            image = load(split.path(row), VIEW.at_least)
            drawn = draw(VIEW, (3, 4, row, number), image.width, image.height)
            assert torch.equal(view[place], torch.from_numpy(render(image, drawn, 16)))
            assert geometry.box[place].tolist() == drawn[:4].astype(np.float32).tolist()
            assert geometry.flip[place].item() == bool(drawn[4])


def test_workers_change_nothing(split: PreparedSplit) -> None:
    alone, helped = (ImageLoader(split, VIEW, seed=1, views=2, workers=workers) for workers in (0, 2))
    for epoch in range(2):
        batches = epoch_batches(COUNT, 2, seed=1, epoch=epoch)
        assert equal_batches(alone(batches, epoch), helped(batches, epoch)) == 4


def test_an_epoch_may_be_left_early(split: PreparedSplit) -> None:
    loader = ImageLoader(split, VIEW, workers=2)
    batches = rows(*([row] for row in range(COUNT)))
    assert next(loader(batches, 0)).rows.tolist() == [0]
    again = ImageLoader(split, VIEW)
    assert equal_batches(loader(batches[::-1], 1), again(batches[::-1], 1)) == COUNT


def test_a_view_depends_on_seed_epoch_row_and_number_alone(split: PreparedSplit) -> None:
    loader = ImageLoader(split, VIEW, seed=1)
    first = shown(loader, rows([0, 1, 2, 3], [4, 5, 6]))
    assert same(first, shown(loader, rows([6, 0], [3, 5, 1], [4], [2])))
    np.random.default_rng(5).random()
    torch.manual_seed(9)
    assert same(first, shown(ImageLoader(split, VIEW, seed=1), rows(range(COUNT))))
    for other in (
        shown(loader, rows(range(COUNT)), epoch=1),
        shown(ImageLoader(split, VIEW, seed=2), rows(range(COUNT))),
    ):
        assert all(not torch.equal(first[row][1], other[row][1]) for row in first)


def test_views_differ_and_more_of_them_leave_the_first_as_it_is(split: PreparedSplit) -> None:
    one = shown(ImageLoader(split, VIEW), rows(range(COUNT)))
    three = shown(ImageLoader(split, VIEW, views=3), rows(range(COUNT)))
    for row in range(COUNT):
        pixels, geometries = three[row][:3], three[row][3:]
        assert torch.equal(pixels[0], one[row][0])
        assert len({tuple(geometry.tolist()) for geometry in geometries}) == 3
        assert not torch.equal(pixels[1], pixels[2])


def test_a_row_taken_twice_is_shown_twice_alike(split: PreparedSplit) -> None:
    (batch,) = ImageLoader(split, VIEW)(rows([3, 3]), 0)
    assert torch.equal(batch.inputs[0][0], batch.inputs[0][1])


@pytest.mark.parametrize("workers", [0, 1])
def test_padding_has_pixels_and_keeps_its_row(split: PreparedSplit, workers: int) -> None:
    (batch,) = ImageLoader(split, VIEW, workers=workers)(rows([4, PADDING]), 0)
    assert batch.rows.tolist() == [4, PADDING]
    assert batch.inputs[0].shape == (2, 3, 16, 16)
    without = shown(ImageLoader(split, VIEW), rows([4]))
    assert torch.equal(batch.inputs[0][0], without[4][0])


def test_no_batches(split: PreparedSplit) -> None:
    assert list(ImageLoader(split, VIEW)([], 0)) == []


def test_images_are_shown_upright(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned clockwise
    lying = Image.new("RGB", (64, 32), "blue")
    lying.paste("red", (0, 0, 32, 32))  # left as stored, above as seen
    tmp_path.joinpath("photos").mkdir()
    lying.save(tmp_path / "photos" / "000.jpg", exif=exif, quality=95)
    source = read_table(tmp_path / "photos", np.ones((1, 3), np.int8))
    turned = prepare(source, tmp_path / "out", Preparation(validation=0)).train
    (batch,) = ImageLoader(turned, squashed(16))(rows([0]), 0)
    red, _, blue = batch.inputs[0][0].int()
    assert (red[:7] > 240).all()
    assert (red[9:] < 15).all()
    assert (blue[9:] > 240).all()


@pytest.mark.parametrize("workers", [0, 2])
def test_a_image_that_vanished_is_named(tmp_path: Path, workers: int) -> None:
    source = read_table(tmp_path / "photos", random_labels(4))
    split = prepare(source, tmp_path / "out", Preparation(validation=0)).train
    (tmp_path / "photos" / "002.jpg").unlink()
    loader = ImageLoader(split, VIEW, workers=workers)
    batches = loader(rows([0], [1, 2], [3]), 0)
    assert next(batches).rows.tolist() == [0]
    # The message alone, without the traceback of a worker.
    with pytest.raises(
        DataError, match=r"^\S+/002.jpg is gone \(No such file\): bring it back, or prepare data without it\Z"
    ):
        next(batches)
    assert [batch.rows.tolist() for batch in loader(rows([3], [1]), 1)] == [[3], [1]]  # the others are fine


def test_features_are_those_of_the_rows() -> None:
    features = torch.arange(12.0).reshape(4, 3)
    first, second = FeatureLoader(features)(rows([2, 0], [3]), epoch=5)
    assert first.rows.tolist() == [2, 0]
    assert [view.tolist() for view in first.inputs] == [[[6, 7, 8], [0, 1, 2]]]
    assert second.inputs[0].tolist() == [[9, 10, 11]]
    for batch in (first, second):
        (geometry,) = batch.geometries
        whole = ViewGeometry.whole(len(batch.rows))
        assert torch.equal(geometry.box, whole.box)
        assert torch.equal(geometry.flip, whole.flip)


def test_features_of_padding_are_there_and_are_a_copy() -> None:
    features = torch.arange(6.0).reshape(3, 2)
    (batch,) = FeatureLoader(features)(rows([1, PADDING]), epoch=0)
    assert batch.rows.tolist() == [1, PADDING]
    assert batch.inputs[0].shape == (2, 2)
    batch.inputs[0].zero_()
    assert features.tolist() == [[0, 1], [2, 3], [4, 5]]


@given(st.integers(0, 40), st.integers(1, 9), st.integers(1, 4))
def test_in_order_gives_each_row_once(count: int, size: int, shards: int) -> None:
    for shard in range(shards):
        own = rows_of(count, shard, shards)
        batches = in_order(own, size)
        assert [row for batch in batches for row in batch.tolist()] == own.tolist()
        assert all(len(batch) == size for batch in batches[:-1])
        assert all(len(batch) for batch in batches)


def test_changes_are_in_views_and_frames(split: PreparedSplit) -> None:
    augment = RandAugment(operations=2, geometric=False, cutout=0.5)
    batches = rows([0, 1], [2, 3])
    plain = list(ImageLoader(split, VIEW)(batches, epoch=1))
    here = list(ImageLoader(split, VIEW, augment=augment)(batches, epoch=1))
    other = list(ImageLoader(split, VIEW, augment=augment, workers=1)(batches[::-1], epoch=1))[::-1]
    for one, two, three in zip(plain, here, other, strict=True):
        assert torch.equal(one.geometries[0].box, two.geometries[0].box)
        assert not torch.equal(one.inputs[0], two.inputs[0])
        assert torch.equal(two.inputs[0], three.inputs[0])
        assert two.geometries[0].cutout is not None
        assert bool((two.geometries[0].cutout[:, 2:] >= 0.25).all())
    assert plain[0].geometries[0].cutout is None


def test_changes_are_for_strong_views_where_there_are_some(split: PreparedSplit) -> None:
    augment = RandAugment(operations=2, geometric=False, cutout=0.5)
    (plain,) = ImageLoader(split, VIEW, views=2, strong_views=1)(rows([0, 1, 2]), epoch=1)
    (batch,) = ImageLoader(split, VIEW, augment=augment, views=2, strong_views=1)(rows([0, 1, 2]), epoch=1)
    assert torch.equal(batch.inputs[0], plain.inputs[0])
    assert not torch.equal(batch.inputs[1], plain.inputs[1])
    weak, changed = (geometry.cutout for geometry in batch.geometries)
    assert weak is not None
    assert changed is not None
    assert not weak.any()
    assert bool((changed[:, 2:] >= 0.25).all())
    (both,) = ImageLoader(split, VIEW, views=2, augment=augment)(rows([0, 1, 2]), epoch=1)
    for one, other in zip(both.inputs, plain.inputs, strict=True):
        assert not torch.equal(one, other)


@pytest.fixture
def four_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("four_threads")
def test_threads_change_nothing(split: PreparedSplit) -> None:
    batches = epoch_batches(COUNT, 5, seed=1, epoch=0)
    several = list(ImageLoader(split, VIEW, seed=1, views=2)(batches, 0))
    torch.set_num_threads(1)
    assert equal_batches(iter(several), ImageLoader(split, VIEW, seed=1, views=2)(batches, 0)) == 2


@pytest.mark.usefixtures("four_threads")
def test_threads_do_everything_once_and_raise_the_first_error() -> None:
    done = np.zeros(37, int)
    users = set()

    def work(number: int) -> None:
        done[number] += 1
        users.add(threading.get_ident())

    in_threads(work, 37)
    in_threads(work, 0)
    assert done.tolist() == [1] * 37
    assert threading.get_ident() not in users

    def fail(number: int) -> None:
        if number in (4, 20):
            raise DataError(f"image {number} is broken")

    with pytest.raises(DataError, match="image 4 is broken"):
        in_threads(fail, 37)


def test_one_thread_works_here() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        users: list[int] = []
        in_threads(lambda number: users.append(threading.get_ident()), 3)
        assert users == [threading.get_ident()] * 3
    finally:
        torch.set_num_threads(before)


def test_data_sets_of_others_are_asked_by_one_thread(split: PreparedSplit) -> None:
    class Items:
        users: ClassVar[set[int]] = set()

        def __getitem__(self, row: int) -> Image.Image:
            self.users.add(threading.get_ident())
            return Image.new("RGB", (32, 32), (row, 0, 0))

    own = replace(split, images=ImageSource(Items(), np.arange(COUNT)), in_memory=True)
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        (batch,) = ImageLoader(own, squashed(16))(rows(range(COUNT)), 0)
    finally:
        torch.set_num_threads(before)
    assert batch.inputs[0][:, 0, 0, 0].tolist() == list(range(COUNT))
    assert Items.users == {threading.get_ident()}


def test_processes_load_for_a_gpu_and_threads_for_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda, cpu = torch.device("cuda"), torch.device("cpu")
    monkeypatch.setattr("sparselabel.data.loaders.CORES", 32)
    monkeypatch.setattr("sys.platform", "linux")
    assert [worker_processes(None, device) for device in (cuda, cpu)] == [8, 0]
    assert [worker_processes(asked, device) for asked in (0, 3) for device in (cuda, cpu)] == [0, 0, 3, 3]
    monkeypatch.setattr("sys.platform", "win32")  # a process takes seconds to begin
    assert worker_processes(None, cuda) == 0


@pytest.mark.slow
def test_workers_may_begin_anew(split: PreparedSplit) -> None:
    """As on macOS and Windows, where a process is no copy of the one that begins it."""
    batches = rows([0, 1], [2, 3])
    expected = list(ImageLoader(split, VIEW)(batches, 0))
    before = multiprocessing.get_start_method()
    multiprocessing.set_start_method("spawn", force=True)
    try:
        assert equal_batches(iter(expected), ImageLoader(split, VIEW, workers=1)(batches, 0)) == 2
    finally:
        multiprocessing.set_start_method(before, force=True)


def test_workers_get_images_and_no_labels(split: PreparedSplit) -> None:
    without = split.without_labels()
    assert len(without) == COUNT
    assert without.truth.values.size == without.observed.values.size == len(without.spatial_labels) == 0
    assert np.array_equal(np.asarray(without.image(3)), np.asarray(split.image(3)))
