"""What the model is fed with in each phase: views of pictures, or stored features."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from sparselabel.config import TrainConfig
from sparselabel.data.augment import View, views_of
from sparselabel.data.dataset import Prepared
from sparselabel.data.feed import FeatureFeed, Feed, PictureFeed
from sparselabel.errors import counted
from sparselabel.place import require_folder_to_write
from sparselabel.train.features import compute_features, features_file
from sparselabel.train.learner import Learner
from sparselabel.train.log import Log

if TYPE_CHECKING:
    from lightning_fabric import Fabric


@dataclass
class Inputs:
    """Feeds for training and evaluation; stored features are computed when they are first asked for."""

    data: Prepared
    config: TrainConfig
    learner: Learner
    fabric: "Fabric"
    workers: int
    log: Log
    _features: dict[str, Tensor] = field(default_factory=dict)
    _evaluation: dict[tuple[str, str], Feed] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.config.frozen:
            self.learner.width = lambda: self.features("train").shape[1]

    @property
    def test_view(self) -> View:
        """How pictures are seen in evaluation, and to compute stored features."""
        return views_of(self.config.views)[1]

    @property
    def train_view(self) -> View:
        """How pictures are seen in training."""
        return views_of(self.config.views)[0]

    def stored(self, phase: str) -> bool:
        """Whether a phase trains the head on stored features."""
        return phase == "head" and self.config.frozen

    def check(self) -> None:
        """Make the model if it will be needed, so that what cannot be had or does not fit is found now."""
        if self.config.full.epochs or not self.config.frozen:
            for phase in self.config.phases:
                if not self.stored(phase):
                    self.learner.classifier_of(phase)
        elif not self._file("train").exists():
            _ = self.learner.backbone
        if self.config.frozen and not self._file("train").exists():
            require_folder_to_write(
                self.data.folder / "features",
                "features are kept beside the data: copy it to a folder of yours",
            )

    def _file(self, split: str) -> Path:
        return features_file(
            self.data.split(split), self.data.folder / "features", self.config, self.test_view
        )

    def features(self, split: str) -> Tensor:
        """(N, D) The frozen backbone's features of a split."""
        if split not in self._features:
            part, file = self.data.split(split), self._file(split)
            if not self.fabric.broadcast(file.exists()):
                with self.log.bar(len(part), f"features of {counted(len(part), f'{split} picture')}") as bar:
                    compute_features(
                        file,
                        part,
                        self.test_view,
                        self.learner.backbone,
                        fabric=self.fabric,
                        workers=self.workers,
                        report=bar.advance,
                    )
            self._features[split] = torch.from_numpy(np.load(file))
        return self._features[split]

    def training(self, phase: str, views: int) -> Feed:
        """Inputs to train on: drawn anew in every epoch, unless they are stored."""
        if self.stored(phase):
            return FeatureFeed(self.features("train"))
        return PictureFeed(self.data.train, self.train_view, self.config.seed, views, self.workers)

    def evaluation(self, phase: str, split: str) -> Feed:
        """Inputs to evaluate on: pictures seen whole."""
        key = ("stored" if self.stored(phase) else "pictures", split)
        if key not in self._evaluation:
            self._evaluation[key] = (
                FeatureFeed(self.features(split))
                if self.stored(phase)
                else PictureFeed(self.data.split(split), self.test_view, workers=self.workers)
            )
        return self._evaluation[key]
