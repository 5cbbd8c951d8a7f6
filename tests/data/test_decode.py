import io
import os
import struct
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, UnidentifiedImageError

from sparselabel.data import decode
from sparselabel.data.decode import digest_of, load, size_of, upright_size_of
from sparselabel.data.transforms import draw, render, verelst_train
from sparselabel.errors import DataError, ResourceError
from tests.data.test_transforms import smooth


def color(path: Path) -> Any:
    image = load(path)
    assert image.mode == "RGB"
    return image.getpixel((0, 0))


def test_orientation_is_applied(tmp_path: Path) -> None:
    pixels = smooth(40, 64)
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned clockwise
    Image.fromarray(pixels).save(tmp_path / "turned.png", exif=exif)
    assert (np.asarray(load(tmp_path / "turned.png")) == np.rot90(pixels, -1)).all()


def test_every_kind_of_image_becomes_rgb(tmp_path: Path) -> None:
    file = tmp_path / "image.png"
    Image.new("L", (2, 2), 77).save(file)
    assert color(file) == (77, 77, 77)
    Image.new("1", (2, 2), 1).save(file)
    assert color(file) == (255, 255, 255)
    Image.new("LA", (2, 2), (100, 0)).save(file)
    assert color(file) == (255, 255, 255)
    Image.new("RGBA", (2, 2), (200, 100, 0, 51)).save(file)
    assert color(file) == (244, 224, 204)  # a fifth of the color on white
    Image.new("RGB", (2, 2), (1, 2, 3)).save(file, transparency=(1, 2, 3))
    assert color(file) == (255, 255, 255)
    cmyk = tmp_path / "image.tif"
    Image.new("CMYK", (2, 2), (255, 0, 0, 0)).save(cmyk)
    assert color(cmyk) == (0, 255, 255)


def test_palettes_and_their_transparency(tmp_path: Path) -> None:
    image = Image.new("P", (2, 1))
    image.putpalette([10, 20, 30, 40, 50, 60])
    image.putpixel((1, 0), 1)
    image.save(tmp_path / "plain.png")
    assert color(tmp_path / "plain.png") == (10, 20, 30)
    image.save(tmp_path / "clear.png", transparency=bytes([0, 255]))  # bytes: Pillow would warn
    assert np.asarray(load(tmp_path / "clear.png")).tolist() == [[[255, 255, 255], [40, 50, 60]]]


@pytest.mark.parametrize("suffix", ["png", "tif"])
def test_16_bit_gray_keeps_its_range(tmp_path: Path, suffix: str) -> None:
    gray = np.array([[0, 128, 129, 257, 32768, 65535]], np.uint16)
    Image.fromarray(gray).save(tmp_path / f"gray.{suffix}")
    assert np.asarray(load(tmp_path / f"gray.{suffix}"))[0, :, 0].tolist() == [0, 0, 1, 1, 128, 255]


def test_16_bit_gray_of_other_kinds(tmp_path: Path) -> None:
    Image.fromarray(np.array([[0, 65535]], ">u2")).save(tmp_path / "big_endian.tif")
    assert np.asarray(load(tmp_path / "big_endian.tif"))[0, :, 0].tolist() == [0, 255]
    (tmp_path / "gray.pgm").write_bytes(b"P5 2 1 65535\n\xff\xff\x01\x01")
    assert np.asarray(load(tmp_path / "gray.pgm"))[0, :, 0].tolist() == [255, 1]
    Image.fromarray(np.array([[-1, 70000]], np.int32)).save(tmp_path / "deep.tif")
    with pytest.raises(DataError, match=r"deep.tif cannot be .* from -1 to 70000, beyond 16 bits"):
        load(tmp_path / "deep.tif")
    Image.fromarray(np.array([[0.5]], np.float32)).save(tmp_path / "float.tif")
    with pytest.raises(DataError, match=r"float.tif cannot be .*no agreed white"):
        load(tmp_path / "float.tif")


def test_broken_files_are_named(tmp_path: Path) -> None:
    whole = io.BytesIO()
    Image.fromarray(smooth(64, 64)).save(whole, "JPEG")
    contents = {"cut.jpg": whole.getvalue()[:-400], "text.jpg": b"not an image", "empty.png": b""}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(DataError, match=f"{name} cannot be read as an image \\("):
            load(tmp_path / name)
    with pytest.raises(
        DataError, match=r"none.jpg is gone \(No such file\): bring it back, or prepare data without it"
    ):
        load(tmp_path / "none.jpg")
    with pytest.raises(DataError, match="cannot be read as an image"):
        load(tmp_path)


