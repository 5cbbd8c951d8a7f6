"""Decoding image files: upright by their EXIF orientation, in RGB, at reduced scale where that is enough.

HEIC needs pillow-heif; of RAW files the camera's own JPEG inside is taken. Images above ``WHOLE`` pixels are
read at reduced size, and above ``LARGEST`` not at all.
"""

import hashlib
import io
import math
import struct
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from sparselabel.errors import DataError, ResourceError
from sparselabel.file_formats import refuse_special

RAW_SUFFIXES = (".dng", ".cr2", ".cr3", ".nef", ".arw", ".orf", ".rw2", ".pef", ".raf", ".srw")
SUFFIXES = (
    *(".jpg", ".jpeg", ".png", ".webp", ".avif", ".gif", ".bmp", ".tif", ".tiff", ".ppm", ".jp2"),
    *(".heic", ".heif", *RAW_SUFFIXES),
)
"""Suffixes of image files, in lower case."""
FORMATS = ("JPEG", "PNG", "WEBP", "AVIF", "GIF", "BMP", "TIFF", "PPM", "JPEG2000")
"""The formats that are opened, whatever a file is called: for some others Pillow starts programs (EPS)."""

LARGEST = 500_000_000
"""Pixels of the largest image: decoded, it takes 1.5 GB."""
LARGEST_FILE = 1 << 32  # bytes
WHOLE = 50_000_000  # pixels from which on an image is read at reduced size
BAND = 1 << 20  # pixels at a time of 16-bit gray
_ORIENTATION = 0x0112  # the tag of EXIF and TIFF
_FILTERS = threading.Lock()  # Python's warning filters belong to all threads


def load(
    path: str | Path, at_least: int | None = None, digest: int | None = None, content: bytes | None = None
) -> Image.Image:
    """The image in a file, upright and in RGB; transparent parts are white, 16-bit gray becomes 8-bit.

    With ``at_least`` a JPEG may be decoded at 1/2, 1/4 or 1/8 of its size, as long as both sides keep that
    many pixels (``View.at_least`` is a good choice): at 448² without a crop, a JPEG of 12 megapixels takes 75
    instead of 162 ms, and the view changes by 0.3 gray levels in the mean (by 1.2 for the sharpest images).
    With ``digest``, a file with other bytes is an error. ``content`` are the bytes of an image without a
    file, or one already read; ``path`` is then its name.
    """
    if content is None:
        refuse_special(path)
    try:
        if content is None and digest is not None:
            content = read_whole(path)
        with _opened(path if content is None else io.BytesIO(content), path) as image:
            if at_least is not None:
                image.draft(None, (at_least, at_least))
            # Decodes outside the lock of the warning filters, so that threads run in parallel.
            if image.width * image.height <= WHOLE:
                image.load()
                decoded = image
            else:
                with _without_pillows_limit():  # one at a time: several would not fit into memory
                    decoded = _reduced(image, at_least)
            with _pillow_warnings():
                ImageOps.exif_transpose(decoded, in_place=True)
            if digest is not None and digest_of(content or b"") != digest:  # a broken one is called that
                problem = f"{path} is not the file that was prepared: its bytes have changed since"
                raise OtherFileError(problem, "bring it back", "prepare the data again", what=path)
            if decoded.mode == "RGB" and not decoded.has_transparency_data:
                return decoded  # a copy can take half as long as decoding
            return as_rgb(decoded)
    except OtherFileError:
        raise
    except MemoryError as error:  # it is not broken: elsewhere it can be read
        problem = f"{path} does not fit into memory as an image"
        raise ResourceError(problem, "save it smaller", "use a larger machine", what=path) from error
    except FileNotFoundError as error:
        if not Path(path).parent.is_dir():
            gone = [folder for folder in Path(path).parents if not folder.exists()][-1]
            raise DataError(
                f"{path} is gone: there is no folder {gone}",
                "bring the folder back",
                "prepare the data anew from where the images are",
                what=gone,
            ) from error
        raise DataError(
            f"{path} is gone (No such file)", "bring it back", "prepare data without it"
        ) from error
    except Exception as error:  # decoders raise any exception on a broken file
        reason = (error.problem if isinstance(error, DataError) else str(error)) or type(error).__name__
        remedies = error.remedies if isinstance(error, DataError) else ()
        problem = f"{path} cannot be read as an image ({reason})"
        raise DataError(problem, *(remedies or ("mend it or leave it out",)), what=path) from error


