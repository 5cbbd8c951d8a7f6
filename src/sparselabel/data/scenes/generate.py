"""Generated images with several objects each: for the demo, the tests and teaching.

Twelve classes live in a small illustrated world of five themes: meadow, dusk, sea, night, sky
(``world.py``). A theme favors some classes, so classes occur together; every other image has a tree, one of
twenty a balloon. Masks, boxes and labels are of what is visible: an object that is hidden almost completely
does not count.

``make`` writes a folder of them:

    scenes.json                 settings and classes; "complete" once everything is written
    train.npz, test.npz         labels (N, 12), and one box for every object: rows, classes, centers, sizes
    images/train/000000.jpg     the images
    masks/train/000000.png      8-bit gray: 0 is background, k is the k-th box of this image, back to front
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from sparselabel.data.label_table import LabelTable
from sparselabel.data.labels import POSITIVE, Labels
from sparselabel.data.masks import MaskColumns, Masks
from sparselabel.data.readers.raw_dataset import RawDataset, RawSplit
from sparselabel.data.scenes.canvas import Canvas
from sparselabel.data.scenes.world import KINDS, backdrop, plan
from sparselabel.data.spatial_labels import Floats, SpatialLabels
from sparselabel.errors import DataError, nearest
from sparselabel.file_formats import naming, read_arrays, read_json, reading, refuse_outside
from sparselabel.files import write_arrays, write_json

CLASSES: tuple[str, ...] = tuple(KINDS)
SMALLEST = 32  # pixels; below, the small objects are specks
LARGEST = 4096  # a drawing of that size takes a second and 200 MB

_VERSION = 1  # of the drawings: a folder made by another version is not the same data
_STREAMS = {"train": 0, "test": 1}
_LEAST_SHARE = 0.25  # of an object's pixels, and
_LEAST_AREA = 12 / 96**2  # of the image must be seen for the object to count
_HALO = 0.3  # how strongly sun and moon light up the sky around them


@dataclass(frozen=True, eq=False)
class Scene:
    """One image with K objects that can be seen, numbered from back to front.

    ``image`` (S, S, 3); ``labels`` (12,) 1 or 0; ``instances`` (S, S) has 0 for the background and k + 1 for
    object k; ``classes`` (K,) its class; ``centers`` and ``sizes`` (K, 2) its box, in the units of
    ``SpatialLabels``.
    """

    image: npt.NDArray[np.uint8]
    labels: Labels
    instances: npt.NDArray[np.uint8]
    classes: npt.NDArray[np.int32]
    centers: Floats
    sizes: Floats


def make_scene(seed: int, index: int, size: int = 96, split: str = "train", alone: bool = False) -> Scene:
    """Image ``index`` of a split: depends on the arguments alone, and shows the same at every size.

    With ``alone`` it shows one large object, as images do that networks are pretrained on.
    """
    if split not in _STREAMS:
        raise DataError(f"scenes have no split {split!r}: {nearest(split, _STREAMS)}")
    _refuse_size(size)
    sequence = np.random.SeedSequence(seed, spawn_key=(_STREAMS[split], index))
    rng = np.random.Generator(np.random.PCG64(sequence))
    scene = plan(rng, alone)
    canvas = Canvas(backdrop(scene, rng, size))
    painted = np.zeros((size, size), dtype=np.uint8)
    kinds, pixels = [-1], [0]  # number 0: the background and what decorates it
    for item in scene.items:
        if item.kind >= 0 and CLASSES[item.kind] in ("sun", "moon"):
            canvas.glow(item.placement, item.drawing[0].color, _HALO)
        result = canvas.paint(item.drawing, item.placement, scene.light)
        painted[result.window][result.outline] = len(kinds) if item.kind >= 0 else 0
        if item.kind >= 0:
            kinds.append(item.kind)
            pixels.append(result.pixels)
    canvas.pixels += np.float32(2.5) * rng.standard_normal(
        (size, size, 1), dtype=np.float32
    )  # a paper's grain
    image = np.clip(canvas.pixels, 0, 255, out=canvas.pixels).astype(np.uint8)
    instances, visible = _seen(painted, np.array(pixels))
    classes = np.array(kinds, dtype=np.int32)[visible]
    labels = np.zeros(len(CLASSES), dtype=np.int8)
    labels[classes] = POSITIVE
    return Scene(image, labels, instances, classes, *_boxes(instances, len(visible)))


def points(scene: Scene) -> Floats:
    """(K, 2) One point on every object, as far inside its visible part as possible."""
    result = np.empty((len(scene.classes), 2), dtype=np.float32)
    for number in range(len(result)):
        inner = np.pad(scene.instances == number + 1, 1)
        while inner.any():  # peel the mask; what is left last lies deepest
            core = inner
            inner = (
                core & np.roll(core, 1, 0) & np.roll(core, -1, 0) & np.roll(core, 1, 1) & np.roll(core, -1, 1)
            )
        deepest = np.argwhere(core)
        middle = np.square(deepest - deepest.mean(axis=0)).sum(axis=1).argmin()
        result[number] = deepest[middle, ::-1] - 0.5  # minus the padding, plus half a pixel
    return result / np.float32(len(scene.instances))


def make(
    folder: Path,
    *,
    train: int = 3000,
    test: int = 1000,
    size: int = 96,
    seed: int = 0,
    alone: bool = False,
    progress: Callable[[int], None] | None = None,
) -> RawDataset:
    """Write scenes into a folder, or take those of the same settings that are there already.

    ``alone`` draws one large object in each; ``progress`` is told how many more images are done.
    """
    folder = Path(folder)
    counts = {"train": train, "test": test}
    if min(train, test) < 1:
        raise DataError(f"scenes need at least one image in every split, not {train} train and {test} test")
    if seed < 0:
        raise DataError(f"the seed of scenes must not be negative, but is {seed}")
    _refuse_size(size)
    settings = {"version": _VERSION, **counts, "size": size, "seed": seed, "classes": list(CLASSES)}
    if alone:
        settings |= {"alone": True}
    if not _is_complete(folder, settings, counts):
        note = folder / "scenes.json"
        folder.mkdir(parents=True, exist_ok=True)
        write_json(note, {**settings, "complete": False})

        def scenes(split: str) -> Iterator[Scene]:
            for index in range(counts[split]):
                yield make_scene(seed, index, size, split, alone)
                if progress is not None:  # we are here again when the image has been written
                    progress(1)

        for split in counts:
            _write(folder, split, scenes(split))
        write_json(note, {**settings, "complete": True})
    elif progress is not None:
        progress(train + test)
    return RawDataset(
        "scenes", folder, {split: _read(folder, split, count, size) for split, count in counts.items()}
    )


def _refuse_size(size: int) -> None:
    if not SMALLEST <= size <= LARGEST:
        advice = "take a larger size" if size < SMALLEST else "a few hundred will do"
        raise DataError(f"scenes must be {SMALLEST} to {LARGEST} pixels wide, not {size}: {advice}")


def _is_complete(folder: Path, settings: dict[str, object], counts: dict[str, int]) -> bool:
    """Whether the folder has these very scenes; raises if it has something else."""
    note = folder / "scenes.json"
    if not note.exists():
        in_the_way = [name for name in ("images", "masks") if (folder / name).exists()]
        if in_the_way:
            raise DataError(
                f"{folder} has {' and '.join(in_the_way)} but no scenes.json: these are not scenes, and "
                "they are not overwritten",
                "choose another folder",
            )
        return False
    remedies = "delete the folder", "choose another one"
    saved: dict[str, Any] = read_json(note, dict, *remedies, error=DataError)
    complete = saved.pop("complete", False)
    if saved != settings:
        other = [
            f"{key} {saved.get(key)} not {settings.get(key)}"
            for key in settings | saved
            if saved.get(key) != settings.get(key)
        ]
        raise DataError(
            f"{folder} has scenes of other settings ({', '.join(other)}): delete it or choose another folder"
        )
    files = [f"{split}.npz" for split in counts]
    for split, count in counts.items():
        files += [_path(kind, split, index) for kind in ("images", "masks") for index in range(count)]
    return bool(complete) and all((folder / file).exists() for file in files)


def _write(folder: Path, split: str, scenes: Iterable[Scene]) -> None:
    """Write a split's images, masks and table."""
    for kind in ("images", "masks"):
        (folder / kind / split).mkdir(parents=True, exist_ok=True)
    labels, boxes = [], []
    for index, scene in enumerate(scenes):
        # JPEG at 95 without color subsampling: a third of a PNG's bytes, and faster to write and to read.
        Image.fromarray(scene.image).save(folder / _path("images", split, index), quality=95, subsampling=0)
        Image.fromarray(scene.instances).save(folder / _path("masks", split, index), compress_level=1)
        labels.append(scene.labels)
        row = np.full((len(scene.classes), 1), index)
        boxes.append(np.hstack([row, scene.classes[:, None], scene.centers, scene.sizes]))
    table = np.concatenate(boxes)
    write_arrays(
        folder / f"{split}.npz",
        labels=np.stack(labels),
        rows=table[:, 0].astype(np.int64),
        classes=table[:, 1].astype(np.int32),
        centers=table[:, 2:4].astype(np.float32),
        sizes=table[:, 4:].astype(np.float32),
    )


