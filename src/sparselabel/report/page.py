"""The report page: collect its content, fill the template, write the file."""

import hashlib
import shlex
from datetime import date
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from sparselabel.data import thumbnails as images
from sparselabel.errors import ConfigError, RunError, command, param, spell
from sparselabel.files import atomic_write, require_file_to_write
from sparselabel.inference.class_thresholds import load_class_thresholds
from sparselabel.inference.expected_quality import is_meaningless, quality_of, says_nothing, trust_in
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
    about: ReportData,
    scored: Scored,
    missing: Missing | None,
    out: Path,
    notes: dict[str, str],
    version: str,
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
    made.filters["code"] = in_code
    made.filters["score"] = cards.as_score
    made.filters["signed"] = lambda value: f"{value:+.1f}".replace("-", "−")
    made.filters["count"] = lambda value: f"{value:,}"
    return made


def _content(
    about: ReportData,
    scored: Scored,
    missing: Missing | None,
    notes: dict[str, str],
    version: str,
) -> dict[str, Any]:
    classes = tables.class_rows(about)
    measured = None if about.split is None else about.reference.measured(about.split)
    today = date.today()
    split = tables.name_of_split(about)
    quality = None if measured is None else quality_of(measured, split, about.data.train)
    mapped = cards.with_maps(about, about.split or "train")
    scales = cards.common_scales(about)
    looking = [run.name for run in mapped if run.config.has_attention]
    rows = tables.run_rows(about, scored)
    return {
        "about": about,
        "identity": _identity(about),
        "runs": rows,
        "seen_all": [row for row in rows if row.oracle],
        "several": len(about.runs) > 1,
        "draws": cards.DRAWS,
        "split": split,
        "quality": quality,
        "warnings": [] if measured is None else says_nothing(measured, split),
        "meaningless": measured is not None and is_meaningless(measured),
        "trust": _trust(about),
        "next": _next(about),
        "measured": measured,
        "map_name": "mAP" if measured is None else measured["name"],
        "validation_name": _validation_name(about),
        "complete": measured is not None and measured["labels"] == "complete",
        "data": _data(about),
        "curves": curves.learning_curves(about.runs),
        "recovery": curves.recovery_curves(about.runs),
        "classes": classes,
        "thresholds": tables.threshold_rows(about),
        "measures": tables.measure_rows(about),
        "by_labels": tables.by_labels(about),
        "by_size": tables.by_size(about, scored),
        "distributions": tables.distributions(about, scored),
        "reliability": tables.reliability_charts(about),
        "calibrated": tables.calibrated_runs(about),
        "groups": cards.case_cards(about, scored.groups, scales),
        "missing": [] if missing is None else cards.missing_rows(about, missing),
        "missing_cards": [] if missing is None else cards.missing_cards(about, missing, scales),
        "looking": looking,
        "all_look": len(looking) == len(mapped),
        "scale": images.scale(),
        "score_ticks": None if scales.scores is None else cards.ticks(scales.scores),
        "made": [_made(run) for run in about.runs],
        "notes": {"scores": "", "images": "", "missing": ""} | notes,
        "version": version,
        "today": f"{today.day} {today:%B %Y}",
    }


def _validation_name(about: ReportData) -> str:
    """The validation metric: mAP, or observed-label mAP."""
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


def _trust(about: ReportData) -> list[str]:
    """Sentences on unreliable thresholds of a run, and their remedies."""
    folder = about.reference.folder
    if len(about.runs) > 1 or not folder.thresholds_file.is_file():
        return []
    return [spell(text) for text in trust_in(load_class_thresholds(folder), folder.path)]


def _next(about: ReportData) -> list[str]:
    """Sentences on what to do next with a run."""
    run = about.reference.folder.path
    if len(about.runs) > 1:
        return []
    predict, review = command("predict", run, "MORE-IMAGES", out="tags.csv"), command("review", run)
    return [
        spell(f"{predict} labels other images."),
        spell(f"{review} asks you about likely labels: the answers make the model better."),
    ]


def in_code(text: str) -> Markup:
    """A text whose parts between backticks are code."""
    pieces = escape(text).split("`")
    return Markup("").join(
        Markup("<code>{}</code>").format(piece) if number % 2 else piece
        for number, piece in enumerate(pieces)
    )


def _made(run: ShownRun) -> dict[str, Any]:
    """How a run was made: its command, versions and settings."""
    expected = run.expected
    return {
        "name": run.name,
        "folder": str(run.folder.path),
        "command": shlex.join(run.about.get("command", [])) or "not recorded",
        "seed": run.config.seed,
        "data": run.about["data"],
        "digests": run.about["data_digest"],
        "versions": run.about.get("versions", {}),
        "config": run.folder.config_file.read_text(encoding="utf-8"),
        "expected": expected,
        "remedy": "" if expected is None else spell(expected["remedy"]),
    }
