import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparselabel.data import image_cache, stored_images
from sparselabel.data.checks import changed_files, file_problems
from sparselabel.data.dataset import Dataset
from sparselabel.data.image_hashes import compute_fingerprints
from sparselabel.data.loaders import ImageLoader, in_order
from sparselabel.data.prepared_files import open_prepared
from sparselabel.data.stored_images import are_stored, scan
from sparselabel.data.transforms import squashed
from sparselabel.errors import ConfigError, DataError
from tests.data.http_files import served
from tests.data.images import paint
from tests.data.shards import write_table, write_tar

COUNT = 12


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same images in a folder, in two tars and in a table."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SPARSELABEL_CACHE", str(tmp_path / "cache"))
    content = {
        f"{n:02}.jpg": paint(tmp_path / "photos" / f"{n:02}.jpg", n).read_bytes() for n in range(COUNT)
    }
    names = [*content]
    write_tar(Path("shards/0.tar"), {name: content[name] for name in names[:7]} | {"note.txt": b"no image"})
    write_tar(Path("shards/1.tar"), {name: content[name] for name in names[7:]})
    write_table(Path("t.parquet"), {"key": names, "jpg": [*content.values()]}, rows=5)
    lines = [f"{name},{n % 2},{n % 3 == 0:d},{'test' if n > 9 else 'train'}" for n, name in enumerate(names)]
    Path("labels.csv").write_text("\n".join(["image,cat,dog,split", *lines]) + "\n")
    return tmp_path


def pixels(data: Dataset, workers: int = 0) -> Any:
    loader = ImageLoader(data.train, squashed(16), workers=workers)
    batches = loader(in_order(np.arange(len(data.train)), 4), 0)
    return np.concatenate([batch.inputs[0].numpy() for batch in batches])


def sources(folder: Path) -> Iterator[tuple[str, str]]:
    yield "tars", "shards/*.tar"
    yield "table", "t.parquet"
    yield "range", "shards/{0..1}.tar"


def test_prepared_data_points_into_shards(folder: Path) -> None:
    plain = Dataset.from_table("labels.csv", images="photos", out="plain")
    with pytest.raises(DataError, match="png"):
        Dataset.from_table("labels.csv", images="t.parquet", column="png", out="wrong")
    for name, images in sources(folder):
        data = Dataset.from_table("labels.csv", images=images, out=name)
        assert {key: split.digest for key, split in data.splits.items()} == {
            key: split.digest for key, split in plain.splits.items()
        }
        opened = open_prepared(Path(name))
        assert opened.train.stored is not None
        assert np.array_equal(pixels(opened), pixels(plain))
        assert np.array_equal(pixels(opened, workers=2), pixels(plain))
        assert file_problems(opened) == file_problems(plain)
        assert list(changed_files(opened, lambda _: None)) == []
        found, expected = compute_fingerprints(opened), compute_fingerprints(plain)
        assert np.array_equal(found.hashes, expected.hashes)
        assert np.array_equal(found.sizes, expected.sizes)
    arrays = sorted(file.name for file in Path("tars/train").glob("stored_*"))
    assert arrays == [f"stored_{name}.npy" for name in ("files", "numbers", "offsets", "sizes", "tables")]


def test_a_shard_that_changes_is_noticed(folder: Path) -> None:
    data = Dataset.from_table("labels.csv", images="shards/*.tar", out="data")
    content = bytearray(Path("shards/0.tar").read_bytes())
    at = int(data.train.stored.offsets[0])  # type: ignore[union-attr]
    content[at + 300] ^= 1
    Path("shards/0.tar").write_bytes(content)
    with pytest.raises(DataError, match=r"shards/0.tar/0\d.jpg (is not the file|cannot be read)"):
        data.train.image(0)
    assert [*changed_files(data, lambda _: None)] == [data.train.place(0)]
    Path("shards/0.tar").write_bytes(content[: at + 10])
    with pytest.raises(DataError, match=r"0.tar has changed: 0\d.jpg is not in it"):
        data.train.image(0)
    Path("shards/0.tar").unlink()
    with pytest.raises(DataError, match=r"shards/0.tar is not there"):
        data.train.image(0)


