"""A review of fake images and scores, with names that must be escaped; run as a program, it serves one."""

import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from sparselabel.config import Preparation
from sparselabel.data.dataset import Dataset
from sparselabel.data.label_table import LabelTable
from sparselabel.data.prepare import prepare
from sparselabel.data.prepared_files import open_prepared
from sparselabel.data.readers.raw_dataset import RawDataset, RawSplit
from sparselabel.data.spatial_labels import SpatialLabels
from sparselabel.data.transforms import squashed
from sparselabel.errors import DataWarning
from sparselabel.review.answer_log import AnswerFile
from sparselabel.review.complete_images import CompleteImageReview
from sparselabel.review.server import Images, ReviewServer
from sparselabel.review.session import Review
from tests.data.images import paint

HOSTILE = "<img src=x onerror=document.title='stolen'>"
CLASSES = ("cat", HOSTILE, 'dog\'s & "bone"')
COUNT = 12
TRUTH = np.zeros((COUNT, 3), np.int8)
TRUTH[np.arange(COUNT), np.arange(COUNT) % 3] = 1
TRUTH[::2, 0] = 1
SCORES = np.linspace(0.99, 0.02, COUNT * 3, dtype=np.float32).reshape(COUNT, 3)
"""The highest of every class is in the first row, and falls from row to row."""


def make_data(folder: Path) -> Dataset:
    """Twelve training images, of each of which one label is observed; names that are no addresses."""
    names = [f"a b{row}?&#'<.png" for row in range(COUNT)]
    for row, name in enumerate(names):
        paint(folder / "images" / name, row, 90, 60)
    values = np.where(np.arange(3) == (np.arange(COUNT) % 3)[:, None], 1, -1).astype(np.int8)
    labels = LabelTable(np.asarray(names), CLASSES, TRUTH)
    split = RawSplit(labels, np.asarray(names), SpatialLabels.none(), observed=values)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        source = RawDataset("made <up>", folder / "images", {"train": split})
        return prepare(source, folder / "data", Preparation(validation=0))


def maps(row: int) -> Any:
    """The left half is warm."""
    return np.stack([np.array([[4.0, -4.0], [4.0, -4.0]])] * 3)


def make_server(data: Dataset, file: Path, whole: bool = False, port: int = 0, **more: Any) -> ReviewServer:
    answers = AnswerFile(file, "ann <b>")
    review = (CompleteImageReview if whole else Review)(data.train, SCORES, answers)
    about = {
        "run": "runs/<i>first</i>",
        "file": str(file),
        "reviewer": "" if more.get("shared") else answers.reviewer,
        "classes": list(CLASSES),
        "goal": "count" if whole else "labels",
        "no_training": "" if more.get("retraining") else "it is <made up>",
    }
    return ReviewServer(review, Images(data.train, squashed(32), maps), about, port, **more)


@contextmanager
def served(data: Dataset, file: Path, whole: bool = False, **more: Any) -> Iterator[ReviewServer]:
    with make_server(data, file, whole, **more) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
            server.review.answers.close()


if __name__ == "__main__":
    with make_server(open_prepared(Path(sys.argv[1])), Path(sys.argv[2])) as opened:
        sys.stdout.write(f"{opened.address}\n")
        sys.stdout.flush()
        opened.serve_forever()
