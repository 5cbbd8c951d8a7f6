"""Every format that the library reads: a small valid sample, and what reads it."""

import csv
import io
import json
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import DEFAULT, patch

import numpy as np
from PIL import Image

from sparselabel.checksums import json_checksum, row_checksums
from sparselabel.config import TrainConfig, save
from sparselabel.data.label_table import LabelTable
from sparselabel.data.readers import reader
from sparselabel.file_formats import read_json
from sparselabel.files import write_json
from sparselabel.run import Run
from tests.data.shards import write_table, write_tar

Write = Callable[[Path], None]
Read = Callable[[Path], object]


@dataclass(frozen=True)
class Format:
    """``write`` makes a sample in a folder, ``read`` reads it; ``damaged`` are the files that are mutated."""

    write: Write
    read: Read
    damaged: tuple[str, ...]


def _images(folder: Path, *names: str) -> None:
    for number, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (20, 10), (40 * number, 0, 0)).save(folder / name)


def _texts(folder: Path, texts: dict[str, str]) -> None:
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


LONG = (
    "image,label,value,x,y,w,h,split\n"
    "a.jpg,cat,1,.5,.5,.2,.3,train\nb.jpg,Möwe,0,,,,,train\nb.jpg,cat,,,,,,train\n"
)
SEVERAL = "a.jpg;cat, Möwe\nB.JPG;Cat\n"
WIDE = "image,cat,dog,split\na.jpg,1,0,train\nb.jpg,,1,val\n"


def _table(text: str) -> Write:
    def write(folder: Path) -> None:
        _images(folder, "a.jpg", "b.jpg")
        _texts(folder, {"labels.csv": text})

    return write


def _encoded(folder: Path) -> None:
    _images(folder, "a.jpg", "b.jpg")
    (folder / "labels.tsv").write_bytes(LONG.replace(",", "\t").encode("utf-16"))
    (folder / "labels.csv").write_bytes(LONG.encode("cp1252"))


def _read_encoded(folder: Path) -> object:
    return [reader("table")(folder / name) for name in ("labels.tsv", "labels.csv")]


def _xlsx(folder: Path) -> None:
    import openpyxl

    _images(folder, "a.jpg", "b.jpg")
    book = openpyxl.Workbook()
    for row in csv.reader(LONG.splitlines()):
        book.active.append(row)
    book.save(folder / "labels.xlsx")


