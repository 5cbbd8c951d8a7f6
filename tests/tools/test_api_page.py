"""The API page matches the docstrings and lists every public name."""

from pathlib import Path

from tools.api_page import PARTS_OF_LOSSES, page

import sparselabel
import sparselabel.losses

ROOT = Path(__file__).parent.parent.parent


def test_the_committed_page_is_up_to_date() -> None:
    assert (ROOT / "docs" / "api.md").read_text(encoding="utf-8") == page(), "run `make docs`"


def test_every_public_name_is_on_it() -> None:
    text = page()
    assert [name for name in sparselabel.__all__ if f"{name}`" not in text] == []
    assert {*PARTS_OF_LOSSES} <= {*sparselabel.losses.__all__}
    assert "**`save_pretrained(folder, *, force=False)`**" in text
    assert "- `reviewer`: Name to save with the answers" in text
    assert "- `val`, `test`: " in text  # two parameters that are described together
