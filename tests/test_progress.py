import io

import pytest
from rich.console import Console

from sparselabel.progress import duration, progress_bar


def terminal() -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=100, color_system=None)


def test_a_bar_inside_another_joins_its_display() -> None:
    outer, inner = terminal(), terminal()
    with progress_bar(outer, 3, "all runs") as runs:
        runs.skip(1)
        with progress_bar(inner, 10, "an: training") as steps:
            steps.advance(4)
            runs.say("a line above")
        runs.advance()
    assert isinstance(outer.file, io.StringIO)
    assert isinstance(inner.file, io.StringIO)
    shown = outer.file.getvalue()
    assert "all runs" in shown
    assert "2/3" in shown
    assert "an: training" in shown
    assert "a line above" in shown
    assert inner.file.getvalue() == ""
    with progress_bar(inner, 10, "alone"):
        pass
    assert "alone" in inner.file.getvalue()


def test_what_was_done_before_does_not_count_for_the_time_left() -> None:
    from sparselabel import progress as module

    with progress_bar(terminal(), 10, "runs") as bar:
        (progress,) = module._shown
        now = [100.0]
        progress.get_time = lambda: now[0]
        bar.skip(8)
        now[0] = 110.0
        bar.advance()
        assert progress.tasks[0].speed == 0.1
        assert progress.tasks[0].time_remaining == 10


def test_without_a_terminal_a_line() -> None:
    console = Console(file=io.StringIO(), width=100)
    with progress_bar(console, 3, "all runs") as bar:
        bar.skip(1)
        bar.advance()
        bar.say("nothing")
        bar.remove()
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue() == "all runs ...\n"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.2, "0.2 s"),
        (4.16, "4.2 s"),
        (9.96, "10 s"),
        (99, "99 s"),
        (120, "2 min"),
        (5_940, "99 min"),
        (12_000, "3 h 20 min"),
        (190_800, "2 days 5 h"),
    ],
)
def test_durations(seconds: float, words: str) -> None:
    assert duration(seconds) == words
