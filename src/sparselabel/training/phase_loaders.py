"""The loaders of each phase: views of images, or stored features."""

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from sparselabel.config import AUTO, Machine, TrainConfig
from sparselabel.data.dataset import Dataset
from sparselabel.data.loaders import FeatureLoader, ImageLoader, Loader
from sparselabel.data.transforms import RandAugment, View, views_of
from sparselabel.errors import counted
from sparselabel.file_formats import read_array
from sparselabel.files import require_folder_to_write
from sparselabel.inference.engine import PACKAGES, TORCH, CellFeatures, CompiledNetwork, choose_engine
from sparselabel.inference.scorer import BATCH, evaluation_loader, evaluation_view
from sparselabel.models.backbone import Backbone
from sparselabel.resources import free_disk
from sparselabel.training.features import (
    CheckedRows,
    compute_features,
    features_elsewhere,
    features_file,
    gather_features,
    no_room,
    pool_features,
    read_features,
)
from sparselabel.training.logger import Log
from sparselabel.training.network import LazyBackbone, Network
from sparselabel.training.resolve import pools_first, stores_cells

if TYPE_CHECKING:
    from lightning_fabric import Fabric

_FOUND: WeakKeyDictionary[Backbone, dict[str, str]] = WeakKeyDictionary()
"""What runs a backbone, by the engine that was to: the runs of a comparison are checked with one backbone."""


