"""Run a review: score the images, serve the page, take answers until Ctrl-C."""

import getpass
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import torch

from sparselabel.config import AUTO
from sparselabel.data.dataset import PreparedSplit
from sparselabel.data.loaders import FeatureLoader
from sparselabel.errors import ConfigError, command, counted, nearest, param
from sparselabel.file_formats import read_array
from sparselabel.files import require_folder_to_write
from sparselabel.inference.class_thresholds import SPLIT, load_class_thresholds, write_class_thresholds
from sparselabel.inference.engine import TORCH
from sparselabel.inference.maps import MapCache
from sparselabel.inference.review_scores import ReviewScores, review_scores, write_review_scores
from sparselabel.inference.saved_scores import saved_scores
from sparselabel.inference.scorer import evaluation_view
from sparselabel.locks import locked
from sparselabel.progress import progress_bar, status_console
from sparselabel.review.answer_log import AnswerFile
from sparselabel.review.complete_images import CompleteImageReview
from sparselabel.review.retrain import Retraining, why_not
from sparselabel.review.server import PORT, Images, ReviewServer, shared_at
from sparselabel.review.session import Review, rows_of
from sparselabel.review.threshold_review import ThresholdReview
from sparselabel.run import Run
from sparselabel.training.features import CheckedRows, features_file

MOST_SCORES = 1 << 32
"""Bytes of scores that a review is about: of more images, some are drawn."""
Goal = Literal["labels", "thresholds", "count"]


def serve_review(
    run: Run,
    *,
    say: Callable[[str], None],
    answers: Path | None = None,
    reviewer: str | None = None,
    goal: Goal = "labels",
    port: int = PORT,
    host: str | None = None,
    tls_cert: Path | None = None,
    tls_key: Path | None = None,
    browser: bool = True,
    workers: int | None = None,
    engine: str = AUTO,
) -> AnswerFile:
    """Serve the review of a run until Ctrl-C; returns the answers, whose file is closed.

    ``say`` is told the address. The parameters are those of ``Run.review``.
    """
    if goal not in get_args(Goal):
        raise ConfigError(
            f"there is no goal {goal!r}", nearest(goal, get_args(Goal)), what="goal", value=goal
        )
    shared = shared_at(host, tls_cert, tls_key)
    if not 0 <= port <= 65535:
        raise ConfigError(f"{param('port')} must be a number from 0 to 65535, not {port}", what="port")
    split = _split(run, goal)
    rows = _drawn(split, 4 if goal == "thresholds" else 2, say)
    file = answers or (run.complete_file if goal == "count" else run.answers_file)
    with locked(run.path, shared=True), AnswerFile(file, reviewer or _login()) as answer_file:
        if answer_file.mended:
            say(answer_file.mended)
        if strangers := _strangers(run, answer_file):
            say(f"{counted(strangers, 'line')} of {file} are about other data")
        shown = split if rows is None else split.take(rows)
        session, maps = _session(run, shown, rows, answer_file, goal, workers, engine), MapCache(run, shown)
        if goal != "count":
            maps.load_ahead()
        refused = why_not(run)
        retraining = None if refused else Retraining(run, [run.given_answers_file, run.complete_file, file])
        about: dict[str, Any] = {
            "run": str(run.path),
            "file": str(file),
            "reviewer": "" if shared else answer_file.reviewer,
            "classes": list(session.classes),
            "goal": goal,
            "no_training": refused,
        }
        images = Images(shown, maps.view, maps.maps)

        def finish() -> dict[str, Any]:
            return _new_thresholds(run) if goal == "thresholds" and file == run.answers_file else {}

        with ReviewServer(
            session, images, about, port, shared=shared, retraining=retraining, finish=finish
        ) as server:
            if port not in (0, server.port):
                say(f"port {port} is taken: this is {server.port}")
            say(f"review: {server.address}\nCtrl-C ends; every answer is saved at once in {file}")
            if shared:
                say("whoever has this address can answer and train: give it to nobody else")
            if browser and not shared:
                webbrowser.open(server.address)
            try:
                server.serve_forever()
            except KeyboardInterrupt:
                say("")
            finally:
                if retraining is not None and retraining.stop():
                    say("the training that was under way has ended, too")
        if answer_file.answers:
            finish()
    return answer_file


