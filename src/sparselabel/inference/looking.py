"""Where a run's model sees classes in one picture at a time, for the pages of a review."""

import threading
from collections import OrderedDict
from contextlib import suppress

import numpy as np
import numpy.typing as npt
import torch

from sparselabel.data.dataset import PreparedSplit
from sparselabel.data.transforms import View, draw, load, render, views_of
from sparselabel.errors import SparselabelError
from sparselabel.inference.evaluate import load_classifier
from sparselabel.inference.maps import cells_of
from sparselabel.models.classifier import Classifier
from sparselabel.run import RunFolder

KEPT = 32  # pictures whose maps are remembered


class Looking:
    """Maps (L, h, w) of pictures' logits, made when they are asked for; threads take turns."""

    def __init__(self, run: RunFolder, part: PreparedSplit) -> None:
        self._run, self._part = run, part
        self._lock = threading.Lock()
        self._model: Classifier | None = None
        self._kept: OrderedDict[int, npt.NDArray[np.float16]] = OrderedDict()
        self.view: View = views_of(run.config().views)[1]

    def load_ahead(self) -> None:
        """Read the model now, in a thread of its own, instead of when the first map is asked for."""
        threading.Thread(target=self._loaded, daemon=True).start()

    def _loaded(self) -> None:
        with self._lock, suppress(SparselabelError):  # said when a map is asked for
            self._model = self._model or load_classifier(self._run).eval()

    @torch.no_grad()
    def maps(self, row: int) -> npt.NDArray[np.float16]:
        """Logits (L, h, w) of a picture's cells; the logits of attention where a model has that instead."""
        with self._lock:
            if row in self._kept:
                self._kept.move_to_end(row)
                return self._kept[row]
            if self._model is None:
                self._model = load_classifier(self._run).eval()
            image = load(self._part.path(row), self.view.at_least)
            frame = draw(self.view, (0, 0, row, 0), image.width, image.height)
            pixels = torch.from_numpy(render(image, frame, self.view.size))[None]
            shown = cells_of(self._model(pixels, maps=True))
            self._kept[row] = shown[0].float().numpy().astype(np.float16)
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
            return self._kept[row]
