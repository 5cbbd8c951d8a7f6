"""Read and write configurations as TOML."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from sparselabel.file_formats import naming, read_toml
from sparselabel.files import write_text
from sparselabel.schema import from_dict

Config = TypeVar("Config")


def save(config: Any, path: Path) -> None:
    """Write a resolved configuration as TOML, atomically."""
    write_text(path, "\n".join(_lines(asdict(config))) + "\n")


def load(kind: type[Config], path: Path) -> Config:
    """Read a configuration back."""
    values = read_toml(path)
    with naming(path):  # errors of contradicting settings do not name the file
        return from_dict(kind, values, path.name)


def _lines(values: dict[str, Any], table: str = "") -> list[str]:
    """TOML of nested dictionaries; None is left out, as TOML has no null."""
    plain = [f"{key} = {_toml(value)}" for key, value in values.items() if not isinstance(value, dict | None)]
    lines = ([f"\n[{table}]"] if table and plain else []) + plain
    for key, value in values.items():
        if isinstance(value, dict):
            lines += _lines(value, f"{table}.{key}" if table else key)
    return lines


def _toml(value: Any) -> str:
    if isinstance(value, float):
        return repr(value)  # JSON's words for infinity and not-a-number are not TOML's
    # JSON's strings, whole numbers and booleans are TOML's as well, but for one control character.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
