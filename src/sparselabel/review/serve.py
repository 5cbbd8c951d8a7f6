"""A review from beginning to end: score the training images, serve the page, take answers until Ctrl-C."""

import getpass
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from sparselabel.config import AUTO
from sparselabel.data.dataset import PreparedSplit
from sparselabel.data.loaders import FeatureLoader
from sparselabel.errors import ConfigError, counted, param
from sparselabel.file_formats import read_array
from sparselabel.files import require_folder_to_write
from sparselabel.inference.engine import TORCH
from sparselabel.inference.maps import MapCache
from sparselabel.inference.review_scores import ReviewScores, review_scores, write_review_scores
from sparselabel.inference.scorer import evaluation_view
from sparselabel.locks import locked
from sparselabel.progress import progress_bar, status_console
from sparselabel.review.answer_log import AnswerFile
from sparselabel.review.complete_images import CompleteImageReview
from sparselabel.review.server import PORT, Images, ReviewServer
from sparselabel.review.session import Review
from sparselabel.run import Run
from sparselabel.training.features import CheckedRows, features_file


def serve_review(
    run: Run,
    *,
    say: Callable[[str], None],
    answers: Path | None = None,
    reviewer: str | None = None,
    complete: bool = False,
    port: int = PORT,
    browser: bool = True,
    workers: int = 0,
    engine: str = AUTO,
) -> AnswerFile:
    """Serve the review of a run on this machine until Ctrl-C; returns the answers, whose file is closed.

    ``say`` is told the address. The parameters are those of ``Run.review``.
    """
    if not 0 <= port <= 65535:
        raise ConfigError(f"{param('port')} must be a number from 0 to 65535, not {port}", what="port")
    split = run.split("train")
    file = answers or (run.complete_file if complete else run.answers_file)
    with locked(run.path, shared=True), AnswerFile(file, reviewer or _login()) as kept:
        if kept.mended:
            say(kept.mended)
        scores, maps = _scored(run, split, workers, engine), MapCache(run, split)
        if not complete:
            maps.load_ahead()
        session = CompleteImageReview(split, scores, kept) if complete else Review(split, scores, kept)
        if session.strangers:
            say(f"{counted(session.strangers, 'line')} of {file} are about other data")
        about: dict[str, Any] = {
            "run": str(run.path),
            "file": str(file),
            "reviewer": kept.reviewer,
            "classes": list(session.classes),
            "mode": "whole" if complete else "suggested",
        }
        with ReviewServer(session, Images(split, maps.view, maps.maps), about, port) as server:
            if port not in (0, server.port):
                say(f"port {port} is taken: this is {server.port}")
            say(f"review: {server.address}\nCtrl-C ends; every answer is saved at once in {file}")
            if browser:
                webbrowser.open(server.address)
            try:
                server.serve_forever()
            except KeyboardInterrupt:
                say("")
    return kept


def _scored(run: Run, split: PreparedSplit, workers: int, engine: str) -> ReviewScores:
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
