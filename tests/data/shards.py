"""Images of one color each, in files, tars and tables."""

import io
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from PIL import Image


def png(red: int, green: int) -> bytes:
    """A small image of one color."""
    stream = io.BytesIO()
    Image.new("RGB", (20, 10), (red, green, 0)).save(stream, "PNG")
    return stream.getvalue()


def write_tar(file: Path, members: dict[str, bytes], mode: str = "w") -> Path:
    """A tar of these files."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(file, mode) as tar:  # type: ignore[call-overload]
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return file


def write_table(file: Path, columns: dict[str, Sequence[Any]], rows: int = 4) -> Path:
    """A Parquet table with so many rows in a row group."""
    import pyarrow as pa
    from pyarrow import parquet

    file.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pa.table(dict(columns)), file, row_group_size=rows)
    return file
