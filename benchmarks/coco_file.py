"""A made-up instances JSON of COCO's or Objects365's size, written as a stream."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

BLOCK = 10_000
POLYGONS = 4_000  # different outlines; drawing every one of them anew would take longer than reading


def write(
    file: Path, images: int, annotations: int, classes: int, polygons: bool, seed: int = 0
) -> tuple[int, int]:
    """Write the file, in COCO's own order and spacing; returns its bytes and its annotations."""
    random = np.random.default_rng(seed)
    outlines = _outlines(random) if polygons else ["[]"]
    with file.open("w", encoding="ascii", newline="\n") as stream:
        stream.write('{"info": {"description": "made up", "year": 2014},"images": [')
        stream.writelines(_images(images))
        stream.write(
            '],"licenses": [{"url": "http://example.org/", "id": 1, "name": "none"}],"annotations": ['
        )
        stream.writelines(_annotations(random, images, annotations, classes, outlines))
        stream.write('],"categories": [')
        stream.write(",".join(_category(number) for number in range(classes)))
        stream.write("]}")
    return file.stat().st_size, annotations


def _outlines(random: np.random.Generator) -> list[str]:
    """Outlines of about 25 points, some with several parts, as long as COCO's on the average."""
    texts = []
    for _ in range(POLYGONS):
        parts = []
        for _ in range(1 + int(random.random() < 0.1)):
            count = 2 * max(int(random.lognormal(3.36, 0.75)), 4)
            numbers = random.integers(0, 64_000, count) / 100
            parts.append("[" + ",".join(map(str, numbers.tolist())) + "]")
        texts.append("[" + ",".join(parts) + "]")
    return texts


def _images(count: int) -> Iterator[str]:
    for number in range(count):
        key = 7 * number + 9
        name = f"images/v1/patch{number % 51}/made_up_{key:012}.jpg"
        yield (
            f'{"," if number else ""}{{"license": 1,"file_name": "{name}","coco_url": '
            f'"http://images.example.org/{name}","height": 480,"width": 640,"date_captured": '
            f'"2013-11-14 16:28:13","flickr_url": "http://farm.example.org/{key}.jpg","id": {key}}}'
        )


def _annotations(
    random: np.random.Generator, images: int, count: int, classes: int, outlines: list[str]
) -> Iterator[str]:
    for start in range(0, count, BLOCK):
        size = min(BLOCK, count - start)
        keys = (7 * random.integers(0, images, size) + 9).tolist()
        labels = (1 + random.integers(0, classes, size)).tolist()
        shapes = random.integers(0, len(outlines), size).tolist()
        crowds = (random.random(size) < 0.01).astype(int).tolist()
        corners = (random.integers(0, (40_000, 30_000), (size, 2)) / 100).tolist()
        sizes = (random.integers(100, (24_000, 18_000), (size, 2)) / 100).tolist()
        rows = zip(keys, labels, shapes, crowds, corners, sizes, strict=True)
        text = ",".join(
            f'{{"segmentation": {outlines[shape]},"area": {w * h:.4f},"iscrowd": {crowd},"image_id": {key},'
            f'"bbox": [{x},{y},{w},{h}],"category_id": {label},"id": {start + place}}}'
            for place, (key, label, shape, crowd, (x, y), (w, h)) in enumerate(rows)
        )
        yield ("," if start else "") + text


def _category(number: int) -> str:
    return f'{{"supercategory": "thing","id": {number + 1},"name": "class {number}"}}'
