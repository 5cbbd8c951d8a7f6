"""Fit the constants of ``expected_positives.from_features`` on one half of the suite; sum up the other.

    python -m benchmarks.expected_links [results/expected-suite.csv results/expected-judged.csv]

Links are least squares of log(K / m − 1) on log(1 / share − 1), m the mean number of labels: with one label
per image (any annotator) and with several. Errors are the middle 95 % of what is left over, each label set by
a fit without it. "Trusted" is wrong where the truth is outside the interval or K − 1 more than half off.
"""

import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

ROOT = Path(__file__).parent.parent / "results"
LEFT_OUT = ("kept-40", "kept-75")


def line(rows: pd.DataFrame, column: str) -> tuple[npt.NDArray[np.float64], pd.Series]:
    """Slope and intercept, and the errors of fits without the label set."""
    x = np.log(np.maximum(1 / rows[column] - 1, 0.01))
    y = np.log(rows["K"] / rows["mean_labels"] - 1)
    errors = pd.Series(0.0, index=rows.index)
    for name in rows["labels"].unique():
        own = rows["labels"] == name
        errors[own] = y[own] - np.polyval(np.polyfit(x[~own], y[~own], 1), x[own])
    return np.polyfit(x, y, 1), errors


def fit(suite: pd.DataFrame) -> None:
    """Print the links, at several depths."""
    half = suite[(suite["half"] == "fit") & ~suite["annotator"].isin(LEFT_OUT)]
    named = half["annotator"].str.startswith("names")
    for title, rows in (("SINGLE", half[~named]), ("SEVERAL", half[named])):
        for column in ("share_5", "share_10", "share_20", "share_40"):
            (power, intercept), errors = line(rows, column)
            low, high = errors.quantile([0.025, 0.975])
            off = np.median(np.abs(np.expm1(-errors)))
            print(f"{title} {column}: factor {np.exp(intercept):.2f}, power {power:.2f}", end="; ")
            print(f"errors {low:.2f} to {high:.2f}, median {off:.0%}", end="")
            at_random = errors[rows["annotator"] == "any"].quantile([0.025, 0.975]).tolist()
            print("" if title == "SEVERAL" else f"; any {at_random[0]:.2f} to {at_random[1]:.2f}")


def summary(rows: pd.DataFrame, said: str) -> dict[str, float]:
    """Median error of K − 1, and how often intervals and trust were right."""
    error = ((rows[said] - 1) / (rows["K"] - 1) - 1).dropna()
    figures = {"n": len(error), "median error": error.abs().median(), "median bias": error.median()}
    if "low" in rows:
        inside = (rows["low"] <= rows["K"]) & (rows["K"] <= rows["high"])
        wrong = ~inside | (error.abs() > 0.5)
        trusted = rows["trusted"].astype(bool)
        figures |= {"inside": inside.mean(), "trusted": trusted.mean(), "wrong": wrong[trusted].mean()}
    return figures


def main() -> None:
    given = [Path(file) for file in sys.argv[1:]] or [
        ROOT / "expected-suite.csv",
        ROOT / "expected-judged.csv",
    ]
    suite = pd.read_csv(given[0])
    fit(suite)
    half = suite[suite["half"] == "judge"]
    for said in ("crisp", "best_bin", "numbers", "effective"):
        rows = half[half["annotator"].isin(LEFT_OUT)] if said == "numbers" else half
        print(said, {key: round(value, 3) for key, value in summary(rows, said).items()})
    judged = pd.read_csv(given[1])
    kinds = {"all": judged} | dict(iter(judged.groupby("annotator", sort=False)))
    kinds |= dict(iter(judged.groupby("backbone")))
    kinds |= dict(iter(judged.groupby(judged["labels"].str.split("-").str[0])))
    print(pd.DataFrame({name: summary(rows, "said") for name, rows in kinds.items()}).T.round(3).to_string())


if __name__ == "__main__":
    main()
