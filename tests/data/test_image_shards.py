import gzip
import io
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparselabel.data import image_shards, remote_files
from sparselabel.data.image_paths import check_image_words, image_paths, images, parts
from sparselabel.data.image_shards import ShardImage, check_shard, read_image, shard_images, table_images
from sparselabel.data.stored_images import scan
from sparselabel.errors import ConfigError, DataError
from sparselabel.resources import forget_peak, peak_memory
from tests.data.http_files import Ranges, served
from tests.data.shards import png, write_table, write_tar
from tests.inference.stub import predictor

RED, GREEN = png(255, 0), png(0, 255)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("photos").mkdir()
    Path("photos/a.png").write_bytes(RED)
    Path("photos/b.png").write_bytes(GREEN)
    members = {"1.png": RED, "1.json": b"{}", "in/2.PNG": GREEN, "._3.png": b"?", "4.png": b"broken"}
    write_tar(Path("s-00.tar"), members)
    write_tar(Path("s-01.tar"), {"5.png": RED})
    write_table(Path("t.parquet"), {"id": [7, 8, 9], "image": [RED, None, GREEN]}, rows=2)
    return tmp_path


def named(found: Iterator[str | ShardImage]) -> list[tuple[str, str, str]]:
    """Name, first letter of the color, and group."""
    kinds = {RED: "r", GREEN: "g", b"": "-"}
    return [
        (one, "", "") if isinstance(one, str) else (one.name, kinds.get(one.content, "?"), one.group)
        for one in found
    ]


def test_a_tar_is_read_in_its_order(folder: Path) -> None:
    assert named(shard_images("s-00.tar")) == [
        ("s-00.tar/1.png", "r", "s-00.tar"),
        ("s-00.tar/in/2.PNG", "g", "s-00.tar"),
        ("s-00.tar/4.png", "?", "s-00.tar"),
    ]
    write_tar(Path("z.tgz"), {"1.png": RED}, "w:gz")
    assert named(shard_images("z.tgz")) == [("z.tgz/1.png", "r", "z.tgz")]


def test_a_table_of_bytes_of_paths_and_of_hugging_face(folder: Path) -> None:
    assert table_images("t.parquet") == ("image", "bytes", "id", (2, 1))
    assert named(shard_images("t.parquet")) == [
        ("t.parquet/7", "r", "t.parquet#0"),
        ("t.parquet/8", "-", "t.parquet#0"),
        ("t.parquet/9", "g", "t.parquet#1"),
    ]
    assert named(shard_images("t.parquet", groups=(1, 2))) == [("t.parquet/9", "g", "t.parquet#1")]
    write_table(Path("p.parquet"), {"label": [1, 2, 3], "path": ["photos/b.png", "gone.png", ""]})
    first, second, third = shard_images("p.parquet")
    assert first == ("photos/b.png", GREEN, "p.parquet#0", "")
    assert second.problem == "gone.png is not there: check the name"
    assert third.name == "p.parquet/2"
    assert third.problem == "p.parquet, row 2: there is no image"
    structs = [{"bytes": RED, "path": "x.png"}, {"bytes": None, "path": "photos/b.png"}]
    write_table(Path("h.parquet"), {"image": structs})
    assert named(shard_images("h.parquet")) == [
        ("h.parquet/x.png", "r", "h.parquet#0"),
        ("photos/b.png", "g", "h.parquet#0"),
    ]
    write_table(Path("n.parquet"), {"thing": [RED]})
    assert named(shard_images("n.parquet", "thing")) == [("n.parquet/0", "r", "n.parquet#0")]


@pytest.mark.parametrize(
    ("column", "said"),
    [
        (None, r"n.parquet has no column of images that goes by a usual name \(it has thing, size\)"),
        ("thin", "n.parquet has no column 'thin' .*did you mean 'thing'"),
        ("size", "column 'size' of n.parquet has neither bytes nor paths"),
    ],
)
def test_a_table_without_the_column(folder: Path, column: str | None, said: str) -> None:
    write_table(Path("n.parquet"), {"thing": [RED], "size": [3]})
    with pytest.raises(DataError, match=said) as refused:
        check_image_words(["n.parquet"], column)
    assert refused.value.parameters == ["column"]