def test_broken_images_and_missing_ones(folder: Path) -> None:
    write_tar(Path("shards/1.tar"), {"07.jpg": b"broken", "08.jpg": Path("photos/08.jpg").read_bytes()})
    with pytest.raises(DataError, match=r"'09.jpg' is not in 0.tar.*; 3 of 12 images are missing"):
        Dataset.from_table("labels.csv", images="shards/*.tar", out="data")
    with (
        pytest.warns(UserWarning, match="they were left out"),
        pytest.raises(
            DataError, match=r"1 of 9 images cannot be decoded:\n  07.jpg cannot be read as an image"
        ),
    ):
        Dataset.from_table("labels.csv", images="shards/*.tar", out="data", skip_missing=True, validation=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = Dataset.from_table(
            "labels.csv", images="shards/*.tar", out="data", skip_missing=True, skip_broken=True, validation=0
        )
    assert data.train.paths.tolist() == [f"{n:02}.jpg" for n in (*range(7), 8)]
    assert data.train.image(7).size == (24, 16)


def test_names_that_are_in_two_shards(folder: Path) -> None:
    write_tar(Path("shards/1.tar"), {"00.jpg": Path("photos/08.jpg").read_bytes()})
    assert scan(["shards/*.tar"]).below()[:2] == ["0.tar/00.jpg", "0.tar/01.jpg"]
    write_tar(Path("shards/1.tar"), {"00.jpg": b"", "in/../00.jpg": b"", "x.jpg": b""})
    write_tar(Path("other/1.tar"), {"00.jpg": b""})
    with pytest.raises(DataError, match=r"two images in the shards are called 1.tar/00.jpg"):
        scan(["shards/1.tar", "other/1.tar"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["shards/*.tar", "photos"], "images in shards and others cannot be prepared together"),
        (["c.tgz"], "c.tgz is compressed, and images cannot be read from its middle: unpack it to a .tar"),
        (["p.parquet"], "p.parquet has paths of images, and shards to prepare have their bytes"),
        (["shards/2.tar"], "there is no image, folder or list 'shards/2.tar'"),
    ],
)
def test_what_cannot_be_scanned(folder: Path, words: list[str], said: str) -> None:
    write_tar(Path("c.tgz"), {"0.jpg": b""}, "w:gz")
    write_table(Path("p.parquet"), {"path": ["photos/00.jpg"]})
    with pytest.raises(DataError, match=said):
        scan(words)
    assert not are_stored("photos")
    assert are_stored("shards/*.tar")


@pytest.mark.parametrize("images", ["photos/", "shards/{0..1}.tar", "t.parquet"])
def test_images_elsewhere_go_through_a_cache(folder: Path, images: str) -> None:
    plain = Dataset.from_table("labels.csv", images="photos", out="plain")
    with served(folder) as (address, asked):
        data = Dataset.from_table("labels.csv", images=f"{address}/{images}", out="data")
        assert data.train.digest == plain.train.digest
        data = open_prepared(Path("data"))
        assert np.array_equal(pixels(data, workers=2), pixels(plain))
        files = [file for file in Path("cache/images").rglob("*") if file.is_file()]
        assert len(files) == COUNT if images == "photos/" else len(files) == len(data.train)
        asked.clear()
        assert np.array_equal(pixels(data), pixels(plain))
        assert asked == []
        for file in files:
            file.write_bytes(b"damaged")
        assert np.array_equal(pixels(data), pixels(plain))
        assert asked
    shutil.rmtree("cache")
    stored_images._group.cache_clear()
    with pytest.raises(DataError, match=r"http://127.0.0.1.* (cannot be read|is not there)"):
        data.train.content(0)


def test_the_cache_has_a_size(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(image_cache.GIGABYTES, "1e-5")  # 10,000 bytes
    for number in range(50):
        content = bytes([number]) * 1000
        assert image_cache.cached(f"{number}", None, lambda content=content: content) == content  # type: ignore[misc]
    kept = [file.stat().st_size for file in Path("cache/images").rglob("*") if file.is_file()]
    assert 5_000 <= sum(kept) <= 11_000
    monkeypatch.setenv(image_cache.GIGABYTES, "0")
    assert image_cache.cached("49", None, lambda: b"new") == b"new"
    monkeypatch.setenv(image_cache.GIGABYTES, "much")
    with pytest.raises(
        ConfigError,
        match=r"SPARSELABEL_IMAGE_CACHE_GB must be a number of gigabytes .* as .*_GB=10, or unset",
    ):
        image_cache.cached("49", None, lambda: b"new")


def test_what_is_prepared_or_verified_comes_from_where_it_is(folder: Path) -> None:
    with served(folder) as (address, asked):
        Dataset.from_table("labels.csv", images=f"{address}/photos/", out="data")
        data = open_prepared(Path("data"))
        image_cache.cached("a", None, lambda: b"old")
        assert image_cache.cached("a", None, lambda: b"new") == b"new"
        asked.clear()
        assert [*changed_files(data, lambda _: None)] == []
        assert len(asked) >= COUNT
        data.train.content(0)  # which the cache still has
        one = folder / "photos" / str(data.train.paths[0])
        one.write_bytes(one.read_bytes() + b"more")
        assert [Path(image).name for image in changed_files(data, lambda _: None)] == [one.name]


def test_a_table_that_has_become_shorter(folder: Path) -> None:
    data = Dataset.from_table("labels.csv", images="t.parquet", out="data")
    write_table(Path("t.parquet"), {"key": ["0"], "jpg": [b"?"]}, rows=1)
    stored_images._group.cache_clear()
    row_of = {int(name[:2]): row for row, name in enumerate(data.train.paths.tolist())}
    first = next(number for number in (1, 2, 3, 4) if number in row_of)
    gone = next(number for number in (5, 6, 7, 8, 9) if number in row_of)
    with pytest.raises(DataError, match=rf"t\.parquet has changed: 0{first}\.jpg is not in it"):
        data.train.image(row_of[first])
    with pytest.raises(DataError, match=r"t\.parquet cannot be read"):
        data.train.image(row_of[gone])  # its group is not there


def test_shards_in_a_folder_must_be_named(folder: Path) -> None:
    with pytest.raises(DataError, match=r"is not in shards; .*\('shards/\*.tar'\)") as refused:
        Dataset.from_table("labels.csv", images="shards", out="prepared")
    assert refused.value.parameters[0] == "images"
