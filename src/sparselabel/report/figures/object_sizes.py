"""mAP by object size, compared with a baseline (Verelst 2023 supplement fig. D.1)."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sparselabel.data.dataset import PreparedSplit, evaluation_labels
from sparselabel.data.labels import NEGATIVE, POSITIVE, UNKNOWN
from sparselabel.errors import ConfigError, DataError, param
from sparselabel.inference.saved_scores import refuse_other_data, saved_scores
from sparselabel.metrics.average_precision import average_precision
from sparselabel.metrics.tiled_scores import Scores
from sparselabel.report.figures.style import COLORS, GRAY, names_of, new_figure, save, style
from sparselabel.run import Run

COLUMNS = ("bin", "area_from", "area_to", "positives", "classes", "run", "mAP", "relative_percent")
MOST_BINS = 20


@dataclass(frozen=True, eq=False)
class Bin:
    """Positives of similar size: ``rows`` and ``classes`` of them, and the areas they lie between."""

    rows: npt.NDArray[np.intp]
    classes: npt.NDArray[np.intp]
    smallest: float
    largest: float


def largest_areas(
    split: PreparedSplit,
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp], npt.NDArray[np.float64]]:
    """Rows and classes (n,) that have a box, sorted, and the area of the largest one, as a share."""
    boxes, classes = split.spatial_labels, split.truth.matrix.shape[1]
    sizes = boxes.sizes.astype(np.float64)
    entries, of = np.unique(boxes.rows.astype(np.int64) * classes + boxes.classes, return_inverse=True)
    areas = np.zeros(len(entries))
    np.maximum.at(areas, of, sizes[:, 0] * sizes[:, 1])
    rows, columns = np.divmod(entries[areas > 0], classes)
    return rows, columns, areas[areas > 0]


def bins_of(split: PreparedSplit, count: int) -> list[Bin]:
    """The split's positives that have a box, sorted by area into bins of the same number (± 1)."""
    if not 1 <= count <= MOST_BINS:
        raise ConfigError(f"{param('bins')} must be 1 to {MOST_BINS} (more bars cannot be read), not {count}")
    rows, classes, size = largest_areas(split)
    there = evaluation_labels(split).values[rows, classes] == POSITIVE
    rows, classes, size = rows[there], classes[there], size[there]
    if not len(rows):
        raise DataError(
            f"split {split.name!r} has no positive with a box",
            "prepare data whose boxes are known (voc, coco, scenes)",
            f"name another {param('split')}",
        )
    if len(rows) < count:
        raise DataError(
            f"split {split.name!r} has {len(rows):,} positives with a box, too few for {count} bins",
            f"give {param('bins', len(rows))} or fewer",
            f"name another {param('split')}",
        )
    parts = np.array_split(np.argsort(size, kind="stable"), count)
    return [Bin(rows[p], classes[p], float(size[p[0]]), float(size[p[-1]])) for p in parts]


def bin_precision(scores: Scores, split: PreparedSplit, size_bin: Bin) -> float:
    """The mAP of a bin: each class's positives in it against the split's negatives of that class.

    The class's other positives are left out, and so are classes that have no positive in the bin. A label
    that nobody gave counts as absent, as in every other mAP.
    """
    values = evaluation_labels(split).values
    precisions = []
    for column in np.unique(size_bin.classes).tolist():
        labels = np.where(values[:, [column]] == POSITIVE, np.int8(UNKNOWN), np.int8(NEGATIVE))
        labels[size_bin.rows[size_bin.classes == column]] = POSITIVE
        precisions.append(average_precision(scores[:, [column]], labels, unknown="ignore")[0])
    return float(np.mean(precisions))


def draw_sizes(baseline: Path, runs: Sequence[Path], bins: int, split: str, out: Path) -> Path:
    """Bars for each bin of sizes, one per run: by how many percent its mAP differs from the baseline's."""
    if not runs:
        raise ConfigError("there is nothing to compare with the baseline", "name one more run")
    everyone = [saved_scores(Run(path), split) for path in (baseline, *runs)]
    refuse_other_data(everyone)
    names = names_of([baseline, *runs])
    size_bins = bins_of(everyone[0].split, bins)
    precisions = np.array(
        [[bin_precision(saved.array, saved.split, size_bin) for size_bin in size_bins] for saved in everyone]
    )
    relative = 100 * (precisions / precisions[0] - 1)
    numbers: list[list[object]] = []
    for bin_number, size_bin in enumerate(size_bins):
        for name, value, gain in zip(
            names, precisions[:, bin_number].tolist(), relative[:, bin_number].tolist(), strict=True
        ):
            about = (
                bin_number + 1,
                size_bin.smallest,
                size_bin.largest,
                len(size_bin.rows),
                len(np.unique(size_bin.classes)),
            )
            numbers.append([*about, name, value, gain])
    with style():
        figure = new_figure(1.2 * bins + 1.6, 3.4)
        axes = figure.subplots()
        positions, width = np.arange(bins), 0.8 / len(runs)
        for number, (name, gains) in enumerate(zip(names[1:], relative[1:], strict=True)):
            offset = (number - (len(runs) - 1) / 2) * width
            color = COLORS[number % len(COLORS)]
            bars = axes.bar(positions + offset, gains, width * 0.92, label=name, color=color)
            axes.bar_label(bars, fmt="%+.1f", fontsize=7, padding=2, color=GRAY)
        axes.axhline(0, color="black", linewidth=0.8)
        axes.margins(y=0.12)
        axes.grid(axis="x", visible=False)
        axes.set_xticks(
            positions, [_range(size_bin, mAP) for size_bin, mAP in zip(size_bins, precisions[0], strict=True)]
        )
        axes.set_xlabel(f"area of the largest box, % of the image ({names[0]}'s mAP below)")
        axes.set_ylabel(f"mAP relative to {names[0]}, %")
        figure.legend(loc="outside upper center", ncols=min(len(runs), 4))
        return save(figure, COLUMNS, numbers, out)


def _range(size_bin: Bin, baseline: float) -> str:
    return f"{100 * size_bin.smallest:.3g}–{100 * size_bin.largest:.3g}\n({100 * baseline:.1f})"
