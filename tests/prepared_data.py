"""Prepared data that a test can write to."""

import json
from pathlib import Path

from sparselabel.checksums import file_checksum, json_checksum


def write_checksums(folder: Path) -> None:
    """Make the checksums of prepared data those of its files as they are now."""
    index = folder / "dataset.json"
    about = json.loads(index.read_text())
    about.pop("checksum")
    for name, split in about["splits"].items():
        split["checksums"] = {
            array: file_checksum(folder / name / f"{array}.npy") for array in split["checksums"]
        }
    index.write_text(json.dumps(about | {"checksum": json_checksum(about)}))
