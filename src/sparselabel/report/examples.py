"""Example images of a report with maps of the runs, and training labels that are likely missing."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from sparselabel.data.dataset import PreparedSplit
from sparselabel.data.labels import NEGATIVE, POSITIVE, UNKNOWN, Labels, row_blocks
from sparselabel.data.thumbnails import EVEN, MAP_QUALITY, SIDE, as_uri, small, with_map
from sparselabel.data.transforms import views_of
from sparselabel.errors import DataError, RunError
from sparselabel.file_formats import read_arrays, refuse_outside
from sparselabel.inference.class_thresholds import load_class_thresholds
from sparselabel.inference.maps import MAPS_LAYOUT
from sparselabel.inference.saved_scores import SplitScores, saved_scores
from sparselabel.metrics.average_precision import Values
from sparselabel.metrics.bootstrap import Difference, Drawn, difference, drawn
from sparselabel.metrics.calibration import Calibration, logits_of
from sparselabel.metrics.tiled_scores import Scores, TiledScores
from sparselabel.report.figures.object_sizes import Bin, bin_precision, bins_of
from sparselabel.report.figures.score_histogram import RANKS, shares_by_score
from sparselabel.report.run_data import ReportData, ShownRun

EACH = 6  # cases of a group
LOOKED_AT = 20_000  # highest entries among which cases are sought
HIGH = 0.5  # score from which on a label is not missed, and below which nothing is certain
SMALLEST = 1e-7  # score that counts as 0 in a logarithm


@dataclass(frozen=True)
class Case:
    """An image and the classes whose maps are shown; ``value`` is the number it was chosen by."""

    row: int
    classes: tuple[int, ...]
    value: float


@dataclass(frozen=True)
class Group:
    """Cases chosen for the same reason: a heading, how they were chosen, and what ``value`` is called."""

    title: str
    says: str
    value: str
    cases: list[Case]


def spread_out(
    rows: npt.NDArray[np.integer], classes: npt.NDArray[np.integer], most: int, of_class: int
) -> list[int]:
    """Places of the first ``most`` entries, at most one of an image and ``of_class`` of a class."""
    chosen: list[int] = []
    seen: set[int] = set()
    counts: Counter[int] = Counter()
    for position, (row, index) in enumerate(zip(rows.tolist(), classes.tolist(), strict=True)):
        if row in seen or counts[index] == of_class:
            continue
        seen.add(row)
        counts[index] += 1
        chosen.append(position)
        if len(chosen) == most:
            break
    return chosen


def highest(values: Scores, among: npt.NDArray[np.bool_], of_class: int, lowest: bool = False) -> list[Case]:
    """The entries of (N, L) with the highest (or lowest) values, where ``among``; different images."""
    entries, ranked = np.zeros(0, np.int64), np.zeros(0, values.dtype)
    for rows in row_blocks(*values.shape):
        own = np.flatnonzero(among[rows])
        candidates = values[rows].ravel()[own]
        entries = np.concatenate([entries, own + rows.start * values.shape[1]])
        ranked = np.concatenate([ranked, candidates if lowest else -candidates])
        order = np.argsort(ranked, kind="stable")[:LOOKED_AT]  # of equal ones, the first
        entries, ranked = entries[order], ranked[order]
    images, classes = np.divmod(entries, values.shape[1])
    chosen = ((int(images[p]), int(classes[p])) for p in spread_out(images, classes, EACH, of_class))
    return [Case(row, (index,), float(values[row, index])) for row, index in chosen]


def bits_of_surprise(scores: Scores, labels: Labels) -> Values:
    """(N,) −log₂ of the probability that the scores give to the known labels of each image."""
    bits = [np.zeros(0)]
    for rows in row_blocks(*scores.shape):
        known, row_scores = labels[rows], scores[rows]
        likely = np.clip(np.where(known == POSITIVE, row_scores, 1 - row_scores), SMALLEST, 1)
        bits.append(-np.log2(likely, where=known != UNKNOWN, out=np.zeros_like(likely)).sum(axis=1))
    return np.concatenate(bits[1:] or bits)


def surprising(scores: Scores, labels: Labels, shown: set[int]) -> list[Case]:
    """The images with the most surprise that are not shown yet, each with its two oddest classes.

    These are the lowest-scored class that is there and the highest-scored one that is not.
    """
    bits = bits_of_surprise(scores, labels)
    order = np.argsort(-bits, kind="stable")[: EACH + len(shown)].tolist()
    cases = []
    for row in [row for row in order if row not in shown][:EACH]:
        there, absent = np.flatnonzero(labels[row] == POSITIVE), np.flatnonzero(labels[row] == NEGATIVE)
        classes = [int(there[scores[row, there].argmin()])] if len(there) else []
        classes += [int(absent[scores[row, absent].argmax()])] if len(absent) else []
        if classes:
            cases.append(Case(row, tuple(classes), float(bits[row])))
    return cases


def choose(scores: Scores, labels: Labels, apart: Scores | None = None) -> list[Group]:
    """The groups of a report; ``apart`` (N, L) is how far the scores of several runs lie apart."""
    there, absent = labels == POSITIVE, labels == NEGATIVE
    right = "The highest scores of classes that are there, one of each class."
    if absent.any():
        among, wrong = absent, ("Certain and wrong", "The highest scores of classes that are not there.")
    else:
        says = "The highest scores of classes that nobody labeled: the labels may be missing."
        among, wrong = labels == UNKNOWN, ("Certain, but not labeled", says)
    high = scores >= HIGH
    missed = highest(scores, there & ~high, of_class=2, lowest=True)
    groups = [
        Group("Certain and right", right, "score", highest(scores, there & high, of_class=1)),
        Group(*wrong, "score", highest(scores, among & high, of_class=2)),
        Group("Missed", "The lowest scores of classes that are there.", "score", missed),
    ]
    if apart is None:
        shown = {case.row for group in groups for case in group.cases}
        says = (
            "Images whose labels as a whole the model thought least likely, with the least expected class "
            "that is there and the most expected one that is not."
        )
        groups.append(Group("Least expected", says, "", surprising(scores, labels, shown)))
    else:
        says = "The classes and images about which the runs disagree most."
        cases = highest(apart, np.ones_like(there), of_class=2)
        groups.append(Group("Where the runs differ", says, "apart", cases))
    return [group for group in groups if group.cases]


MOST_SCORES = 1 << 26  # of scores in a file, that are looked at
MAPS = 6  # runs whose maps are shown
SHOWN, LISTED, OF_CLASS = 12, 100, 2  # likely missing labels: with image, in the list, with image of a class
Maps = dict[tuple[int, int], tuple[float, npt.NDArray[np.float32]]]


@dataclass(frozen=True)
class Panel:
    """A map of one class by one run: the image (None if it could not be made), and the words below."""

    uri: str | None
    name: str
    truth: str
    run: str
    score: float
    attention: bool = False


@dataclass(frozen=True)
class Card:
    """An image (None if it cannot be read), its name, its first class, why it was chosen, and its maps."""

    uri: str | None
    name: str
    shows: str
    truth: str
    value: str
    panels: list[Panel]


@dataclass(frozen=True)
class CardGroup:
    """Cards under one heading."""

    title: str
    says: str
    cards: list[Card]


@dataclass(frozen=True, eq=False)
class Missing:
    """Unknown training labels with high scores, the highest first: rows, classes and scores (n,)."""

    rows: npt.NDArray[np.int64]
    classes: npt.NDArray[np.int64]
    scores: npt.NDArray[np.float32]

    def shown(self) -> list[int]:
        """Places of those to show with an image: of different images and various classes."""
        return spread_out(self.rows, self.classes, SHOWN, OF_CLASS)

    def entries(self, places: Iterable[int]) -> list[tuple[int, int, float]]:
        """Row, class and score of some."""
        return [(int(self.rows[p]), int(self.classes[p]), float(self.scores[p])) for p in places]


@dataclass(frozen=True)
class MissingRow:
    """A row of the list: image, class, score, and whether the class is present (None: unknown)."""

    image: str
    name: str
    score: float
    there: bool | None


def as_score(score: float) -> str:
    """A score with two decimals, and with three near 0 and 1."""
    return f"{score:.2f}" if 0.01 <= score <= 0.99 else f"{score:.3f}"


def entries(groups: Sequence[Group]) -> tuple[list[int], list[int]]:
    """Rows and classes of all maps that the groups show."""
    pairs = [(case.row, index) for group in groups for case in group.cases for index in case.classes]
    return [row for row, _ in pairs], [index for _, index in pairs]


def with_maps(about: ReportData, split: str) -> list[ShownRun]:
    """The runs whose maps of a split are shown: the first few that have the reference's images there."""
    digests = [run.about["data_digest"].get(split) for run in about.runs]
    return [run for run, digest in zip(about.runs, digests, strict=True) if digest == digests[0]][:MAPS]


