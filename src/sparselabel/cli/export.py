"""``sparselabel export``: a finished run as one file for other programs."""

from pathlib import Path
from typing import Any

from sparselabel.cli.terminal import plain_console
from sparselabel.errors import listing


def export(
    run: Path,
    out: Path,
    /,
    *,
    precision: float | None = None,
    threshold: float | None = None,
    force: bool = False,
) -> None:
    """Write a trained classifier as one file that runs without sparselabel.

    It takes whole images, uint8 RGB (batch, height, width, 3) of any size, and gives calibrated `scores`,
    heat `maps` and what is `present` by the thresholds. Resizing, normalization, class names, thresholds and
    calibration are inside. docs/predict.md shows how to use it.

    Example: `sparselabel export runs/first model.onnx`

    Parameters
    ----------
    run
        Folder of a finished run.
    out
        File to write: .onnx (needs the extra `export`), or .pt2, a program of torch.export.
    precision
        Choose thresholds so that this share of each class's labels is right, for example 0.9; by default
        they maximize F1.
    threshold
        One threshold of the calibrated score for all classes, for example 0.5.
    force
        Replace the file.
    """
    from sparselabel.export import check_target

    check_target(out, force)
    from sparselabel.export import export_run
    from sparselabel.run import Run

    console = plain_console()
    about, apart = export_run(Run.open(run), out, precision=precision, threshold=threshold)
    checked = "not run: onnxruntime is missing" if apart is None else f"run: scores within {apart:.1g}"
    console.print(f"written: {out} ({out.stat().st_size / 1e6:.1f} MB; {checked})")
    _say_thresholds(about)


def _say_thresholds(about: dict[str, Any]) -> None:
    names = zip(about["classes"], about["thresholds"], about["trust"], strict=True)
    rows = [*names]
    never = [name for name, value, _ in rows if value is None]
    if never:
        plain_console().print(f"never predicted, because no score reaches the precision: {listing(never)}")
    poor = [(name, trust) for name, _, trust in rows if trust["trust"] == "poor"]
    if poor:
        names_of = listing([name for name, _ in poor], 5)
        name, trust = poor[0]
        plain_console().print(f"unreliable thresholds: {names_of}; {name}: {trust['why']}")
