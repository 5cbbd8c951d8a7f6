"""Inputs that once raised a foreign exception, killed the process or hung: now refused with their name."""

import io
import json
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from tests.fuzz.formats import CVAT, FORMATS
from tests.fuzz.session import Sample

DEEP = "[" * 3_000 + "]" * 3_000
LONG = "9" * 5_000
HUGE = "1" + "0" * 400

Damage = bytes | str | Callable[[bytes], bytes]


def with_key(*keys: Any, value: str) -> Callable[[bytes], bytes]:
    """A JSON file with another text for a value, which need not be JSON that Python can write."""

    def change(content: bytes) -> bytes:
        tree = inner = json.loads(content)
        for key in keys[:-1]:
            inner = inner[key]
        inner[keys[-1]] = "@"
        return json.dumps(tree).replace('"@"', value).encode()

    return change


def without_key(*keys: Any) -> Callable[[bytes], bytes]:
    """A JSON file that lacks a key."""

    def change(content: bytes) -> bytes:
        tree = inner = json.loads(content)
        for key in keys[:-1]:
            inner = inner[key]
        del inner[keys[-1]]
        return json.dumps(tree).encode()

    return change


def npy(shape: str, dtype: str = "<f8", data: bytes = b"") -> bytes:
    header = f"{{'descr': {dtype!r}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


