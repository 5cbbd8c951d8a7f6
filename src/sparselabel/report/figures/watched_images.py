"""Images that a run watched (RUN/watched): their labels, scores and maps after each epoch."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from sparselabel.data.dataset import PreparedSplit
from sparselabel.data.labels import NEGATIVE, POSITIVE
from sparselabel.data.transforms import draw, views_of
from sparselabel.errors import ConfigError, RunError, command, listing, param
from sparselabel.file_formats import read_arrays, refuse_outside
from sparselabel.run import Run

Maps = npt.NDArray[np.floating[Any]]
Kind = Literal["annotated", "present", "absent", "unknown"]
KINDS: tuple[Kind, ...] = ("annotated", "present", "absent")
LARGEST = 480  # pixels of an image's long side in a figure


@dataclass(frozen=True, eq=False)
class Snapshot:
    """What a run kept after an epoch (1, 2, ...): of n ``rows``, ``scores`` (n, L) and what maps it has."""

    epoch: int
    rows: npt.NDArray[np.int64]
    scores: npt.NDArray[np.float32]
    arrays: dict[str, npt.NDArray[Any]]

    def map(self, source: str, place: int, index: int) -> Maps | None:
        """(h, w) in 0..1 The map of a class, of the image at this place among the rows; None: none kept."""
        classes = self.arrays.get("heat_map_classes") if source == "heat_maps" else None
        if classes is not None and index not in classes[place]:
            return None
        values = self.arrays[source][place, index].astype(np.float64)
        return np.asarray(values / 255 if source == "heat_maps" else values)

    def running_score(self, place: int, index: int) -> float | None:
        """The running score of a class, if the method has one."""
        scores = self.arrays.get("running_scores")
        return None if scores is None else float(scores[place, index])


def small_image(split: PreparedSplit, row: int) -> npt.NDArray[np.uint8]:
    """(H, W, 3) An image in its own aspect, made small enough for a figure."""
    image = split.image(row, LARGEST)
    image.thumbnail((LARGEST, LARGEST))
    return np.asarray(image)


def seen_of(run: Run, image: npt.NDArray[np.uint8], source: str = "maps") -> tuple[float, ...]:
    """Left, top, width and height of what maps cover of an image, in shares of it.

    Heat maps are of all of it, the model's own maps of what the model sees in evaluation.
    """
    if source == "heat_maps":
        return 0.0, 0.0, 1.0, 1.0
    height, width = image.shape[:2]
    return tuple(draw(views_of(run.config().views)[1], (0, 0, 0, 0), width, height)[:4].tolist())


class Watched:
    """The watched images of a run."""

    def __init__(self, path: Path) -> None:
        self.run = Run(path)
        self.split: PreparedSplit = self.run.split("train")
        self.classes = list(self.run.classes)
        self.files = sorted(self.run.watched.glob("*.npz"))
        if not self.files:
            raise RunError(
                f"{path} has watched no images yet", f"train with {command('train', '...', watch=8)}"
            )
        self.last = self.snapshot(self.files[-1])

    def snapshot(self, file: Path) -> Snapshot:
        """The data saved after an epoch."""
        remedy = "remove it, or train again"
        arrays = read_arrays(file, {"rows": "i n", "scores": "f n L"}, remedy)
        refuse_outside(file, arrays, {"rows": len(self.split)}, remedy)
        return Snapshot(int(file.stem), arrays.pop("rows"), arrays.pop("scores"), arrays)

    @property
    def top_maps(self) -> int | None:
        """The number of classes per image that have heat maps; None: all."""
        top = self.run.config().settings.get("top_maps")
        return None if top is None else int(top)

    def sources(self, *others: "Watched") -> list[str]:
        """Which maps to show of each: heat maps where all have them, else the model's own of cells.

        Those are attention where a model has that instead of scores of cells.
        """
        everyone = [self, *others]
        if all("heat_maps" in one.last.arrays for one in everyone):
            return ["heat_maps"] * len(everyone)
        return [one.own_source() for one in everyone]

    def own_source(self) -> str:
        """The kind of the model's own maps: scores of cells, or attention."""
        for name in ("maps", "attention"):
            if name in self.last.arrays:
                return name
        raise RunError(
            f"{self.run.path} kept no maps of its watched images, as it was trained on stored features",
            f"see maps of other images in its report ({command('report', self.run.path)})",
            "train it on images, with a fine-tuning phase or without stored features",
            "take a method that keeps heat maps, as en+scl",
        )

    def place(self, row: int) -> int:
        """The position of a row among the watched ones."""
        rows: list[int] = self.last.rows.tolist()
        if row not in rows:
            raise ConfigError(f"{self.run.path} did not watch row {row}: it watched {listing(rows, 20)}")
        return rows.index(row)

    def kind(self, row: int, index: int) -> Kind:
        """The state of a class in an image: annotated, present but not annotated, absent, or unknown."""
        if self.split.observed.matrix[row, index] == POSITIVE:
            return "annotated"
        truth = self.split.truth.matrix[row, index]
        return "present" if truth == POSITIVE else "absent" if truth == NEGATIVE else "unknown"

    def best_of_each_kind(self, row: int) -> dict[Kind, int]:
        """The highest-scored class of each kind that the image has, by the last scores."""
        order = np.argsort(-self.last.scores[self.place(row)], kind="stable").tolist()
        kinds = [self.kind(row, index) for index in order]
        return {kind: order[kinds.index(kind)] for kind in KINDS if kind in kinds}

    def chosen(self, rows: Sequence[int], count: int) -> list[int]:
        """The rows asked for, else ``count`` watched ones, first those with a class of each kind."""
        if rows:
            for row in rows:
                self.place(row)
            return list(rows)
        if count < 1:
            raise ConfigError(f"{param('count')} must be at least 1, not {count}", what="count", value=count)
        telling = [row for row in self.last.rows.tolist() if len(self.best_of_each_kind(row)) == len(KINDS)]
        rest = [row for row in self.last.rows.tolist() if row not in telling]
        return (telling + rest)[:count]