def read_missing(about: ReportData) -> Missing | None:
    """What ``write_missing`` wrote of the reference run; None if there is no file, or a damaged one.

    Rows are those of the training data that the run was trained on: of other data there is nothing to say.
    """
    file = about.reference.folder.missing_file
    trained_on = about.reference.about["data_digest"].get("train")
    if not file.is_file() or trained_on != about.data.train.digest:
        return None
    try:
        arrays = read_arrays(file, {"rows": "i M", "classes": "i M", "scores": "f M"})
        refuse_outside(file, arrays, {"rows": len(about.data.train), "classes": len(about.data.classes)})
        return Missing(**{name: arrays[name] for name in ("rows", "classes", "scores")})
    except RunError:
        return None


def missing_rows(about: ReportData, missing: Missing) -> list[MissingRow]:
    """The list of the likeliest ones."""
    train = about.data.train
    return [
        MissingRow(str(train.truth.ids[row]), about.data.classes[index], score, _there(train, row, index))
        for row, index, score in missing.entries(range(min(LISTED, len(missing.rows))))
    ]


def missing_cards(about: ReportData, missing: Missing, scales: "Scales") -> list[Card]:
    """The likeliest ones of various classes, with their images and maps."""
    maps, train = _read_maps(about, "train"), about.data.train
    cards = []
    for row, index, score in missing.entries(missing.shown()):
        there = _there(train, row, index)
        truth = "not labeled" if there is None else "there, label hidden" if there else "not there"
        cards.append(_card(about, train, row, (index,), maps, scales, truth, score, ""))
    return cards


