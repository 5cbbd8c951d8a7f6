"""Help that fits a screen: the flags most used, and all of them with ``--help-all``."""

import copy
import inspect
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, get_args

from attrs import evolve
from cyclopts.help.formatters import DefaultFormatter

from sparselabel.config import Kind

if TYPE_CHECKING:
    from cyclopts import CycloptsError, MissingArgumentError
    from cyclopts.help import HelpEntry, HelpPanel
    from rich.console import Console, ConsoleOptions
    from rich.panel import Panel


EVERYTHING = "--help-all"
HELP_FLAGS = ["--help", "-h", EVERYTHING]
"""For every App: those with commands of their own do not take over their parent's."""
SETTINGS = "--settings"
SCREEN = 50  # lines
FEWEST = 12  # lines of flags, whatever the rest takes
OFTEN = (
    "--out", "--images", "--labels", "--how", "--answers", "--methods", "--seeds", "--choose",
    "--vary", "--method", "--backbone", "--weights", "--frozen", SETTINGS + ".NAME",
    "--head.epochs", "--finetune.epochs", "--head.lr", "--finetune.lr", "--views.size",
    "--sparsify", "--share", "--validation", "--skip-broken", "--resume", "--force", "--cluster",
    "--recipe", "--label", "--config", "--seed", "--workers", "--skip-missing", "--dry-run", "--image",
    "--value", "--split",
)  # fmt: skip
"""Flags in the order of how often they are wanted; where there is room, others follow as declared."""


class ShortHelp(DefaultFormatter):
    """Shows as many flags as fit, and says where the others are."""

    used = 0
    """Lines of the screen that are printed already."""

    def render_usage(self, console: "Console", options: "ConsoleOptions", usage: Any) -> None:
        self.used = len(console.render_lines(usage, options)) + 3 if usage else 0
        super().render_usage(console, options, usage)

    def render_description(self, console: "Console", options: "ConsoleOptions", description: Any) -> None:
        self.used += len(console.render_lines(description, options)) if description else 0
        super().render_description(console, options, description)

    def __call__(self, console: "Console", options: "ConsoleOptions", panel: "HelpPanel") -> None:
        """Print a panel of the help: commands and arguments whole, flags as far as they fit."""
        panel = panel.copy(entries=[_with_name(entry) for entry in panel.entries])
        fitting = panel if EVERYTHING in sys.argv else self._fitting(console, options, panel)
        left = len(panel.entries) - len(fitting.entries)
        super().__call__(console, options, fitting)
        if left:
            console.print(f"{left} more flags: {EVERYTHING} instead of --help shows them.", highlight=False)

    def _fitting(self, console: "Console", options: "ConsoleOptions", panel: "HelpPanel") -> "HelpPanel":
        room = max(FEWEST, SCREEN - self.used - 2)
        if panel.format != "parameter":
            return panel
        ranked = sorted(range(len(panel.entries)), key=lambda index: (_rank(panel.entries[index]), index))

        def first(count: int) -> "HelpPanel":
            shown = set(ranked[:count])
            return panel.copy(entries=[entry for index, entry in enumerate(panel.entries) if index in shown])

        def lines(count: int) -> int:
            with console.capture() as captured:  # of a copy: printing adds defaults to the words
                super(ShortHelp, self).__call__(console, options, copy.deepcopy(first(count)))
            return captured.get().count("\n")

        fits, too_many = 1, len(ranked) + 1
        while too_many - fits > 1:
            middle = (fits + too_many) // 2
            fits, too_many = (middle, too_many) if lines(middle) <= room else (fits, middle)
        self.used += lines(fits)
        return first(fits)


def _with_name(entry: "HelpEntry") -> "HelpEntry":
    """The method's settings are named by themselves: --settings.momentum 0.9."""
    if SETTINGS not in entry.names:
        return entry
    return evolve(entry, positive_names=(f"{SETTINGS}.NAME",), metavar="VALUE", default=None)


def _rank(entry: "HelpEntry") -> int:
    """Arguments and what must be given first, then what is often wanted, then the rest."""
    if entry.required or not entry.names:
        return -1
    return min((OFTEN.index(name) for name in entry.names if name in OFTEN), default=len(OFTEN))


AMOUNTS = {
    "positive-share": "--share {}",
    "uniform": "--share {}",
    "per-image": "--positives {} --negatives 0",
    "per-class": "--positives {} --negatives 0",
}
"""The flags that say how much a sparsifier keeps."""


def explained(error: "CycloptsError") -> "Panel":
    """The error as cyclopts shows it, or a clearer text for missing and surplus words."""
    from cyclopts import CycloptsPanel, MissingArgumentError, UnusedCliTokensError

    if isinstance(error, MissingArgumentError) and error.argument is not None:
        return CycloptsPanel(_missing(error))
    if not isinstance(error, UnusedCliTokensError):
        return CycloptsPanel(error)
    left = error.unused_tokens or []
    return CycloptsPanel(too_many(error.root_input_tokens or [], left))


def _missing(error: "MissingArgumentError") -> str:
    """What is missing, and the command's own example of how it is given."""
    command = " ".join(error.command_chain or ())
    name = error.argument.name if error.argument is not None else "an argument"
    example = re.search(r"Example: `(.*?)`", inspect.getdoc(error.target) or "") if error.target else None
    how = f"as in `{example[1]}`" if example else f"`sparselabel {command} --help` explains it"
    return f"sparselabel {command} needs {name}: {how}."


def too_many(words: Sequence[str], left: Sequence[str]) -> str:
    """A message about the words of a command line that are left over."""
    for before, kind, word in zip(words, words[1:], words[2:], strict=False):
        if before == "--sparsify" and kind in get_args(Kind) and word in left:
            amount = AMOUNTS.get(kind)
            how = "it takes no number" if amount is None else f"write --sparsify {kind} {amount.format(word)}"
            return f"{word} is one word too many after --sparsify {kind}: {how}."
    return f"{' '.join(left)}: not understood. A value follows its flag, and flags begin with --."
