"""A report at COCO's size: 80 classes, 40,000 test images. Targets: under 30 s, under 10 MB."""

import json
import resource
import time
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from PIL import Image
from safetensors.torch import save_file

from benchmarks.common import imagined
from sparselabel.checksums import file_checksum
from sparselabel.config import TrainConfig, Views
from sparselabel.data.dataset import Dataset
from sparselabel.data.prepared_files import SPATIAL_LABEL_COLUMNS, WITHOUT_CHECKSUMS
from sparselabel.data.spatial_labels import SpatialLabels
from sparselabel.files import write_json
from sparselabel.inference.saved_scores import keep_scores
from sparselabel.metrics.label_metrics import label_metrics
from sparselabel.models.backbone import NONE, make_backbone
from sparselabel.models.classifier import Classifier, LinearHead
from sparselabel.report.make_report import make_report
from sparselabel.report.run_data import read_runs
from sparselabel.run import Run

CLASSES, TEST, TRAIN, IMAGES, EPOCHS = 80, 40_000, 2000, 100, 30


def main() -> dict[str, float]:
    with TemporaryDirectory() as name:
        folder = Path(name)
        data = imagined(folder, {"train": TRAIN, "test": TEST}, CLASSES)
        save(data, folder)
        runs = [finished(folder / f"run{number}", data, number) for number in range(2)]
        seconds, worked, megabytes = [], [], []
        before = _largest_memory()
        for paths in (runs[:1], runs):
            begin, began = time.perf_counter(), time.process_time()
            out = folder / "report.html"
            make_report(read_runs(paths), out, workers=0)
            seconds.append(time.perf_counter() - begin)
            worked.append(time.process_time() - began)
            megabytes.append(out.stat().st_size / 1e6)
        return {
            "one run, s (under 30)": seconds[0],
            "one run, s of CPU": worked[0],
            "one run, MB (under 10)": megabytes[0],
            "two runs, s": seconds[1],
            "two runs, s of CPU": worked[1],
            "two runs, MB": megabytes[1],
            "largest memory before, MB": before,
            "largest memory, MB": _largest_memory(),
        }


def _largest_memory() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def save(data: Dataset, folder: Path) -> None:
    """Write the data as ``prepare`` does; its images are a hundred noisy ones, over and over."""
    random = np.random.default_rng(1)
    for number in range(IMAGES):
        blocks = random.integers(0, 256, (30, 40, 3), dtype=np.uint8)
        Image.fromarray(blocks).resize((640, 480), Image.Resampling.BICUBIC).save(folder / f"{number}.jpg")
    for name, split in data.splits.items():
        paths = np.array([f"{row % IMAGES}.jpg" for row in range(len(split))])
        rows, classes = np.nonzero(split.truth.values == 1)
        size = random.random((len(rows), 2)).astype(np.float32)
        spatial_labels = SpatialLabels(rows, classes.astype(np.int32), np.full_like(size, 0.5), size)
        arrays = {
            "ids": split.truth.ids,
            "paths": paths,
            "truth": split.truth.values,
            "observed": split.observed.values,
            "digests": split.digests,
            **{f"mark_{column}": getattr(spatial_labels, column) for column in SPATIAL_LABEL_COLUMNS},
        }
        (folder / name).mkdir()
        for key, array in arrays.items():
            np.save(folder / name / f"{key}.npy", array)
    about = {
        name: {"images": len(split), "digest": split.digest, "seen": "all", "checksums": {}}
        for name, split in data.splits.items()
    }
    made = {"format": WITHOUT_CHECKSUMS, "name": data.name, "root": ".", "classes": list(data.classes)}
    made["splits"] = about
    (folder / "dataset.json").write_text(json.dumps(made))


def finished(path: Path, data: Dataset, number: int) -> Path:
    """A run as training leaves it, with made-up scores."""
    run = Run(path)
    config = replace(TrainConfig(), backbone="test_resnet", weights=NONE, views=Views(size=64))
    digests = {name: split.digest for name, split in data.splits.items()}
    about = {"data": str(data.folder), "data_digest": digests, "classes": list(data.classes)}
    run.begin(config, about, resume=False, force=False)
    backbone = make_backbone(config.backbone, NONE, size=64, output_stride=config.output_stride)
    weights = Classifier(backbone, LinearHead(backbone.width, CLASSES)).state_dict()
    save_file({name: value.contiguous() for name, value in weights.items()}, run.model_file)
    test = data.split("test")
    noise = np.random.default_rng(number).random(test.truth.values.shape)
    scores = (0.8 * noise + 0.2 * test.truth.values).astype(np.float32)
    keep_scores(run, test, scores)
    measured = label_metrics(scores, test.observed)
    evaluated = {"name": "mAP", "value": measured["mean_average_precision"]["sklearn"]["mean"]}
    with run.metrics_file.open("w") as file:
        for epoch in range(EPOCHS):
            record = {
                "epoch": epoch,
                "phase": "finetune",
                "losses": {"labels": 1 / (epoch + 1), "consistency": 0.1},
                "validation": evaluated,
                "hidden_positives": list(range(20)),
            }
            file.write(json.dumps(record) + "\n")
    result = {
        "method": "an",
        "oracle": False,
        "best_epoch": EPOCHS,
        "epochs": EPOCHS,
        "validation": None,
        "test": evaluated | measured,
        "recovery": None,
        "model_checksum": file_checksum(run.model_file),
    }
    write_json(run.result_file, result)
    return path


if __name__ == "__main__":
    from benchmarks.common import show

    show("report", main())
