"""Images of a report with what the runs see in them, and the labels that are likely missing."""

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from sparselabel.data.dataset import PreparedSplit
from sparselabel.data.labels import NEGATIVE, POSITIVE, UNKNOWN, Labels
from sparselabel.data.thumbnails import MAP_QUALITY, SIDE, as_uri, small, with_map
from sparselabel.data.transforms import views_of
from sparselabel.errors import DataError, RunError
from sparselabel.file_formats import read_arrays
from sparselabel.inference.maps import MAPS_LAYOUT
from sparselabel.inference.score_files import saved_scores
from sparselabel.metrics.average_precision import Scores, Values
from sparselabel.report.figures.object_sizes import Bin, bin_precision, bins_of
from sparselabel.report.figures.score_histogram import RANKS, shares_by_score
from sparselabel.report.run_data import ReportData, ShownRun

EACH = 6  # cases of a group
LOOKED_AT = 20_000  # highest entries among which cases are sought
SMALLEST = 1e-7  # score that counts as 0 in a logarithm


@dataclass(frozen=True)
class Case:
    """An image and the classes whose maps are shown; ``value`` is what it was chosen for."""

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
    for place, (row, index) in enumerate(zip(rows.tolist(), classes.tolist(), strict=True)):
        if row in seen or counts[index] == of_class:
            continue
        seen.add(row)
        counts[index] += 1
        chosen.append(place)
        if len(chosen) == most:
            break
    return chosen


def highest(values: Scores, among: npt.NDArray[np.bool_], of_class: int) -> list[Case]:
    """The entries of (N, L) with the highest values, where ``among``; different images."""
    entries = np.flatnonzero(among)
    order = np.argsort(-values.ravel()[entries], kind="stable")[:LOOKED_AT]
    rows, classes = np.divmod(entries[order], values.shape[1])
    chosen = ((int(rows[p]), int(classes[p])) for p in spread_out(rows, classes, EACH, of_class))
    return [Case(row, (index,), float(values[row, index])) for row, index in chosen]


def bits_of_surprise(scores: Scores, labels: Labels) -> Values:
    """(N,) −log₂ of the probability that the scores give to the known labels of each image."""
    likely = np.clip(np.where(labels == POSITIVE, scores, 1 - scores), SMALLEST, 1)
    return np.asarray(-np.log2(likely, where=labels != UNKNOWN, out=np.zeros_like(likely)).sum(axis=1))


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
    missed = [Case(case.row, case.classes, -case.value) for case in highest(-scores, there, of_class=2)]
    groups = [
        Group("Certain and right", right, "score", highest(scores, there, of_class=1)),
        Group(*wrong, "score", highest(scores, among, of_class=2)),
        Group("Missed", "The lowest scores of classes that are there.", "score", missed),
    ]
    if apart is None:
        shown = {case.row for group in groups for case in group.cases}
        says = (
            "Images whose labels as a whole the model thought least likely, with the least expected class "
            "that is there and the most expected one that is not. 10 bits: one in a thousand."
        )
        groups.append(Group("Most surprising", says, "bits", surprising(scores, labels, shown)))
    else:
        says = "The classes and images about which the runs disagree most."
        cases = highest(apart, np.ones_like(there), of_class=2)
        groups.append(Group("Where the runs differ", says, "apart", cases))
    return [group for group in groups if group.cases]


MAPS = 6  # runs whose maps are shown
SHOWN, LISTED, OF_CLASS = 12, 100, 2  # likely missing labels: with image, in the list, with image of a class
Maps = dict[tuple[int, int], tuple[float, npt.NDArray[np.float32]]]


@dataclass(frozen=True)
class Panel:
    """A map of one class by one run: the image (None if it could not be made), and the words below.

    ``cells`` says what its colors stand for: scores, or shares of ``attention``.
    """

    uri: str | None
    name: str
    truth: str
    run: str
    score: float
    cells: str
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
    """A line of the list: image, class, score, and whether it is really there (None: nobody knows)."""

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
        return Missing(**read_arrays(file, {"rows": "i M", "classes": "i M", "scores": "f M"}))
    except RunError:
        return None


def missing_rows(about: ReportData, missing: Missing) -> list[MissingRow]:
    """The list of the likeliest ones."""
    train = about.data.train
    return [
        MissingRow(str(train.truth.ids[row]), about.data.classes[index], score, _there(train, row, index))
        for row, index, score in missing.entries(range(min(LISTED, len(missing.rows))))
    ]


