"""The page itself: everything gathered, put into the template, written at once."""

import hashlib
import shlex
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from sparselabel.data import thumbnails as images
from sparselabel.errors import ConfigError, RunError, param
from sparselabel.files import atomic_write, require_file_to_write
from sparselabel.report import charts, curves, tables
from sparselabel.report import examples as cards
from sparselabel.report.examples import Missing, Scored
from sparselabel.report.run_data import ReportData, ShownRun


def checked_page(out: Path) -> Path:
    """The path of a report; refuses one that is no HTML file, or that cannot be written, before any work."""
    if out.suffix.lower() not in (".html", ".htm"):
        raise ConfigError(f"a report is an HTML file: {param('out')} must end in .html, but is {out}")
    require_file_to_write(out, f"name another file, as {param('out', out.parent / 'report.html')}")
    return out


def refuse_other_report(out: Path, about: ReportData) -> None:
    """Raise if a file is there that is not an older report of the same runs."""
    if not out.exists():
        return
    with out.open(encoding="utf-8", errors="replace") as file:
        if f'<meta name="runs" content="{_identity(about)}">' not in file.read(10_000):
            raise RunError(
                f"{out} exists and is not a report of these runs",
                f"choose another {param('out')}",
                f"replace it ({param('force', True)})",
            )


def _identity(about: ReportData) -> str:
    """Says which runs a report is of."""
    paths = [str(run.folder.path.resolve()) for run in about.runs]
    return hashlib.blake2b("\n".join(paths).encode(), digest_size=16).hexdigest()


def write_report(
    about: ReportData, scored: Scored, missing: Missing | None, out: Path, notes: dict[str, str], version: str
) -> None:
    """Write the report; ``notes`` says, by section, why something is not in it."""
    template = environment().get_template("report.html")
    text = template.render(**_content(about, scored, missing, notes, version))
    out.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(out) as partial:
        partial.write_text(text, encoding="utf-8")


def environment() -> Environment:
    """Our templates, styles and filters."""
    loader = PackageLoader("sparselabel.report")
    made = Environment(
        autoescape=True, loader=loader, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )

    def as_it_is(name: str) -> Markup:
        """A style sheet or script of ours, which must not be escaped."""
        return Markup(loader.get_source(made, name)[0])

    made.globals |= {"as_it_is": as_it_is, "drawing": charts}
    made.filters["score"] = cards.as_score
    made.filters["signed"] = lambda value: f"{value:+.1f}".replace("-", "−")
    made.filters["count"] = lambda value: f"{value:,}"
    return made


def _content(
    about: ReportData, scored: Scored, missing: Missing | None, notes: dict[str, str], version: str
) -> dict[str, Any]:
    classes = tables.class_rows(about)
    measured = None if about.split is None else about.reference.measured(about.split)
    today = date.today()
    mapped = cards.with_maps(about, about.split or "train")
    looking = [run.name for run in mapped if run.config.has_attention]
    return {
        "about": about,
        "identity": _identity(about),
        "runs": tables.run_rows(about),
        "several": len(about.runs) > 1,
        "split": tables.name_of_split(about),
        "measured": measured,
        "map_name": "mAP" if measured is None else measured["name"],
        "validation_name": _validation_name(about),
        "complete": measured is not None and measured["labels"] == "complete",
        "data": _data(about),
        "curves": curves.learning_curves(about.runs),
        "recovery": curves.recovery_curves(about.runs),
        "classes": classes,
        "ends": _ends(classes),
        "measures": tables.measure_rows(about),
        "by_labels": tables.by_labels(about),
        "by_size": tables.by_size(about, scored),
        "distributions": tables.distributions(about, scored),
        "reliability": tables.reliability_charts(about),
        "calibrated": tables.calibrated_runs(about),
        "thresholds": tables.class_thresholds(about),
        "groups": cards.case_cards(about, scored.groups),
        "missing": [] if missing is None else cards.missing_rows(about, missing),
        "missing_cards": [] if missing is None else cards.missing_cards(about, missing),
        "looking": looking,
        "all_look": len(looking) == len(mapped),
        "scale": images.scale(),
        "made": [_made(run) for run in about.runs],
        "notes": {"scores": "", "images": "", "missing": ""} | notes,
        "version": version,
        "today": f"{today.day} {today:%B %Y}",
    }


def _validation_name(about: ReportData) -> str:
    """What is measured on validation: mAP, or observed-label mAP."""
    by_run = (run.measured("val") for run in about.runs)
    return next((str(measured["name"]) for measured in by_run if measured is not None), "mAP")


def _data(about: ReportData) -> dict[str, Any]:
    """The data in a few numbers."""
    train = about.data.train
    observed = train.observed
    return {
        "name": about.data.name,
        "classes": len(about.data.classes),
        "splits": {name: len(split) for name, split in about.data.splits.items()},
        "positives": float(observed.per_image(1).mean()),
        "negatives": float(observed.per_image(0).mean()),
        "truth": train.truth.complete,
    }


def _ends(classes: Sequence[tables.ClassRow]) -> tuple[tables.ClassRow, tables.ClassRow] | None:
    """The best and the worst class of the reference run."""
    rated = [row for row in classes if row.numbers and row.numbers[0].value is not None]
    rated.sort(key=lambda row: row.numbers[0].value or 0.0)
    return (rated[-1], rated[0]) if len(rated) > 1 else None


def _made(run: ShownRun) -> dict[str, Any]:
    """How a run came about, word by word."""
    return {
        "name": run.name,
        "folder": str(run.folder.path),
        "command": shlex.join(run.about.get("command", [])) or "not recorded",
        "seed": run.config.seed,
        "data": run.about["data"],
        "digests": run.about["data_digest"],
        "versions": run.about.get("versions", {}),
        "config": run.folder.config_file.read_text(encoding="utf-8"),
        "expected": run.expected,
    }
