"""The runs of a report: load their results, and refuse runs that cannot be compared."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparselabel.config import TrainConfig
from sparselabel.data.dataset import Dataset
from sparselabel.errors import ConfigError, DataError, RunError, listing, param
from sparselabel.expected_positives.class_counts import ExpectedFile, remedy_of
from sparselabel.file_formats import read_json, read_json_lines
from sparselabel.inference.class_thresholds import load_class_thresholds, threshold_metrics
from sparselabel.inference.saved_scores import saved_scores
from sparselabel.losses.registry import needs_expected_positives
from sparselabel.report.figures.style import names_of
from sparselabel.run import EpochRecord, Run

SPLITS = {"test": "test", "val": "validation"}
"""Splits that a report can be about, and what result.json calls them."""


@dataclass(frozen=True, eq=False)
class ShownRun:
    """A finished run: its name in the report, its files, and the numbers of every epoch."""

    name: str
    folder: Run
    config: TrainConfig
    about: dict[str, Any]
    result: dict[str, Any]
    epochs: list[dict[str, Any]]

    @property
    def oracle(self) -> bool:
        """Whether its method saw hidden labels."""
        return bool(self.result["oracle"])

    @property
    def expected(self) -> dict[str, Any] | None:
        """The estimate of K that it was trained with, if it was."""
        if not self.folder.expected_file.is_file():
            return None
        if not needs_expected_positives(self.config.method):
            return None  # it is for the thresholds
        estimate = read_json(self.folder.expected_file, ExpectedFile, "train again", error=RunError)
        return {**estimate, "remedy": remedy_of(estimate["how"], estimate["K"], estimate["interval"])}

    def measured(self, split: str) -> dict[str, Any] | None:
        """The measures of a split at the best epoch."""
        measures: dict[str, Any] | None = self.result.get(SPLITS[split])
        return measures


@dataclass(frozen=True, eq=False)
class ReportData:
    """The runs of a report, with the same classes and images; the first one is the reference.

    ``split`` is None where the data has neither a test nor a validation split.
    """

    runs: list[ShownRun]
    data: Dataset
    split: str | None

    @property
    def reference(self) -> ShownRun:
        """The run that others are compared with, and whose scores choose images."""
        return self.runs[0]

    @property
    def otherwise_trained(self) -> list[str]:
        """Runs whose training images or labels are not those of the reference."""
        digests = [run.about["data_digest"].get("train") for run in self.runs]
        return [run.name for run, one in zip(self.runs, digests, strict=True) if one != digests[0]]

    @property
    def hidden(self) -> bool:
        """Whether training saw less than all labels."""
        return not self.data.train.observed.complete


def read_runs(
    runs: Sequence[Path | Run], split: str | None = None, moved: Path | Dataset | None = None
) -> ReportData:
    """Read finished runs of the same data; ``moved`` is its new folder, if it was moved."""
    paths = [run.path if isinstance(run, Run) else run for run in runs]
    if not paths:
        raise ConfigError("there is nothing to report on", "name one or more finished runs")
    resolved = [path.resolve() for path in paths]
    twice = [path for number, path in enumerate(paths) if path.resolve() in resolved[:number]]
    if twice:
        raise ConfigError(f"{listing(twice)} is named more than once", "name each run once", value=twice)
    if split is not None and split not in SPLITS:
        raise ConfigError(f"a report is about {param('split')} test or val, not {split!r}", what="split")
    names = shortened(names_of(paths))
    shown = [
        _read(run if isinstance(run, Run) else Run.open(run, moved), name)
        for run, name in zip(runs, names, strict=True)
    ]
    chosen = split or next((name for name in SPLITS if name in shown[0].about["data_digest"]), None)
    for run in shown:
        _refuse_other_data(shown[0], run, chosen)
        run.folder.split(chosen or "train")  # refuses data that is gone or has changed
    return ReportData(shown, shown[0].folder.data(), chosen)


def shortened(names: Sequence[str]) -> list[str]:
    """Names without the end that all of them share, as in an-0.01-seed0 and role-0.01-seed0."""
    words = [name.split("-") for name in names]
    same = 0
    while len(names) > 1 and all(len(name_words) > same + 1 for name_words in words):
        if len({name_words[-same - 1] for name_words in words}) > 1:
            break
        same += 1
    return ["-".join(name_words[: len(name_words) - same]) for name_words in words]


def _read(run: Run, name: str) -> ShownRun:
    return ShownRun(name, run, run.config(), run.metadata(), _with_thresholds_as_they_are(run), _epochs(run))


def _with_thresholds_as_they_are(run: Run) -> dict[str, Any]:
    """The result of a run, measured at its thresholds: a reviewer's answers may have moved them since."""
    result = run.result()
    for split, key in SPLITS.items():
        decided = (result.get(key) or {}).get("decided")
        if not decided or not run.thresholds_file.is_file() or not run.scores_file(split).is_file():
            continue
        thresholds = load_class_thresholds(run)
        before = [(row["threshold"], row["trust"]) for row in decided["classes"]]
        if before == [(row.threshold, row.trust) for row in thresholds.classes]:
            continue
        with suppress(DataError, RunError):  # scores of other images, or images that are gone
            saved = saved_scores(run, split)
            result[key]["decided"] = threshold_metrics(saved.scores, saved.labels, thresholds)
    return result


def _epochs(folder: Run) -> list[dict[str, Any]]:
    if not folder.metrics_file.is_file():
        return []
    remedies = "remove the lines that are damaged", "remove the file, and the report has no curves there"
    return [{**record} for record in read_json_lines(folder.metrics_file, EpochRecord, *remedies)]


def _refuse_other_data(first: ShownRun, other: ShownRun, split: str | None) -> None:
    one_digest, other_digest = (run.about["data_digest"].get(split or "train") for run in (first, other))
    if one_digest != other_digest or first.about["classes"] != other.about["classes"]:
        raise RunError(
            f"{first.folder.path} and {other.folder.path} have other data in split {split or 'train'!r}: "
            "their numbers do not compare",
            "make a report of each",
        )
