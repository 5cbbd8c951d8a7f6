"""Formulas of docs/ as MathML, which browsers show without any script: a hook of mkdocs.yml."""

import re
from typing import Any

from latex2mathml.converter import convert


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Blocks of ```math, as GitHub shows them, in a form that the site shows too."""
    return re.sub(
        r"^```math\n(.*?)\n```$",
        lambda found: f'<div class="formula">{convert(found[1], display="block")}</div>',
        markdown,
        flags=re.MULTILINE | re.DOTALL,
    )
