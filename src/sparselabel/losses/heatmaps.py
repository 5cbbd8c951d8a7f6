"""Heat maps: where in each image the model has seen each class (Verelst 2023 §3.5).

    heat maps of an image  ── crop_maps of the view's geometry ──▶ the cells' targets     (before the step)
    heat maps of an image  ◀── uncrop_maps of the same geometry ── the cells' scores       (after the step)

Verelst et al. 2023, Spatial Consistency Loss for Training Multi-Label Classifiers from Single-Label
Annotations. Maps are stored in 8 bits with classes innermost, the order in which crops are quickest.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sparselabel.data.labels import NEGATIVE, POSITIVE
from sparselabel.errors import ConfigError
from sparselabel.losses.base import LossPart, Needs, at_least_float32
from sparselabel.losses.memory.rounding import Dither
from sparselabel.losses.memory.row_store import RowStore, make_row_store
from sparselabel.losses.running_scores import RunningScores, checked_momentum
from sparselabel.losses.step import Layout, Memory, Progress, Step, not_begun, rows_at_once

FULL = 255
LARGEST_SCALE = 64
WAYS_OUT = (
    "keep only the best classes of each image (top_maps, as 10)",
    "use a run folder on a larger disk",
    "keep coarser maps (map_scale 1)",
    "keep none (the method without +scl)",
    "use several processes, which share the rows",
)


@dataclass
class Current:
    """The heat maps of a step's rows (B, H, W, D) in 0..255, and their classes (B, D), if not all.

    ``scores`` (B, L, h, w) are those of the step's cells, if they have been computed already.
    """

    step: Step
    local_index: Tensor
    maps: Tensor
    classes: Tensor | None
    scores: Tensor | None = None


class HeatMaps(LossPart):
    """Running averages of every image's cell scores, at ``scale`` times the model's resolution.

    They start at 1 for an observed class and at 0 elsewhere. After the optimizer's step, the cells whose
    centers lie in the crop become μ·H + (1−μ)·F, with stochastic rounding (ours; rounding to the nearest
    level would stall); cells outside the crop do not change. An observed negative stays 0 (ours).

    With ``top`` only the k best classes of each image by its running scores, observed ones first, have maps.
    They are chosen when the warm-up is over, and start at 1 (observed) or at the running score (ours; from 0
    the first epoch would lower all scores). The other classes' maps count as 0.
    """

    needs = Needs(maps=True)
    chosen: Tensor
    maps: RowStore
    classes: RowStore

    def __init__(
        self, momentum: float, scale: int = 2, top: int | None = None, scores: RunningScores | None = None
    ) -> None:
        super().__init__()
        if not 1 <= scale <= LARGEST_SCALE:
            raise ConfigError(
                f"map_scale must be 1 to {LARGEST_SCALE}, beyond which maps are finer than any image, "
                f"not {scale}"
            )
        if top is not None and top < 1:
            raise ConfigError(f"top_maps must be at least 1, not {top}")
        if top is not None and scores is None:
            raise ConfigError("the best classes of an image are chosen by its running scores: give them too")
        self.scores = scores
        self.momentum, self.scale, self.top = checked_momentum(momentum), scale, top
        self.size: tuple[int, int] | None = None
        self._current: Current | None = None

    def prepare(self, layout: Layout) -> None:
        """Allocate the maps if the model's grid is known; otherwise the first step does."""
        self.layout = layout
        classes = layout.observed.shape[1]
        self.depth = classes if self.top is None else self.top
        if self.depth > classes:
            raise ConfigError(
                f"top_maps must be at most {classes}, the number of classes, not {self.top}: leave it out to "
                "keep the maps of all"
            )
        most = 0 if self.top is None else max(layout.per_image(POSITIVE).tolist(), default=0)
        if most > self.depth:
            raise ConfigError(
                f"top_maps is {self.top}, but an image has {most} observed classes, which all need a "
                f"heat map: give top_maps of at least {most}"
            )
        self.register_buffer("chosen", torch.tensor(self.top is None))
        if layout.grid is not None:
            self.make_room(layout.grid)

    def begin_epoch(self, progress: Progress) -> None:
        """Choose the classes that have maps, once, at the end of the warm-up."""
        self._current = None
        if progress.warmed_up and not self.chosen:
            self.chosen.fill_(True)
            if self.size is not None:
                self.maps.read(torch.tensor([0]))  # fills the maps now, before the running scores change

    def forward(self, step: Step, scores: Tensor | None = None) -> Tensor:
        """(B, L, h, w) The maps of earlier epochs, cropped to the first view, as target scores of its cells.

        ``scores`` (B, L, h, w), the current scores of the cells, saves computing them again in ``update``.
        """
        current = self._current_maps(step)
        current.scores = None if scores is None else scores.detach()
        grid = _cells(step).shape[2:]
        seen = step.geometries[0].crop_maps(current.maps.permute(0, 3, 1, 2), (grid[0], grid[1]), FULL)
        if current.classes is None:
            return seen
        whole = seen.new_zeros(len(seen), step.observed.shape[1], *grid)
        return whole.scatter_(1, current.classes[:, :, None, None].expand_as(seen), seen)

    def prefetch(self, rows: Tensor) -> None:
        if self.size is not None and self.chosen:
            local_index = self.layout.local_index(rows)
            self.maps.prefetch(local_index)
            if self.top is not None:
                self.classes.prefetch(local_index)

    def update(self, step: Step) -> None:
        """Move the visible cells of every row's maps towards the model's scores."""
        if not self.chosen and not step.progress.warmed_up:
            return
        current, self._current = self._current_maps(step), None
        scores = torch.sigmoid(_cells(step).detach()) if current.scores is None else current.scores
        if self.layout.has_negatives:
            scores = scores.masked_fill((step.observed == NEGATIVE)[:, :, None, None], 0)
        if current.classes is not None:
            index = current.classes[:, :, None, None].expand(-1, -1, *scores.shape[2:])
            scores = scores.gather(1, index)
        size = current.maps.shape[1:3]
        uncropped, visible = step.geometries[0].uncrop_maps(scores, (size[0], size[1]), FULL)
        moved = (1 - self.momentum) * visible[..., None].to(uncropped.dtype)
        blended = current.maps.lerp_(uncropped.permute(0, 2, 3, 1), moved).cpu()
        # The classes of a cell share a random number: each map by itself is still right on average.
        rows = step.rows.cpu()
        shares = self._dither(step.progress.epoch, rows).view(*blended.shape[:3], 1)
        # numpy casts to 8 bits in half of torch's time.
        rounded = torch.from_numpy(blended.add_(shares).flatten(1).numpy().astype(np.uint8))
        real, local_index = rows >= 0, current.local_index
        if not real.all():
            local_index, rounded = local_index[real], rounded[real]
        self.maps.write(local_index, rounded)

    def row_stores(self) -> Mapping[str, Memory]:
        if self.size is None or not self.chosen:
            return {}
        return {"maps": self.maps} | ({"classes": self.classes} if self.top is not None else {})

    def logged_state(self, rows: Tensor) -> dict[str, Tensor]:
        """(B, L, H, W) uint8 The maps of some rows; if not all classes have one, (B, k) those that have."""
        if self.size is None or not self.chosen:
            return {}
        local_index = self.layout.local_index(rows)
        maps = self._grids(self.maps.read(local_index)).permute(0, 3, 1, 2)
        if self.top is None:
            return {"heat_maps": maps}
        whole = maps.new_zeros(len(rows), self.layout.observed.shape[1], *maps.shape[2:])
        classes = self.classes.read(local_index)
        index = classes.long()[:, :, None, None].expand_as(maps)
        return {"heat_maps": whole.scatter_(1, index, maps), "heat_map_classes": classes}

    def _current_maps(self, step: Step) -> Current:
        """The maps of the step's rows, read once per step."""
        if self._current is None or self._current.step is not step:
            if not self.chosen:
                raise not_begun(step.progress)
            cells = _cells(step)
            if self.size is None:
                self.make_room((cells.shape[2], cells.shape[3]))
            local_index = self.layout.local_index(step.rows)
            maps = self._grids(self.maps.read(local_index)).to(cells.device).to(cells.dtype)
            classes = None if self.top is None else self.classes.read(local_index).long().to(cells.device)
            self._current = Current(step, local_index, maps, classes)
        return self._current

    def _grids(self, lines: Tensor) -> Tensor:
        return lines.view(len(lines), *(self.size or ()), self.depth)

    def make_room(self, grid: tuple[int, int]) -> None:
        """Make the stores for maps of a model with this grid of cells."""
        self.size = grid[0] * self.scale, grid[1] * self.scale
        width = self.size[0] * self.size[1] * self.depth
        self.maps = make_row_store(
            "heat-maps", self.layout, width, self._start, dtype=torch.uint8, ways_out=WAYS_OUT
        )
        if self.top is not None:
            self.classes = make_row_store(
                "heat-map-classes", self.layout, self.depth, self._best_classes, dtype=torch.int32
            )
        self._dither = Dither(self.layout.seed, self.size[0] * self.size[1])

    def _start(self, local_index: Tensor) -> Tensor:
        levels = (self.layout.observed[local_index] == POSITIVE).to(torch.uint8) * FULL
        if self.top is not None and self.scores is not None:
            classes = self.classes.read(local_index).long()
            running = (
                (self.scores.rows.read(local_index).float().gather(1, classes) * FULL).round().to(torch.uint8)
            )
            levels = torch.maximum(levels.gather(1, classes), running)
        cells = 1 if self.size is None else self.size[0] * self.size[1]
        return levels[:, None, :].expand(-1, cells, -1).flatten(1)

    def _best_classes(self, local_index: Tensor) -> Tensor:
        # A row stores few numbers but reads many, so not all rows at once.
        at_once = rows_at_once(self.layout.observed.shape[1])
        return torch.cat([self._best_of(some) for some in torch.split(local_index, at_once)])

    def _best_of(self, local_index: Tensor) -> Tensor:
        observed = self.layout.observed[local_index]
        ranked = 2.0 * (observed == POSITIVE) - 2.0 * (observed == NEGATIVE)
        if self.scores is not None:
            ranked = ranked + self.scores.rows.read(local_index)
        # Ties go to the lower class; float64 has room for that beside any score.
        order = torch.linspace(0, -1e-9, observed.shape[1], dtype=torch.float64)
        return (ranked.double() + order).topk(self.depth, dim=1).indices.to(torch.int32)


def _cells(step: Step) -> Tensor:
    maps = step.outputs[0].maps
    if maps is None:
        raise ConfigError("heat maps are made of cells", "give maps=, cell logits of (B, L, h, w)")
    return at_least_float32(maps)