def test_shards_that_are_not_whole(folder: Path) -> None:
    for file in ("s-00.tar", "t.parquet"):
        content = Path(file).read_bytes()
        Path(file).write_bytes(content[:-200])
        with pytest.raises(DataError, match=f"{file} (is cut short|cannot be read)") as refused:
            check_image_words(["photos", file])
        assert refused.value.what == file
        Path(file).write_bytes(content)
    whole = Path("s-00.tar").read_bytes()
    Path("s-00.tar").write_bytes(whole[:2048])  # where a member ends
    with pytest.raises(DataError, match="2,048 bytes and not the end of a tar"):
        check_shard("s-00.tar")
    Path("no.tar").write_bytes(b"no tar" * 1000 + b"\0" * 6000)
    with pytest.raises(DataError, match=r"no.tar is cut short, damaged or no tar"):
        list(shard_images("no.tar"))


def packed(content: bytes) -> bytes:
    return gzip.compress(content, mtime=0)


def damaged_tars(whole: bytes) -> Iterator[tuple[str, bytes, str]]:
    """What was read without a word, images short: name, content, what is said now."""
    second = 2 * 512  # the header of the second member
    flipped = whole[:second] + b"x" + whole[second + 1 :]
    long = tarfile.TarInfo("long")
    long.type, long.size = tarfile.XHDTYPE, 1 << 32
    yield "a.tar", flipped, "a header is damaged: bad checksum"
    yield "a.tar", whole[:second] + bytes(512) + whole[second:], "more after its end"
    yield "a.tgz", packed(whole[: second + 100]), "a header is damaged: truncated header"
    yield "a.tgz", packed(whole[:second]), "a header is damaged: empty header"
    yield "a.tgz", packed(whole)[:-4], "ended before"
    yield "a.tgz", packed(long.tobuf() + whole), "a header of 4,294,967,296 bytes"
    content = bytearray(packed(whole))
    content[-8] ^= 1  # of the CRC
    yield "a.tgz", bytes(content), "CRC check failed"


def test_a_damaged_tar_is_not_taken_for_a_shorter_one(folder: Path) -> None:
    members = {"1.png": RED, "2.png": GREEN, "3.png": RED}
    assert max(len(RED), len(GREEN)) <= 512
    whole = write_tar(Path("whole.tar"), members).read_bytes()
    for name, content, said in damaged_tars(whole):
        Path(name).write_bytes(content)
        with pytest.raises(DataError, match=said) as refused:
            list(shard_images(name))
        assert refused.value.what == name
    Path("a.tgz").write_bytes(packed(whole))
    assert [image.content for image in shard_images("a.tgz")] == [RED, GREEN, RED]


def test_words_mean_shards_and_ranges(folder: Path) -> None:
    assert list(image_paths(["s-{00..01}.tar", "photos", "*.parquet"])) == [
        *("s-00.tar", "s-01.tar", "photos/a.png", "photos/b.png", "t.parquet"),
    ]
    assert list(image_paths(["."])) == ["./photos/a.png", "./photos/b.png"]  # shards are named by themselves
    with pytest.raises(DataError, match=r"there is no image, folder or list 's-02.tar'"):
        check_image_words(["s-{00..02}.tar"])


