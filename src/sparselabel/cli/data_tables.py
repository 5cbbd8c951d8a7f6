"""Tables for ``sparselabel data``."""

import numpy as np
from rich.table import Table

from sparselabel.data.dataset import Dataset
from sparselabel.data.describe import WHAT, Counted, Counts, count_spatial_labels
from sparselabel.errors import counted as number_of

MOST = 40  # classes listed without --all
EACH = 15  # of more: so many of the most frequent, and of the least
BINS = 20  # numbers of positives, or ranges of them, that have a row


def split_table(prepared: Dataset, counted: dict[str, Counts]) -> Table:
    """A row for each split: its images, and the labels of each."""
    table = _table(
        f"{prepared.name}: {number_of(len(prepared.classes), 'class')}",
        "split",
        "images",
        "positives\nper image",
        "observed\npositives\nper image",
        "observed\nnegatives\nper image",
        "unknown,\nof all\nlabels",
    )
    for name, counts in counted.items():
        numbers = counts.per_image
        table.add_row(
            name,
            f"{len(numbers['positive']):,}",
            _range(numbers["positive"]) if counts.complete else "not known",
            _range(numbers["observed_positive"]),
            _range(numbers["observed_negative"]),
            f"{counts.shares['unknown']:.1%}",
        )
    return table


def spatial_label_lines(prepared: Dataset, counted: dict[str, Counts]) -> list[str]:
    """Sentences on images without labels, on points, boxes and masks, and on what a budget bought."""
    lines = []
    for name, split in prepared.splits.items():
        if counted[name].without:
            lines.append(
                f"{name}: {counted[name].without:,} of {len(split):,} images have no observed label at all"
            )
        if len(split.spatial_labels) or len(split.seen):
            counts = count_spatial_labels(split)
            known = _several(counts, "points", "boxes", "masks")
            seen = {"points": counts["seen_points"], "boxes": counts["seen_boxes"]}
            lines.append(f"{name}: {known} known, {_several(seen, 'points', 'boxes')} observed")
    for name, bought in prepared.made.get("bought", {}).items():
        lines.append(
            f"{name}: annotation {bought['kind']} of {bought['images']:,} images, "
            f"{bought['answers']:,} answers ({bought['positive']:,} yes, {bought['negative']:,} no), "
            f"{_several(bought, 'points', 'boxes')}: {bought['seconds'] / 3600:,.2f} hours, "
            f"{bought['seconds'] / bought['seconds_of_all_answers']:.2%} of what an answer for every "
            f"image and class costs (cost {bought['cost']})"
        )
    return lines


def _several(counts: dict[str, int], *names: str) -> str:
    """Counts in words: 3 points and 2 boxes."""
    return " and ".join(f"{counts[name]:,} {name}" for name in names if counts[name]) or "no points or boxes"


