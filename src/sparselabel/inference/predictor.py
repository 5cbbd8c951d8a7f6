"""A finished run as something that labels images."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sparselabel.data.transforms import View, views_of
from sparselabel.inference.class_thresholds import ClassThresholds, load_class_thresholds
from sparselabel.inference.evaluate import load_classifier
from sparselabel.inference.maps import cells_of
from sparselabel.inference.sources import Read, Seen, stream
from sparselabel.metrics.calibration import Floats
from sparselabel.run import Run

if TYPE_CHECKING:
    from sparselabel.models.classifier import Output

BATCH = 32


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
    """Labels images by a trained model, its calibration and thresholds (L,) of calibrated scores."""

    def __init__(
        self,
        model: "Callable[..., Output]",
        view: View,
        decisions: ClassThresholds,
        thresholds: Floats | None = None,
        device: torch.device | str = "cpu",
        read: Read | None = None,
    ) -> None:
        self.model = model
        self.view = view
        self.decisions = decisions
        self.thresholds = decisions.thresholds() if thresholds is None else thresholds
        self.classes = tuple(row.name for row in decisions.classes)
        self.device = torch.device(device)
        self._read = read or Seen(view)

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
        output = self.model(views.to(self.device), maps=maps)
        scores = self.decisions.calibration(output.logits.double().cpu().numpy())
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
    folder = Run(Path(run))
    decisions = load_class_thresholds(folder.path)
    thresholds = decisions.thresholds(precision, threshold)
    where = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    model = load_classifier(folder).to(where).eval()
    return Predictor(model, views_of(folder.config().views)[1], decisions, thresholds, where)
