"""Help that fits a screen: the flags most used, and all of them with ``--help-all``."""

import copy
import sys
from typing import TYPE_CHECKING

from cyclopts.help.formatters import DefaultFormatter

if TYPE_CHECKING:
    from cyclopts.help import HelpEntry, HelpPanel
    from rich.console import Console, ConsoleOptions

EVERYTHING = "--help-all"
ROOM = 33  # lines that flags may take, of the 50 of a screen
OFTEN = (
    "--out", "--images", "--labels", "--how", "--label", "--answers", "--methods", "--method", "--seeds",
    "--backbone", "--weights", "--frozen", "--settings.expected-positives", "--head.epochs", "--full.epochs",
    "--head.learning-rate", "--full.learning-rate", "--views.size", "--sparsify", "--share", "--validation",
    "--skip-broken", "--choose", "--vary", "--cluster", "--resume", "--force", "--recipe", "--config", "--seed",
    "--workers", "--skip-missing", "--dry-run", "--image", "--value", "--split", "--separator",
)  # fmt: skip
"""Flags in the order of how often they are wanted; where there is room, others follow as they are declared."""


class ShortHelp(DefaultFormatter):
    """Shows as many flags as fit, and says where the others are."""

    def __call__(self, console: "Console", options: "ConsoleOptions", panel: "HelpPanel") -> None:
        """Print a panel of the help: commands and arguments whole, flags as far as they fit."""
        fitting = panel if EVERYTHING in sys.argv else self._fitting(console, options, panel)
        left = len(panel.entries) - len(fitting.entries)
        super().__call__(console, options, fitting)
        if left:
            console.print(f"{left} more flags: {EVERYTHING} instead of --help shows them.", highlight=False)

    def _fitting(self, console: "Console", options: "ConsoleOptions", panel: "HelpPanel") -> "HelpPanel":
        if panel.format != "parameter":
            return panel
        ranked = sorted(range(len(panel.entries)), key=lambda place: (_rank(panel.entries[place]), place))

        def first(count: int) -> "HelpPanel":
            kept = set(ranked[:count])
            return panel.copy(entries=[entry for place, entry in enumerate(panel.entries) if place in kept])

        def lines(count: int) -> int:
            with console.capture() as captured:  # of a copy: printing adds defaults to the words
                super(ShortHelp, self).__call__(console, options, copy.deepcopy(first(count)))
            return captured.get().count("\n")

        fits, too_many = 1, len(ranked) + 1
        while too_many - fits > 1:
            middle = (fits + too_many) // 2
            fits, too_many = (middle, too_many) if lines(middle) <= ROOM else (fits, middle)
        return first(fits)


def _rank(entry: "HelpEntry") -> int:
    """Arguments and what must be given first, then what is often wanted, then the rest."""
    if entry.required or not entry.names:
        return -1
    return min((OFTEN.index(name) for name in entry.names if name in OFTEN), default=len(OFTEN))
