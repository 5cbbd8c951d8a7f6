"""Pictures of a report with what the runs see in them, and the labels that are likely missing."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from PIL import Image

from sparselabel.data.dataset import PreparedSplit
from sparselabel.data.labels import NEGATIVE, POSITIVE
from sparselabel.data.transforms import views_of
from sparselabel.errors import DataError, RunError
from sparselabel.inference.saved_scores import read_arrays
from sparselabel.report.cases import Group, spread_out
from sparselabel.report.run_data import Reported, ShownRun
from sparselabel.report.thumbnails import MAP_QUALITY, as_uri, small, with_map

MAPS = 6  # runs whose maps are shown
SHOWN, LISTED, OF_CLASS = (
    12,
    100,
    2,
)  # likely missing labels: with picture, in the list, with picture of a class
Maps = dict[tuple[int, int], tuple[float, npt.NDArray[np.float32]]]


@dataclass(frozen=True)
class Panel:
    """A map of one class by one run: the image (None if it could not be made), and the words below.

    ``cells`` says what its colours stand for: scores, or shares of ``attention``.
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
    """A picture (None if it cannot be read), its name, its first class, why it was chosen, and its maps."""

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
        """Places of those to show with a picture: of different pictures and various classes."""
        return spread_out(self.rows, self.classes, SHOWN, OF_CLASS)


@dataclass(frozen=True)
class MissingRow:
    """A line of the list: picture, class, score, and whether it is really there (None: nobody knows)."""

    picture: str
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


def with_maps(about: Reported, split: str) -> list[ShownRun]:
    """The runs whose maps of a split are shown: the first few that have the reference's pictures there."""
    digests = [run.about["data_digest"].get(split) for run in about.runs]
    return [run for run, digest in zip(about.runs, digests, strict=True) if digest == digests[0]][:MAPS]


def read_missing(about: Reported) -> Missing | None:
    """What ``evaluate.missing`` found in the reference run; None if there is no file, or a damaged one.

    Rows are those of the training data that the run was trained on: of other data there is nothing to say.
    """
    file = about.reference.folder.missing_file
    trained_on = about.reference.about["data_digest"].get("train")
    if not file.is_file() or trained_on != about.data.train.digest:
        return None
    try:
        found = read_arrays(file, ("rows", "classes", "scores"), "")
    except RunError:
        return None
    return Missing(found["rows"], found["classes"], found["scores"])


def missing_rows(about: Reported, missing: Missing) -> list[MissingRow]:
    """The list of the likeliest ones."""
    part = about.data.train
    return [
        MissingRow(str(part.truth.ids[row]), about.data.classes[index], score, _there(part, row, index))
        for row, index, score in zip(
            missing.rows[:LISTED].tolist(),
            missing.classes[:LISTED].tolist(),
            missing.scores[:LISTED].tolist(),
            strict=True,
        )
    ]


def missing_cards(about: Reported, missing: Missing) -> list[Card]:
    """The likeliest ones of various classes, with their pictures and maps."""
    maps = _read_maps(about, "train")
    part = about.data.train
    cards = []
    for place in missing.shown():
        row, index, score = (
            int(missing.rows[place]),
            int(missing.classes[place]),
            float(missing.scores[place]),
        )
        there = _there(part, row, index)
        truth = "not labelled" if there is None else "there, label hidden" if there else "not there"
        cards.append(_card(about, part, row, (index,), maps, truth, score, ""))
    return cards


def case_cards(about: Reported, groups: Sequence[Group]) -> list[CardGroup]:
    """The chosen cases of the split, with their pictures and maps."""
    if about.split is None:
        return []
    maps = _read_maps(about, about.split)
    part = about.data.split(about.split)
    units = {"bits": "{:.0f} bits of surprise", "apart": "scores {:.2f} apart"}
    found = []
    for group in groups:
        cards = []
        for case in group.cases:
            value = units[group.value].format(case.value) if group.value in units else ""
            score = case.value if group.value == "score" else None
            cards.append(_card(about, part, case.row, case.classes, maps, None, score, value))
        found.append(CardGroup(group.title, group.says, cards))
    return found


def _card(
    about: Reported,
    part: PreparedSplit,
    row: int,
    classes: Sequence[int],
    maps: dict[str, Maps],
    truth: str | None,
    score: float | None,
    value: str,
) -> Card:
    image = _image(part, row)
    panels = []
    for index in classes:
        known = truth or _words(int(part.observed.values[row, index]))
        name = about.data.classes[index]
        for run in about.runs:
            if (row, index) in maps.get(run.name, {}):
                seen, values = maps[run.name][row, index]
                view, looked = views_of(run.config.views)[1], run.config.has_attention
                uri = None if image is None else as_uri(with_map(image, values, view), MAP_QUALITY)
                panels.append(Panel(uri, name, known, run.name, seen, _range(values, looked), looked))
        if not any(panel.name == name for panel in panels):  # no maps: the class and its score in words
            panels.append(
                Panel(None, name, known, about.reference.name, np.nan if score is None else score, "")
            )
    uri = None if image is None else as_uri(image)
    return Card(uri, str(part.truth.ids[row]), panels[0].name, panels[0].truth, value, panels)


def _image(part: PreparedSplit, row: int) -> Image.Image | None:
    try:
        return small(part.path(row))
    except DataError:  # moved or broken since: the report says so once
        return None


def _read_maps(about: Reported, split: str) -> dict[str, Maps]:
    """By run: score and map of each row and class that was asked for."""
    found: dict[str, Maps] = {}
    for run in with_maps(about, split):
        file = run.folder.maps_file(split)
        if file.is_file():
            arrays = read_arrays(file, ("rows", "classes", "scores", "cells"), "remove it, and report again")
            keys = zip(arrays["rows"].tolist(), arrays["classes"].tolist(), strict=True)
            values = zip(arrays["scores"].tolist(), arrays["cells"], strict=True)
            found[run.name] = dict(zip(keys, values, strict=True))
    return found


def _range(logits: npt.NDArray[np.float32], attention: bool) -> str:
    """The lowest and the highest score of a map's cells, or its smallest and largest share."""
    low, high = (1 / (1 + np.exp(-float(value))) for value in (logits.min(), logits.max()))
    return f"{low:.4f} to {high:.4f}" if attention else f"{as_score(low)} to {as_score(high)}"


def _there(part: PreparedSplit, row: int, index: int) -> bool | None:
    value = int(part.truth.values[row, index])
    return True if value == POSITIVE else False if value == NEGATIVE else None


def _words(label: int) -> str:
    return "there" if label == POSITIVE else "not there" if label == NEGATIVE else "not labelled"
