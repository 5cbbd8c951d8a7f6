import itertools
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sparselabel.config import Preparation
from sparselabel.data import image_hashes as duplicates
from sparselabel.data.checks import Problem, file_problems, image_problems, sizes_of
from sparselabel.data.dataset import Dataset
from sparselabel.data.decode import load
from sparselabel.data.image_hashes import (
    BITS,
    LEVELS,
    Fingerprints,
    compute_fingerprints,
    difference_hash,
    exact_duplicates,
    near_duplicates,
)
from sparselabel.data.prepare import prepare
from tests.data.images import paint, read_table

SPLITS = ["train"] * 6 + ["test"] * 2
VALUES = np.array([[1, 0, 0]] * 4 + [[0, 1, 1]] * 4, np.int8)


@pytest.fixture
def prepared(tmp_path: Path) -> Dataset:
    """Images 1 and 7 (in test, with other labels) are copies of 0, and 6 (in test) is 2, smaller."""
    photos = tmp_path / "photos"
    for row in range(8):
        paint(photos / f"{row:03}.jpg", row, 120, 80)
    for copy in (1, 7):
        (photos / f"{copy:03}.jpg").write_bytes((photos / "000.jpg").read_bytes())
    with Image.open(photos / "002.jpg") as image:
        image.resize((60, 40)).save(photos / "006.jpg", quality=60)
    return prepare(read_table(photos, VALUES, SPLITS), tmp_path / "out", Preparation(validation=0))


def named(problems: list[Problem]) -> dict[str, Problem]:
    return {problem.name: problem for problem in problems}


def image(split: str, row: int) -> dict[str, str]:
    return {"split": split, "image": f"{row:03}.jpg"}


def test_the_same_files_are_found_without_opening_them(prepared: Dataset, tmp_path: Path) -> None:
    assert [group.tolist() for group in exact_duplicates(prepared)] == [[0, 1, 7]]
    problems = named(file_problems(prepared))
    assert [*problems] == ["leak", "duplicates", "contradiction"]
    three = [image("train", 0), image("train", 1), image("test", 7)]
    assert problems["leak"].items == (three,)
    assert problems["leak"].what == (
        "1 of 2 images of test that train has too: train 000.jpg = train 001.jpg = test 007.jpg"
    )
    assert problems["duplicates"].items == (three[:2],)
    assert "more than once in train (1 to spare)" in problems["duplicates"].what
    assert problems["contradiction"].items == (three,)


def test_copies_with_unknown_labels_do_not_contradict(tmp_path: Path) -> None:
    for row in range(2):
        paint(tmp_path / f"{row:03}.jpg", 0)
    source = read_table(tmp_path, np.array([[1, -1, 1], [-1, 1, 1]], np.int8))
    problems = named(file_problems(prepare(source, tmp_path / "out", Preparation(validation=0))))
    assert [*problems] == ["duplicates"]


def test_a_folder_that_is_gone(prepared: Dataset) -> None:
    prepared.train.root.rename(prepared.folder.parent / "elsewhere")
    assert file_problems(prepared)[0].name == "no-images"
    fingerprints = compute_fingerprints(prepared)
    assert len(fingerprints.broken) == 8
    assert named(image_problems(prepared, fingerprints)).keys() == {"broken-images"}
    assert sizes_of(fingerprints) == {}


def test_files_that_are_gone(prepared: Dataset) -> None:
    prepared.train.path(0).unlink()
    first = file_problems(prepared)[0]
    assert (first.name, len(first.items)) == ("missing-images", 1)
    assert str(prepared.train.paths[0]) in str(first)


def test_images_that_look_the_same_are_found(prepared: Dataset) -> None:
    told: list[int] = []
    fingerprints = compute_fingerprints(prepared, told.append)
    assert told == [1] * 8
    assert fingerprints.sizes.tolist() == [[120, 80]] * 6 + [[60, 40], [120, 80]]
    assert [group.tolist() for group in near_duplicates(prepared, fingerprints)] == [[2, 6]]
    problems = named(image_problems(prepared, fingerprints))
    assert [*problems] == ["near-leak", "near-contradiction"]
    assert problems["near-leak"].items == ([image("train", 2), image("test", 6)],)
    assert sizes_of(fingerprints) == {"min": [60, 40], "median": [120, 80], "max": [120, 80]}