@dataclass
class PhaseLoaders:
    """Loaders for training and evaluation; stored features are computed when they are first needed."""

    data: Dataset
    config: TrainConfig
    backbone: LazyBackbone
    fabric: "Fabric"
    machine: Machine
    log: Log
    _features: dict[Path, Tensor] = field(default_factory=dict)
    _files: dict[tuple[str, bool, str], Path] = field(default_factory=dict)
    _evaluation: dict[str, Loader] = field(default_factory=dict)
    _checks: dict[str, CheckedRows] = field(default_factory=dict)
    _said_colors: bool = False
    _compiled: CompiledNetwork | None = None

    @cached_property
    def engine(self) -> str:
        """The engine that computes stored features in all processes, chosen at first use.

        By default, existing features are used, whatever engine made them.
        """
        asked, device, precision = self.machine.engine, self.fabric.device, self.config.precision
        images = sum(len(split) for split in self.data.splits.values())
        if made_by := self._made_by():
            return str(self.fabric.broadcast(made_by))
        # Features are stored as floats whatever precision the head has.
        chosen = choose_engine(asked, device, precision if precision == "64-true" else "32-true", images)
        if chosen != TORCH and self.fabric.is_global_zero:
            found = _FOUND.setdefault(self.backbone(), {})
            if chosen not in found:
                rows = np.arange(min(BATCH, len(self.data.train)))
                first = next(iter(self.one_batch("finetune")([rows], 0)))
                found[chosen] = self._network(chosen).check(first.inputs[0])
            chosen = found[chosen]
        return str(self.fabric.broadcast(chosen))

    def _made_by(self) -> str | None:
        """The engine that has made all features that are needed, if one has."""
        needed = [*self.data.splits] if self.config.frozen else ["train"]
        for engine in (*PACKAGES, TORCH):
            wanted = self.machine.engine in (AUTO, engine)
            if wanted and all(self._has(split, engine) for split in needed):
                return engine
        return None

    def stored_bytes(self) -> int | None:
        """Bytes of the stored features of all splits; None if some do not exist."""
        if (engine := self._made_by()) is None:
            return None
        size = 0
        for name, split in self.data.splits.items():
            cells = self._of_cells(name)
            file, of_cells = self._file(name, cells, engine), self._file(name, True, engine)
            there = next((one for one in (file, of_cells) if one.exists()), None)
            some = read_array(there or features_elsewhere(file, split)[0], mapped=True)
            size += len(split) * (some[0].nbytes if cells or some.ndim == 2 else some.shape[1] * 4)
        return size

    def _network(self, engine: str) -> CompiledNetwork:
        """The backbone, run by an engine; made once."""
        if self._compiled is None or self._compiled.engine != engine:
            backbone = self.backbone().to(self.fabric.device)
            self._compiled = CompiledNetwork(CellFeatures(backbone), engine)
        return self._compiled

    @cached_property
    def cells(self) -> bool:
        """Whether training uses stored features of cells."""
        return stores_cells(self.config)

    def _of_cells(self, split: str) -> bool:
        """Whether a split does; where pooled ones give the same logits, only training needs cells."""
        return self.cells and (split == "train" or not pools_first(self.config))

    @property
    def test_view(self) -> View:
        """The view of images in evaluation, and for stored features."""
        return evaluation_view(self.config)

    def uses_stored_features(self, phase: str) -> bool:
        """Whether a phase trains the head on stored features."""
        return phase == "head" and self.config.frozen

    def feature_width(self) -> int:
        """The width of stored features."""
        return self._stored("train").shape[1]

    def check(self, network: Network) -> None:
        """Make the model if it will be needed, so that missing weights or wrong sizes raise now."""
        missing = [name for name in self.data.splits if self.config.frozen and not self._there(name)]
        if self.config.finetune.epochs or not self.config.frozen:
            for phase in self.config.phases:
                if not self.uses_stored_features(phase):
                    network.classifier_of(phase)
        elif missing:
            self.backbone()
        if missing:
            folder = self.data.features_folder
            require_folder_to_write(folder, "features are kept beside the data: copy it to a folder of yours")
            self._refuse_too_large(missing, folder)

    def _refuse_too_large(self, missing: list[str], folder: Path) -> None:
        backbone, size = self.backbone(), 0
        for name in missing:
            down, across = backbone.grid(self.config.views.size) if self._of_cells(name) else (1, 2)
            size += len(self.data.split(name)) * backbone.width * down * across * 2
        if size > (free := free_disk(folder) * self.fabric.world_size):  # they write it together
            raise no_room(folder, size, free)

    def _there(self, split: str) -> bool:
        return self._has(split, self.engine)

    def _has(self, split: str, engine: str) -> bool:
        """Whether an engine has made the features of a split, for this data or for other."""
        file, of_cells = self._file(split, self._of_cells(split), engine), self._file(split, True, engine)
        return file.exists() or of_cells.exists() or bool(features_elsewhere(file, self.data.split(split)))

    def _file(self, split: str, cells: bool, engine: str) -> Path:
        if (split, cells, engine) not in self._files:  # images and weights are hashed for it
            prepared, folder = self.data.split(split), self.data.features_folder
            file = features_file(prepared, folder, self.config, self.test_view, cells, engine)
            self._files[split, cells, engine] = file
        return self._files[split, cells, engine]

    def grid(self) -> tuple[int, int]:
        """Height and width of the model's maps; stored features of cells have them without the backbone."""
        if self.cells and (file := self._file("train", True, self.engine)).exists():
            shape = read_features(file, cells=True).shape
            return shape[2], shape[3]
        return self.backbone().grid(self.config.views.size)

    def features(self, split: str) -> Tensor:
        """(N, D) The frozen backbone's pooled features of a split."""
        return self._features_of(split, cells=False)

    def _stored(self, split: str) -> Tensor:
        """(N, D), or (N, D, h, w) in float16 on the disk: the input of the head."""
        return self._features_of(split, self._of_cells(split))

    def _features_of(self, split: str, cells: bool) -> Tensor:
        file = self._file(split, cells, self.engine)
        if file not in self._features:
            prepared_split = self.data.split(split)
            if self.fabric.is_global_zero and not file.exists():
                if (of_cells := self._file(split, True, self.engine)).exists():
                    pool_features(file, of_cells, prepared_split)
                else:
                    gather_features(file, prepared_split)
            if not self.fabric.broadcast(file.exists()):
                images = counted(len(prepared_split), f"{split} image")
                what = f"features of {'cells of ' if cells else ''}{images}"
                if self.engine != TORCH:
                    what += f" by {self.engine}"
                view, fabric, workers = self.test_view, self.fabric, self.machine.workers
                network, backbone = self._network(self.engine), self.backbone()
                shape = (backbone.width, *(backbone.grid(view.size) if cells else ()))
                with self.log.bar(len(prepared_split), what) as bar:
                    compute_features(
                        file, prepared_split, view, network, shape, fabric, workers, bar.advance, cells
                    )
            self._features[file] = torch.from_numpy(read_features(file, cells))
        return self._features[file]

    def share_features(self, other: "PhaseLoaders") -> None:
        """Share stored features with another run."""
        self._features = other._features

    def training(self, phase: str, views: int, strong_views: int = 0, with_geometry: bool = False) -> Loader:
        """The loader for training: fresh views in every epoch, or stored features.

        ``with_geometry``: the geometry of a view must be exact, so RandAugment moves no pixels.
        """
        if self.uses_stored_features(phase):
            return self._feature_loader("train")
        view, augment = views_of(self.config.views)[0], self._augment(with_geometry)
        workers, device = self.machine.workers, self.fabric.device
        return ImageLoader(
            self.data.train, view, self.config.seed, views, workers, strong_views, augment, device
        )

    def _feature_loader(self, split: str) -> FeatureLoader:
        """Stored features; those of cells, which stay on the disk, are checked as they are read."""
        features, cells = self._stored(split), self._of_cells(split)
        file = self._file(split, cells, self.engine)
        if not cells or not file.exists():  # a dry run computes a few only
            return FeatureLoader(features)
        if split not in self._checks:
            self._checks[split] = CheckedRows(file)
        return FeatureLoader(features, self._checks[split])

    def _augment(self, with_geometry: bool) -> RandAugment | None:
        views = self.config.views
        if not views.rand_augment and not views.cutout:
            return None
        if views.rand_augment and with_geometry and not self._said_colors:  # once, not in every phase
            self._said_colors = True
            self.log.say(
                f"RandAugment only changes colors: {self.config.method} needs to know where things are"
            )
        return RandAugment(views.rand_augment, views.magnitude, not with_geometry, views.cutout)

    def one_batch(self, phase: str) -> Loader:
        """A loader for a batch of training images in the evaluation view, without workers."""
        stored = self.uses_stored_features(phase)
        return self.evaluation(phase, "train") if stored else ImageLoader(self.data.train, self.test_view)

    def evaluation(self, phase: str, split: str) -> Loader:
        """The loader for evaluation: images in the evaluation view, or stored features."""
        if self.uses_stored_features(phase):
            return self._feature_loader(split)
        if split not in self._evaluation:
            prepared = self.data.split(split)
            workers, device = self.machine.workers, self.fabric.device
            self._evaluation[split] = evaluation_loader(self.config, prepared, workers, device)
        return self._evaluation[split]
