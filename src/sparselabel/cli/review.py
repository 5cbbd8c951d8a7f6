"""``sparselabel review``: a page on which people confirm or reject suggested labels."""

import shlex
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparselabel.cli.terminal import plain_console, progress
from sparselabel.config import Machine
from sparselabel.errors import ConfigError, counted, param
from sparselabel.files import require_folder_to_write

if TYPE_CHECKING:
    from sparselabel.data.dataset import PreparedSplit
    from sparselabel.inference.review_scores import ReviewScores
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
    """
    from sparselabel.inference.maps import MapCache
    from sparselabel.review.answer_log import AnswerFile
    from sparselabel.review.complete_images import CompleteImageReview
    from sparselabel.review.server import Images, ReviewServer
    from sparselabel.review.session import Review
    from sparselabel.run import Run

    if not 0 <= port <= 65535:
        raise ConfigError(f"{param('port')} must be a number from 0 to 65535, not {port}", what="port")
    console, folder = plain_console(), Run.open(run, data)
    split = folder.split("train")
    file = answers or (folder.complete_file if complete else folder.answers_file)
    with AnswerFile(file, reviewer or _login()) as kept:
        if kept.mended:
            console.print(kept.mended)
        scores = _scored(folder, split, workers)
        maps = MapCache(folder, split)
        if not complete:
            maps.load_ahead()
        session = CompleteImageReview(split, scores, kept) if complete else Review(split, scores, kept)
        if session.strangers:
            console.print(f"{counted(session.strangers, 'line')} of {file} are about other data")
        about: dict[str, Any] = {
            "run": str(run),
            "file": str(file),
            "reviewer": kept.reviewer,
            "classes": list(session.classes),
            "mode": "whole" if complete else "suggested",
        }
        images = Images(split, maps.view, maps.maps)
        with ReviewServer(session, images, about, port) as server:
            if port not in (0, server.port):
                console.print(f"port {port} is taken: this is {server.port}")
            console.print(f"review: {server.address}\nCtrl-C ends; every answer is saved at once in {file}")
            if not no_browser:
                webbrowser.open(server.address)
            try:
                server.serve_forever()
            except KeyboardInterrupt:
                console.print()
        _tell_next(folder, kept, complete)


def _scored(run: "Run", split: "PreparedSplit", workers: int) -> "ReviewScores":
    """Scores of the training images: those that were kept, or new ones."""
    from sparselabel.inference.review_scores import review_scores, write_review_scores

    stored = review_scores(run, split)
    if stored is not None:
        return stored
    require_folder_to_write(run.path, "scores are kept in the run: copy it to a folder of yours")
    with progress(len(split), "scoring the training images") as advance:
        features = _stored_features(run, split)
        return write_review_scores(run, split, features=features, workers=workers, report=advance)


def _stored_features(run: "Run", split: "PreparedSplit") -> Any:
    """The features that the run was trained on, if it was trained on nothing else and they are there."""
    from sparselabel.file_formats import read_array
    from sparselabel.inference.scorer import evaluation_view
    from sparselabel.training.features import features_file

    config = run.config()
    of_file = config.weights not in ("pretrained", "none")
    if not config.frozen or config.finetune.epochs or (of_file and not Path(config.weights).is_file()):
        return None
    file = features_file(split, run.data_folder / "features", config, evaluation_view(config))
    return read_array(file, "f N D", mapped=True) if file.is_file() else None


def _login() -> str:
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


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
