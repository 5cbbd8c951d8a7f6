"""Shares of the gap between `an` and `bce` in a table of test mAP per seed, with their intervals.

    python -m benchmarks.gap_shares results/kinds-of-labels.csv --against pu

A share is (test − test of `an`) / (test of `bce` − test of `an`), from means over the seeds. Its 95 %
interval is Student's t over the shares of the seeds (or draws of labels), each with the `an` and `bce` of
its seed; the difference to another method has one alike. The mean of several kinds of labels, and how far
it is from the other method's, have the t interval over the kinds.
"""

import argparse
import csv
from collections import defaultdict
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.stats import t

Floats = npt.NDArray[np.float64]
TEST = ("test", "test_mAP")
SETTINGS = ("preset", "varied", "value", "weight", "smallest_crop", "lr")


def per_seed(file: Path) -> dict[tuple[str, str], dict[str, Floats]]:
    """Test mAP of every seed, by data and labels, and by method; of several rates the best in validation."""
    tables: dict[tuple[str, str], dict[str, dict[str, list[tuple[float, float]]]]] = {}
    with file.open(newline="") as stream:
        for row in csv.DictReader(stream):
            key = (row.get("data", ""), row.get("labels", ""))
            found = tables.setdefault(key, {}).setdefault(row["method"], defaultdict(list))
            setting = ", ".join(row[name] for name in SETTINGS if row.get(name))
            validation = float(row.get("validation") or row["validation_mAP"])
            tests = [row[name] for name in row if name.startswith("test_") and name[5:].isdigit()]
            for test in tests or [next(row[name] for name in TEST if name in row)]:
                if test:
                    found[setting].append((validation, float(test)))
    return {
        key: {
            method: np.array(max(settings.values(), key=lambda runs: np.mean([one[0] for one in runs])))[:, 1]
            for method, settings in methods.items()
        }
        for key, methods in tables.items()
    }


def interval(values: Floats) -> tuple[float, float]:
    """The 95 % interval of a mean, by Student's t."""
    if len(values) < 2:
        return np.nan, np.nan
    half = t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return float(values.mean() - half), float(values.mean() + half)


def share(values: Floats, an: Floats, bce: Floats) -> tuple[float, tuple[float, float]]:
    """Of means, and its interval over the seeds that all have."""
    seeds = min(map(len, (values, an, bce)))
    each = (values[:seeds] - an[:seeds]) / (bce[:seeds] - an[:seeds])
    return float((values.mean() - an.mean()) / (bce.mean() - an.mean())), interval(each)


def main(file: Path, against: str) -> None:
    kinds: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for (data, labels), methods in per_seed(file).items():
        print(", ".join(filter(None, (file.name, data, labels))))
        if not {"an", "bce", against} <= methods.keys():
            print(f"  no an, bce or {against}")
            continue
        for method, values in sorted(methods.items(), key=lambda one: -one[1].mean()):
            difference = _paired(values, methods[against])
            of_gap, (least, most) = share(values, methods["an"], methods["bce"])
            kinds[data][method].append(of_gap)
            print(f"  {method:12} {values.mean():6.2f}  over {against} {difference}  "
                  f"share {of_gap:.0%} ({least:.0%} to {most:.0%})")  # fmt: skip
    for data, of_methods in kinds.items():
        for method, shares in sorted(of_methods.items(), key=lambda one: -float(np.mean(one[1]))):
            if len(shares) == len(of_methods["an"]) > 1:
                low, high = interval(np.array(shares))
                points = _paired(100 * np.array(shares), 100 * np.array(of_methods[against]))
                print(f"{data}, {len(shares)} kinds: {method:12} {np.mean(shares):.0%} "
                      f"({low:.0%} to {high:.0%}), over {against} {points}")  # fmt: skip


def _paired(values: Floats, others: Floats) -> str:
    both = min(map(len, (values, others)))
    low, high = interval(values[:both] - others[:both])
    return f"{values.mean() - others.mean():+.2f} ({low:+.2f} to {high:+.2f})"


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("tables", type=Path, nargs="+")
    parser.add_argument("--against", default="an")
    given = parser.parse_args()
    for table in given.tables:
        main(table, given.against)
