"""``sparselabel report``: one or more runs as one HTML file."""

from pathlib import Path

from sparselabel.cli.arguments import AS_FLAGS
from sparselabel.cli.terminal import plain_console


def report(
    *runs: Path,
    out: Path | None = None,
    split: str | None = None,
    data: Path | None = None,
    workers: int | None = None,
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
        Processes that load images; for a CPU none by default, as threads do.
    force
        Replace a file that is not a report of the same runs.
    """
    from sparselabel.report.make_report import make_report
    from sparselabel.report.page import checked_page, refuse_other_report
    from sparselabel.report.run_data import read_runs

    out = checked_page(out or (runs[0] if len(runs) == 1 else Path()) / "report.html")
    about = read_runs(runs, split, data)
    if not force:
        refuse_other_report(out, about)
    for note in make_report(about, out, workers, AS_FLAGS):
        plain_console().print(f"left out: {note}")
    plain_console().print(f"written: {out} ({out.stat().st_size / 1e6:.1f} MB)")