def test_parts_have_the_images_of_the_whole(folder: Path) -> None:
    words = ["photos", "s-{00..01}.tar", "t.parquet", "photos/a.png"]
    cut = list(parts(words, 1))
    assert [(part.files, part.shard, part.groups) for part in cut] == [
        (("photos/a.png",), "", None),
        (("photos/b.png",), "", None),
        ((), "s-00.tar", None),
        ((), "s-01.tar", None),
        ((), "t.parquet", (0, 1)),
        ((), "t.parquet", (1, 2)),
        (("photos/a.png",), "", None),
    ]
    together = [image for part in cut for image in part.images()]
    assert together == list(images(image_paths(words)))
    assert [part.groups for part in parts(["t.parquet"], 3)] == [(0, 2)]


def test_predictions_of_shards(folder: Path) -> None:
    found = [*predictor()("s-00.tar"), *predictor()(["photos/a.png", Path("t.parquet")])]
    assert [(one.image, [name for name, _ in one.labels], one.error is None) for one in found] == [
        ("s-00.tar/1.png", ["red"], True),
        ("s-00.tar/in/2.PNG", ["green"], True),
        ("s-00.tar/4.png", [], False),
        ("photos/a.png", ["red"], True),
        ("t.parquet/7", ["red"], True),
        ("t.parquet/8", [], False),
        ("t.parquet/9", ["green"], True),
    ]


def test_batches_stay_in_their_group(folder: Path) -> None:
    seen: list[int] = []
    small = predictor()
    whole = small.model
    small.model = lambda views, maps=False: seen.append(len(views)) or whole(views, maps)  # type: ignore[func-returns-value]
    list(small(["photos/a.png", "photos/b.png", "t.parquet", "photos/a.png"], batch=8))
    assert seen == [2, 1, 1, 1]  # one of the table's first group has no image


def test_the_same_by_http(folder: Path) -> None:
    with served(folder) as (address, asked):
        words = [f"{address}/photos/b.png", f"{address}/s-{{00..01}}.tar", f"{address}/t.parquet"]
        check_image_words(words)
        found = named(images(image_paths(words)))
        assert [(name.removeprefix(address + "/"), color) for name, color, _ in found] == [
            ("photos/b.png", "g"),
            ("s-00.tar/1.png", "r"),
            ("s-00.tar/in/2.PNG", "g"),
            ("s-00.tar/4.png", "?"),
            ("s-01.tar/5.png", "r"),
            ("t.parquet/7", "r"),
            ("t.parquet/8", "-"),
            ("t.parquet/9", "g"),
        ]
        assert asked.count("/s-00.tar") == 2  # its end, and all of it
        assert [name for name, *_ in named(images(image_paths([f"{address}/photos/"])))] == [
            f"{address}/photos/a.png",
            f"{address}/photos/b.png",
        ]
        Path("list.txt").write_text(f"{address}/photos/a.png?signed=1\n{address}/gone.png\n")
        first, second = images(image_paths([f"{address}/list.txt"]))
        assert isinstance(first, ShardImage)
        assert isinstance(second, ShardImage)
        assert (first.content, first.problem) == (RED, "")
        assert second.problem == f"{address}/gone.png is not there: check the name"
        with pytest.raises(DataError, match="there is no image, folder or list 'http"):
            check_image_words([f"{address}/gone.tar"])


def test_a_server_that_has_a_bad_moment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_files, "PAUSES", (0.0, 0.0))
    with served(folder) as (address, _):
        monkeypatch.setattr(Ranges, "refused", 2)
        assert remote_files.read_bytes(f"{address}/photos/a.png") == RED
        monkeypatch.setattr(Ranges, "refused", 3)
        with pytest.raises(DataError, match=r"a.png cannot be read \(503"):
            remote_files.read_bytes(f"{address}/photos/a.png")


