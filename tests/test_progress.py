import io
from typing import Any

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


def test_bars_in_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("IPython", reason="the development tools are not installed")
    from sparselabel import notebook_progress, progress

    pages: list[str] = []

    class Handle:
        def update(self, page: Any) -> None:
            pages.append(page.data)

    monkeypatch.setattr(notebook_progress, "display", lambda page, display_id: Handle())
    monkeypatch.setattr(notebook_progress, "EVERY", 0)
    monkeypatch.setattr(progress, "in_notebook", lambda: True)
    console = progress.status_console()
    with progress_bar(console, 3, "all <runs>") as runs, progress_bar(console, 10, "training") as steps:
        steps.advance(4)
        runs.advance()
    shown = next(page for page in pages if 'value="1" max="3"' in page)
    assert "all &lt;runs&gt;" in shown
    assert 'value="4" max="10"' in shown
    assert pages[-1] == ""
    count = len(pages)
    console.quiet = True
    with progress_bar(console, 3, "quiet") as bar:
        bar.advance()
    assert len(pages) == count