def case_cards(about: ReportData, groups: Sequence[Group], scales: "Scales") -> list[CardGroup]:
    """The chosen cases of the split, with their images and maps."""
    if about.split is None:
        return []
    maps = _read_maps(about, about.split)
    split = about.data.split(about.split)
    calibrate = _calibrations(about).get(about.reference.name)
    units = {"apart": "scores {:.2f} apart"}
    card_groups = []
    for group in groups:
        cards = []
        for case in group.cases:
            value = units.get(group.value, "").format(case.value)
            score = case.value if group.value == "score" else np.nan
            if calibrate is not None:
                score = _calibrated(calibrate, case.classes[0], score)
            cards.append(_card(about, split, case.row, case.classes, maps, scales, None, score, value))
        card_groups.append(CardGroup(group.title, group.says, cards))
    return card_groups


def _card(
    about: ReportData,
    split: PreparedSplit,
    row: int,
    classes: Sequence[int],
    maps: dict[str, Maps],
    scales: "Scales",
    truth: str | None,
    score: float,
    value: str,
) -> Card:
    try:
        image = small(split.image(row, SIDE))
    except DataError:  # moved or broken since: the report says so once
        image = None
    panels = []
    words = {POSITIVE: "there", NEGATIVE: "not there", UNKNOWN: "not labeled"}
    for index in classes:
        known = truth or words[int(split.observed.matrix[row, index])]
        name = about.data.classes[index]
        for run in about.runs:
            if (row, index) in maps.get(run.name, {}):
                seen, values = maps[run.name][row, index]
                view, looked = views_of(run.config.views)[1], run.config.has_attention
                scale = scales.attention if looked else scales.scores
                drawn = None if image is None else with_map(image, values, view, scale=scale)
                uri = None if drawn is None else as_uri(drawn, MAP_QUALITY)
                panels.append(Panel(uri, name, known, run.name, seen, looked))
        if not any(panel.name == name for panel in panels):  # no maps: the class and its score in words
            panels.append(Panel(None, name, known, about.reference.name, score))
    uri = None if image is None else as_uri(image)
    return Card(uri, str(split.truth.ids[row]), panels[0].name, panels[0].truth, value, panels)


