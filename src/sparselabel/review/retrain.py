"""Retrain with the answers of a review in a separate process, and compare the results.

python -m sparselabel.review.retrain RUN DATA OUT ANSWERS [ANSWERS ...]
"""

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np

from sparselabel.config import Handling
from sparselabel.data.answers import with_files
from sparselabel.data.prepared_files import open_prepared
from sparselabel.errors import SparselabelError
from sparselabel.inference.class_thresholds import load_class_thresholds
from sparselabel.inference.saved_scores import saved_scores
from sparselabel.metrics.bootstrap import paired_bootstrap
from sparselabel.run import Run
from sparselabel.training.train_run import train_run

DRAWS = 1000


class Retraining:
    """At most one training at a time, with a run's own settings, into a new folder beside it."""

    def __init__(self, run: Run, files: list[Path]) -> None:
        self.run, self._files = run, files
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._errors = b""
        self._out = run.path
        self._change: dict[str, Any] | None = None

    def start(self) -> None:
        """Begin to train with the answers that are there, unless it is training already."""
        with self._lock:
            if self._process is not None and self._process.poll() is None:
                return
            self._out, self._change = free_folder(self.run), None
            self._errors = b""
            files = [file for file in self._files if file.is_file()]
            words = [self.run.path, self.run.data_folder, self._out, *files]
            self._process = subprocess.Popen(
                # -P: no module of the folder that somebody happens to be in, as one of images, is run.
                [sys.executable, "-P", "-m", __name__, *map(str, words)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C is for the review, which then ends it
            )
            self._listener = threading.Thread(target=self._listen, args=(self._process,), daemon=True)
            self._listener.start()

    def _listen(self, process: "subprocess.Popen[bytes]") -> None:
        """Keep what a training has to complain about, and wait for its end."""
        if process.stderr is not None:
            with process.stderr as stream:
                self._errors = stream.read()
        process.wait()

    def status(self) -> dict[str, Any]:
        """Whether it trains, how far it is, and what has changed when it is done."""
        with self._lock:
            if self._process is None:
                return {"state": "none"}
            out = Run(self._out)
            code = self._process.poll()
            about = {"run": str(self._out), "epoch": _epochs(out), "epochs": self.run.config().epochs}
            if code is None:
                return about | {"state": "running"}
            if code:
                return about | {"state": "failed", "error": self._last_line()}
            if self._change is None:
                self._change = difference(self.run, out)
            return about | {"state": "done", "change": self._change}

    def stop(self) -> bool:
        """End a training that is under way; whether there was one."""
        with self._lock:
            running = self._process is not None and self._process.poll() is None
            if running and self._process is not None:
                self._process.terminate()
                self._process.wait()
            return running

    def _last_line(self) -> str:
        self._listener.join()
        lines = self._errors.decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it was ended"


def why_not(run: Run) -> str:
    """Why a run cannot be trained again from the page; nothing if it can."""
    if run.own_model is not None:
        return "the run has a model of your own: train it in Python"
    if run.moved is not None and not isinstance(run.moved, Path):
        return "the run's data is in memory: train it in Python"
    metadata = run.metadata()
    if metadata.get("label_seed") is not None or metadata.get("annotation"):
        return "the run is part of a comparison that drew its labels anew"
    return ""


def free_folder(run: Run) -> Path:
    """A free folder beside the run for the next one."""
    number, name = 1, f"{run.path.name}-reviewed"
    while (folder := run.path.with_name(name if number == 1 else f"{name}-{number}")).exists():
        number += 1
    return folder


def _epochs(run: Run) -> int:
    """Epochs that a run has behind it."""
    return len(run.metrics_file.read_bytes().splitlines()) if run.metrics_file.is_file() else 0


def difference(run: Run, other: Run) -> dict[str, Any]:
    """The changes by a second run on the same images: mAP with its interval, and reliable thresholds."""
    split = "test" if other.scores_file("test").is_file() else "val"
    change: dict[str, Any] = {
        name: sum(row.trust != "poor" for row in load_class_thresholds(one).classes)
        for name, one in (("trusted_before", run), ("trusted_after", other))
    }
    change["classes"] = len(run.classes)
    if run.scores_file(split).is_file() and other.scores_file(split).is_file():
        first, second = saved_scores(run, split), saved_scores(other, split)
        if np.array_equal(first.labels.ids, second.labels.ids):
            # The labels of validation are those of the second run: it knows the answers about them.
            bootstrap = paired_bootstrap(first.array, second.array, second.positive, DRAWS)
            change |= {"split": split, "before": bootstrap.first, "after": bootstrap.second}
            change["complete"] = second.labels.complete
            change |= {"low": bootstrap.low, "high": bootstrap.high}
    return change


def main() -> int:
    """Train as the arguments say; an error is one line."""
    run, data, out, *files = (Path(word) for word in sys.argv[1:])
    try:
        prepared = with_files(open_prepared(data), files)
        train_run(prepared, Run(run).config(), out, handling=Handling(quiet=True), command=sys.argv)
    except SparselabelError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
