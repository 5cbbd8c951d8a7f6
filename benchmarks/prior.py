"""What another model's scores bring as evidence, by how good they are (docs/results.md, results/prior.csv).

    python -m benchmarks.prior FOLDER --out FILE [--sources voc-2000 scenes-800] [--backbones mbv2]
    python -m benchmarks.prior --table FILE

FOLDER and settings are those of ``benchmarks.defaults``: a fifth of the images is held out and as sparsely
labeled as the others, and chooses the epoch; K is estimated. Batches are of 64. The scorer is a stand-in of
known quality: noise of standard deviation 1, and d' more where a class is there. It has no common scale: a
class's scores are multiplied and an image's are shifted at random.
"""

import argparse
import csv
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from scipy import stats

from benchmarks.defaults import BACKBONES, CANDIDATES, LIKELIHOOD, SOURCES, Setting, run
from sparselabel.config import HeadPhase, TrainConfig
from sparselabel.data.dataset import Dataset
from sparselabel.data.labels import POSITIVE

QUALITIES = 0, 1, 2, 3
REFERENCES = "an", "gr", "iun", "bce"
METHODS = {"pu": TrainConfig(method="pu", settings=LIKELIHOOD), "en": TrainConfig(method="en")}


def write_scores(data: Dataset, quality: float, seed: int, file: Path) -> None:
    """A file of scores of the training images."""
    random = np.random.default_rng([seed, round(10 * quality)])
    truth = data.train.truth.values == POSITIVE
    scores = quality * truth + random.standard_normal(truth.shape)
    scores = scores * random.uniform(0.5, 2, truth.shape[1]) + random.normal(0, 0.3, (len(truth), 1))
    np.savez(file, images=data.train.truth.ids, classes=np.array(data.classes), scores=scores)


def candidates(draw: int, data: Dataset, folder: Path) -> dict[str, TrainConfig]:
    """The references, and each method without scores and with those of every quality."""
    found = {name: CANDIDATES[name] for name in REFERENCES}
    for quality in QUALITIES:
        write_scores(data, quality, draw, folder / f"{quality}.npz")
    for name, config in METHODS.items():
        found[name] = config
        for quality in QUALITIES:
            file = str(folder / f"{quality}.npz")
            found[f"{name}, d' {quality}"] = replace(config, settings=config.settings | {"scores": file})
    return {name: replace(config, head=HeadPhase(batch_size=64)) for name, config in found.items()}


def interval(values: npt.NDArray[np.float64]) -> str:
    """The mean of draws, with the 95 % interval of Student's t."""
    half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return f"{values.mean():+.1f} ({values.mean() - half:+.1f} to {values.mean() + half:+.1f})"


def table(file: Path) -> None:
    """By source and backbone: the mean of test mAP, and differences to the same draw's others."""
    rows = list(csv.DictReader(file.open()))
    for key in sorted({(row["source"], row["backbone"]) for row in rows}):
        own = [row for row in rows if (row["source"], row["backbone"]) == key]
        by_draw: dict[str, dict[str, float]] = {}
        for row in own:
            by_draw.setdefault(row["draw"], {})[row["candidate"]] = float(row["test"])
        names = list(dict.fromkeys(row["candidate"] for row in own))
        draws = [found for found in by_draw.values() if len(found) == len(names)]
        values = {name: np.array([found[name] for found in draws]) for name in names}
        print(f"{' '.join(key)}, {len(draws)} draws")
        for name, found in values.items():
            method = name.partition(",")[0]
            print(
                f"  {name:10s} {found.mean():.1f} ± {found.std(ddof=1):.1f}; over {method} "
                f"{interval(found - values[method])}; over iun {interval(found - values['iun'])}; of the gap "
                f"{100 * (found - values['an']).mean() / (values['bce'] - values['an']).mean():.0f} %"
            )


def main() -> None:
    """Measure, or show what was measured."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--sources", nargs="+", default=["voc-2000", "scenes-800"], choices=SOURCES)
    parser.add_argument("--backbones", nargs="+", default=["mbv2"], choices=BACKBONES)
    parser.add_argument("--draws", nargs="+", type=int, default=[0, 1, 2, 3])
    parser.add_argument("--table", type=Path)
    given = parser.parse_args()
    if given.table:
        table(given.table)
        return
    torch.set_num_threads(1)
    with given.out.open("a", newline="") as file:
        writer = None
        for draw in given.draws:
            for source in given.sources:
                for backbone in given.backbones:
                    setting = Setting(source, backbone, "one", draw)
                    for row in run(setting, given.folder, partial(candidates, draw)):
                        if writer is None:
                            writer = csv.DictWriter(file, [*row])
                            if not file.tell():
                                writer.writeheader()
                        writer.writerow(row)
                        file.flush()
                        print(row["source"], row["backbone"], draw, row["candidate"], row["test"], flush=True)


if __name__ == "__main__":
    main()