Ends = tuple[float, float]
CUT = 2.0  # percent of the cells at each end of a scale, so that one outlier does not make all maps pale


@dataclass(frozen=True)
class Scales:
    """The lowest and highest logit of the page's maps: of cells' scores, and of shares of attention."""

    scores: Ends | None = None
    attention: Ends | None = None


def common_scales(about: ReportData) -> Scales:
    """One scale for all maps of a page, so that a pale one is a low score wherever it stands."""
    cells: dict[bool, list[npt.NDArray[np.float32]]] = {False: [], True: []}
    for split in {about.split or "train", "train"}:
        maps = _read_maps(about, split)
        for run in about.runs:
            all_cells = [values.ravel() for _, values in maps.get(run.name, {}).values()]
            cells[run.config.has_attention] += all_cells
    return Scales(_ends(cells[False]), _ends(cells[True]))


def _ends(cells: list[npt.NDArray[np.float32]]) -> Ends | None:
    if not cells:
        return None
    low, high = np.percentile(np.concatenate(cells), [CUT, 100 - CUT]).tolist()
    return low, high


APART = 15  # percent of a scale between two of its numbers


def ticks(ends: Ends) -> list[tuple[str, float]]:
    """Scores on a scale of logits, and where they stand, in percent of its length."""
    low, high = ends
    marks: dict[str, float] = {}
    for score in (0.5, 0.99, 0.01, 0.9, 0.1, 0.9999, 0.0001):  # the first ones matter most
        position = 100 * (math.log(score / (1 - score)) - low) / max(high - low, EVEN)
        if 3 <= position <= 97 and all(abs(position - other) >= APART for other in marks.values()):
            marks[f"{score:g}"] = round(position, 1)
    return [*marks.items()]


def _calibrations(about: ReportData) -> dict[str, Calibration]:
    """By run what makes probabilities of its scores, of the runs that have chosen thresholds."""
    files = {run.name: run.folder for run in about.runs if run.folder.thresholds_file.is_file()}
    return {name: load_class_thresholds(folder).calibration for name, folder in files.items()}


def _calibrated(calibrate: Calibration, index: int, score: float) -> float:
    """A score of a class as the commands show it."""
    return float(calibrate.of_classes(slice(index, index + 1))(logits_of(np.array([[score]])))[0, 0])


def _read_maps(about: ReportData, split: str) -> dict[str, Maps]:
    """By run: score and map of each row and class that was asked for; calibrated, where the run says how."""
    maps: dict[str, Maps] = {}
    calibrations = _calibrations(about)
    for run in with_maps(about, split):
        file = run.folder.maps_file(split)
        if file.is_file():
            again = "remove it, and report again"
            arrays, images = read_arrays(file, MAPS_LAYOUT, again), about.data.split(split)
            refuse_outside(file, arrays, {"rows": len(images), "classes": len(about.data.classes)}, again)
            keys = zip(arrays["rows"].tolist(), arrays["classes"].tolist(), strict=True)
            values = zip(arrays["scores"].tolist(), arrays["cells"], strict=True)
            maps[run.name] = dict(zip(keys, values, strict=True))
            if (calibrate := calibrations.get(run.name)) is not None:
                maps[run.name] = {
                    key: _calibrated_map(calibrate, key[1], value, run.config.has_attention)
                    for key, value in maps[run.name].items()
                }
    return maps


