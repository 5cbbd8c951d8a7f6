"""Decoding image files: upright by their EXIF orientation, in RGB, at reduced scale where that is enough."""

import hashlib
import io
import os
import stat
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from sparselabel.errors import DataError

FORMATS = ("JPEG", "PNG", "WEBP", "AVIF", "GIF", "BMP", "TIFF", "PPM", "JPEG2000")
"""The formats that are opened, whatever a file is called: for some others Pillow starts programs (EPS)."""

_FILTERS = threading.Lock()  # Python's warning filters belong to all threads


def load(path: str | Path, at_least: int | None = None, digest: int | None = None) -> Image.Image:
    """The image in a file, upright and in RGB; transparent parts are white, 16-bit gray becomes 8-bit.

    With ``at_least`` a JPEG may be decoded at 1/2, 1/4 or 1/8 of its size, as long as both sides keep that
    many pixels (``View.at_least`` is a good choice): seen whole at 448², a JPEG of 12 megapixels takes 75
    instead of 162 ms, and the view changes by 0.3 gray levels in the mean (by 1.2 for the sharpest images).
    With ``digest`` a file of other bytes is refused.
    """
    _refuse_special(path)
    try:
        content = b"" if digest is None else Path(path).read_bytes()
        with _pillow_warnings():
            image = Image.open(path if digest is None else io.BytesIO(content), formats=FORMATS)
        with image:
            if at_least is not None:
                image.draft(None, (at_least, at_least))
            image.load()  # decodes; outside the lock of the warning filters, so that threads run in parallel
            with _pillow_warnings():
                ImageOps.exif_transpose(image, in_place=True)
            if digest is not None and digest_of(content) != digest:  # a broken one is called that
                problem = f"{path} is not the file that was prepared: its bytes have changed since"
                raise OtherFileError(problem, "bring it back", "prepare the data again", what=path)
            return as_rgb(image)
    except (MemoryError, OtherFileError):
        raise
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
    except Exception as error:  # decoders raise whatever they like on a broken file
        reason = str(error) or type(error).__name__
        raise DataError(f"{path} cannot be read as an image ({reason})", "mend it or leave it out") from error


class OtherFileError(DataError):
    """An image file is not the one that was prepared."""


def digest_of(content: bytes) -> int:
    """What tells an image file's content from any other."""
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")


def size_of(path: str | Path) -> tuple[int, int]:
    """Width and height of an image as stored, without decoding it; ``load`` says whether it can be."""
    _refuse_special(path)
    with _pillow_warnings(), Image.open(path, formats=FORMATS) as image:
        return image.size


def _refuse_special(path: str | Path) -> None:
    """Raise for a pipe, a socket or a device, which may keep a reader waiting for ever."""
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 - it is called for every image
    except (OSError, ValueError):
        return  # opening it says more
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        problem = f"{path} cannot be read as an image (it is a pipe, a socket or a device)"
        raise DataError(problem, "leave it out", what=path)


@contextmanager
def _pillow_warnings() -> Iterator[None]:
    """Ignore Pillow's warnings of odd metadata; make that of a giant image an error."""
    with _FILTERS, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        yield


def as_rgb(image: Image.Image) -> Image.Image:
    """The image in RGB; transparent parts are white, 16-bit gray becomes 8-bit."""
    if image.mode == "F":
        raise DataError("floating-point pixels (mode F) have no agreed white, save it with 8 or 16 bits")
    if image.mode.startswith("I"):
        deep = np.asarray(image).astype(np.int64)
        if deep.min() < 0 or deep.max() > 65535:
            raise DataError(f"its gray values go from {deep.min()} to {deep.max()}, beyond 16 bits")
        image = Image.fromarray(((deep + 128) // 257).astype(np.uint8))
    if image.has_transparency_data:
        transparent = image.convert("RGBA")
        opaque = Image.new("RGB", image.size, "white")
        opaque.paste(transparent, mask=transparent.getchannel("A"))
        return opaque
    return image.convert("RGB")
