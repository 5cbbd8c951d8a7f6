"""``sparselabel review``: a page on which people confirm or reject suggested labels."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from sparselabel.cli.terminal import plain_console
from sparselabel.config import Engine, Machine
from sparselabel.errors import counted

if TYPE_CHECKING:
    from sparselabel.review.answer_log import AnswerFile
    from sparselabel.run import Run


def review(
    run: Path,
    /,
    *,
    answers: Path | None = None,
    reviewer: str | None = None,
    complete: bool = False,
    data: Path | None = None,
    port: int = 8765,
    no_browser: bool = False,
    workers: int = Machine().workers,
    engine: Engine = "auto",
) -> None:
    """Confirm or reject labels that a run suggests, in your browser, the most useful first.

    Keys: y yes, n no, s skip, u undo, arrows next and back, m heat map. Every answer is on the disk before
    the next question comes; Ctrl-C ends, and the same command goes on. `sparselabel train --answers FILE`
    learns from them.

    Example: `sparselabel review runs/first`

    Parameters
    ----------
    run
        Folder of a finished run.
    answers
        File that answers are added to; default: answers.csv in the run (complete.csv with --complete).
    reviewer
        Name that is kept with the answers; default: the name you are logged in with.
    complete
        Ask for all labels of random images instead, to count in (`sparselabel expect --how counted`).
    data
        The run's prepared data, if it is no longer where it was.
    port
        Port of the page; if it is taken, another one.
    no_browser
        Only print the address.
    workers
        Processes that load images, when they are scored the first time.
    engine
        What runs the network on a CPU; auto takes the first that is installed, and torch for few images.
    """
    from sparselabel.review.serve import serve_review
    from sparselabel.run import Run

    opened = Run.open(run, data)
    kept = serve_review(
        opened,
        say=plain_console().print,
        answers=answers,
        reviewer=reviewer,
        complete=complete,
        port=port,
        browser=not no_browser,
        workers=workers,
        engine=engine,
    )
    _tell_next(opened, kept, complete)


def _tell_next(run: "Run", kept: "AnswerFile", complete: bool) -> None:
    """How many answers there are, and what to do with them."""
    console, said, data = plain_console(), kept.last_words(), run.data_folder
    if not said:
        again = shlex.join(["sparselabel", "review", str(run.path), *(["--complete"] if complete else [])])
        console.print(f"no answers yet: go on with `{again}`")
        return
    if complete:
        images = len({image for image, _ in said})
        console.print(f"{counted(images, 'image')} with all labels in {kept.path}")
        words = ["expect", data, "--how", "counted", "--labels", kept.path, "--out", "expected.json"]
    else:
        console.print(f"{counted(len(said), 'answer')} in {kept.path}")
        given = [run.given_answers_file] if run.given_answers_file.is_file() else []
        out = run.path.with_name(f"{run.path.name}-reviewed")
        words = ["train", data, "--config", run.config_file, "--answers", *given, kept.path, "--out", out]
    console.print(f"next: {shlex.join(['sparselabel', *map(str, words)])}")