def missing_cards(about: ReportData, missing: Missing) -> list[Card]:
    """The likeliest ones of various classes, with their images and maps."""
    maps, train = _read_maps(about, "train"), about.data.train
    cards = []
    for row, index, score in missing.entries(missing.shown()):
        there = _there(train, row, index)
        truth = "not labeled" if there is None else "there, label hidden" if there else "not there"
        cards.append(_card(about, train, row, (index,), maps, truth, score, ""))
    return cards


def case_cards(about: ReportData, groups: Sequence[Group]) -> list[CardGroup]:
    """The chosen cases of the split, with their images and maps."""
    if about.split is None:
        return []
    maps = _read_maps(about, about.split)
    split = about.data.split(about.split)
    units = {"bits": "{:.0f} bits of surprise", "apart": "scores {:.2f} apart"}
    card_groups = []
    for group in groups:
        cards = []
        for case in group.cases:
            value = units.get(group.value, "").format(case.value)
            score = case.value if group.value == "score" else np.nan
            cards.append(_card(about, split, case.row, case.classes, maps, None, score, value))
        card_groups.append(CardGroup(group.title, group.says, cards))
    return card_groups


def _card(
    about: ReportData,
    split: PreparedSplit,
    row: int,
    classes: Sequence[int],
    maps: dict[str, Maps],
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
        known = truth or words[int(split.observed.values[row, index])]
        name = about.data.classes[index]
        for run in about.runs:
            if (row, index) in maps.get(run.name, {}):
                seen, values = maps[run.name][row, index]
                view, looked = views_of(run.config.views)[1], run.config.has_attention
                uri = None if image is None else as_uri(with_map(image, values, view), MAP_QUALITY)
                panels.append(Panel(uri, name, known, run.name, seen, _range(values, looked), looked))
        if not any(panel.name == name for panel in panels):  # no maps: the class and its score in words
            panels.append(Panel(None, name, known, about.reference.name, score, ""))
    uri = None if image is None else as_uri(image)
    return Card(uri, str(split.truth.ids[row]), panels[0].name, panels[0].truth, value, panels)


def _read_maps(about: ReportData, split: str) -> dict[str, Maps]:
    """By run: score and map of each row and class that was asked for."""
    maps: dict[str, Maps] = {}
    for run in with_maps(about, split):
        file = run.folder.maps_file(split)
        if file.is_file():
            arrays = read_arrays(file, MAPS_LAYOUT, "remove it, and report again")
            keys = zip(arrays["rows"].tolist(), arrays["classes"].tolist(), strict=True)
            values = zip(arrays["scores"].tolist(), arrays["cells"], strict=True)
            maps[run.name] = dict(zip(keys, values, strict=True))
    return maps


def _range(logits: npt.NDArray[np.float32], attention: bool) -> str:
    """The lowest and the highest score of a map's cells, or its smallest and largest share."""
    low, high = (1 / (1 + np.exp(-float(value))) for value in (logits.min(), logits.max()))
    return f"{low:.4f} to {high:.4f}" if attention else f"{as_score(low)} to {as_score(high)}"


def _there(split: PreparedSplit, row: int, index: int) -> bool | None:
    return {POSITIVE: True, NEGATIVE: False}.get(int(split.truth.values[row, index]))


SIZES = 5  # bins of object size


@dataclass(frozen=True, eq=False)
class Scored:
    """By run: ``distribution`` of the 1st to 4th highest score, ``by_size`` the mAP of each of ``sizes``."""

    distribution: dict[str, list[Values]] = field(default_factory=dict)
    sizes: list[Bin] = field(default_factory=list)
    by_size: dict[str, list[float]] = field(default_factory=dict)
    groups: list[Group] = field(default_factory=list)


def look_at_scores(about: ReportData) -> Scored:
    """What the runs' kept scores of the split say; all of them must be there (``saved_scores``)."""
    if about.split is None:
        return Scored()
    split, scored = about.data.split(about.split), Scored()
    with suppress(DataError):  # no boxes: nothing is known about sizes
        scored.sizes.extend(bins_of(split, SIZES))
    reference = high = low = saved_scores(about.reference.folder, about.split).scores
    for run in about.runs:
        scores = saved_scores(run.folder, about.split).scores
        ranks = min(len(RANKS), scores.shape[1])
        top = -np.sort(-np.partition(scores, scores.shape[1] - ranks, axis=1)[:, -ranks:], axis=1)
        scored.distribution[run.name] = [shares_by_score(top[:, rank]) for rank in range(ranks)]
        if scored.sizes:
            scored.by_size[run.name] = [bin_precision(scores, split, size) for size in scored.sizes]
        high, low = np.maximum(high, scores), np.minimum(low, scores)
    apart = None if len(about.runs) == 1 else high - low
    scored.groups.extend(choose(reference, np.asarray(split.observed.values), apart))
    return scored
