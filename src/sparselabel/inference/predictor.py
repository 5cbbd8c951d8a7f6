"""A finished run as something that labels images."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from sparselabel.data.decode import load
from sparselabel.data.transforms import View, draw, render
from sparselabel.errors import DataError
from sparselabel.inference.class_thresholds import ClassThresholds, load_class_thresholds
from sparselabel.inference.scorer import BATCH, cells_of, evaluation_view, load_scorer
from sparselabel.metrics.calibration import Floats
from sparselabel.models.classifier import Output
from sparselabel.run import Run

Pixels = npt.NDArray[np.uint8]
Read = Callable[[str], Pixels]


@dataclass(frozen=True, eq=False)
class Prediction:
    """What is in an image: classes and calibrated scores, the surest first; or why it cannot be read.

    ``scores`` (L,) are those of all classes. ``maps`` (L, h, w), if asked for, are logits of cells;
    of query2label those of its attention, which is no score.
    """

    image: str
    labels: tuple[tuple[str, float], ...]
    scores: Floats
    error: str | None = None
    maps: npt.NDArray[np.float32] | None = None


class Predictor:
    """Labels images by a trained model, its calibration and thresholds (L,) of calibrated scores.

    ``model`` is a ``Scorer``, or any function of views and ``maps`` that gives an ``Output``.
    """

    def __init__(
        self,
        model: Callable[..., Output],
        view: View,
        decisions: ClassThresholds,
        thresholds: Floats | None = None,
        read: Read | None = None,
    ) -> None:
        self.model = model
        self.view = view
        self.decisions = decisions
        self.thresholds = decisions.thresholds() if thresholds is None else thresholds
        self.classes = tuple(row.name for row in decisions.classes)
        self._read = read or ReadView(view)

    def __call__(
        self, images: Iterable[str | Path], *, maps: bool = False, batch: int = BATCH, workers: int = 0
    ) -> Iterator[Prediction]:
        """Predictions in the order of the images, one batch at a time in memory."""
        for loaded in stream(map(str, images), self._read, batch, workers):
            scores, cells = self._scored(loaded.views, maps)
            place = 0
            for number, path in enumerate(loaded.paths):
                if number in loaded.errors:
                    yield Prediction(path, (), np.zeros(0), loaded.errors[number])
                    continue
                shown = None if cells is None else cells[place]
                yield Prediction(path, self._labels(scores[place]), scores[place], None, shown)
                place += 1

    @torch.inference_mode()
    def _scored(self, views: Tensor, maps: bool) -> tuple[Floats, npt.NDArray[np.float32] | None]:
        """Calibrated scores (n, L), and maps (n, L, h, w) if asked for."""
        if not len(views):
            return np.zeros((0, len(self.classes))), None
        output = self.model(views, maps=maps)
        scores = self.decisions.calibration(output.logits.cpu().double().numpy())
        return scores, cells_of(output).float().cpu().numpy() if maps else None

    def _labels(self, scores: Floats) -> tuple[tuple[str, float], ...]:
        found = np.flatnonzero(scores >= self.thresholds)
        order = found[np.argsort(-scores[found], kind="stable")]
        return tuple((self.classes[index], float(scores[index])) for index in order.tolist())


def load_predictor(
    run: str | Path,
    *,
    precision: float | None = None,
    threshold: float | None = None,
    device: str | None = None,
) -> Predictor:
    """A finished run's predictor, with its thresholds for F1, for a ``precision``, or one for all classes."""
    opened = Run.open(run)
    decisions = load_class_thresholds(opened)
    thresholds = decisions.thresholds(precision, threshold)
    scorer = load_scorer(opened, device)
    return Predictor(scorer, evaluation_view(opened.config()), decisions, thresholds)


class Loaded(NamedTuple):
    """A batch: paths, views (n, 3, S, S) of those that can be read, and by place what was wrong."""

    paths: tuple[str, ...]
    views: Tensor
    errors: dict[int, str]


class ReadView:
    """Reads an image as evaluation sees it."""

    def __init__(self, view: View) -> None:
        self.view = view

    def __call__(self, path: str) -> Pixels:
        """(3, S, S) What the model sees of a file."""
        image = load(path, self.view.at_least)
        return render(image, draw(self.view, (0, 0, 0, 0), image.width, image.height), self.view.size)


def stream(paths: Iterable[str], read: Read, batch: int, workers: int) -> Iterator[Loaded]:
    """Batches of images in their order; one that cannot be read is an error in its batch."""
    yield from DataLoader(
        _Files(read),
        batch_sampler=_Batches(paths, batch),
        collate_fn=_as_is,
        num_workers=workers,
        multiprocessing_context="fork" if workers else None,
    )


class _Batches:
    """Batches of paths as they come; the loader asks for a few more than it has workers."""

    def __init__(self, paths: Iterable[str], batch: int) -> None:
        self.paths, self.batch = paths, batch

    def __iter__(self) -> Iterator[Any]:  # torch says lists of indices; it hands on whatever it gets
        paths = iter(self.paths)
        while batch := tuple(islice(paths, self.batch)):
            yield batch


class _Files(Dataset[Any]):
    def __init__(self, read: Read) -> None:
        self.read = read

    def __getitems__(self, paths: tuple[str, ...]) -> Loaded:
        """A whole batch."""
        errors: dict[int, str] = {}
        views = []
        for place, path in enumerate(paths):
            try:
                views.append(self.read(path))
            except DataError as error:
                errors[place] = str(error)
        stacked = torch.from_numpy(np.stack(views)) if views else torch.empty(0)
        return Loaded(paths, stacked, errors)


def _as_is(batch: Any) -> Any:
    return batch