def read_whole(path: str | Path) -> bytes:
    """The bytes of an image file; one that is mostly holes may have terabytes of them."""
    size = Path(path).stat().st_size
    if size > LARGEST_FILE:
        problem = f"{path} has {size:,} bytes, and at most {LARGEST_FILE:,} are read of an image"
        raise DataError(problem, "leave it out", what=path, value=size)
    return Path(path).read_bytes()


class OtherFileError(DataError):
    """An image file is not the one that was prepared."""


def digest_of(content: bytes) -> int:
    """The digest of an image file's content."""
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")


def size_of(path: str | Path, content: bytes | None = None) -> tuple[int, int]:
    """Width and height of an image as stored, without decoding it; ``load`` says whether it can be."""
    if content is None:
        refuse_special(path)
    with _opened(path if content is None else io.BytesIO(content), path) as image:
        return image.size


def upright_size_of(path: str | Path, content: bytes | None = None) -> tuple[int, int]:
    """Width and height of an image upright: cameras may store it rotated."""
    if content is None:
        refuse_special(path)
    with _opened(path if content is None else io.BytesIO(content), path) as image, _pillow_warnings():
        width, height = image.size
        lying = image.getexif().get(_ORIENTATION, 1) >= 5 and image.format != "TIFF"  # Pillow turned that one
        return (height, width) if lying else (width, height)


def _opened(source: str | Path | io.BytesIO, path: str | Path) -> Image.Image:
    """The image in a file, or in the content of one, not yet decoded; of a RAW file its preview."""
    if str(path).lower().endswith(RAW_SUFFIXES):
        return _preview(source.getvalue() if isinstance(source, io.BytesIO) else read_whole(source))
    try:
        image = _opened_by_pillow(source, FORMATS)
    except UnidentifiedImageError as error:
        if not _is_heif(source):
            # Pillow's words of an image that is in no file have an address in memory in them.
            raise UnidentifiedImageError("it is in none of the formats that are read") from error
        try:
            import pillow_heif
        except ImportError as error:
            needed = "HEIC needs pillow-heif"
            raise DataError(needed, "pip install 'sparselabel[heif]'", "save it as JPEG") from error
        pillow_heif.register_heif_opener()
        image = _opened_by_pillow(source, ("HEIF",))
    if image.width * image.height > LARGEST:
        image.close()
        raise DataError(
            f"{image.width:,} × {image.height:,} pixels, and at most {LARGEST // 10**6:,} million are read",
            "save it smaller",
        )
    return image


def _opened_by_pillow(source: str | Path | io.BytesIO, formats: tuple[str, ...]) -> Image.Image:
    with _without_pillows_limit():
        return Image.open(source, formats=formats)


@contextmanager
def _without_pillows_limit() -> Iterator[None]:
    """Let Pillow open and decode images of any size: we check the size ourselves."""
    with _pillow_warnings():
        most, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
        try:
            yield
        finally:
            Image.MAX_IMAGE_PIXELS = most


def _is_heif(source: str | Path | io.BytesIO) -> bool:
    """Whether a file is HEIC or HEIF: the brand stands behind the word ftyp."""
    if isinstance(source, io.BytesIO):
        head = source.getvalue()[:12]
    else:
        with Path(source).open("rb") as stream:
            head = stream.read(12)
    return head[4:8] == b"ftyp" and head[8:11] in (b"hei", b"hev", b"mif", b"msf")


