"""What to say when a command line has a word too many."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, get_args

from sparselabel.config import Kind

if TYPE_CHECKING:
    from cyclopts import CycloptsError
    from rich.panel import Panel

AMOUNTS = {
    "positive-share": "--share {}",
    "uniform": "--share {}",
    "per-picture": "--positives {} --negatives 0",
    "per-class": "--positives {} --negatives 0",
}
"""The flags that say how much a sparsifier keeps."""


def explained(error: "CycloptsError") -> "Panel":
    """The error as cyclopts shows it, and in plain words where it only names what is left over."""
    from cyclopts import CycloptsPanel, UnusedCliTokensError

    if not isinstance(error, UnusedCliTokensError):
        return CycloptsPanel(error)
    left = error.unused_tokens or []
    return CycloptsPanel(too_many(error.root_input_tokens or [], left))


def too_many(words: Sequence[str], left: Sequence[str]) -> str:
    """A message about the words of a command line that are left over."""
    said = f"{' '.join(left)}: not understood. A value follows its flag, and flags begin with --."
    for before, kind, word in zip(words, words[1:], words[2:], strict=False):
        if before == "--sparsify" and kind in get_args(Kind) and word in left:
            amount = AMOUNTS.get(kind)
            how = "it takes no number" if amount is None else f"write --sparsify {kind} {amount.format(word)}"
            return f"{word} is one word too many after --sparsify {kind}: {how}."
    return said
