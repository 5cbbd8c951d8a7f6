"""``sparselabel report``: one or more runs as one HTML file."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sparselabel.cli.arguments import as_flag
from sparselabel.cli.terminal import plain_console, progress
from sparselabel.config import Machine
from sparselabel.errors import DataError, ModelError, RunError

if TYPE_CHECKING:
    from sparselabel.report.run_data import Reported


def report(
    *runs: Path,
    out: Path | None = None,
    split: str | None = None,
    data: Path | None = None,
    workers: int = Machine().workers,
    force: bool = False,
) -> None:
    """Write a report of finished runs: one HTML file that opens offline, on a phone too.

    Numbers, learning curves, classes, sizes, scores, heat maps of telling images, and training labels that
    are likely missing. The first run is the one that others are compared with. What has not been scored yet
    is scored now and kept in the run.

    Example: `sparselabel report runs/an runs/role --out report.html`

    Parameters
    ----------
    runs
        Folders of finished runs on the same data.
    out
        HTML file to write; default: report.html in the run, or here for several runs.
    split
        Which split of the data it is about: test or val; default: test, if there is one.
    data
        The runs' prepared data, if it is no longer where it was.
    workers
        Processes that load images.
    force
        Replace a file that is not a report of the same runs.
    """
    from sparselabel.report.page import checked_page, refuse_other_report
    from sparselabel.report.run_data import read_runs

    out = checked_page(out or (runs[0] if len(runs) == 1 else Path()) / "report.html")
    about = read_runs(runs, split, data)
    if not force:
        refuse_other_report(out, about)
    write(about, out, workers)
    plain_console().print(f"written: {out} ({out.stat().st_size / 1e6:.1f} MB)")


def write(about: "Reported", out: Path, workers: int) -> None:
    """Let the models say what is not on the disk yet, and write the report with what there is."""
    from sparselabel import __version__
    from sparselabel.inference.maps import write_maps
    from sparselabel.inference.missing_labels import write_missing
    from sparselabel.report.examples import Scored, entries, look_at_scores, read_missing, with_maps
    from sparselabel.report.page import write_report

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
                with progress(len(about.data.train), "scoring train") as advance:
                    write_missing(about.reference.folder, workers=workers, report=advance)
                missing = read_missing(about)
            if missing is not None:
                places = missing.shown()
                shown = missing.rows[places].tolist(), missing.classes[places].tolist()
                for run in with_maps(about, "train"):
                    write_maps(run.folder, "train", *shown)
    write_report(about, scored, missing, out, notes, __version__)
    for note in dict.fromkeys(notes.values()):
        plain_console().print(f"left out: {note}")


def _score(about: "Reported", split: str, workers: int) -> None:
    """Score the split's images with the models that have not, or whose scores are of other images."""
    from sparselabel.inference.evaluate import evaluate_run
    from sparselabel.inference.score_files import saved_scores

    for run in about.runs:
        try:
            saved_scores(run.folder, split)
        except RunError:
            with progress(len(about.data.split(split)), f"scoring {split}, {run.name}") as advance:
                evaluate_run(run.folder, split, workers=workers, report=advance)


@contextmanager
def _or_note(notes: dict[str, str], section: str) -> Iterator[None]:
    """Where images, a model or the right to write are missing, the report goes on and says so."""
    try:
        yield
    except (DataError, ModelError, RunError) as error:
        notes[section] = error.render(as_flag)
    except OSError as error:
        notes[section] = str(error)
