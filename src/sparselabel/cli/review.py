"""``sparselabel review``: a page on which people confirm or reject suggested labels."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from sparselabel.cli.terminal import plain_console
from sparselabel.config import Engine
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
    goal: Literal["labels", "thresholds", "count"] = "labels",
    data: Path | None = None,
    port: int = 8765,
    host: str | None = None,
    tls_cert: Path | None = None,
    tls_key: Path | None = None,
    no_browser: bool = False,
    workers: int | None = None,
    engine: Engine = "auto",
) -> None:
    """Confirm or reject labels that a run suggests, in your browser, the most useful first.

    A page shows 24 images of one class: mark the wrong ones, Enter saves all. Or one question at a time.
    Every answer is on the disk before the next one comes; Ctrl-C ends, and the same command goes on.
    `sparselabel train --answers FILE`, or a button on the page, learns from them.

    Example: `sparselabel review runs/first`

    Parameters
    ----------
    run
        Folder of a finished run.
    answers
        File that answers are added to; default: answers.csv in the run (complete.csv with --goal count).
    reviewer
        Name that is kept with the answers; default: the name you are logged in with.
    goal
        What the questions are for.
        labels: labels that training images lack. thresholds: validation images, for thresholds that can be
        relied on. count: all labels of random training images, for expected positives.
    data
        The run's prepared data, if it is no longer where it was.
    port
        Port of the page; if it is taken, another one.
    host
        Name or address of this machine, to share the page on a network; needs --tls-cert and --tls-key.
    tls_cert, tls_key
        PEM files of a certificate for that name and of its key.
    no_browser
        Only print the address.
    workers
        Processes that load images, when they are scored the first time; for a CPU none by default.
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
        goal=goal,
        port=port,
        host=host,
        tls_cert=tls_cert,
        tls_key=tls_key,
        browser=not no_browser,
        workers=workers,
        engine=engine,
    )
    _tell_next(opened, kept, goal)


def _tell_next(run: "Run", kept: "AnswerFile", goal: str) -> None:
    """How many answers there are, and what to do with them."""
    from sparselabel.review.retrain import free_folder

    console, said, data = plain_console(), kept.last_words(), run.data_folder
    if not said:
        again = shlex.join(["sparselabel", "review", str(run.path), "--goal", goal])
        console.print(f"no answers yet: go on with `{again}`")
        return
    if goal == "count":
        images = len({image for image, _ in said})
        console.print(f"{counted(images, 'image')} with all labels in {kept.path}")
        words = ["expect", data, "--how", "counted", "--labels", kept.path, "--out", "expected.json"]
    else:
        console.print(f"{counted(len(said), 'answer')} in {kept.path}")
        given = [run.given_answers_file] if run.given_answers_file.is_file() else []
        out = free_folder(run)
        words = ["train", data, "--config", run.config_file, "--answers", *given, kept.path, "--out", out]
    console.print(f"next: {shlex.join(['sparselabel', *map(str, words)])}")
