"""Make a report from start to end: score what has not been scored, choose examples, write the page."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from sparselabel import __version__
from sparselabel.errors import DataError, ModelError, RunError
from sparselabel.inference.evaluate import evaluate_run
from sparselabel.inference.maps import write_maps
from sparselabel.inference.missing_labels import write_missing
from sparselabel.inference.saved_scores import saved_scores
from sparselabel.locks import locked
from sparselabel.progress import progress_bar, status_console
from sparselabel.report.examples import Scored, entries, look_at_scores, read_missing, with_maps
from sparselabel.report.page import write_report
from sparselabel.report.run_data import ReportData


def make_report(about: ReportData, out: Path, workers: int | None = None) -> list[str]:
    """Let the models say what is not on the disk yet, and write the report with what there is.

    Returns notes on what had to be left out.
    """
    with ExitStack() as held:
        for run in about.runs:
            held.enter_context(locked(run.folder.path, shared=True))
        return _make_locked(about, out, workers)


def _make_locked(about: ReportData, out: Path, workers: int | None) -> list[str]:
    notes: dict[str, str] = {}
    scored = Scored()
    if about.split is not None:
        with _or_note(notes, "scores"):
            _score(about, about.split, workers)
            scored = look_at_scores(about)
        with _or_note(notes, "images"):
            for run in with_maps(about, about.split):
                write_maps(run.folder, about.split, *entries(scored.groups))
    missing = None
    if about.hidden:
        with _or_note(notes, "missing"):
            missing = read_missing(about)
            if missing is None:
                with progress_bar(status_console(), len(about.data.train), "scoring train") as bar:
                    write_missing(about.reference.folder, workers=workers, report=bar.advance)
                missing = read_missing(about)
            if missing is not None:
                shown_entries = missing.shown()
                shown = missing.rows[shown_entries].tolist(), missing.classes[shown_entries].tolist()
                for run in with_maps(about, "train"):
                    write_maps(run.folder, "train", *shown)
    write_report(about, scored, missing, out, notes, __version__)
    return list(dict.fromkeys(notes.values()))


def _score(about: ReportData, split: str, workers: int | None) -> None:
    """Score the split's images with the models that have not, or whose scores are of other images."""
    for run in about.runs:
        try:
            saved_scores(run.folder, split)
        except RunError:
            with progress_bar(
                status_console(), len(about.data.split(split)), f"scoring {split}, {run.name}"
            ) as bar:
                evaluate_run(run.folder, split, workers=workers, report=bar.advance)


@contextmanager
def _or_note(notes: dict[str, str], section: str) -> Iterator[None]:
    """If images, a model or permissions are missing, note it and continue the report."""
    try:
        yield
    except (DataError, ModelError, RunError) as error:
        notes[section] = error.render()
    except OSError as error:
        notes[section] = str(error)