def test_a_giant_image_is_an_error_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Image.new("RGB", (3000, 1001)).save(tmp_path / "giant.png")
    monkeypatch.setattr(decode, "LARGEST", 3_000_000)
    with pytest.raises(
        DataError, match=r"giant.png .*\(3,000 × 1,001 pixels, .* at most 3 million"
    ) as caught:
        load(tmp_path / "giant.png")
    assert caught.value.remedies == ("save it smaller",)


@pytest.mark.parametrize(
    ("mode", "suffix"),
    [("RGB", "jpg"), ("RGB", "tiff"), *((m, "png") for m in ("RGB", "P", "RGBA", "I;16", "1"))],
)
def test_a_large_image_is_read_at_reduced_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, suffix: str
) -> None:
    monkeypatch.setattr(decode, "WHOLE", 10_000)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)  # Pillow's own limit plays no part
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new(mode, (400, 200)).save(tmp_path / f"scan.{suffix}", exif=exif.tobytes())
    assert load(tmp_path / f"scan.{suffix}").size == ((100, 200) if suffix == "jpg" else (67, 134))
    assert min(load(tmp_path / f"scan.{suffix}", at_least=150).size) >= 150
    assert upright_size_of(tmp_path / f"scan.{suffix}") == (200, 400)
    assert Image.MAX_IMAGE_PIXELS == 1000


def test_heic_and_avif(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heif = pytest.importorskip("pillow_heif")
    image = Image.new("RGB", (64, 48), (200, 30, 40))
    image.save(tmp_path / "a.avif")
    heif.from_pillow(image).save(tmp_path / "a.heic")
    for name in ("a.avif", "a.heic"):
        read = load(tmp_path / name)
        assert (read.size, read.mode, size_of(tmp_path / name)) == ((64, 48), "RGB", (64, 48))
        np.testing.assert_allclose(np.asarray(read)[20, 30], (200, 30, 40), atol=6)
    digest = digest_of((tmp_path / "a.heic").read_bytes())
    assert load(tmp_path / "a.heic", digest=digest).size == (64, 48)
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    with pytest.raises(DataError, match="HEIC needs pillow-heif") as caught:
        load(tmp_path / "a.heic")
    assert caught.value.remedies[0] == "pip install 'sparselabel[heif]'"


def jpeg(width: int, height: int) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (width, height), (10, 20, 200)).save(stream, "JPEG")
    return stream.getvalue()


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("suffix", [".NEF", ".cr2", ".dng"])
def test_a_raw_file_by_its_preview(tmp_path: Path, order: str, suffix: str) -> None:
    """TIFF's header and a directory with one tag, a thumbnail, the preview, lossless data of a sensor."""
    head = {"<": b"II", ">": b"MM"}[order] + struct.pack(f"{order}HI", 42, 8)
    directory = struct.pack(f"{order}HHHIHHI", 1, 0x0112, 3, 1, 6, 0, 0)
    sensor = jpeg(200, 160).replace(b"\xff\xc0", b"\xff\xc3")
    content = head + directory + jpeg(16, 12) + b"\0" * 99 + jpeg(80, 60) + sensor
    file = tmp_path / f"photo{suffix}"
    file.write_bytes(content)
    assert load(file).size == (60, 80)  # upright
    assert load(file, at_least=30).size == (30, 40)
    assert (size_of(file), upright_size_of(file)) == ((80, 60), (60, 80))
    file.write_bytes(head + directory + b"sensor" * 500)
    with pytest.raises(DataError, match="RAW file has no preview inside"):
        load(file)


def test_pillows_remarks_stay_inside_also_in_threads(tmp_path: Path) -> None:
    file = tmp_path / "odd.jpg"
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(smooth(16, 20)).save(file, exif=exif.tobytes()[:20])  # ends in the middle of a tag
    with pytest.warns(UserWarning, match="Corrupt EXIF"), Image.open(file) as image:
        image.getexif()
    before = list(warnings.filters)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        with ThreadPoolExecutor(4) as pool:
            sizes = list(pool.map(lambda _: load(file).size, range(64)))
    assert sizes == [(20, 16)] * 64
    assert heard == []
    assert list(warnings.filters) == before