def _reduced(image: Image.Image, at_least: int | None) -> Image.Image:
    """A giant image, decoded and made smaller until about ``WHOLE`` pixels are left.

    Both sides keep ``at_least`` pixels, as far as they have them.
    """
    pixels = image.width * image.height
    factor = math.ceil(math.sqrt(pixels / WHOLE))
    factor = max(1, min(factor, min(image.size) // (at_least or 1)))
    image.draft(None, (image.width // factor, image.height // factor))  # a JPEG is not even decoded in full
    image.load()
    rest = int(factor * math.sqrt(image.width * image.height / pixels))
    if rest < 2:
        return image
    smaller = (image if image.mode in ("L", "RGB") else as_rgb(image)).reduce(rest)
    smaller.getexif()[_ORIENTATION] = image.getexif().get(_ORIENTATION, 1)
    return smaller


def _preview(content: bytes) -> Image.Image:
    """The largest JPEG inside a RAW file: cameras put their own rendering there, upright as the file says."""
    previews: list[tuple[int, int]] = []
    start, tried = content.find(_JPEG), 0
    while start >= 0 and tried < _MARKS:
        with suppress(OSError, SyntaxError, ValueError, struct.error):
            image = _opened_by_pillow(io.BytesIO(content[start : start + _HEADER]), ("JPEG",))
            previews.append((image.width * image.height, start))
        start, tried = content.find(_JPEG, start + 3), tried + 1
    for pixels, offset in sorted(previews, reverse=True):
        with suppress(OSError, SyntaxError, ValueError, struct.error):  # lossless ones are the sensor's data
            if pixels > LARGEST:
                continue
            with _opened_by_pillow(io.BytesIO(content[offset:]), ("JPEG",)) as image:
                image.draft(None, (64, 64))
                image.load()
            image = _opened_by_pillow(io.BytesIO(content[offset:]), ("JPEG",))
            if _ORIENTATION not in image.getexif():
                image.getexif()[_ORIENTATION] = _tiff_orientation(content)
            return image
    raise DataError("this RAW file has no preview inside", "save it as JPEG")


_JPEG = b"\xff\xd8\xff"
_MARKS, _HEADER = 32, 1 << 18  # how many places that may begin a JPEG are looked at, and bytes of each


def _tiff_orientation(content: bytes) -> int:
    """The orientation in the first directory of a file that is built as TIFF; 1 if there is none."""
    order = {b"II": "<", b"MM": ">"}.get(content[:2])
    if order is None:
        return 1
    with suppress(struct.error):
        (start,) = struct.unpack_from(f"{order}I", content, 4)
        (entries,) = struct.unpack_from(f"{order}H", content, start)
        for entry in range(start + 2, start + 2 + 12 * entries, 12):
            tag, _, _, value = struct.unpack_from(f"{order}HHIH", content, entry)
            if tag == _ORIENTATION:
                return value if 1 <= value <= 8 else 1
    return 1


@contextmanager
def _pillow_warnings() -> Iterator[None]:
    """Ignore Pillow's warnings of odd metadata."""
    with _FILTERS, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def as_rgb(image: Image.Image) -> Image.Image:
    """The image in RGB; transparent parts are white, 16-bit gray becomes 8-bit."""
    if image.mode == "F":
        raise DataError("floating-point pixels (mode F) have no agreed white, save it with 8 or 16 bits")
    if image.mode.startswith("I"):
        image = _eight_bits(image)
    if image.has_transparency_data:
        transparent = image if image.mode == "RGBA" else image.convert("RGBA")
        opaque = Image.new("RGB", image.size, "white")
        opaque.paste(transparent, mask=transparent.getchannel("A"))
        return opaque
    return image.convert("RGB")


def _eight_bits(image: Image.Image) -> Image.Image:
    """16-bit gray as 8-bit gray, by bands of rows: a giant image as whole numbers would take gigabytes."""
    gray, rows = Image.new("L", image.size), max(1, BAND // image.width)
    for top in range(0, image.height, rows):
        band = image.crop((0, top, image.width, min(top + rows, image.height)))
        deep = np.asarray(band).astype(np.int64)
        if deep.min() < 0 or deep.max() > 65535:
            raise DataError(f"it has gray values from {deep.min()} to {deep.max()}, beyond 16 bits")
        gray.paste(Image.fromarray(((deep + 128) // 257).astype(np.uint8)), (0, top))
    return gray
