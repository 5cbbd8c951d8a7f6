"""A COCO-sized instances JSON into labels and spatial labels on the disk, beside ``pycocotools.COCO(file)``.

Each in a process of its own, with what it imports. Target: half the time and half the peak memory.
``python -m benchmarks.coco --objects365`` does the same for 25 million boxes, ours alone (5 GB on the disk).
"""

import argparse
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.coco_file import write
from benchmarks.common import show

OURS = """
import numpy as np
from pathlib import Path
from sparselabel.data.readers.coco import read_instances
read = read_instances(Path(file))
arrays = {"ids": read.labels.ids, "names": read.names, "truth": read.labels.values}
places = read.spatial_labels
arrays |= {f"place_{name}": getattr(places, name) for name in ("rows", "classes", "centers", "sizes")}
for name, array in arrays.items():
    np.save(f"{file}.{name}.npy", array)
counted = len(read.spatial_labels)
"""
THEIRS = """
from pycocotools.coco import COCO
counted = len(COCO(file).anns)
"""
AROUND = """
import resource, sys, time
begin = time.perf_counter()
file = sys.argv[1]
{}
own = resource.getrusage(resource.RUSAGE_SELF)
print(time.perf_counter() - begin, own.ru_utime + own.ru_stime, own.ru_maxrss / 1024, counted)
"""


def measured(program: str, file: Path) -> tuple[float, float, float, int]:
    """Seconds, seconds of computing, peak memory in MB, and annotations counted."""
    command = [sys.executable, "-c", AROUND.format(program), str(file)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    wall, computing, peak, counted = done.stdout.splitlines()[-1].split()
    return float(wall), float(computing), float(peak), int(counted)


def main() -> dict[str, float]:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "instances.json"
        size, count = write(file, images=82_783, annotations=604_907, classes=80, polygons=True)
        ours, theirs = measured(OURS, file), measured(THEIRS, file)
    if theirs[3] != count or not 0.98 * count < ours[3] <= count:  # crowds are left out
        raise RuntimeError(f"of {count} annotations, {theirs[3]} and {ours[3]} were read")
    return {
        "file, MB": size / 1e6,
        "ours, s": ours[0],
        "pycocotools, s": theirs[0],
        "time, ours of theirs (at most 0.5)": ours[0] / theirs[0],
        "ours, s of computing": ours[1],
        "pycocotools, s of computing": theirs[1],
        "ours, peak MB": ours[2],
        "pycocotools, peak MB": theirs[2],
        "memory, ours of theirs (at most 0.5)": ours[2] / theirs[2],
    }


def objects365() -> dict[str, float]:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "instances.json"
        size, _ = write(file, images=1_742_292, annotations=25_407_598, classes=365, polygons=False)
        wall, computing, peak, spatial_labels = measured(OURS, file)
    return {
        "file, MB": size / 1e6,
        "ours, s": wall,
        "ours, s of computing": computing,
        "ours, peak MB": peak,
        "marks": spatial_labels,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--objects365", action="store_true")
    if parser.parse_args().objects365:
        show("Objects365's size", objects365())
    else:
        show("coco", main())