def test_an_object_store(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import fsspec

    monkeypatch.setattr(remote_files, "STORES", (*remote_files.STORES, "memory"))
    store: Any = fsspec.filesystem("memory")
    try:
        for file in ("photos/a.png", "photos/b.png", "s-00.tar", "s-01.tar", "t.parquet"):
            store.pipe_file(f"/bucket/{file}", Path(file).read_bytes())
        words = ["memory://bucket/photos", "memory://bucket/s-*.tar", "memory://bucket/t.parquet"]
        check_image_words(words)
        assert [
            (name.removeprefix("memory://bucket/"), color)
            for name, color, _ in named(images(image_paths(words)))
        ] == [
            ("photos/a.png", "r"),
            ("photos/b.png", "g"),
            ("s-00.tar/1.png", "r"),
            ("s-00.tar/in/2.PNG", "g"),
            ("s-00.tar/4.png", "?"),
            ("s-01.tar/5.png", "r"),
            ("t.parquet/7", "r"),
            ("t.parquet/8", "-"),
            ("t.parquet/9", "g"),
        ]
        with pytest.raises(DataError, match="no file matches 'memory://bucket/x-"):
            check_image_words(["memory://bucket/x-*.tar"])
    finally:
        store.rm("/bucket", recursive=True)


def test_addresses_that_cannot_be_reached(folder: Path) -> None:
    with pytest.raises(DataError, match=r"http://127.0.0.1:9/a.png cannot be read .*check the address"):
        check_image_words(["http://127.0.0.1:9/a.png"])
    with pytest.raises(DataError, match=r"nosuch://a/b.png cannot be read: images come from .*not nosuch"):
        check_image_words(["nosuch://a/b.png"])
    with pytest.raises(DataError, match=r"file:///a::zip://b.png cannot be read: it has :: in it"):
        check_image_words(["file:///a::zip://b.png"])
    with pytest.raises(ConfigError, match="need a package"):
        check_image_words(["oss://a/b.png"])


@pytest.mark.parametrize(
    "scheme", ["reference::file", "filecache::http", "zip::memory", "memory", "ssh", "github"]
)
def test_a_table_of_others_unpacks_nothing_and_logs_in_nowhere(scheme: str) -> None:
    """fsspec's references, for one, render templates that are in the file."""
    found = read_image(f"{scheme}://127.0.0.1/a.json")
    assert found.content == b""
    assert "images come from addresses with http, https, s3" in found.problem


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_table_that_names_a_pipe_keeps_nobody_waiting(tmp_path: Path, scheme: str) -> None:
    os.mkfifo(tmp_path / "pipe.jpg")
    table = str(tmp_path / "t.parquet")
    write_table(Path(table), {"path": [f"{scheme}{tmp_path}/pipe.jpg", f"{scheme}/dev/zero"]})
    pipe, device = shard_images(table)
    assert isinstance(pipe, ShardImage)
    assert isinstance(device, ShardImage)
    assert (pipe.content, device.content) == (b"", b"")
    assert f"{tmp_path}/pipe.jpg cannot be read (it is a pipe, a socket or a" in pipe.problem
    assert "/dev/zero cannot be read (it is a pipe, a socket or a device)" in device.problem


def test_an_image_that_claims_terabytes(tmp_path: Path) -> None:
    member = tarfile.TarInfo("a.jpg")
    member.size = 1 << 42
    with gzip.open(tmp_path / "a.tar.gz", "wb") as file:
        file.write(member.tobuf())
    with pytest.raises(DataError, match=r"a\.jpg has 4,398,046,511,104 bytes") as caught:
        [*shard_images(str(tmp_path / "a.tar.gz"))]
    assert caught.value.what == str(tmp_path / "a.tar.gz")


@pytest.mark.parametrize("name", ["a.tar", "a.tgz"])
def test_another_file_that_claims_exabytes(tmp_path: Path, name: str) -> None:
    """``tarfile`` went on asking for them behind the end: for days."""
    member = tarfile.TarInfo("a.json")
    member.size = 1 << 62
    content = member.tobuf(tarfile.GNU_FORMAT) + bytes(20 * 512)
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    with pytest.raises(DataError, match=r"a\.json has 4,611,686,018,427,387,904 bytes") as caught:
        [*shard_images(str(tmp_path / name))]
    assert caught.value.what == str(tmp_path / name)


def test_links_and_files_with_holes_are_not_left_out(tmp_path: Path) -> None:
    file = tmp_path / "a.tar"
    kinds = {"link.png": tarfile.LNKTYPE, "soft.png": tarfile.SYMTYPE, "folder.png": tarfile.DIRTYPE}
    with tarfile.open(file, "w", format=tarfile.PAX_FORMAT) as tar:
        for name, kind in kinds.items():
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, "a.png"
            tar.addfile(member)
        holes = tarfile.TarInfo("holes.png")
        holes.size, holes.pax_headers = len(RED), {"GNU.sparse.map": "0,9", "GNU.sparse.size": "99"}
        tar.addfile(holes, io.BytesIO(RED))
        plain = tarfile.TarInfo("a.png")
        plain.size = len(RED)
        tar.addfile(plain, io.BytesIO(RED))
    given = [
        (image.name, image.content) for image in shard_images(str(file)) if isinstance(image, ShardImage)
    ]
    assert given == [
        (f"{file}/{name}", content)
        for name, content in {"link.png": b"", "soft.png": b"", "holes.png": b"", "a.png": RED}.items()
    ]
    assert {*scan([str(file)]).problems} == {"link.png", "soft.png", "holes.png"}


@pytest.mark.parametrize("content", [5, "text", [1], {"a": 1}])
def test_a_struct_whose_bytes_are_none(folder: Path, content: object) -> None:
    write_table(Path("e.parquet"), {"image": [{"bytes": content, "path": "photos/a.png"}]})
    with pytest.raises(DataError, match="has no column of images"):
        table_images("e.parquet")
    with pytest.raises(DataError, match="has neither bytes nor paths"):
        table_images("e.parquet", "image")


@pytest.mark.parametrize("path", [7, b"photos/a.png", None, {"a": 1}])
def test_a_struct_whose_path_is_none(folder: Path, path: object) -> None:
    write_table(Path("e.parquet"), {"image": [{"bytes": None, "path": path}]})
    (image,) = shard_images("e.parquet")
    assert isinstance(image, ShardImage)
    assert (image.content, image.problem) == (b"", "e.parquet, row 0: there is no image")


def test_the_same_words_for_the_same_broken_image(folder: Path) -> None:
    """Pillow's have an address in memory: predictions would differ from run to run."""
    (error,) = {one.error for one in predictor()(images(["s-00.tar"]), workers=0) if one.error}
    assert error == (
        "s-00.tar/4.png cannot be read as an image (it is in none of the formats that are read): mend it or "
        "leave it out"
    )


def test_a_pipe_is_no_shard(tmp_path: Path) -> None:
    for name in ("a.tgz", "a.tar", "a.parquet"):
        os.mkfifo(tmp_path / name)
        with pytest.raises(DataError, match=r"is a pipe|is cut short"):
            [*images(image_paths([f"{tmp_path}/{name}"]))]


def test_a_column_without_a_name(folder: Path) -> None:  # found by the fuzzer
    write_table(Path("e.parquet"), {"": ["photos/a.png"], "size": [3]})
    with pytest.raises(DataError, match="has no column of images that goes by a usual name"):
        table_images("e.parquet")


def test_one_large_image_in_every_row_is_in_memory_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pa = pytest.importorskip("pyarrow")
    file, size = str(tmp_path / "t.parquet"), 20 << 20
    one = pa.array([bytes(size)]).dictionary_encode().take(pa.array([0] * 50))
    write_table(Path(file), {"image": one}, rows=50)
    before = peak_memory()
    forget_peak()
    assert [len(image.content) for image in shard_images(file)] == [size] * 50
    assert peak_memory() - before < 10 * size
    monkeypatch.setattr(image_shards, "LARGEST_GROUP", 30 * size)
    with pytest.raises(DataError, match=r"t\.parquet: the images of row group 0 have more than"):
        image_shards.row_group(file, "image", 0)
