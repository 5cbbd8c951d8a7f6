"""What we measured, from results/*.csv, for the pages in docs/methods."""

import csv
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

SINGLE = "VOC 2012, one positive label per image"
FEATURES = "frozen MobileNetV2 features"
OF_KINDS = f"{{data}}, labels: {{labels}}; {FEATURES}, batch 64, K estimated"
TRAINED = "{data}, labels: {labels}; everything trained, small views, K estimated"
OF_ANNOTATORS = "{data}, no image fully labeled; frozen {features} features of norm 1"
BOOSTED = "`--boost 5`"
BUDGET = f"VOC 2012, a budget of 4 % for {{kind}}, {FEATURES}"
TABLES = {
    "voc2012-methods.csv": f"{SINGLE}, {FEATURES}, rate by validation",
    "voc2012-linear.csv": f"{SINGLE}, {FEATURES}, rate and batch by validation",
    "coco2014-linear.csv": f"COCO 2014, one positive label per image, {FEATURES}, rate by validation",
    "voc2012-tuned.csv": f"{SINGLE}, everything trained, small views",
    "scenes-demo.csv": "drawn scenes (`sparselabel demo`), one positive label per image",
    "voc2012-budget.csv": BUDGET,
    "voc2012-boost.csv": f"{SINGLE}, {FEATURES} of cells, {BOOSTED}",
    "kinds-of-labels.csv": OF_KINDS,
    "everything-trained.csv": TRAINED,
    "frozen-defaults.csv": OF_ANNOTATORS,
    "scenes-points.csv": "drawn scenes, a budget of 10 % for answers with a point (SP), everything trained",
}
"""Results by file, the words for them; docs/results.md says how they were measured."""
KINDS = {
    "I": "answers (I)",
    "SP": "answers with a point (SP)",
    "SB": "answers with a box (SB)",
    "AP": "answers with all points (AP)",
    "AB": "answers with all boxes (AB)",
}
SOURCES = {
    "coco-3000": "COCO 2014",
    "voc-2000": "VOC 2012",
    "scenes-800": "scenes",
    "scenes-dense-800": "dense scenes",
}
BACKBONES = {"mbv2": "MobileNetV2", "dino": "DINOv2-S"}
INDEXED = (
    *(title for title in TABLES.values() if "{" not in title),
    OF_KINDS.format(data="VOC 2012", labels="one positive"),
    *(OF_ANNOTATORS.format(data="COCO 2014", features=features) for features in BACKBONES.values()),
    *(TRAINED.format(data=data, labels="one positive") for data in ("VOC 2012", "scenes")),
    *(BUDGET.format(kind=KINDS[kind]) for kind in ("I", "SP")),
)
"""The tables that are columns of the index: some for every method that was measured."""


class Value(NamedTuple):
    """The mean test mAP of a method with a setting (where several were measured), and with its spread."""

    method: str
    setting: str
    mean: float
    words: str

    @property
    def named(self) -> str:
        """Method and setting as a page names them."""
        return f"`{self.method}`{self.setting and f', {self.setting}'}"


Measured = Mapping[str, Sequence[Value]]
"""Results by the words for the data."""


def measured(results: Path) -> Measured:
    """All results of a folder, in the order of TABLES."""
    found: dict[str, list[Value]] = {}
    for file, title in TABLES.items():
        for words, value in _of_file(results / file, title):
            found.setdefault(words, []).append(value)
    return found


def best_of(values: Sequence[Value]) -> Value | None:
    """The best method that is no oracle."""
    from sparselabel.cli.methods import needs_in_words

    return max(
        (one for one in values if "oracle" not in needs_in_words(one.method)),
        key=lambda one: one.mean,
        default=None,
    )


def _of_file(file: Path, title: str) -> list[tuple[str, Value]]:
    with file.open(newline="", encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    if "candidate" in rows[0]:
        return _of_annotators(rows, title)
    titles = [title.format(**row | {"kind": KINDS.get(row.get("kind", ""), "")}) for row in rows]
    if "spread" in rows[0]:  # a line a method
        seeds = sum(key.startswith("test_") for key in rows[0])
        words = [f"{row['test']} ± {row['spread']} ({seeds} seeds)" for row in rows]
        return [
            (own, Value(row["method"], _preset(row), float(row["test"]), said))
            for own, row, said in zip(titles, rows, words, strict=True)
        ]
    found: dict[tuple[str, str], dict[str, list[float]]] = {}
    rates = _chosen_rates(rows) if "lr" in rows[0] else {}
    for own, row in zip(titles, rows, strict=True):  # a line a seed, or a draw of the labels
        if rates and row["lr"] != rates[row["method"]]:
            continue
        settings = found.setdefault((own, row["method"]), {})
        settings.setdefault(row.get("weight") or "", []).append(float(row.get("test") or row["test_mAP"]))
    each = "draw" if "draw" in rows[0] else "seed"
    return [
        (own, _value(method, f"γ {weight}" if len(settings) > 1 else "", tests, each))
        for (own, method), settings in found.items()
        for weight, tests in settings.items()
    ]


def _of_annotators(rows: Sequence[Mapping[str, str]], title: str) -> list[tuple[str, Value]]:
    """The mean over the annotators that hide labels, where a line is one of them and a candidate."""
    found: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        own = title.format(data=SOURCES[row["source"]], features=BACKBONES[row["backbone"]])
        found.setdefault((own, row["candidate"]), []).append(float(row["test"]))
    means = [(own, method, statistics.fmean(tests), len(tests)) for (own, method), tests in found.items()]
    return [
        (own, Value(method, "", mean, f"{mean:.2f} (mean of {kinds} kinds of labels)"))
        for own, method, mean, kinds in means
    ]


def _chosen_rates(rows: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Every method's rate with the best mean validation mAP, where a line is a rate and a seed."""
    of: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        rates = of.setdefault(row["method"], {})
        rates.setdefault(row["lr"], []).append(float(row["validation_mAP"]))
    return {
        method: max(rates, key=lambda rate: statistics.fmean(rates[rate])) for method, rates in of.items()
    }


def _preset(row: Mapping[str, str]) -> str:
    return f"preset {row['preset']}" if row.get("preset") else ""


def _value(method: str, setting: str, tests: list[float], each: str) -> Value:
    mean = statistics.fmean(tests)
    if len(tests) == 1:
        return Value(method, setting, mean, f"{mean:.2f} (one {each})")
    spread = statistics.stdev(tests)
    return Value(method, setting, mean, f"{mean:.2f} ± {spread:.2f} ({len(tests)} {each}s)")
