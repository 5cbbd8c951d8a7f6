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

    A page shows 24 images of one class: mark the wrong ones and press Enter to save all, or answer one
    question at a time. Every answer is saved before the next question; Ctrl-C stops, and the same command
    continues. `sparselabel train --answers FILE`, or a button on the page, trains with the answers.

    Example: `sparselabel review runs/first`

    Parameters
    ----------
    run
        Folder of a finished run.
    answers
        File to append answers to; default: answers.csv in the run (complete.csv with --goal count).
    reviewer
        Name to save with the answers; default: your login name.
    goal
        What the questions are for.
        labels: missing labels of training images. thresholds: labels of validation images, for reliable
        thresholds. count: all labels of random training images, to estimate the expected positives.
    data
        The run's prepared data, if it is no longer where it was.
    port
        Port of the page; if it is in use, another one is taken.
    host
        Name or address of this machine, to share the page on a network; needs --tls-cert and --tls-key.
    tls_cert, tls_key
        PEM files of a certificate for that name and of its key.
    no_browser
        Only print the address.
    workers
        Processes that load images when they are first scored; by default none for a CPU.
    engine
        What runs the network on a CPU; auto takes the first one that is installed, and torch for few images.
    """
    from sparselabel.review.run_review import serve_review
    from sparselabel.run import Run

    opened = Run.open(run, data)
    answer_file = serve_review(
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
    _print_next(opened, answer_file, goal)


def _print_next(run: "Run", answer_file: "AnswerFile", goal: str) -> None:
    """Print how many answers there are, and what to do with them."""
    from sparselabel.review.retrain import free_folder

    console, answers, data = plain_console(), answer_file.last_words(), run.data_folder
    if not answers:
        again = shlex.join(["sparselabel", "review", str(run.path), "--goal", goal])
        console.print(f"no answers yet: go on with `{again}`")
        return
    if goal == "count":
        images = len({image for image, _ in answers})
        console.print(f"{counted(images, 'image')} with all labels in {answer_file.path}")
        words = ["expect", data, "--how", "counted", "--labels", answer_file.path, "--out", "expected.json"]
    else:
        console.print(f"{counted(len(answers), 'answer')} in {answer_file.path}")
        given = [run.given_answers_file] if run.given_answers_file.is_file() else []
        out = free_folder(run)
        words = [
            "train",
            data,
            "--config",
            run.config_file,
            "--answers",
            *given,
            answer_file.path,
            "--out",
            out,
        ]
    console.print(f"next: {shlex.join(['sparselabel', *map(str, words)])}")
