"""Small JSON files, there whole or not at all."""

import json
from pathlib import Path
from typing import Any

from sparselabel.errors import RunError
from sparselabel.files import whole


def write_json(path: Path, content: Any) -> None:
    """Write a small file so that it is there whole or not at all."""
    text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    with whole(path) as partial:
        partial.write_text(text, encoding="utf-8")


BRING_BACK = "bring it back as it was, or begin anew with --force"


def read_json(path: Path, way_out: str = BRING_BACK) -> dict[str, Any]:
    """Read a file that ``write_json`` wrote; ``way_out`` says what to do if it is damaged."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:  # bytes that are no text, or text that is no JSON
        raise RunError(f"{path} cannot be read ({error}): {way_out}") from error
    if not isinstance(content, dict):
        raise RunError(f"{path} must hold an object of JSON, not {type(content).__name__}: {way_out}")
    return content