def test_a_jpeg_may_be_decoded_small(tmp_path: Path) -> None:
    file = tmp_path / "large.jpg"
    Image.fromarray(smooth(600, 900)).save(file, quality=95)
    assert load(file).size == (900, 600)
    assert load(file, at_least=600).size == (900, 600)
    assert load(file, at_least=301).size == (900, 600)
    assert load(file, at_least=300).size == (450, 300)
    assert load(file, at_least=100).size == (225, 150)
    assert load(file, at_least=5).size == (113, 75)
    geometry = draw(verelst_train(64), (0, 0, 0, 0), 900, 600)
    full, small = (render(load(file, at_least), geometry, 64).astype(int) for at_least in (None, 150))
    assert np.abs(full - small).mean() < 1
    Image.fromarray(smooth(600, 900)).save(tmp_path / "large.png")
    assert load(tmp_path / "large.png", at_least=100).size == (900, 600)


def test_a_folder_that_is_gone_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no folder") as raised:
        load(tmp_path / "moved" / "deep" / "a.jpg")
    assert raised.value.what == tmp_path / "moved"
    with pytest.raises(DataError, match="No such file"):
        load(tmp_path / "a.jpg")


def test_no_program_is_started_for_an_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "photo.jpg"
    Image.fromarray(smooth(16, 20)).save(file, "EPS")
    monkeypatch.setattr("PIL.EpsImagePlugin.Ghostscript", lambda *_, **__: pytest.fail("Ghostscript"))
    with pytest.raises(DataError, match="in none of the formats that are read"):
        load(file)
    with pytest.raises(UnidentifiedImageError):
        size_of(file)


def test_a_pipe_is_no_image(tmp_path: Path) -> None:
    file = tmp_path / "photo.jpg"
    os.mkfifo(file)
    for reading in (load, size_of):
        with pytest.raises(DataError) as error:
            reading(file)
        assert error.value.what == file


def test_a_raw_file_of_nothing_but_beginnings_is_soon_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What follows each beginning of a JPEG is looked through: a megabyte of them took a day."""
    file = tmp_path / "a.cr2"
    file.write_bytes(b"\xff\xd8\xff" * 3_000 + bytes(1_000_000))
    opened: list[int] = []

    def not_one(stream: io.BytesIO, _: object) -> Image.Image:
        opened.append(len(stream.getvalue()))
        raise UnidentifiedImageError

    monkeypatch.setattr(decode, "_opened_by_pillow", not_one)
    with pytest.raises(DataError, match="RAW file has no preview inside"):
        load(file)
    assert len(opened) == 32
    assert max(opened) == 1 << 18


def test_deep_gray_in_bands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = np.random.default_rng(0).integers(0, 65536, (70, 50), np.uint16)
    Image.fromarray(deep).save(tmp_path / "deep.png")
    monkeypatch.setattr(decode, "BAND", 640)  # twelve rows, and ten at the end
    assert np.array_equal(
        np.asarray(load(tmp_path / "deep.png"))[..., 0], ((deep.astype(int) + 128) // 257).astype(np.uint8)
    )


@pytest.mark.parametrize("name", ["a.jpg", "a.dng"])
def test_a_file_of_holes_is_not_read_whole(tmp_path: Path, name: str) -> None:
    with (tmp_path / name).open("wb") as file:
        file.write(b"\xff\xd8\xff")
        file.truncate(1 << 40)
    with pytest.raises(
        DataError, match=rf"{name} has 1,099,511,627,776 bytes, and at most 4,294,967,296 are"
    ):
        load(tmp_path / name, digest=0)


def test_an_image_that_memory_is_too_short_for_is_named_and_not_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def short(image: Image.Image) -> Image.Image:
        raise MemoryError

    Image.new("L", (4, 4)).save(tmp_path / "large.png")
    monkeypatch.setattr(decode, "as_rgb", short)
    with pytest.raises(
        ResourceError, match=r"large\.png does not fit into memory as an image: save it smaller"
    ):
        load(tmp_path / "large.png")