def saved(array: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def npz(**members: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return stream.getvalue()


def scores(**other: bytes) -> bytes:
    whole = {
        "images": saved(["a.jpg", "b.jpg"]),
        "classes": saved(["cat", "dog"]),
        "scores": saved(np.eye(2)),
    }
    return npz(**(whole | other))


def mask(side: int) -> bytes:
    """A mask of side² pixels in a few kilobytes."""
    stream = io.BytesIO()
    Image.new("1", (side, side)).save(stream, "PNG")
    return stream.getvalue()


def texts(*codes: int) -> bytes:
    return npy(f"({len(codes)},)", "<U1", np.array(codes, "<u4").tobytes())


def encoded(name: str) -> str:
    return CVAT.replace('encoding="utf-8"', f'encoding="{name}"')


def npz_with(**arrays: Any) -> Callable[[bytes], bytes]:
    """A file of arrays with others under some of its names."""

    def change(content: bytes) -> bytes:
        stream = io.BytesIO()
        np.savez(stream, **{**np.load(io.BytesIO(content)), **arrays})
        return stream.getvalue()

    return change


def not_finite(content: bytes) -> bytes:
    """Scores, one of which is infinite."""
    scores = np.load(io.BytesIO(content))["scores"]
    scores[0, 1] = np.inf
    return npz_with(scores=scores)(content)


def torch_file(content: Any) -> bytes:
    stream = io.BytesIO()
    torch.save(content, stream)
    return stream.getvalue()


def workbook_of(cell: bytes) -> Callable[[bytes], bytes]:
    """A workbook with another text for a class."""

    def change(content: bytes) -> bytes:
        stream = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(stream, "w", 8) as new:
            for name in old.namelist():
                new.writestr(name, old.read(name).replace(b">cat<", b">%b<" % cell))
        return stream.getvalue()

    return change


RESULT = (0, "annotations", 0, "result", 1)

CASES: list[tuple[str, str, Damage]] = [
    ("label-studio", "tasks.json", DEEP),
    ("label-studio", "tasks.json", with_key(0, "id", value=LONG)),
    ("label-studio", "tasks.json", with_key(0, "annotations", 0, "result", 1, "value", "x", value=HUGE)),
    ("fiftyone", "labels.json", with_key("labels", "b", 0, "bounding_box", value=f"[{HUGE}, 0, 1, 1]")),
    ("fiftyone", "labels.json", with_key("classes", 0, value='"\\ud800"')),
    ("fiftyone", "labels.json", b'{"classes": null, "labels": {"a\\u0000": ["cat"]}}'),
    ("imagenet", "real.json", DEEP),
    ("coco", "instances.json", with_key("images", 0, "width", value=HUGE)),
    ("coco", "instances.json", with_key("images", 0, "width", value=LONG)),
    ("coco", "instances.json", with_key("images", 0, "width", value="1e9")),
    ("coco", "instances.json", with_key("annotations", 2, "keypoints", 0, value=HUGE)),
    ("coco", "instances.json", with_key("annotations", 0, "bbox", value=DEEP)),
    ("coco", "instances.json", with_key("info", value=DEEP)),
    ("coco", "instances.json", with_key("categories", 0, "name", value='"\\ud800"')),
    ("coco", "instances.json", with_key("images", 0, "file_name", value='"a\\u0000.jpg"')),
    ("coco", "instances.json", with_key("images", 0, "neg_category_ids", value="5")),
    ("table long", "labels.csv", b"image,label,x,y,w,h\na.jpg,cat,.5,.5,.2,1e-320\n"),
    ("coco list", "list.txt", f"a.jpg,{LONG}\nb.jpg,1\n"),
    ("imagenet devkit", "truth.txt", f"1\n{LONG}\n"),
    ("cub", "images.txt", f"{LONG} a.jpg\n"),
    ("cvat", "annotations.xml", encoded("klingon")),
    ("cvat", "annotations.xml", encoded("shift_jis")),
    ("cvat", "annotations.xml", encoded("undefined")),
    ("cvat", "annotations.xml", CVAT.replace("b.jpg", "b" * 300)),
    ("cvat", "annotations.xml", CVAT.replace('rx="', 'rx="-1e308" old="')),
    ("label-studio", "tasks.json", with_key(*RESULT, "original_height", value="Infinity")),
    ("label-studio", "tasks.json", with_key(*RESULT, "value", "rectanglelabels", value='["cat\\u0000"]')),
    ("voc", "2008_000001.xml", '<?xml version="1.0" encoding="klingon"?><annotation/>'),
    ("voc", "dog_train.txt", b"2008_000001 \xb1\n"),
    ("voc", "2008_000001.png", mask(30_000)),
    ("voc", "2008_000001.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0"),
    ("cub", "images.txt", b"1 " + b"x" * 300 + b".jpg\n"),
    ("cub", "image_attribute_labels.txt", b"1 1 0 3:\r\xb0\n"),
    ("nuswide", "formatted_train_images.npy", npy("(1000000000000,)")),
    ("nuswide", "formatted_train_images.npy", npy("(" * 300 + ")" * 300)),
    ("nuswide", "formatted_train_images.npy", npy("(2.0,)")),
    ("nuswide", "formatted_train_images.npy", npy("(1,)", "|O")),
    ("nuswide", "formatted_train_images.npy", npy("(0,)", "<U1")),
    ("nuswide", "formatted_train_labels.npy", npy("(1000000000000,)", "<U0")),
    ("nuswide", "formatted_train_images.npy", texts(0xD800, 65)),
    ("nuswide", "formatted_train_images.npy", texts(0x110000, 65)),
    ("nuswide", "formatted_train_images.npy", saved(np.array(["a\0b.jpg", "c"]))),
    ("nuswide", "formatted_train_labels.npy", npy("(2, 81)", "|V1", bytes(162))),
    ("table parquet", "labels.parquet", b"PAR1" + bytes(40) + b"PAR1"),
    ("table parquet", "labels.parquet", lambda content: content[:60] + b"\xff" * 20 + content[80:]),
    ("table long", "labels.csv", b"image,label\na\0.jpg,cat\n"),
    ("table long", "labels.csv", b"image,label\na.jpg,cat\nb.jpg,cat\0\n"),
    ("scores npz", "scores.npz", scores(scores=npy("(1000000, 1000000)"))),
    ("scores npz", "scores.npz", scores(scores=saved(np.zeros((2, 2), complex)))),
    ("scores npz", "scores.npz", scores(scores=npy("(2, 2)", "|O", b"cos\nsystem\n"))),
    ("scores npz", "scores.npz", lambda content: content.replace(b"cat"[:1] + b"\0\0\0", b"\x01\xd8\0\0")),
    ("scores npz", "scores.npz", lambda content: content[:-30]),
    ("configuration", "config.toml", "seed = " + "[" * 3_000 + "]" * 3_000),
    ("configuration", "config.toml", f"seed = {LONG}"),
    ("configuration", "config.toml", f"grad_clip = {HUGE}"),
    ("configuration", "config.toml", f"seed = 0x{'f' * 5_000}"),
    ("configuration", "config.toml", b"method = '\xff'"),
    ("configuration", "config.toml", "[views]\nflip = 2.0"),
    ("recipe", "recipe.toml", "a = " + "{b = " * 1_000),
    ("recipe", "recipe.toml", 'method = "ü"'),
    ("prior", "prior.json", DEEP),
    ("prior", "prior.csv", b"class,prior\ncat,nan\ndog,1\n"),
    ("expected positives", "expected.json", with_key("images", value=HUGE)),
    ("expected positives", "expected.json", with_key("interval", value="[0, Infinity]")),
    ("prepared data", "dataset.json", with_key("splits", "train", value="null")),
    ("prepared data", "dataset.json", without_key("splits", "train", "digest")),
    ("prepared data", "ids.npy", npy("()")),
    ("prepared data", "observed.npy", npy("(3, 2)", "<f8", bytes(48))),
    ("images in a tar", "train/stored_numbers.npy", saved(np.array([0, 1, 0]))),
    ("images in a tar", "train/stored_offsets.npy", saved(np.array([-2, 0, 0]))),
    ("images in a tar", "train/stored_sizes.npy", saved(np.array([2**40, 9, 9]))),
    ("images in a table", "train/stored_sizes.npy", saved(np.array([-1, 1, 0]))),
    ("images in a tar", "train/stored_tables.npy", npy("(0,)", "<U1")),
    ("images in a tar", "train/stored_files.npy", texts(0x110000)),
    ("images in a tar", "train/observed_starts.npy", saved(np.array([0, 9, 2, 6]))),
    ("images in a tar", "train/observed_columns.npy", saved(np.array([0, 1, 0, 1, -1, 1], np.int32))),
    ("images in a tar", "train/observed_known.npy", saved(np.array([1, 0, 7, 1, 1, 0], np.int8))),
    ("run", "run.json", without_key("classes")),
    ("run", "run.json", with_key("data", value='"a\\u0000b"')),
    ("run", "run.json", with_key("data", value=f'"{"x" * 300}"')),
    ("run", "run.json", with_key("annotation", value="{}")),
    ("run", "run.json", with_key("annotation", value='"0.1.0"')),
    ("run", "metrics.jsonl", DEEP),
    ("run", "metrics.jsonl", b'{"epoch": "one"}\n'),
    ("run", "result.json", without_key("test", "value")),
    ("run", "result.json", without_key("test", "decided", "classes")),
    ("run", "result.json", with_key("test", "decided", value="[1]")),
    ("run", "cost.json", b'{"seconds": NaN, "peak_memory": 1}'),
    ("run thresholds", "thresholds.json", with_key("classes", 0, "threshold", value="NaN")),
    ("run thresholds", "thresholds.json", with_key("classes", 0, "at_precision", value="[1]")),
    ("run thresholds", "thresholds.json", with_key("classes", 0, "slope", value="[]")),
    ("run thresholds", "thresholds.json", DEEP),
    ("run scores", "scores-test.npz", npz(ids=saved(["4.jpg", "5.jpg"]), scores=npy("(1000000000,)", "<f4"))),
    ("run scores", "scores-test.npz", not_finite),
    ("run figures", "location-test.npz", npz_with(rows=np.array([10**12]))),
    ("run figures", "0001.npz", npz_with(rows=np.array([0, -1]))),
    ("run figures", "maps-test.npz", npz_with(classes=np.array([0, 2**48 + 1]))),
    ("scenes", "train.npz", npz_with(labels=np.full((3, 12), 59))),
    ("scenes", "000000.png", mask(64)),
    ("scenes", "000000.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0"),
    ("scenes", "000000.png", lambda content: content[:60]),
    ("pretrained", "config.json", with_key("config", value='[{"method": "an"}]')),
    ("pretrained", "config.json", with_key("config", "views", value="[1]")),
    ("pretrained", "config.json", with_key("thresholds", value="7")),
    ("pretrained", "config.json", with_key("thresholds", "classes", value="[]")),
    ("pretrained", "config.json", with_key("run", "classes", value='["cat"]')),
    ("run evaluation", "evaluation-test.json", b"{}"),
    ("run evaluation", "evaluation-test.json", b'{"mean_average_precision": {}}'),
    ("run checkpoint", "state.json", with_key("processes", value="[1]")),
    ("run checkpoint", "state.json", with_key("processes", value="1000000000")),
    ("comparison", "comparison.json", without_key("runs")),
    ("comparison", "comparison.json", with_key("runs", 0, "chosen", value="[1]")),
    ("comparison", "comparison.json", with_key("runs", 0, "folder", value=f'"{"x" * 300}"')),
    ("comparison", "comparison.json", with_key("recipe", value="[0.5]")),
    ("features", "features.npy", npy("(8589934592,)", "<f4")),
    ("features", "features.npy", npy("(2, 2)", "<M8[s]", bytes(32))),
    ("predictions", "p.jsonl.partial", b"{}\n"),
    ("predictions", "p.jsonl.partial", b'{"image": "\xff"}\n'),
    ("predictions", "p.csv.partial", b"name,labels\na,b\n"),
    ("predictions", "p.csv.partial.json", DEEP),
    ("weights", "weights.pt", torch_file({"a": torch.eye(2).to_sparse()})),
    ("weights", "weights.pth", torch_file({"a": torch.empty(2, device="meta")})),
    ("weights", "weights.pth", lambda content: content.replace(b"OrderedDict", b"x" * 140_000)),
    ("tables of comparisons", "sweep.csv", lambda content: content.replace(b"en,gamma", b"en,mu")),
    ("table xlsx", "labels.xlsx", workbook_of(b"c" * 200_000)),
]


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Sample]:
    made: dict[str, Sample] = {}

    def sample(name: str) -> Sample:
        if name not in made:
            made[name] = Sample(name, tmp_path_factory.mktemp("fuzz") / "sample")
        return made[name]

    return sample


@pytest.mark.parametrize(("name", "file", "damage"), CASES, ids=lambda value: str(value)[:20])
def test_it_is_refused_by_name(
    samples: Callable[[str], Sample], name: str, file: str, damage: Damage
) -> None:
    sample = samples(name)
    path = next(path for path in sample.files if f"/{path.as_posix()}".endswith(f"/{file}"))
    content = damage(sample.whole[path]) if callable(damage) else damage
    content = content.encode() if isinstance(content, str) else content
    assert content != sample.whole[path]
    assert sample.refusal(path, content) is not None
    assert sample.fault_of(path, content) == ""


def test_samples_are_of_every_format() -> None:
    from sparselabel.data.readers import READERS

    assert {*READERS} - {"folder"} <= {name.partition(" ")[0] for name in FORMATS}
    assert Path(__file__).parent.name == "fuzz"