def _read(folder: Path, split: str, count: int, size: int) -> RawSplit:
    layouts = {"rows": "i M", "classes": "i M", "centers": "f M 2", "sizes": "f M 2"}
    table = {"labels": f"i {count} {len(CLASSES)}"}
    file = folder / f"{split}.npz"
    again = "delete the folder, and draw anew"
    arrays = read_arrays(file, layouts | table, again, error=DataError)
    refuse_outside(file, arrays, {"rows": count, "classes": len(CLASSES)}, again, error=DataError)
    paths = np.array([_path("images", split, index) for index in range(count)], dtype=np.str_)
    ids = np.char.add(f"{split}/", np.char.zfill(np.arange(count).astype(np.str_), 6))
    with naming(file):
        spatial_labels = SpatialLabels(arrays["rows"], arrays["classes"], arrays["centers"], arrays["sizes"])
        labels = LabelTable(ids, CLASSES, arrays["labels"])
    masks = _read_masks(folder, split, size, np.bincount(spatial_labels.rows, minlength=count))
    return RawSplit(labels, paths, spatial_labels, masks=masks)


def _read_masks(folder: Path, split: str, size: int, counts: npt.NDArray[np.intp]) -> Masks | None:
    """The masks of all boxes, from the images of masks."""
    from pycocotools import mask as run_lengths

    masks = MaskColumns()
    for index in np.flatnonzero(counts).tolist():
        file = folder / _path("masks", split, index)
        with reading(file, "delete the folder, and draw anew"), Image.open(file, formats=["PNG"]) as image:
            if image.size != (size, size):
                raise ValueError(f"it has {image.width:,} × {image.height:,} pixels, not {size} × {size}")
            numbers = np.asarray(image.convert("L"))
        object_masks = numbers[..., None] == np.arange(1, counts[index] + 1)
        for mask in run_lengths.encode(np.asfortranarray(object_masks, dtype=np.uint8)):
            masks.add(mask)
    return masks.build()