def test_odd_images_are_named(prepared: Dataset) -> None:
    root = prepared.train.root
    paint(root / "003.jpg", 3, 200, 31)
    (root / "004.jpg").write_bytes(b"no image")
    fingerprints = compute_fingerprints(prepared)
    problems = named(image_problems(prepared, fingerprints))
    assert problems["tiny-images"].items == (image("train", 3),)
    assert problems["long-images"].items == (image("train", 3),)
    assert problems["broken-images"].what == "1 of 8 images that cannot be decoded (any more): train 004.jpg"
    assert "cannot be read as an image" in fingerprints.broken[4]


def test_the_difference_hash() -> None:
    rising = np.broadcast_to(np.arange(9, dtype=np.uint8)[None, :, None] * 20, (8, 9, 3))
    assert difference_hash(rising) == 2**64 - 1
    assert difference_hash(rising[:, ::-1]) == 0
    one_line = np.zeros((8, 9, 3), np.uint8)
    one_line[0] = rising[0]
    assert difference_hash(one_line) == 0xFF << 56
    green, red = np.zeros((8, 9, 3), np.uint8), np.zeros((8, 9, 3), np.uint8)
    green[0, 1, 1] = red[0, 1, 0] = 100
    green[0, 2, 0] = red[0, 2, 1] = 100  # green is lighter than red
    assert [int(difference_hash(one)) >> 62 for one in (green, red)] == [0b10, 0b11]


def made_fingerprints(count: int, seed: int) -> Fingerprints:
    """Images of which many are near others: noise of all strengths on a few, and plain ones."""
    random = np.random.default_rng(seed)
    few = random.integers(0, 256, (count // 6, 8, 9, 3))
    tiny = few[random.integers(0, len(few), count)] + random.normal(0, 1, (count, 8, 9, 3)) * random.choice(
        (0, 4, 12, 40), (count, 1, 1, 1)
    )
    tiny[:3] = 128
    tiny[3:5] = 30
    tiny = tiny.clip(0, 255).astype(np.uint8)
    hashes = np.array([difference_hash(one) for one in tiny])
    return Fingerprints(tiny.reshape(count, -1), hashes, np.full((count, 2), 50, np.int32), {7: "broken"})


@pytest.mark.parametrize("some", [3, 1 << 15])
def test_near_ones_are_those_that_comparing_all_finds(some: int, monkeypatch: pytest.MonkeyPatch) -> None:
    fingerprints = made_fingerprints(150, seed=some)
    near = {place: {place} for place in range(150)}
    for one, other in itertools.combinations(set(range(150)) - {7}, 2):
        bits = int(fingerprints.hashes[one] ^ fingerprints.hashes[other]).bit_count()
        levels = np.abs(fingerprints.tiny[one].astype(int) - fingerprints.tiny[other]).mean()
        if bits <= BITS and levels <= LEVELS:
            both = near[one] | near[other]
            for place in both:
                near[place] = both
    expected = sorted({tuple(sorted(group)) for group in near.values() if len(group) > 1})
    assert len(expected) > 10
    assert {(0, 1, 2), (3, 4)} <= {*expected}  # plain images have one hash, but not one color
    monkeypatch.setattr(duplicates, "PAIRS", some)
    monkeypatch.setattr(duplicates, "CLOSE", some)
    data = Dataset(Path(), "made", (), {"train": _Digests(150)})  # type: ignore[dict-item]
    assert [tuple(group.tolist()) for group in near_duplicates(data, fingerprints)] == expected


class _Digests:
    """Stands in for a split whose files all differ."""

    def __init__(self, count: int) -> None:
        self.digests = np.arange(count, dtype=np.uint64)


def test_many_plain_images_are_one_group() -> None:
    fingerprints = Fingerprints(
        np.zeros((500, 216), np.uint8), np.zeros(500, np.uint64), np.ones((500, 2), np.int32), {}
    )
    data = Dataset(Path(), "made", (), {"train": _Digests(500)})  # type: ignore[dict-item]
    assert [len(group) for group in near_duplicates(data, fingerprints)] == [500]


def test_a_image_turned_by_its_camera_is_looked_at_upright(tmp_path: Path) -> None:
    paint(tmp_path / "000.jpg", 0, 120, 80)
    upright = load(tmp_path / "000.jpg")
    turned = Image.Exif()
    turned[0x0112] = 6  # turn a quarter clockwise to show
    upright.transpose(Image.Transpose.ROTATE_90).save(tmp_path / "001.jpg", exif=turned, quality=95)
    source = read_table(tmp_path, np.ones((2, 3), np.int8))
    prepared = prepare(source, tmp_path / "out", Preparation(validation=0))
    assert [group.tolist() for group in near_duplicates(prepared, compute_fingerprints(prepared))] == [[0, 1]]