def _parquet(folder: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    _images(folder, "a.jpg", "b.jpg")
    columns = {
        "image": ["a.jpg", "b.jpg"],
        "label": ["cat", "Möwe"],
        "value": [1, 0],
        "x": [0.5, None],
        "y": [0.5, None],
    }
    parquet.write_table(pa.table(columns), folder / "labels.parquet")


def _coco(folder: Path) -> None:
    _images(folder, "a.jpg", "b.jpg")
    images = [
        {"id": 1, "file_name": "a.jpg", "width": 20, "height": 10, "neg_category_ids": [9]},
        {"id": 2, "file_name": "b.jpg", "width": 20, "height": 10},
    ]
    runs = {"size": [10, 20], "counts": [150, 20, 30]}
    annotations = [
        {
            "id": 1,
            "image_id": 1,
            "category_id": 7,
            "bbox": [1, 2, 5, 4],
            "iscrowd": 0,
            "segmentation": [[1, 2, 6, 2, 6, 6]],
        },
        {"id": 2, "image_id": 2, "category_id": 8, "bbox": [1, 2, 5.5, 4], "area": 9.5, "segmentation": runs},
        {
            "id": 3,
            "image_id": 2,
            "category_id": 7,
            "bbox": [3, 3, 0, 0],
            "num_keypoints": 1,
            "keypoints": [3, 3, 2],
        },
    ]
    categories = [{"id": 7, "name": "cat"}, {"id": 8, "name": "Möwe"}, {"id": 9, "name": "dog"}]
    content = {"info": {}, "images": images, "annotations": annotations, "categories": categories}
    _texts(folder, {"instances.json": json.dumps(content), "list.txt": "a.jpg,0\nb.jpg,1\n"})


def _label_studio(folder: Path) -> None:
    _images(folder, "a.jpg", "b.jpg")
    box = {"x": 50.8, "y": 5.9, "width": 12.4, "height": 10.5, "rotation": 3, "rectanglelabels": ["dog"]}
    polygon = {"points": [[10, 10], [30, 20], [20, 90]], "polygonlabels": ["tree"]}
    results = [
        {"from_name": "choice", "type": "choices", "value": {"choices": ["cat"]}},
        {
            "from_name": "box",
            "type": "rectanglelabels",
            "value": box,
            "original_width": 20,
            "original_height": 10,
        },
        {"from_name": "box", "type": "polygonlabels", "value": polygon},
        {"from_name": "box", "type": "keypointlabels", "value": {"x": 1, "y": 2, "keypointlabels": ["eye"]}},
    ]
    tasks = [
        {"id": 1, "data": {"image": "/data/upload/1/8f3c2d1e-a.jpg"}, "annotations": [{"result": results}]},
        {
            "id": 2,
            "data": {"image": "b.jpg"},
            "annotations": [{"was_cancelled": False, "result": results[:1]}],
        },
    ]
    _texts(folder, {"tasks.json": json.dumps(tasks)})


def _fiftyone(folder: Path) -> None:
    _images(folder, "data/a.jpg", "data/b.jpg")
    labels = {
        "a": [0, {"label": 1}],
        "b": [{"label": 1, "bounding_box": [0.1, 0.2, 0.3, 0.4], "confidence": 0.5}],
    }
    _texts(folder, {"labels.json": json.dumps({"classes": ["cat", "dog"], "labels": labels})})


CVAT = """<?xml version="1.0" encoding="utf-8"?>
<annotations><version>1.1</version><meta><task><labels><label><name>dog</name><attributes></attributes></label>
<label><name>cat</name></label></labels></task></meta>
<image id="0" name="a.jpg" width="20" height="10"><tag label="cat" source="manual"></tag>
<box label="dog" xtl="1.0" ytl="2.0" xbr="11.0" ybr="9.0" rotation="30.0">
<attribute name="absent">false</attribute></box>
<points label="cat" points="3.0,2.0;1.5,2.0"></points>
<polygon label="new" points="2,1;6,1;4,9"></polygon></image>
<image id="1" name="b.jpg" subset="Train" width="20" height="10">
<ellipse label="cat" cx="10" cy="5" rx="2" ry="1"></ellipse>
<mask label="cat" rle="0, 1" left="1" top="2" width="2" height="2"></mask></image></annotations>
"""


def _cvat(folder: Path) -> None:
    _images(folder, "images/a.jpg", "images/b.jpg")
    _texts(folder, {"annotations.xml": CVAT})


def _voc(folder: Path) -> None:
    _images(folder, *(f"JPEGImages/2008_00000{number}.jpg" for number in (1, 2, 3)))
    box = "<bndbox><xmin>1</xmin><ymin>2</ymin><xmax>9</xmax><ymax>9</ymax></bndbox>"
    item = f"<object><name>dog</name>{box}</object>"
    size = "<size><width>20</width><height>10</height></size>"
    main = "ImageSets/Main"
    _texts(
        folder,
        {
            f"{main}/dog_train.txt": "2008_000001  1\n2008_000002  0\n",
            f"{main}/cat_train.txt": "2008_000001 -1\n2008_000002  1\n",
            f"{main}/dog_val.txt": "2008_000003  1\n",
            f"{main}/cat_val.txt": "2008_000003 -1\n",
            "Annotations/2008_000001.xml": f"<annotation>{size}{item}</annotation>",
        },
    )
    mask = np.zeros((10, 20), np.uint8)
    mask[3:6, 2:6] = 1
    (folder / "SegmentationObject").mkdir()
    Image.fromarray(mask).save(folder / "SegmentationObject/2008_000001.png")


def _cub(folder: Path) -> None:
    names = ["001.A/a.jpg", "001.A/b.jpg", "002.B/c.jpg"]
    _images(folder / "images", *names)
    labels = "".join(
        f"{image} {attribute} {(image + attribute) % 2} 3 2.5\n"
        for image in (1, 2, 3)
        for attribute in (1, 2)
    )
    _texts(
        folder,
        {
            "images.txt": "".join(f"{number} {name}\n" for number, name in enumerate(names, 1)),
            "train_test_split.txt": "1 1\n2 0\n3 1\n",
            "attributes/image_attribute_labels.txt": labels,
            "attributes.txt": "1 has_bill::curved\n2 has_wing::blue\n",
        },
    )


def _imagenet(folder: Path) -> None:
    synsets = ("n01440764", "n01530575")
    _images(folder, *(f"train/{key}/{key}_1.JPEG" for key in synsets))
    _images(folder, *(f"val/ILSVRC2012_val_0000000{number}.JPEG" for number in (1, 2)))
    solution = "ImageId,PredictionString\n" + "".join(
        f"ILSVRC2012_val_0000000{number},{key} 85 1 499 272 \n" for number, key in enumerate(synsets, 1)
    )
    words = "n01440764 tench, Tinca tinca\nn01530575 brambling\n"
    _texts(
        folder,
        {"LOC_val_solution.csv": solution, "real.json": "[[0, 1], [1]]", "LOC_synset_mapping.txt": words},
    )


def _devkit(folder: Path) -> None:
    _imagenet(folder)
    (folder / "LOC_val_solution.csv").unlink()
    _texts(folder, {"truth.txt": "1\n2\n", "synsets.txt": "n01440764\nn01530575\n"})


def _nuswide(folder: Path) -> None:
    names = {"train": ["actor/1.jpg", "zebra/2.jpg"], "val": ["sky/4.jpg"]}
    for part, images in names.items():
        _images(folder / "Flickr", *images)
        np.save(folder / f"formatted_{part}_images.npy", np.array(images))
        np.save(folder / f"formatted_{part}_labels.npy", np.eye(81)[: len(images)])


def _nuswide_lists(folder: Path) -> None:
    names = {"Train": ["actor/1.jpg", "zebra/2.jpg"], "Test": ["sky/4.jpg"]}
    for part, images in names.items():
        _images(folder / "Flickr", *images)
        _texts(
            folder,
            {f"ImageList/{part}Imagelist.txt": "".join(name.replace("/", "\\") + "\n" for name in images)},
        )
        for number in range(81):
            column = "".join(f"{int(number == row)}\n" for row in range(len(images)))
            _texts(folder, {f"Groundtruth/TrainTestLabels/Labels_c{number:02}_{part}.txt": column})


TABLE = LabelTable(np.array(["a.jpg", "b.jpg"]), ("cat", "dog"), np.array([[1, -1], [-1, 0]], np.int8))


def _scores(name: str) -> Read:
    from sparselabel.data.external_scores import apply_scores

    return lambda folder: apply_scores(folder / name, TABLE, TABLE.ids, 0.9, 0.1)


def _scores_arrays(folder: Path) -> None:
    scores = np.array([[0.95, 0.05], [0.5, 0.2]], np.float32)
    np.savez(folder / "scores.npz", images=TABLE.ids, classes=np.array(TABLE.classes), scores=scores)


def _scores_parquet(folder: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    parquet.write_table(
        pa.table({"image": ["a.jpg", "b.jpg"], "cat": [0.9, None]}), folder / "scores.parquet"
    )


ANSWERS = (
    "image,label,value,time,reviewer\na.jpg,cat,1,2026-03-01T09:12:44+00:00,ann\n"
    'b.jpg,"d,o""g",?,,\na.jpg,cat,,2026-03-01T09:12:51+00:00,\n'
)


def _read_answers(folder: Path) -> object:
    from sparselabel.data.answers import last_words, lay_over, read_answers

    answers = read_answers(folder / "answers.csv")
    classes = ("cat", 'd,o"g')
    return lay_over(last_words(answers), TABLE.values, [TABLE.ids], classes, str(folder / "answers.csv"))


def _toml_config(folder: Path) -> None:
    save(TrainConfig(method="pu", settings={"expected_positives": 2.5}), folder / "config.toml")


def _read_config(folder: Path) -> object:
    from sparselabel.config import load

    return load(TrainConfig, folder / "config.toml")


def _recipe(folder: Path) -> None:
    from sparselabel.recipes import names, text_of

    _texts(folder, {"recipe.toml": text_of(names()[0])})


def _read_recipe(folder: Path) -> object:
    from sparselabel.cli.arguments import FromFile, recipe_in

    return recipe_in(FromFile(folder / "recipe.toml"))


def _prior(folder: Path) -> None:
    _texts(folder, {"prior.json": '{"cat": 0.5, "dog": 1}', "prior.csv": "class,prior\ncat,.5\ndog,1\n"})


def _read_prior(folder: Path) -> object:
    from sparselabel.training.class_prior import read_prior

    return [read_prior(folder / name, TABLE.classes) for name in ("prior.json", "prior.csv")]


def _expected(folder: Path) -> None:
    from sparselabel.expected_positives.class_counts import ClassCounts

    pair = np.array([1.0, 2.0])
    ClassCounts(
        how="auto", classes=TABLE.classes, images=10, annotated=np.array([1, 1]), expected=pair, low=pair / 2,
        high=2 * pair, interval=(0.1, 0.9), trusted=True, why="made up",
    ).write(folder / "expected.json")  # fmt: skip


def _read_expected(folder: Path) -> object:
    from sparselabel.expected_positives.class_counts import read_expected

    return read_expected(folder / "expected.json", TABLE.classes)


def _prepared(folder: Path) -> None:
    from sparselabel.config import Preparation
    from sparselabel.data.prepare import prepare

    _images(folder / "photos", *(f"{number}.jpg" for number in range(6)))
    parts = ("train", "train", "train", "val", "test", "test")
    rows = [
        f"{n}.jpg,cat,1,.5,.5,.2,.3,{part}\n{n}.jpg,dog,{n % 2},,,,,{part}\n" for n, part in enumerate(parts)
    ]
    _texts(folder / "photos", {"labels.csv": "image,label,value,x,y,w,h,split\n" + "".join(rows)})
    prepare(reader("table")(folder / "photos/labels.csv"), folder / "data", Preparation())
    _without_checksums(folder / "data")


def _without_checksums(data: Path) -> None:
    """What is mutated is to be looked at, not only noticed."""
    index = data / "dataset.json"
    about = json.loads(index.read_text())
    splits = {name: {**one, "checksums": {}} for name, one in about["splits"].items()}
    write_json(index, about | {"format": 1, "splits": splits})


def _read_prepared(folder: Path) -> object:
    from sparselabel.data.prepared_files import open_prepared

    data = open_prepared(folder / "data")
    return [
        (split.truth.counts(), split.observed.counts(), len(split.seen)) for split in data.splits.values()
    ]


def _stored(shard: str) -> Write:
    """Prepared data with images in a shard, and labels in compressed rows."""

    def write(folder: Path) -> None:
        from sparselabel.data import labels
        from sparselabel.data.dataset import Dataset

        _images(folder / "photos", *(f"{number}.jpg" for number in range(6)))
        content = {file.name: file.read_bytes() for file in sorted((folder / "photos").iterdir())}
        if shard.endswith(".tar"):
            write_tar(folder / shard, content)
        else:
            write_table(folder / shard, {"key": [*content], "jpg": [*content.values()]}, rows=2)
        parts = ("train", "train", "train", "val", "test", "test")
        rows = [f"{n}.jpg,cat,1,{part}\n{n}.jpg,dog,{n % 2},{part}\n" for n, part in enumerate(parts)]
        _texts(folder, {"labels.csv": "image,label,value,split\n" + "".join(rows)})
        with patch.multiple(labels, SPARSE_FROM=1, SMALLER=0):
            Dataset.from_table(folder / "labels.csv", images=str(folder / shard), out=folder / "data")
            _without_checksums(folder / "data")

    return write


def _read_stored(folder: Path) -> object:
    from sparselabel.data import stored_images
    from sparselabel.data.prepared_files import open_prepared

    stored_images._group.cache_clear()
    read: list[object] = []
    for split in open_prepared(folder / "data").splits.values():
        labels = [split.observed.matrix[row] for row in range(len(split))]
        read += [split.truth.counts(), labels, [split.image(row, check=False) for row in range(len(split))]]
    return read


def _run(folder: Path) -> None:
    """A finished run, without training: every file that is read again, as training writes it."""
    import torch
    from safetensors.torch import save_file

    from sparselabel.data.prepared_files import open_prepared
    from sparselabel.inference.class_thresholds import threshold_metrics, write_class_thresholds
    from sparselabel.inference.saved_scores import keep_scores
    from sparselabel.metrics.label_metrics import label_metrics
    from sparselabel.training.checkpoint import TrainingState
    from sparselabel.training.train_run import run_metadata

    _prepared(folder)
    data, run = open_prepared(folder / "data"), Run(folder / "run")
    run.begin(TrainConfig(method="an"), run_metadata(data, ["train"]), resume=False, force=False)
    random = np.random.default_rng(0)
    scores = {name: random.random((len(data.split(name)), 2), np.float32) for name in ("val", "test")}
    thresholds = write_class_thresholds(run, data, scores["val"])
    measured: dict[str, Any] = {}
    for name, some in scores.items():
        keep_scores(run, data.split(name), some)
        labels = data.split(name).observed
        measured[name] = {"name": "mAP", "value": 0.5} | label_metrics(some, labels)
        measured[name]["decided"] = threshold_metrics(some, labels, thresholds)
    write_json(run.result_file, {
        "method": "an", "oracle": False, "best_epoch": 1, "epochs": 1, "validation": measured["val"],
        "test": measured["test"], "recovery": None, "model_checksum": 0,
    })  # fmt: skip
    write_json(run.cost_file, {"seconds": 1.5, "peak_memory": 100})
    write_json(
        run.evaluation_file("test"),
        {"mean_average_precision": {"sklearn": {"mean": 0.5}}, "location": {"mean": 0.5}},
    )
    record = {
        "epoch": 1,
        "phase": "head",
        "losses": {"loss": 0.5},
        "validation": {"name": "mAP", "value": 0.5},
    }
    run.metrics_file.write_text(json.dumps(record | {"hidden_positives": None}) + "\n")
    checkpoint = run.checkpoints / "0001"
    checkpoint.mkdir(parents=True)
    save_file(
        {"head.weight": torch.zeros(2, 3), "head.bias": torch.zeros(2)}, checkpoint / "model.safetensors"
    )
    torch.save({"state": {0: torch.zeros(3)}, "param_groups": [{"lr": 0.1}]}, checkpoint / "optimizer.pt")
    # No checksums: what is mutated is to be looked at, not only noticed.
    state = asdict(TrainingState(1, "head", 0, True, 1, 0.5)) | {"processes": 1, "checksums": {}}
    write_json(checkpoint / "state.json", state | {"checksum": json_checksum(state)})
    _comparison(folder, run)


def _comparison(folder: Path, run: Run) -> None:
    from sparselabel.comparison.compare import Comparison
    from sparselabel.comparison.planned_runs import Outcome, PlannedRun

    planned = PlannedRun("an", 0, run.config(), run.path)
    Comparison(
        folder, (Outcome(planned, run.result()),), ({"": 6}, 6), None, "an", None, ("a note",), "data"
    ).save()
    write_json(
        folder / "plan.json",
        {"budget": 1.0, "images": 10, "answer-seconds": 1.0, "point-seconds": 2.0, "box-seconds": 3.0},
    )


@cache
def _data(folder: Path) -> Any:
    """The prepared data of a sample of which other files are mutated: opening it takes longest."""
    from sparselabel.data.prepared_files import open_prepared

    return open_prepared(folder / "data")


@contextmanager
def _opened_once(folder: Path) -> Iterator[None]:
    """The same for what opens the data of a run by itself."""
    from sparselabel.data import prepared_files

    data, by_itself = _data(folder), prepared_files.open_prepared
    with patch.object(
        prepared_files, "open_prepared", lambda of: data if of == data.folder else by_itself(of)
    ):
        yield


def _run_of(folder: Path) -> Run:
    return Run(folder / "run", _data(folder))


def _read_run(folder: Path) -> object:
    from sparselabel.inference.class_thresholds import load_class_thresholds
    from sparselabel.report.run_data import read_runs

    run = Run.open(folder / "run")
    with _opened_once(folder):
        reported = read_runs([run.path]).runs[0]
    return run.config(), run.cost(), reported.measured("test"), load_class_thresholds(run).thresholds()


def _read_thresholds(folder: Path) -> object:
    from sparselabel.inference.class_thresholds import load_class_thresholds

    thresholds = load_class_thresholds(_run_of(folder))
    chosen = thresholds.thresholds(0.9) if thresholds.images else None  # which it asks validation images for
    return thresholds.thresholds(), chosen, thresholds.calibration(np.zeros((1, 2)))


def _read_scores(folder: Path) -> object:
    from sparselabel.inference.saved_scores import saved_scores
    from sparselabel.metrics.label_metrics import label_metrics

    saved = saved_scores(_run_of(folder), "test")
    return label_metrics(saved.scores, saved.labels)


def _read_evaluation(folder: Path) -> object:
    return _run_of(folder).metrics("test")


def _read_checkpoint(folder: Path) -> object:
    from sparselabel.training.checkpoint import newest_checkpoint

    checkpoint = newest_checkpoint(folder / "run/checkpoints")
    assert checkpoint is not None
    return checkpoint.state, checkpoint.model(), checkpoint.optimizer(), checkpoint.processes + 0


def _figures(folder: Path) -> None:
    """A run with what its reports and figures draw."""
    from sparselabel.files import write_arrays

    _run(folder)
    run, pair = Run(folder / "run"), {"rows": np.array([0, 1]), "classes": np.array([0, 1])}
    run.watched.mkdir()
    write_arrays(run.missing_file, **pair, scores=np.array([0.5, 0.25], np.float32))
    write_arrays(
        run.location_file("test"),
        rows=np.array([0]), classes=np.array([1]), masked=np.array([False]),
        shares=np.ones((1, 3), np.float32), areas=np.ones(1, np.float32),
    )  # fmt: skip
    write_arrays(
        run.maps_file("test"), **pair, scores=np.full(2, 0.5, np.float32),
        cells=np.zeros((2, 3, 3), np.float32),
    )  # fmt: skip
    write_arrays(
        run.watched / "0001.npz", rows=np.array([0, 2]), scores=np.zeros((2, 2), np.float32),
        maps=np.zeros((2, 2, 3, 3), np.float16),
    )  # fmt: skip


def _read_figures(folder: Path) -> object:
    from sparselabel.report.examples import _read_maps, missing_rows, read_missing
    from sparselabel.report.figures.localization_examples import _read_run as read_located
    from sparselabel.report.figures.watched_images import Watched
    from sparselabel.report.run_data import read_runs

    with _opened_once(folder):
        about = read_runs([_run_of(folder)])
        missing, maps = read_missing(about), _read_maps(about, "test")
        watched = Watched(folder / "run")
        names = [str(watched.split.truth.ids[row]) for row in watched.last.rows]
        located = read_located(folder / "run", "test")
        return missing and missing_rows(about, missing), maps, names, located.scores


def _large_scores(folder: Path) -> None:
    """Scores that are too many for memory, and those that a run was given; without checksums that fit."""
    from sparselabel.inference.saved_scores import keep_scores, new_scores
    from sparselabel.metrics import tiled_scores
    from sparselabel.training.load_external_scores import save_external_scores

    _run(folder)
    run = Run(folder / "run")
    split = run.split("test")
    with patch.object(tiled_scores, "LARGEST_SCORES", 1):
        file = new_scores(run, split)
        assert file is not None
        file.append(np.random.default_rng(0).random((len(split), 2), np.float32))
        keep_scores(run, split, file)
    save_external_scores(run, np.zeros((3, 2), np.float32))
    text = {"how": "auto", "K": 2.0, "interval": [1.0, 3.0], "trusted": True, "why": "made up"}
    write_json(run.expected_file, text)
    (folder / ".lock").write_text('{"process": 1, "host": "a", "command": "train"}\n')


def _read_large_scores(folder: Path) -> object:
    from sparselabel.doctor import _expected_positives
    from sparselabel.inference.saved_scores import saved_scores
    from sparselabel.locks import _holders
    from sparselabel.training import load_external_scores

    run = _run_of(folder)
    with (
        patch("sparselabel.inference.saved_scores.require_checksum"),
        patch.object(load_external_scores, "require_own_checksum"),
    ):
        scores = saved_scores(run, "test").scores[:]
        given = load_external_scores.external_scores_in(run.given_scores_file, _data(folder))
    return scores, given, [*_holders(folder / ".lock")], [*_expected_positives(run.path)]


def _plan(folder: Path) -> None:
    (folder / "runs/1").mkdir(parents=True)
    write_json(
        folder / "plan.json",
        {"budget": 1.0, "images": 10, "answer-seconds": 1.0, "point-seconds": 2.0, "box-seconds": 3.0},
    )


def _read_plan(folder: Path) -> object:
    from sparselabel.data.annotation_budget import Prices
    from sparselabel.plan.budget import Budget, refuse_other_budget

    refuse_other_budget(Budget(1.0, 10, 10, 2, Prices(1.0, 2.0, 3.0)), folder)
    return None


def _lists(folder: Path) -> None:
    _images(folder, "a.jpg", "b.jpg")
    _texts(folder, {"list.txt": f"{folder}/a.jpg\n{folder}/b.jpg\n"})


def _read_lists(folder: Path) -> object:
    from sparselabel.data.image_paths import image_paths

    return [*image_paths([str(folder / "list.txt")])]


def _pretrained(folder: Path) -> None:
    from sparselabel.hub import save_pretrained

    _run(folder)
    run = Run(folder / "run")
    run.model_file.write_bytes((run.checkpoints / "0001/model.safetensors").read_bytes())
    save_pretrained(run, folder / "saved")


def _read_pretrained(folder: Path) -> object:
    run = Run.from_pretrained(folder / "saved")
    return run.config(), run.result(), run.metadata(), run.classes


def _review_scores(folder: Path) -> None:
    from sparselabel.inference.review_scores import _about_file, _identity

    _pretrained(folder)
    run = _run_of(folder)
    split = run.split("train")
    np.save(run.review_scores_file, np.zeros(split.truth.values.shape, np.float16))
    write_json(_about_file(run), _identity(run, split))


def _read_review_scores(folder: Path) -> object:
    from sparselabel.inference.review_scores import review_scores

    run = _run_of(folder)
    scores = review_scores(run, run.split("train"))
    return scores is not None and scores.sum()


def _scenes(folder: Path) -> None:
    from sparselabel.data.scenes.generate import make

    make(folder, train=3, test=1, size=32, seed=1)


def _read_scenes(folder: Path) -> object:
    from sparselabel.data.scenes.generate import make

    return make(folder, train=3, test=1, size=32, seed=1)


def _read_comparison(folder: Path) -> object:
    from sparselabel.comparison.compare import Comparison

    return Comparison.open(folder).outcomes


SWEEP = "method,varied,value,validation,validation_spread,test,spread\n" + "".join(
    f"{method},gamma,{value},50.5,.5,49.5,1.5\n" for method in ("an", "en") for value in (1, 2)
)
NUMBERS = "method,annotation,training_labels,test,spread\nan,points:0.5,100,49.5,1.5\nen,,200,50.5,\n"


def _tables(folder: Path) -> None:
    _texts(folder, {"sweep.csv": SWEEP, "numbers.csv": NUMBERS})


def _read_tables(folder: Path) -> object:
    from sparselabel.report.figures import sweep_curve

    drawing = {"_figure": DEFAULT, "log_curves": DEFAULT, "save": DEFAULT}
    with patch.multiple(sweep_curve, **drawing):
        sweep_curve.draw_sweep([folder / "sweep.csv"], "test", folder / "a.png")
        sweep_curve.draw_label_numbers([folder / "numbers.csv"], folder / "a.png")
    return None


def _weights(folder: Path) -> None:
    import torch
    from safetensors.torch import save_file

    tensors = {
        "conv.weight": torch.zeros(4, 3, 1, 1),
        "norm.bias": torch.zeros(4),
        "n": torch.zeros((), dtype=torch.int64),
    }
    save_file(tensors, folder / "weights.safetensors")
    content = {"state_dict": tensors, "best": 0.5}
    torch.save(content, folder / "weights.pt")
    torch.save(content, folder / "weights.pth", _use_new_zipfile_serialization=False)


def _read_weights(folder: Path) -> object:
    from sparselabel.models.weights import read_tensors, refuse_not_finite

    for name in ("weights.safetensors", "weights.pt", "weights.pth"):
        refuse_not_finite(read_tensors(folder / name), folder / name)
    return None


def _image_files(folder: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (12, 16, 3), dtype=np.uint8)
    folder.mkdir(exist_ok=True)
    for name in ("a.jpg", "a.png", "a.webp", "a.bmp", "a.gif", "a.tif"):
        (folder / name).write_bytes(_coded(pixels, Image.registered_extensions()[Path(name).suffix]))


def _coded(pixels: Any, form: str) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, form)
    return stream.getvalue()


def _rare_image_files(folder: Path) -> None:
    """The formats of phones and cameras; of a RAW file there is a directory of TIFF, and a JPEG inside."""
    import pillow_heif

    pillow_heif.register_heif_opener()
    pixels = np.random.default_rng(0).integers(0, 255, (16, 32, 3), dtype=np.uint8)
    for name, form in (("a.avif", "AVIF"), ("a.jp2", "JPEG2000"), ("a.ppm", "PPM"), ("a.heic", "HEIF")):
        (folder / name).write_bytes(_coded(pixels, form))
    (folder / "deep.png").write_bytes(_coded(pixels[..., 0].astype(np.uint16) * 257, "PNG"))
    directory = struct.pack("<HHHIHHI", 1, 0x0112, 3, 1, 6, 0, 0)
    (folder / "a.dng").write_bytes(b"II*\0" + struct.pack("<I", 8) + directory + _coded(pixels, "JPEG"))


def _read_image_files(folder: Path) -> object:
    from sparselabel.data.decode import load

    return [load(file, 8) for file in sorted(folder.iterdir())]


def _shards(folder: Path) -> None:
    _image_files(folder / "images")
    content = {file.name: file.read_bytes() for file in (folder / "images").iterdir()}
    named = content | {"é" * 60 + ".gif": content["a.gif"]}  # which takes a header of its own
    write_tar(folder / "a.tar", named)
    write_tar(folder / "b.tgz", named, "w:gz")
    write_table(folder / "c.parquet", {"key": [*content], "image": [*content.values()]}, rows=2)
    images = [{"bytes": content["a.gif"], "path": "a.gif"}, {"bytes": None, "path": "images/a.gif"}]
    write_table(folder / "d.parquet", {"image": images})


def _read_shards(folder: Path) -> object:
    from sparselabel.data.image_paths import images
    from sparselabel.data.stored_images import scan

    found = [*images(str(folder / name) for name in ("a.tar", "b.tgz", "c.parquet", "d.parquet"))]
    return found, *(scan([str(folder / name)]) for name in ("a.tar", "c.parquet", "d.parquet"))


def _job(folder: Path) -> None:
    (folder / "out" / "_parts").mkdir(parents=True)
    write_json(folder / "out" / "_job.json", {"about": {"run": "r"}, "parts": 2})
    for number, name in enumerate(("a.jpg", "b.jpg")):
        write_json(folder / "out" / "_parts" / f"{number:05}.json", {"files": [name]})
    done = {"images": 1, "labels": 0, "broken": 0, "engine": "torch", "errors": []}
    write_json(folder / "out" / "_parts" / "00000.done.json", done)


def _read_job(folder: Path) -> object:
    from sparselabel.inference.predict_on_ray import Done, JobFile, Task
    from sparselabel.inference.prediction_shards import PredictionShards
    from tests.inference.stub import predictor

    task = Task(PredictionShards(folder / "out", "csv", ("cat", "dog")), predictor)
    done = read_json(task.done_file(0), Done)
    return read_json(folder / "out" / "_job.json", JobFile), done, task.part(0), task.part(1)


def _features(folder: Path) -> None:
    features = np.zeros((4, 3), np.float32)
    np.save(folder / "features.npy", features)
    with (folder / "features.checksums").open("wb") as file:
        np.save(file, row_checksums(features))


def _read_features(folder: Path) -> object:
    from sparselabel.training.features import read_features

    return read_features(folder / "features.npy", cells=False)


def _predictions(folder: Path) -> None:
    about = {"run": "r", "all_scores": False}
    for name, text in (
        ("p.csv", "image,labels,scores,error\na.jpg,cat,0.5,\n"),
        ("p.jsonl", '{"image": "a.jpg"}\n'),
    ):
        _texts(folder, {f"{name}.partial": text, f"{name}.partial.json": json.dumps(about)})


def _read_predictions(folder: Path) -> object:
    from sparselabel.inference.prediction_csv import PredictionWriter

    for name in ("p.csv", "p.jsonl"):
        output = PredictionWriter(
            str(folder / name), ("cat", "dog"), {"run": "r"}, all_scores=False, resume=True
        )
        try:
            [*output.skip(iter(["a.jpg"]))]
        finally:
            output.stop()
    return None


def _source(name: str, file: str = "", **options: Any) -> Read:
    return lambda folder: reader(name)(folder / file, **options)


def _with_list(folder: Path) -> object:
    return reader("coco")(folder / "instances.json", labels=folder / "list.txt")


def _with_devkit(folder: Path) -> object:
    return reader("imagenet")(folder, labels=folder / "truth.txt", synsets=folder / "synsets.txt")


def _named(name: str, text: str) -> Write:
    return lambda folder: _texts(folder, {name: text})


FORMATS: dict[str, Format] = {
    "table several": Format(_table(SEVERAL), _source("table", "labels.csv"), ("labels.csv",)),
    "table long": Format(_table(LONG), _source("table", "labels.csv"), ("labels.csv",)),
    "table wide": Format(_table(WIDE), _source("table", "labels.csv"), ("labels.csv",)),
    "table encoded": Format(_encoded, _read_encoded, ("labels.*",)),
    "table xlsx": Format(_xlsx, _source("table", "labels.xlsx"), ("labels.xlsx",)),
    "table parquet": Format(_parquet, _source("table", "labels.parquet"), ("labels.parquet",)),
    "coco": Format(_coco, _source("coco", "instances.json"), ("instances.json",)),
    "coco list": Format(_coco, _with_list, ("list.txt",)),
    "label-studio": Format(_label_studio, _source("label-studio", "tasks.json"), ("tasks.json",)),
    "fiftyone": Format(_fiftyone, _source("fiftyone"), ("labels.json",)),
    "cvat": Format(_cvat, _source("cvat"), ("annotations.xml",)),
    "voc": Format(
        _voc, _source("voc"), ("ImageSets/Main/*.txt", "Annotations/*.xml", "SegmentationObject/*.png")
    ),
    "cub": Format(_cub, _source("cub"), ("*.txt", "attributes/*.txt")),
    "imagenet": Format(_imagenet, _source("imagenet"), ("*.csv", "*.txt", "real.json")),
    "imagenet devkit": Format(_devkit, _with_devkit, ("truth.txt", "synsets.txt")),
    "nuswide": Format(_nuswide, _source("nuswide"), ("*.npy",)),
    "nuswide lists": Format(
        _nuswide_lists, _source("nuswide"), ("ImageList/*.txt", "Groundtruth/*/Labels_c0*.txt")
    ),
    "scores csv": Format(
        _named("scores.csv", "image,cat,dog\na.jpg,.9,.1\nb.jpg,,2\n"), _scores("scores.csv"), ("scores.csv",)
    ),
    "scores npz": Format(_scores_arrays, _scores("scores.npz"), ("scores.npz",)),
    "scores parquet": Format(_scores_parquet, _scores("scores.parquet"), ("scores.parquet",)),
    "answers": Format(_named("answers.csv", ANSWERS), _read_answers, ("answers.csv",)),
    "configuration": Format(_toml_config, _read_config, ("config.toml",)),
    "recipe": Format(_recipe, _read_recipe, ("recipe.toml",)),
    "prior": Format(_prior, _read_prior, ("prior.json", "prior.csv")),
    "expected positives": Format(_expected, _read_expected, ("expected.json",)),
    "images in a tar": Format(_stored("a.tar"), _read_stored, ("data/dataset.json", "data/*/*.npy", "a.tar")),
    "images in a table": Format(
        _stored("a.parquet"), _read_stored, ("data/dataset.json", "data/*/*.npy", "a.parquet")
    ),
    "plan": Format(_plan, _read_plan, ("plan.json",)),
    "list of images": Format(_lists, _read_lists, ("list.txt",)),
    "prepared data": Format(_prepared, _read_prepared, ("data/dataset.json", "data/*/*.npy")),
    "run": Format(
        _run,
        _read_run,
        ("run/run.json", "run/config.toml", "run/result.json", "run/cost.json", "run/metrics.jsonl"),
    ),
    "run thresholds": Format(_run, _read_thresholds, ("run/thresholds.json",)),
    "run scores": Format(_run, _read_scores, ("run/scores-test.npz",)),
    "run evaluation": Format(_run, _read_evaluation, ("run/evaluation-test.json",)),
    "run checkpoint": Format(_run, _read_checkpoint, ("run/checkpoints/0001/*",)),
    "run figures": Format(_figures, _read_figures, ("run/*.npz", "run/*/*.npz")),
    "large scores": Format(_large_scores, _read_large_scores, ("run/*scores*", "run/expected.json", ".lock")),
    "pretrained": Format(_pretrained, _read_pretrained, ("saved/config.json",)),
    "review scores": Format(_review_scores, _read_review_scores, ("run/review-scores.*",)),
    "scenes": Format(_scenes, _read_scenes, ("scenes.json", "*.npz", "masks/*/*.png")),
    "comparison": Format(_run, _read_comparison, ("comparison.json",)),
    "tables of comparisons": Format(_tables, _read_tables, ("*.csv",)),
    "weights": Format(_weights, _read_weights, ("weights.*",)),
    "images": Format(_image_files, _read_image_files, ("*",)),
    "rare images": Format(_rare_image_files, _read_image_files, ("*",)),
    "shards of images": Format(_shards, _read_shards, ("a.tar", "b.tgz", "*.parquet")),
    "job on a cluster": Format(_job, _read_job, ("out/*.json", "out/*/*.json")),
    "features": Format(_features, _read_features, ("features.*",)),
    "predictions": Format(_predictions, _read_predictions, ("*",)),
}