def _split(run: Run, goal: Goal) -> PreparedSplit:
    """The images to ask about."""
    if goal != "thresholds":
        return run.split("train")
    if SPLIT not in run.data().splits:
        raise ConfigError(
            "thresholds are chosen from validation images, and the run's data has none",
            f"prepare data with some ({command('prepare', 'READER', 'SOURCE', validation=0.2)})",
            what="goal",
            value=goal,
        )
    return run.split(SPLIT)


def _drawn(
    split: PreparedSplit, bytes_of_score: int, say: Callable[[str], None]
) -> npt.NDArray[np.int64] | None:
    """A sample of rows to ask about, with a note, if all scores take too much memory; None: all rows."""
    most = max(MOST_SCORES // (bytes_of_score * len(split.truth.classes)), 1)
    if len(split) <= most:
        return None
    say(
        f"scores of all {len(split):,} images and {len(split.truth.classes):,} classes are too many: this "
        f"review asks about {most:,} of the images, drawn at random, the same ones every time"
    )
    return np.sort(np.random.default_rng(0).choice(len(split), most, replace=False))


def _strangers(run: Run, kept: AnswerFile) -> int:
    """Answers about images or classes that the data does not have."""
    asked = {answer.image for answer in kept.answers}
    known = {name for split in run.data().splits.values() for name in rows_of(asked, split)}
    return sum(one.image not in known or one.label not in run.classes for one in kept.answers)


def _session(
    run: Run,
    split: PreparedSplit,
    rows: npt.NDArray[np.int64] | None,
    kept: AnswerFile,
    goal: Goal,
    workers: int | None,
    engine: str,
) -> Review | CompleteImageReview:
    if goal == "thresholds":
        thresholds = load_class_thresholds(run)
        saved = saved_scores(run, SPLIT)
        of_val = saved.array if rows is None else saved.scores[rows]
        return ThresholdReview(split, of_val, kept, thresholds)
    scores = _scored(run, split, workers, engine)
    return CompleteImageReview(split, scores, kept) if goal == "count" else Review(split, scores, kept)


def _new_thresholds(run: Run) -> dict[str, Any]:
    """Choose the run's thresholds again, with the answers; how many can be relied on, before and now."""
    before = load_class_thresholds(run)
    now = write_class_thresholds(run, run.data(), saved_scores(run, SPLIT).scores)
    counts = [sum(row.trust != "poor" for row in one.classes) for one in (before, now)]
    return {"trusted_before": counts[0], "trusted": counts[1], "all_classes": len(now.classes)}


def _scored(run: Run, split: PreparedSplit, workers: int | None, engine: str) -> ReviewScores:
    """Scores of the training images: those that were kept, or new ones."""
    stored = review_scores(run, split)
    if stored is not None:
        return stored
    require_folder_to_write(run.path, "scores are kept in the run: copy it to a folder of yours")
    with progress_bar(status_console(), len(split), "scoring the training images") as bar:
        features = stored_features(run, split)
        return write_review_scores(
            run, split, features=features, workers=workers, engine=engine, report=bar.advance
        )


def stored_features(run: Run, split: PreparedSplit) -> FeatureLoader | None:
    """The features that the run was trained on, if it was trained on nothing else and they are there."""
    config = run.config()
    of_file = config.weights not in ("pretrained", "none")
    if not config.frozen or config.finetune.epochs or (of_file and not Path(config.weights).is_file()):
        return None
    view, engine = evaluation_view(config), run.metadata().get("engine", TORCH)
    file = features_file(split, run.data_folder / "features", config, view, engine=engine)
    if not file.is_file():
        return None
    return FeatureLoader(torch.from_numpy(read_array(file, "f N D", mapped=True)), CheckedRows(file))


def _login() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""
