"""Training from shards beside training from files: images a second of processor time, of the loader and of
reading alone.

    python -m benchmarks.stored_images

The same JPEGs of 500 × 375 pixels in a folder, in tars, in a Parquet table (row groups of 100) and behind
HTTP on this machine, read in shuffled order as training reads them (a random view of 224 pixels, digests
checked in the first epoch). All take turns; the best round of each counts. They are in the system's page
cache. For the table, order matters: shuffled, each image reads a row group; in order, as stored features are
made, a row group is read once. Behind HTTP the first epoch fetches, later ones read the local cache.
"""

import io
import os
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from PIL import Image

from sparselabel.config import Views
from sparselabel.data.dataset import Dataset, PreparedSplit
from sparselabel.data.loaders import ImageLoader, epoch_batches, in_order
from sparselabel.data.transforms import views_of
from tests.data.http_files import served

IMAGES, SHARD, ROUNDS, GROUP = 800, 200, 3, 100


def main() -> dict[str, float]:
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        os.environ["SPARSELABEL_CACHE"] = str(folder / "cache")
        _draw(folder)
        with served(folder) as (address, _):
            sources = {
                "files": str(folder / "photos"),
                "tars": str(folder / "*.tar"),
                "table": str(folder / "t.parquet"),
                "HTTP, cached": f"{address}/s-{{0..{IMAGES // SHARD - 1}}}.tar",
            }
            splits = {}
            for name, images in sources.items():
                data = Dataset.from_table(
                    folder / "labels.csv", images=images, out=folder / name, validation=0
                )
                splits[name] = data.train
            begin = time.process_time()
            _read(splits["HTTP, cached"])
            first = IMAGES / (time.process_time() - begin)
            return {"first reading by HTTP: images a second": first} | _compared(splits)


def _compared(splits: dict[str, PreparedSplit]) -> dict[str, float]:
    view = views_of(Views(size=224))[0]
    loaders = {name: ImageLoader(split, view) for name, split in splits.items() if name != "table"}
    table = ImageLoader(splits["table"], view)
    works: dict[str, Callable[[int], object]] = {}
    for name, loader in loaders.items():
        works[f"{name}: loader, images a second"] = lambda epoch, loader=loader: _all(loader, epoch)  # type: ignore[misc]
        works[f"{name}: reading alone, images a second"] = lambda _, split=splits[name]: _read(split)  # type: ignore[misc]
    works["table, in order: loader, images a second"] = lambda _: _in_order(table)
    best = dict.fromkeys(works, 0.0)
    for epoch in range(ROUNDS):
        for name, work in works.items():
            begin = time.process_time()
            work(epoch)
            best[name] = max(best[name], IMAGES / (time.process_time() - begin))
    begin = time.process_time()
    rows = epoch_batches(IMAGES, 32, 0, 0)[:4]
    for _ in table(rows, 0):
        pass
    best["table, shuffled: loader, images a second"] = 4 * 32 / (time.process_time() - begin)
    files = best["files: loader, images a second"]
    ratios = {
        f"{name}: loader over files (0.9)": best[f"{name}: loader, images a second"] / files
        for name in ("tars", "HTTP, cached", "table, in order", "table, shuffled")
    }
    return best | ratios


def _all(loader: ImageLoader, epoch: int) -> None:
    for _ in loader(epoch_batches(IMAGES, 32, 0, epoch), epoch):
        pass


def _in_order(loader: ImageLoader) -> None:
    for _ in loader(in_order(np.arange(IMAGES), 32), 0):
        pass


def _read(split: PreparedSplit) -> None:
    for row in np.random.default_rng(0).permutation(IMAGES).tolist():
        split.content(row)


def _draw(folder: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    random = np.random.default_rng(0)
    (folder / "photos").mkdir()
    content = []
    for _ in range(100):
        blocks = random.integers(0, 256, (40, 54, 3), dtype=np.uint8)
        stream = io.BytesIO()
        Image.fromarray(blocks).resize((500, 375), Image.Resampling.BICUBIC).save(stream, "JPEG", quality=90)
        content.append(stream.getvalue())
    names = [f"{number:06}.jpg" for number in range(IMAGES)]
    for number, name in enumerate(names):
        (folder / "photos" / name).write_bytes(content[number % 100])
    for shard in range(IMAGES // SHARD):
        with tarfile.open(folder / f"s-{shard}.tar", "w") as tar:
            for name in names[shard * SHARD : (shard + 1) * SHARD]:
                tar.add(folder / "photos" / name, name)
    images = [content[number % 100] for number in range(IMAGES)]
    parquet.write_table(pa.table({"key": names, "jpg": images}), folder / "t.parquet", row_group_size=GROUP)
    lines = (f"{name},{number % 2},{number % 3 == 0:d}" for number, name in enumerate(names))
    (folder / "labels.csv").write_text("\n".join(["image,cat,dog", *lines]) + "\n")


if __name__ == "__main__":
    from benchmarks.common import show

    show("stored images", main())