def _path(kind: str, split: str, index: int) -> str:
    return f"{kind}/{split}/{index:06d}.{'jpg' if kind == 'images' else 'png'}"


def _seen(
    painted: npt.NDArray[np.uint8], pixels: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.intp]]:
    """The numbers of the objects that can be seen well enough, and the map with only these, numbered anew."""
    visible = np.bincount(painted.ravel(), minlength=len(pixels))
    enough = visible >= np.maximum(_LEAST_SHARE * pixels, _LEAST_AREA * painted.size)
    enough[0] = False
    remaining = np.flatnonzero(enough)
    renumbered = np.zeros(len(pixels), dtype=np.uint8)
    renumbered[remaining] = np.arange(1, len(remaining) + 1)
    return renumbered[painted], remaining


def _boxes(instances: npt.NDArray[np.uint8], count: int) -> tuple[Floats, Floats]:
    """Centers and sizes of the boxes around the pixels of every object."""
    low, high = np.empty((count, 2), dtype=np.float32), np.empty((count, 2), dtype=np.float32)
    for number in range(count):
        mask = instances == number + 1
        columns, rows = np.flatnonzero(mask.any(axis=0)), np.flatnonzero(mask.any(axis=1))
        low[number] = columns[0], rows[0]
        high[number] = columns[-1] + 1, rows[-1] + 1
    side = np.float32(len(instances))
    return (low + high) / (2 * side), (high - low) / side
