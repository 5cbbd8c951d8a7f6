"""What the commands that train several runs share: their progress, with errors in flags, and their end."""

import sys
from contextlib import AbstractContextManager

from sparselabel.cli.arguments import AS_FLAGS
from sparselabel.comparison.runs_display import RunsDisplay, runs_display


def runs_shown(total: int) -> AbstractContextManager[RunsDisplay]:
    """Show how far the runs inside are."""
    return runs_display(total, AS_FLAGS)


def exit_if_failed(failed: int, runs: int) -> None:
    """Say how to go on, and end with exit code 1, if runs failed; each was named when it did."""
    if not failed:
        return
    print(  # noqa: T201
        f"sparselabel: error: {failed} of {runs} runs failed (see RUN.error.txt beside each): "
        "mend the cause and give the same command again; finished runs are skipped",
        file=sys.stderr,
    )
    sys.exit(1)
