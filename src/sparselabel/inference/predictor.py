"""``Predictor``: labels images with a finished run."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from sparselabel.config import AUTO
from sparselabel.data.decode import load
from sparselabel.data.image_paths import image_paths, images
from sparselabel.data.image_shards import ShardImage
from sparselabel.data.image_source import as_image
from sparselabel.data.loaders import CPU, in_threads, worker_processes
from sparselabel.data.transforms import View, draw, render
from sparselabel.errors import DataError
from sparselabel.inference.class_thresholds import ClassThresholds, load_class_thresholds
from sparselabel.inference.engine import TORCH, WORTH
from sparselabel.inference.scorer import BATCH, Scorer, cells_of, evaluation_view, load_scorer
from sparselabel.metrics.calibration import Floats
from sparselabel.models.classifier import Output
from sparselabel.run import Run

Pixels = npt.NDArray[np.uint8]
Read = Callable[[Any], Pixels]

LARGEST_BATCH = 1 << 28
"""Bytes of image files of a batch, from which on it is full."""


@dataclass(frozen=True, eq=False)
class Prediction:
    """The prediction for an image: classes and calibrated scores, highest first; or why it cannot be read.

    ``scores`` (L,) are those of all classes. ``maps`` (L, h, w), if requested, are logits of cells; for
    query2label those of its attention, which are no scores.
    """

    image: str
    labels: tuple[tuple[str, float], ...]
    scores: Floats
    error: str | None = None
    maps: npt.NDArray[np.float32] | None = None


class Predictor:
    """Labels images by a trained model, its calibration and thresholds (L,) of calibrated scores.

    ``model`` is a ``Scorer``, or any function of views and ``maps`` that gives an ``Output``. ``few`` is used
    for few images, where starting an engine would take longer than it saves.
    """

    def __init__(
        self,
        model: Callable[..., Output],
        view: View,
        class_thresholds: ClassThresholds,
        thresholds: Floats | None = None,
        read: Read | None = None,
        few: Callable[..., Output] | None = None,
    ) -> None:
        self.model, self._few, self._used = model, few, model
        self.view = view
        self.class_thresholds = class_thresholds
        self.thresholds = class_thresholds.thresholds() if thresholds is None else thresholds
        self.classes = tuple(row.name for row in class_thresholds.classes)
        self._read = read or ReadView(view)

    def __call__(
        self, images: Any, *, maps: bool = False, batch: int = BATCH, workers: int | None = None
    ) -> Iterator[Prediction]:
        """Predictions in the order of the images, one batch at a time in memory.

        An image is a path or an address, a PIL image, an array (H, W, C) or a tensor (C, H, W), in uint8 or
        in floats in 0..1; ``images`` is one of them, an iterable of them, a batch as one array or tensor, or
        a folder. The path of a tar or of a Parquet table means all images in it.
        """
        counter, left = itertools.count(), images_of(images)
        first = [*islice(left, WORTH)] if self._few is not None else []
        self._used = self._few if self._few is not None and len(first) < WORTH else self.model
        device = self._used.device if isinstance(self._used, Scorer) else CPU
        for loaded in stream(itertools.chain(first, left), self._read, batch, workers, device):
            scores, cells = self._scored(self._used, loaded.views, maps)
            position = 0
            for number, item in enumerate(loaded.images):
                count = next(counter)
                path = _name(item, count)
                if number in loaded.errors:
                    yield Prediction(path, (), np.zeros(0), loaded.errors[number])
                    continue
                own, shown = scores[position], None if cells is None else cells[position]
                position += 1
                if not np.isfinite(own).all():  # it would have no labels, as if nothing were shown
                    problem = f"{path}: the model's scores of it are not finite: bring back its weights"
                    yield Prediction(path, (), np.zeros(0), problem)
                    continue
                yield Prediction(path, self._labels(own), own, None, shown)

    @property
    def engine(self) -> str:
        """The engine that ran the network for the last images."""
        return self._used.engine_used if isinstance(self._used, Scorer) else TORCH

    @torch.inference_mode()
    def _scored(
        self, model: Callable[..., Output], views: Tensor, maps: bool
    ) -> tuple[Floats, npt.NDArray[np.float32] | None]:
        """Calibrated scores (n, L), and maps (n, L, h, w) if asked for."""
        if not len(views):
            return np.zeros((0, len(self.classes))), None
        output = model(views, maps=maps)
        scores = self.class_thresholds.calibration(output.logits.cpu().double().numpy())
        return scores, cells_of(output).float().cpu().numpy() if maps else None

    def _labels(self, scores: Floats) -> tuple[tuple[str, float], ...]:
        chosen = np.flatnonzero(scores >= self.thresholds)
        order = chosen[np.argsort(-scores[chosen], kind="stable")]
        return tuple((self.classes[index], float(scores[index])) for index in order.tolist())


def load_predictor(
    run: str | Path,
    *,
    precision: float | None = None,
    threshold: float | None = None,
    device: str | None = None,
    engine: str = AUTO,
) -> Predictor:
    """A finished run's predictor, with its thresholds for F1, for a ``precision``, or one for all classes.

    ``engine`` runs the network on a CPU: openvino, onnxruntime or torch; by default the first that is
    installed, and torch for few images.
    """
    return predictor_of(Run.open(run), precision, threshold, device, engine)


def predictor_of(
    run: Run,
    precision: float | None = None,
    threshold: float | None = None,
    device: str | None = None,
    engine: str = AUTO,
) -> Predictor:
    """The predictor of an opened run."""
    class_thresholds = load_class_thresholds(run)
    thresholds = class_thresholds.thresholds(precision, threshold)
    scorer = load_scorer(run, device, engine, WORTH)
    few = replace(scorer, engine=TORCH) if engine == AUTO and scorer.engine != TORCH else None
    return Predictor(scorer, evaluation_view(run.config()), class_thresholds, thresholds, few=few)


class Loaded(NamedTuple):
    """A batch: images, views (n, 3, S, S) of the readable ones, and errors by position."""

    images: tuple[Any, ...]
    views: Tensor
    errors: dict[int, str]


def images_of(given: Any) -> Iterator[Any]:
    """Paths and images, one after the other, of whatever ``Predictor`` takes."""
    if isinstance(given, str | Path):
        yield from images(image_paths([str(given)]))
    elif isinstance(given, Image.Image) or getattr(given, "ndim", 0) in (2, 3):
        yield given
    elif isinstance(given, Iterable):
        for named, items in itertools.groupby(given, lambda item: isinstance(item, str | Path)):
            if named:
                yield from images(map(str, items))
            else:
                yield from items
    else:
        raise DataError(
            f"images are paths, PIL images, arrays or tensors, not {type(given).__name__}", what="images"
        )


class ReadView:
    """Reads an image in the evaluation view."""

    def __init__(self, view: View) -> None:
        self.view = view

    def __call__(self, item: Any) -> Pixels:
        """(3, S, S) The view of a file, or of an image in memory."""
        if isinstance(item, ShardImage):
            if item.problem:
                raise DataError(item.problem, what=item.name)
            image = load(item.name, self.view.at_least, content=item.content)
        else:
            image = self._opened(item) if isinstance(item, str) else as_image(item)
        return render(image, draw(self.view, (0, 0, 0, 0), image.width, image.height), self.view.size)

    def _opened(self, path: str) -> Image.Image:
        try:
            return load(path, self.view.at_least)
        except DataError as error:
            if isinstance(
                error.__cause__, FileNotFoundError
            ):  # other words than of an image of prepared data
                raise DataError(f"No such file: {path}", "check its name", what=path) from error.__cause__
            raise


def stream(
    images: Iterable[Any], read: Read, batch: int, workers: int | None, device: torch.device = CPU
) -> Iterator[Loaded]:
    """Batches of images in their order; one that cannot be read is an error in its batch."""
    yield from DataLoader(
        _Files(read),
        batch_sampler=_Batches(images, batch),
        collate_fn=_as_is,
        num_workers=worker_processes(workers, device),
        pin_memory=device.type == "cuda",
    )


class _Batches:
    """Batches of images as they come, each of one group; the loader asks for a few more than its workers."""

    def __init__(self, images: Iterable[Any], batch: int) -> None:
        self.images, self.batch = images, batch

    def __iter__(self) -> Iterator[Any]:  # torch says lists of indices; it hands on whatever it gets
        for _, group in itertools.groupby(self.images, _group):
            while batch := tuple(self._next(group)):
                yield batch

    def _next(self, group: Iterator[Any]) -> Iterator[Any]:
        """The images of a batch: fewer where a shard has large ones, which are in memory together."""
        size = 0
        for item in islice(group, self.batch):
            yield item
            size += len(item.content) if isinstance(item, ShardImage) else 0
            if size >= LARGEST_BATCH:
                return


def _group(item: Any) -> str:
    return item.group if isinstance(item, ShardImage) else ""


def _name(item: Any, number: int) -> str:
    if isinstance(item, ShardImage):
        return item.name
    return item if isinstance(item, str) else f"image {number}"


class _Files(Dataset[Any]):
    def __init__(self, read: Read) -> None:
        self.read = read

    def __getitems__(self, images: tuple[Any, ...]) -> Loaded:
        """A whole batch."""
        errors: dict[int, str] = {}
        views: dict[int, Pixels] = {}

        def read(place: int) -> None:
            try:
                views[place] = self.read(images[place])
            except DataError as error:
                errors[place] = str(error)

        in_threads(read, len(images))
        stacked = np.stack([views[place] for place in sorted(views)]) if views else np.zeros(0, np.uint8)
        return Loaded(images, torch.from_numpy(stacked), errors)


def _as_is(batch: Any) -> Any:
    return batch
