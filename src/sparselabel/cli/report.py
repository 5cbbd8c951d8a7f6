"""``sparselabel report``: one or more runs as one HTML file."""

from pathlib import Path

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

    It shows metrics, learning curves, classes, object sizes, scores, heat maps of chosen images, and training
    labels that are likely missing. Other runs are compared with the first one. What has not been scored yet
    is scored now and saved in the run.

    Example: `sparselabel report runs/an runs/role --out report.html`

    Parameters
    ----------
    runs
        Folders of finished runs on the same data.
    out
        HTML file to write; default: report.html in the run, or in the current folder for several runs.
    split
        Split of the data to report on: test or val; default: test, if there is one.
    data
        The runs' prepared data, if it is no longer where it was.
    workers
        Processes that load images; by default none for a CPU, where threads do it.
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
    for note in make_report(about, out, workers):
        plain_console().print(f"left out: {note}")
    plain_console().print(f"written: {out} ({out.stat().st_size / 1e6:.1f} MB)")