def histogram_table(counted: dict[str, Counts]) -> Table:
    """The share of images with 0, 1, 2, … positives: of all that there are, and of the observed ones."""
    lines: dict[str, Counted] = {}
    for name, counts in counted.items():
        if counts.complete:
            lines[name] = counts.per_image["positive"]
        if not counts.complete or counts.hidden:
            lines[f"{name}, observed"] = counts.per_image["observed_positive"]
    most = max(int(numbers.max(initial=0)) for numbers in lines.values())
    width = -(-(most + 1) // BINS)
    starts = range(0, most + 1, width)
    names = [str(start) if width == 1 else f"{start}–{start + width - 1}" for start in starts]
    table = _table("share of images with so many positives", "positives", *lines)
    shares = [
        [_share(int(images), len(numbers)) for images in np.bincount(numbers // width, minlength=len(names))]
        for numbers in lines.values()
    ]
    for name, *row in zip(names, *shares, strict=True):
        table.add_row(name, *row)
    return table


def class_table(prepared: Dataset, counted: dict[str, Counts], split: str, every: bool) -> Table:
    """A row for each class of a split, or for the most and the least frequent ones where there are many."""
    counts = counted[split]
    others = [name for name in counted if name != split]
    negatives = bool(counts.per_class["observed_negative"].any())
    unknown = not (counts.hidden and negatives)  # the rest of the images; a line has 80 letters
    table = _table(
        f"classes in {split}: number of images where it is ...",
        "class",
        "positive",
        "observed\npositive",
        *(("kept", "if at\nrandom") if counts.hidden else ()),
        *(("observed\nnegative",) if negatives else ()),
        *(("unknown",) if unknown else ()),
        *(f"in\n{name}" for name in others),
    )
    table.columns[0].no_wrap = False  # a class may have a name of any length
    table.columns[0].min_width = min(12, max(map(len, prepared.classes)))
    table.caption = _explained(counts.hidden, others)
    table.caption_justify = "left"
    order, gap = _listed(counts, every)
    for position, index in enumerate(order):
        if position == gap:
            table.add_section()
            table.add_row(f"… {len(prepared.classes) - len(order):,} more (--all)")
            table.add_section()
        positive, seen, absent = (int(counts.per_class[what][index]) for what in WHAT)
        shares = (_share(seen, positive), _share(float(counts.uniform[index]), positive))
        table.add_row(
            prepared.classes[index],
            f"{positive:,}",
            f"{seen:,}",
            *(shares if counts.hidden else ()),
            *((f"{absent:,}",) if negatives else ()),
            *((f"{len(counts.per_image['positive']) - seen - absent:,}",) if unknown else ()),
            *(f"{counted[name].per_class['positive'][index]:,}" for name in others),
        )
    return table


def score_table(prepared: Dataset) -> Table:
    """What scores of another model did to the labels of training, and how they fare on observed ones."""
    made = prepared.made["scored"]
    table = _table(
        "labels of training that scores of another model set",
        "class",
        "set\npositive",
        "set\nnegative",
        "observed positive,\nscored negative",
        "observed negative,\nscored positive",
    )
    columns = ("set_positive", "set_negative", "positive_missed", "positive", "negative_missed", "negative")
    numbers = np.array([made[column] for column in columns])
    changed = numbers[0] + numbers[1]
    shown = np.sort(np.argsort(-changed, kind="stable")[:MOST])
    lines = [(prepared.classes[index], numbers[:, index]) for index in shown if changed[index] > 0]
    for number, (name, counts) in enumerate([*lines, ("all", numbers.sum(axis=1))]):
        if number == len(lines):
            table.add_section()
        positives, negatives, missed, positive, missed_too, negative = (f"{count:,}" for count in counts)
        table.add_row(name, positives, negatives, f"{missed} of {positive}", f"{missed_too} of {negative}")
    table.caption = f"of: those with a score beyond a threshold; {made['unscored']:,} images have no score"
    table.caption_justify = "left"
    return table


def _explained(hidden: bool, others: list[str]) -> str | None:
    kept = "kept: observed, of the positives; if at random: were it a random choice of each image's positives"
    lines = {kept: hidden, f"in {', '.join(others)}: positive there": bool(others)}
    return "\n".join(line for line, needed in lines.items() if needed) or None


def _listed(counts: Counts, every: bool) -> tuple[list[int], int]:
    """Which classes to list, and before which of them some are left out (-1: none are)."""
    seen, positive = counts.per_class["observed_positive"], counts.per_class["positive"]
    if every or len(seen) <= MOST:
        return list(range(len(seen))), -1
    order = np.lexsort((-positive, -seen)).tolist()
    return order[:EACH] + order[-EACH:], EACH


def _table(title: str, first: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column(first, no_wrap=True, overflow="fold")  # names are never squeezed out by numbers
    for name in columns:
        table.add_column(name, justify="right", overflow="fold")
    return table


def _range(numbers: Counted) -> str:
    low, high = int(numbers.min()), int(numbers.max())
    mean = f"{numbers.mean():.2f}"
    return f"{mean} (all {low:,})" if low == high else f"{mean} ({low:,}–{high:,})"


def _share(number: float, whole: int) -> str:
    if not whole or not number:
        return "–"
    share = number / whole
    return f"{share:.1%}" if share >= 0.0005 else "<0.1%"
