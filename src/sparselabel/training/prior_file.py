"""A prior over the classes, read from a file."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sparselabel.config import AUTO
from sparselabel.data.readers.csv_parquet import open_cells
from sparselabel.errors import ConfigError, DataError, listing, param


def read_prior(file: Path, classes: Sequence[str]) -> tuple[float, ...]:
    """A share in 0..1 for each class, from a JSON object or a table with columns class and prior."""
    if not file.is_file():
        hint = "; auto is written in small letters" if str(file).lower() == AUTO else ""
        raise ConfigError(
            f"{param('settings.prior')} must be auto, or a JSON or CSV file, and there is no file "
            f"{str(file)!r}{hint}",
            what="settings.prior",
            value=str(file),
        )
    found = _of_json(file) if file.suffix.lower() == ".json" else _of_table(file)
    missing = [name for name in classes if name not in found]
    strange = [name for name in found if name not in classes]
    if missing or strange:
        what = f"lacks {listing(missing)}" if missing else f"has {listing(strange)}, which the data has not"
        raise DataError(f"{file} must have a prior for each of the data's {len(classes)} classes; it {what}")
    for name, value in found.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise DataError(f"{file}: the prior of {name} must be a share in [0, 1], not {value!r}")
    return tuple(float(found[name]) for name in classes)


def _of_json(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f'{file} cannot be read as JSON ({error}): write {{"CLASS": SHARE, ...}}') from error
    if not isinstance(content, dict):
        raise DataError(f'{file} must be an object of shares by class, {{"CLASS": SHARE, ...}}')
    return content


def _of_table(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with open_cells(file, "class") as cells:
        absent = [name for name in ("class", "prior") if name not in cells.header]
        if absent:
            raise DataError(f"{file} must have columns class and prior, not {listing(cells.header)}")
        name_at, prior_at = cells.header.index("class"), cells.header.index("prior")
        for line, row in cells.rows:
            name, text = row[name_at].strip(), row[prior_at].strip()
            if name in found:
                raise cells.wrong(line, f"class {name!r} is there twice: keep one line")
            try:
                found[name] = float(text)
            except ValueError as error:
                raise cells.wrong(
                    line, f"the prior of {name} must be a share in [0, 1], not {text!r}"
                ) from error
    return found
