"""Small JSON files, there whole or not at all."""

import json
from pathlib import Path
from typing import Any

from sparselabel.errors import RunError


def write_json(path: Path, content: Any) -> None:
    """Write a small file so that it is there whole or not at all."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    partial.replace(path)


def read_json(path: Path) -> dict[str, Any]:
    """Read a file that ``write_json`` wrote."""
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError) as error:
        raise RunError(f"{path} cannot be read: {error}") from error
    return content