def _calibrated_map(
    calibrate: Calibration,
    index: int,
    seen: tuple[float, npt.NDArray[np.float32]],
    attention: bool,
) -> tuple[float, npt.NDArray[np.float32]]:
    """A score and its map, the logits of both put through the class's calibration; attention stays."""
    score, cells = seen
    if not attention:
        cells = (calibrate.slope[index] * cells + calibrate.offset[index]).astype(np.float32)
    return _calibrated(calibrate, index, score), cells


def _there(split: PreparedSplit, row: int, index: int) -> bool | None:
    return {POSITIVE: True, NEGATIVE: False}.get(int(split.truth.matrix[row, index]))


SIZES = 5  # bins of object size
DRAWS = 500  # of the images, to tell whether a difference is chance


@dataclass(frozen=True, eq=False)
class Scored:
    """By run: ``distribution`` of the 1st to 4th highest score, ``by_size`` the mAP of each of ``sizes``.

    ``differences`` are those of the mAP from the first run, with their intervals.
    """

    distribution: dict[str, list[Values]] = field(default_factory=dict)
    sizes: list[Bin] = field(default_factory=list)
    by_size: dict[str, list[float]] = field(default_factory=dict)
    groups: list[Group] = field(default_factory=list)
    differences: dict[str, Difference] = field(default_factory=dict)


def look_at_scores(about: ReportData) -> Scored:
    """What the runs' kept scores of the split say; all of them must be there (``saved_scores``)."""
    if about.split is None:
        return Scored()
    split, scored = about.data.split(about.split), Scored()
    saved = [saved_scores(run.folder, about.split) for run in about.runs]
    rows = _looked_at(len(split), len(split.truth.classes)) if _in_a_file(saved) else None
    if rows is None:
        with suppress(DataError):  # no boxes: nothing is known about sizes
            scored.sizes.extend(bins_of(split, SIZES))
    kept_reference = saved_scores(about.reference.folder, about.split)
    reference = kept_reference.array if rows is None else kept_reference.scores[rows]
    several = len(about.runs) > 1
    high, low = (reference.copy(), reference.copy()) if several else (reference, reference)
    first: Drawn | None = None
    for run, kept in zip(about.runs, saved, strict=True):
        scores = kept.array if rows is None else kept.scores[rows]
        if several and rows is None and kept.positive.any():
            own = drawn(scores, kept.positive, DRAWS)
            first = first or own
            scored.differences[run.name] = difference([first], [own])
        ranks = min(len(RANKS), scores.shape[1])
        top = np.concatenate(
            [
                -np.sort(-np.partition(scores[rows], scores.shape[1] - ranks, axis=1)[:, -ranks:], axis=1)
                for rows in row_blocks(*scores.shape)
            ]
        )
        scored.distribution[run.name] = [shares_by_score(top[:, rank]) for rank in range(ranks)]
        if scored.sizes:
            scored.by_size[run.name] = [bin_precision(scores, split, size) for size in scored.sizes]
        if several:
            np.maximum(high, scores, out=high)
            np.minimum(low, scores, out=low)
    apart = np.subtract(high, low, out=high) if several else None
    if rows is None:
        scored.groups.extend(choose(reference, split.observed.values, apart))
        return scored
    among = f" Among {len(rows):,} of the {len(split):,} images, drawn at random."
    for group in choose(reference, split.observed.matrix[rows], apart):
        cases = [replace(case, row=int(rows[case.row])) for case in group.cases]
        scored.groups.append(replace(group, says=group.says + among, cases=cases))
    return scored


def _in_a_file(saved: Sequence[SplitScores]) -> bool:
    return any(isinstance(one.scores, TiledScores) for one in saved)


def _looked_at(images: int, classes: int) -> npt.NDArray[np.int64]:
    """Rows of random images whose scores are few enough to look at all of them."""
    most = max(MOST_SCORES // classes, 1)
    return np.sort(np.random.default_rng(0).choice(images, min(most, images), replace=False))
