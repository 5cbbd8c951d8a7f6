import json
import shutil
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from sparselabel.config import ALL, Preparation
from sparselabel.data.dataset import Dataset
from sparselabel.data.labels import NEGATIVE, POSITIVE, UNKNOWN
from sparselabel.data.prepare import prepare
from sparselabel.data.prepared_files import open_prepared
from sparselabel.data.readers import class_folders as folder
from sparselabel.data.readers import table, voc
from sparselabel.data.readers.raw_dataset import RawDataset, RawSplit
from sparselabel.data.scenes import generate as scenes
from sparselabel.data.sparsify import sparsify, split_rows, stratified_rows, subset_rows
from sparselabel.data.spatial_labels import SpatialLabels
from sparselabel.errors import ConfigError, DataError, DataWarning, RunError
from tests.data.images import CLASSES, paint, random_labels, read_table

SINGLE = Preparation("single-positive")
TABLE_K3 = """\
person 1584 59 410 66 2093
dog 504 83 128 82 654
car 474 68 116 60 571
chair 459 49 107 39 553
cat 436 90 103 87 541
bird 310 93 85 98 370
bottle 294 51 71 52 341
aeroplane 264 95 63 95 343
tvmonitor 233 61 57 63 285
diningtable 221 45 48 43 269
train 220 85 53 83 271
pottedplant 214 47 55 61 258
boat 210 82 50 72 248
motorbike 206 65 59 50 261
sofa 201 53 56 58 250
bicycle 200 64 68 66 284
horse 195 69 42 66 245
bus 176 67 37 64 208
sheep 135 90 36 86 154
cow 129 86 22 90 152"""
"""Verelst 2023 supplement: a class's labels in train and the percent of them that are kept, the same in val,
and in test.
"""
VOC = Path(__file__).parents[3] / "shared" / "data" / "VOC2012"


@pytest.fixture
def source(tmp_path: Path) -> RawDataset:
    """Twenty images to train on and four to test on."""
    return read_table(tmp_path / "photos", random_labels(24), ["train"] * 20 + ["test"] * 4)


def test_words_for_a_reader_stay_words(tmp_path: Path) -> None:
    lines = [
        "file,tags,fold",
        *(f"{n},{'cat+dog' if n % 2 else 'cat'},{'test' if n > 3 else 'train'}" for n in range(6)),
    ]
    (tmp_path / "labels.txt").write_text("\n".join(lines), "cp1252")
    for n in range(6):
        paint(tmp_path / "photos" / f"{n}.png", n)
    words = {"image": "file", "label": "tags", "split": "fold", "separator": "+", "suffix": ".png"}
    data = Dataset.from_table(
        tmp_path / "labels.txt", str(tmp_path / "photos"), **words, encoding="cp1252", validation=0
    )
    assert data.classes == ("cat", "dog")
    assert (len(data.train), len(data.splits["test"])) == (4, 2)
    with pytest.raises(ConfigError, match="there is no parameter 'column'"):
        Dataset.from_folder(tmp_path / "photos", column="jpg")


def test_labels_are_hidden_before_the_split(source: RawDataset, tmp_path: Path) -> None:
    prepared = prepare(source, tmp_path / "out", SINGLE)
    whole = source.splits["train"].labels
    observed = sparsify(whole.values, SINGLE)
    train, val = split_rows(20, 0.2)
    assert list(prepared.splits) == ["train", "val", "test"]
    assert [len(split) for split in prepared.splits.values()] == [16, 4, 4]
    for split, rows in ((prepared.train, train), (prepared.split("val"), val)):
        assert split.observed.ids.tolist() == split.truth.ids.tolist() == whole.ids[rows].tolist()
        assert split.truth.values.tolist() == whole.values[rows].tolist()
        assert [split.path(row) for row in range(len(split))] == [
            source.root / name for name in whole.ids[rows]
        ]
    assert prepared.train.observed.values.tolist() == observed[train].tolist()
    assert (prepared.train.observed.per_image() == 1).all()


def test_validation_sees_all_labels_or_the_observed_ones(source: RawDataset, tmp_path: Path) -> None:
    whole = source.splits["train"].labels.values
    val = split_rows(20, 0.2)[1]
    full = prepare(source, tmp_path / "full", SINGLE).split("val")
    sparse = Preparation("single-positive", validation_labels="observed")
    observed = prepare(source, tmp_path / "observed", sparse).split("val")
    assert full.observed.values.tolist() == whole[val].tolist()
    assert observed.observed.values.tolist() == sparsify(whole, SINGLE)[val].tolist()
    assert observed.truth.values.tolist() == whole[val].tolist()


def test_a_share_of_the_images_is_kept_after_the_split(source: RawDataset, tmp_path: Path) -> None:
    how = Preparation("single-positive", keep_train=0.6, keep_validation=0.5)
    prepared = prepare(source, tmp_path / "out", how)
    whole = source.splits["train"].labels
    observed = sparsify(whole.values, how)
    parts = split_rows(20, 0.2)
    train, val = (rows[kept] for rows, kept in zip(parts, subset_rows([16, 4], [0.6, 0.5]), strict=True))
    assert [len(split) for split in prepared.splits.values()] == [10, 2, 4]
    assert prepared.train.truth.ids.tolist() == whole.ids[train].tolist()
    assert prepared.train.observed.values.tolist() == observed[train].tolist()
    assert prepared.split("val").observed.values.tolist() == whole.values[val].tolist()


def test_a_share_of_the_test_images_is_kept_and_the_others_stay(source: RawDataset, tmp_path: Path) -> None:
    how = Preparation("single-positive", keep_train=0.6, keep_test=0.5)
    prepared = prepare(source, tmp_path / "out", how)
    before = prepare(source, tmp_path / "before", Preparation("single-positive", keep_train=0.6))
    assert prepared.train.truth.ids.tolist() == before.train.truth.ids.tolist()
    assert prepared.split("val").truth.ids.tolist() == before.split("val").truth.ids.tolist()
    rows = subset_rows([16, 4, 4], [0.6, 1, 0.5])[2]
    assert len(rows) == 2
    assert prepared.split("test").truth.ids.tolist() == source.splits["test"].labels.ids[rows].tolist()
    without = replace(source, splits={"train": source.splits["train"]})
    with pytest.raises(DataError, match="there is no test split") as refused:
        prepare(without, tmp_path / "none", how)
    assert refused.value.parameters == ["keep_test"]


def test_shares_that_keep_nothing_are_refused(source: RawDataset, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a share of 0.1 of 4 images leaves none of 'val': keep more"):
        prepare(source, tmp_path / "out", Preparation(keep_validation=0.1))
    with pytest.raises(DataError, match="there is no validation split to keep a share of"):
        prepare(source, tmp_path / "out", Preparation(validation=0, keep_validation=0.5))


def test_labels_that_cannot_be_hidden_are_refused_before_images_are_decoded(tmp_path: Path) -> None:
    values = random_labels(4)
    values[2, 1] = UNKNOWN
    source = read_table(tmp_path / "photos", values)
    (tmp_path / "photos/000.jpg").write_bytes(b"broken")
    with pytest.raises(DataError, match="1 labels are unknown already: leave `sparsify` out"):
        prepare(source, tmp_path / "out", SINGLE)


def test_tests_keep_all_labels(source: RawDataset, tmp_path: Path) -> None:
    test = prepare(source, tmp_path / "out", SINGLE).split("test")
    assert test.observed.values.tolist() == source.splits["test"].labels.values.tolist()


def test_no_validation(source: RawDataset, tmp_path: Path) -> None:
    prepared = prepare(source, tmp_path / "out", Preparation("single-positive", validation=0))
    assert list(prepared.splits) == ["train", "test"]
    truth = source.splits["train"].labels.values
    assert prepared.train.observed.values.tolist() == sparsify(truth, SINGLE).tolist()


def test_validation_images_of_the_source_are_taken(tmp_path: Path) -> None:
    source = read_table(tmp_path / "photos", random_labels(9), ["train"] * 5 + ["val"] * 4)
    observed = Preparation("single-positive", validation=0.5, validation_labels="observed")
    prepared = prepare(source, tmp_path / "out", observed)
    assert [len(split) for split in prepared.splits.values()] == [5, 4]
    val = prepared.split("val")
    assert val.truth.ids.tolist() == ["005.jpg", "006.jpg", "007.jpg", "008.jpg"]
    assert val.observed.values.tolist() == sparsify(source.splits["val"].labels.values, SINGLE).tolist()


def test_class_folders_are_sparse_as_they_are(tmp_path: Path) -> None:
    for number in range(10):
        paint(tmp_path / "pets" / ("cat" if number % 2 else "dog") / f"{number}.png", number)
    source = folder.read(tmp_path / "pets")
    prepared = prepare(source, tmp_path / "out", Preparation())
    assert (prepared.name, prepared.classes) == ("pets", ("cat", "dog"))
    assert [len(split) for split in prepared.splits.values()] == [8, 2]
    assert (prepared.train.observed.values == prepared.train.truth.values).all()
    assert (prepared.train.observed.per_image(UNKNOWN) == 1).all()
    with pytest.raises(DataError, match=r"10 labels are unknown already: leave `sparsify` out"):
        prepare(source, tmp_path / "other", SINGLE)
    assert not (tmp_path / "other").exists()


def test_marks_go_with_their_images(tmp_path: Path) -> None:
    lines = ["image,label,x,y,w,h"]
    for row in range(10):
        paint(tmp_path / f"{row}.png", row)
        lines += [f"{row}.png,ant,0.{row}5,0.5,,", f"{row}.png,bee,0.5,0.5,0.{row}1,0.5"]
    (tmp_path / "marks.csv").write_text("\n".join(lines) + "\n")
    prepared = prepare(table.read(tmp_path / "marks.csv"), tmp_path / "out", Preparation())
    parts = stratified_rows(prepared.train.observed.values[[0] * 10], 0.2)  # all images have the same labels
    for split, rows in zip(prepared.splits.values(), parts, strict=True):
        assert split.spatial_labels.rows.tolist() == sorted([*range(len(rows))] * 2)
        assert split.spatial_labels.is_point.tolist() == [True, False] * len(rows)
        assert split.spatial_labels.centers[::2, 0].tolist() == pytest.approx(
            [row / 10 + 0.05 for row in rows]
        )
        assert split.spatial_labels.sizes[1::2, 0].tolist() == pytest.approx(
            [row / 10 + 0.01 for row in rows]
        )


def test_training_sees_the_marks_of_complete_data_and_none_where_labels_are_hidden(tmp_path: Path) -> None:
    values = random_labels(20)
    values[[3, 9], [0, 1]] = POSITIVE
    centers = np.array([[0.5, 0.5], [0.2, 0.3]], np.float32)
    spatial_labels = SpatialLabels(
        np.array([3, 9]), np.array([0, 1], np.int32), centers, centers / np.float32(5)
    )
    source = read_table(tmp_path / "photos", values, ["train"] * 20)
    source.splits["train"] = replace(source.splits["train"], spatial_labels=spatial_labels)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        everything = prepare(source, tmp_path / "all", Preparation(validation=0))
        sparse = prepare(source, tmp_path / "sparse", Preparation("single-positive", validation=0))
        kept = Preparation("per-image", positives=ALL, negatives=ALL, validation=0)
        same_labels = prepare(source, tmp_path / "same", kept)
    assert everything.train.seen.centers.tolist() == everything.train.spatial_labels.centers.tolist()
    assert (len(sparse.train.seen), len(sparse.train.spatial_labels)) == (0, 2)
    assert len(same_labels.train.seen) == 2  # nothing is hidden
    assert same_labels.train.digest == everything.train.digest != sparse.train.digest
    for made, count in ((everything, 2), (sparse, 0)):
        assert len(open_prepared(made.folder).train.seen) == count


def test_a_mark_of_an_absent_class_is_named_before_images_are_opened(tmp_path: Path) -> None:
    values = random_labels(6)
    values[4, 1] = NEGATIVE
    source = read_table(tmp_path / "photos", values)
    centers = np.array([[0.5, 0.25]] * 2, np.float32)
    spatial_labels = SpatialLabels(
        np.array([4, 4]), np.array([1, 1], np.int32), centers, centers * np.float32(0)
    )
    absent = replace(source, splits={"train": replace(source.splits["train"], spatial_labels=spatial_labels)})
    (source.root / "000.jpg").unlink()
    rule = r"photos, split 'train': a point at 0.5, 0.25 of 'bee' on image 004.jpg \(row 4\), where that"
    with pytest.raises(DataError, match=rf"{rule} class is marked absent, and 1 more such: remove it"):
        prepare(absent, tmp_path / "out", Preparation())


def test_marks_of_labels_that_nobody_knows_are_not_for_training(tmp_path: Path) -> None:
    values = random_labels(6)
    values[[2, 4], [1, 1]] = UNKNOWN, POSITIVE
    source = read_table(tmp_path / "photos", values)
    centers = np.array([[0.5, 0.25], [0.5, 0.75]], np.float32)
    spatial_labels = SpatialLabels(
        np.array([2, 4]), np.array([1, 1], np.int32), centers, centers * np.float32(0)
    )
    some = replace(source, splits={"train": replace(source.splits["train"], spatial_labels=spatial_labels)})
    train = prepare(some, tmp_path / "out", Preparation(validation=0)).train
    assert (len(train.spatial_labels), train.seen.rows.tolist(), train.seen.centers.tolist()) == (
        2,
        [4],
        [[0.5, 0.75]],
    )


def test_masks_go_with_their_marks(tmp_path: Path) -> None:
    source = scenes.make(tmp_path / "scenes", train=8, test=2, size=48)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        prepared = prepare(source, tmp_path / "scenes", SINGLE)
    for split, rows in zip(prepared.splits.values(), (*split_rows(8, 0.2), np.arange(2)), strict=True):
        assert split.masks is not None
        assert len(split.masks) == len(split.spatial_labels) > 0
        for row, drawn in enumerate(rows):
            name = "test" if split.name == "test" else "train"
            numbers = scenes.make_scene(0, int(drawn), 48, name).instances
            for number, spatial_label in enumerate(split.spatial_labels.of_rows([row])[0].tolist(), 1):
                np.testing.assert_array_equal(split.masks.decode(spatial_label), numbers == number)
    assert isinstance(prepared.train.masks and prepared.train.masks.texts, np.memmap)


def test_an_annotator_who_prefers_larger_or_more_frequent_classes(tmp_path: Path) -> None:
    lines = ["image,label,x,y,w,h"]
    for row in range(10):
        paint(tmp_path / f"{row}.png", row)
        lines += [f"{row}.png,ant,0.5,0.5,0.{row}5,0.5", f"{row}.png,bee,0.5,0.5,0.5,0.5"]
    for row, name in enumerate(("ant", "bee", "bee"), 10):
        paint(tmp_path / f"{row}.png", row)
        lines.append(f"{row}.png,{name},0.5,0.5,0.1,0.1")
    (tmp_path / "boxes.csv").write_text("\n".join(lines) + "\n")
    source = table.read(tmp_path / "boxes.csv")
    source.splits["train"].labels.values[source.splits["train"].labels.values == UNKNOWN] = NEGATIVE
    kept = {}
    for prefer in ("any", "larger", "frequent"):
        how = Preparation("single-positive", prefer=prefer, validation=0)
        kept[prefer] = prepare(source, tmp_path / prefer, how)
        assert kept[prefer].made["preparation"]["prefer"] == prefer

    def ants(prefer: str) -> list[str]:
        observed = kept[prefer].train.observed
        assert (observed.per_image(POSITIVE) == 1).all()
        return sorted(observed.ids[observed.values[:, 0] == POSITIVE].tolist())

    assert ants("larger") == ["10.png", *(f"{row}.png" for row in range(5, 10))]
    assert ants("frequent") == ["10.png"]
    assert len({data.train.digest for data in kept.values()}) == 3


def test_the_most_frequent_class_is_that_of_training(tmp_path: Path) -> None:
    lines = ["image,split,ant,bee"]
    for row in range(8):
        paint(tmp_path / f"{row}.png", row)
    lines += [
        "0.png,train,1,1",
        "1.png,train,1,0",
        *(f"{row}.png,val,{int(row > 6)},1" for row in range(2, 8)),
    ]
    (tmp_path / "labels.csv").write_text("\n".join(lines) + "\n")
    how = Preparation("single-positive", prefer="frequent", validation_labels="observed")
    with pytest.warns(DataWarning, match="no positive label in training"):
        prepared = prepare(table.read(tmp_path / "labels.csv"), tmp_path / "out", how)
    assert (prepared.train.observed.values == [POSITIVE, UNKNOWN]).all()
    assert prepared.splits["val"].observed.values[-1].tolist() == [POSITIVE, UNKNOWN]


def test_every_image_is_reported(source: RawDataset, tmp_path: Path) -> None:
    reported: list[int] = []
    prepare(source, tmp_path / "out", Preparation(), report=reported.append)
    assert sum(reported) == 24


def break_images(root: Path) -> tuple[str, ...]:
    """Four images that cannot be decoded, each in its own way."""
    whole = paint(root / "001.jpg", 1, width=96, height=64).read_bytes()
    (root / "001.jpg").write_bytes(whole[: len(whole) * 3 // 4])
    (root / "003.jpg").write_text("no image at all")
    (root / "007.jpg").write_bytes(b"")
    (root / "021.jpg").unlink()
    return ("001.jpg", "003.jpg", "007.jpg", "021.jpg")


def test_all_broken_images_are_listed(source: RawDataset, tmp_path: Path) -> None:
    broken = break_images(source.root)
    with pytest.raises(DataError) as raised:
        prepare(source, tmp_path / "out", SINGLE)
    message = str(raised.value)
    assert message.startswith("4 of 24 images cannot be decoded:\n")
    assert message.endswith("leave them out with `skip_broken=True`")
    assert [line.split()[0] for line in message.splitlines()[1:-1]] == [str(source.root / b) for b in broken]
    assert "truncated" in message
    assert "No such file" in message
    assert not (tmp_path / "out").exists()


def test_broken_images_are_left_out_if_asked(source: RawDataset, tmp_path: Path) -> None:
    broken = break_images(source.root)
    how = Preparation("single-positive", validation=0, skip_broken=True)
    with pytest.warns(DataWarning, match=r"(?s)4 of 24 images cannot be decoded.*They were left out") as seen:
        prepared = prepare(source, tmp_path / "out", how)
    assert all(str(source.root / name) in str(seen[0].message) for name in broken)
    kept = [row for row in range(20) if row not in (1, 3, 7)]
    assert prepared.train.truth.ids.tolist() == [f"{row:03}.jpg" for row in kept]
    assert prepared.train.paths.tolist() == prepared.train.truth.ids.tolist()
    assert prepared.split("test").truth.ids.tolist() == ["020.jpg", "022.jpg", "023.jpg"]
    values = source.splits["train"].labels.values[kept]
    assert prepared.train.truth.values.tolist() == values.tolist()
    assert prepared.train.observed.values.tolist() == sparsify(values, SINGLE).tolist()
    assert len(np.unique(prepared.train.digests)) == 17


def test_a_split_of_broken_images_only_is_refused(tmp_path: Path) -> None:
    source = read_table(tmp_path / "photos", random_labels(6), ["train"] * 5 + ["test"])
    (source.root / "005.jpg").write_bytes(b"")
    with (
        pytest.warns(DataWarning, match="1 of 6 images"),
        pytest.raises(DataError, match="split 'test' has no images: check the source"),
    ):
        prepare(source, tmp_path / "out", Preparation(skip_broken=True))


def test_a_class_that_is_never_positive_is_named(tmp_path: Path) -> None:
    values = random_labels(10)
    values[:, 1] = NEGATIVE
    values[:, 0] = POSITIVE
    source = read_table(tmp_path / "photos", values)
    with pytest.warns(DataWarning, match=r"1 of 3 classes have no positive .* cannot be learned: bee$"):
        prepare(source, tmp_path / "out", Preparation())
    values[:, 1] = UNKNOWN
    source = read_table(tmp_path / "photos", values)
    with pytest.warns(DataWarning, match=r"cannot be learned: bee$"):
        prepare(source, tmp_path / "unknown", Preparation())


def test_a_class_whose_positives_are_all_hidden_is_named(tmp_path: Path) -> None:
    values = np.zeros((10, 3), np.int8)
    values[:, 0] = values[0, 1] = values[1, 2] = POSITIVE
    how = Preparation("per-class", positives=0, negatives=1, validation=0)
    source = read_table(tmp_path / "photos", values)
    with pytest.warns(DataWarning, match=r"3 of 3 classes .*: ant, bee, cow$"):
        prepare(source, tmp_path / "out", how)


def test_an_empty_split_is_refused(tmp_path: Path) -> None:
    for number in range(3):
        paint(tmp_path / "pets" / "train" / "cat" / f"{number}.png", number)
    (tmp_path / "pets" / "val").mkdir()
    with pytest.raises(DataError, match=r"^split 'val' has no images: check the source, or leave"):
        prepare(folder.read(tmp_path / "pets"), tmp_path / "out", Preparation())


@pytest.mark.parametrize(("share", "whom"), [(0.05, "validation"), (0.95, "training")])
def test_a_share_that_leaves_a_part_empty_is_refused(tmp_path: Path, share: float, whom: str) -> None:
    source = read_table(tmp_path / "photos", random_labels(6))
    with pytest.raises(DataError, match=rf"share of {share} of 6 images leaves none for {whom}: .*\(0: no"):
        prepare(source, tmp_path / "out", Preparation(validation=share))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("share", [-0.1, 1.0, float("nan")])
def test_a_share_is_less_than_all(share: float) -> None:
    with pytest.raises(ConfigError, match=r"`validation` must be a share in \[0, 1\), not"):
        Preparation(validation=share)


def test_a_source_needs_something_to_train_on(source: RawDataset, tmp_path: Path) -> None:
    only_test = RawDataset("birds", source.root, {"test": source.splits["test"]})
    with pytest.raises(DataError, match=r"birds has no split 'train', only test: "):
        prepare(only_test, tmp_path / "out", Preparation())


def test_a_source_needs_classes(source: RawDataset, tmp_path: Path) -> None:
    labels = source.splits["test"].labels
    bare = type(labels)(labels.ids, (), np.empty((4, 0), np.int8))
    nothing = RawDataset("birds", source.root, {"train": RawSplit(bare, labels.ids, SpatialLabels.none())})
    with pytest.raises(DataError, match="the data has no classes"):
        prepare(nothing, tmp_path / "out", Preparation())


def test_what_is_there_is_not_replaced_unasked(source: RawDataset, tmp_path: Path) -> None:
    out = tmp_path / "out"
    before = prepare(source, out, SINGLE)
    with pytest.raises(RunError, match=r"out holds prepared data already: .*`force=True`"):
        prepare(source, out, Preparation())
    assert open_prepared(out).train.digest == before.train.digest
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    with pytest.raises(RunError, match="mine exists and is not empty"):
        prepare(source, tmp_path / "mine", SINGLE)
    (tmp_path / "empty").mkdir()
    assert len(prepare(source, tmp_path / "empty", SINGLE).train) == 16


def test_force_replaces_prepared_data_and_nothing_else(source: RawDataset, tmp_path: Path) -> None:
    out = tmp_path / "out"
    prepare(source, out, SINGLE)
    (out / "letter.txt").write_text("dear")
    train_only = RawDataset("new", source.root, {"train": source.splits["test"]})
    how = Preparation(validation=0)
    replaced = prepare(train_only, out, how, force=True)
    assert (replaced.name, list(replaced.splits)) == ("new", ["train"])
    assert sorted(entry.name for entry in out.iterdir()) == ["dataset.json", "letter.txt", "train"]
    assert replaced.train.digest == prepare(train_only, tmp_path / "fresh", how).train.digest


@pytest.mark.parametrize("index", ["{", "", "{}", None])
def test_force_replaces_damaged_data(source: RawDataset, tmp_path: Path, index: str | None) -> None:
    out = tmp_path / "out"
    prepare(source, out, SINGLE)
    if index is None:
        (out / "dataset.json").unlink()
    else:
        (out / "dataset.json").write_text(index)
    assert [len(split) for split in prepare(source, out, SINGLE, force=True).splits.values()] == [16, 4, 4]


@pytest.mark.parametrize("force", [False, True])
def test_folders_of_images_are_never_replaced(tmp_path: Path, force: bool) -> None:
    for number in range(6):
        paint(tmp_path / "train" / "cat" / f"{number}.png", number)
    why = "has train, which is not prepared data and is never overwritten" if force else "is not empty"
    with pytest.raises(RunError, match=why):
        prepare(folder.read(tmp_path), tmp_path, Preparation(), force=force)
    assert len(list(tmp_path.rglob("*"))) == 8


def test_a_file_is_no_folder(source: RawDataset, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(RunError, match="out is a file, and a folder is needed"):
        prepare(source, tmp_path / "out", SINGLE, force=True)


def test_data_may_lie_beside_its_images_and_move_with_them(tmp_path: Path) -> None:
    here = tmp_path / "here"
    source = read_table(here, random_labels(10))
    with pytest.raises(RunError, match="exists and is not empty"):
        prepare(source, here, SINGLE)
    prepared = prepare(source, here, SINGLE, force=True)
    assert json.loads((here / "dataset.json").read_text())["root"] == "."
    here.rename(tmp_path / "there")
    moved = open_prepared(tmp_path / "there")
    assert moved.train.path(0) == tmp_path / "there" / prepared.train.paths[0]
    assert moved.train.path(0).is_file()


def test_the_current_folder_may_be_the_output(
    source: RawDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    assert len(prepare(source, Path(), SINGLE).train) == 16
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["photos", "work"]


def crash(monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """Let the disk be full after so many arrays."""
    save = np.save
    saved: list[Any] = []

    def failing(file: Any, *rest: Any, **more: Any) -> None:
        if len(saved) == after:
            Path(file).write_bytes(b"\x93NUMPY")  # the beginning of an array
            raise OSError(28, "No space left on device")
        saved.append(file)
        save(file, *rest, **more)

    monkeypatch.setattr(np, "save", failing)


@pytest.mark.parametrize("after", [0, 4, 12, 26])
def test_a_crash_leaves_nothing_that_could_be_opened(
    source: RawDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        crash(patch, after)
        with pytest.raises(OSError, match="No space left") as raised:
            prepare(source, out, SINGLE)
    assert raised.value.filename.endswith(".npy")
    assert list(tmp_path.rglob("*.npy")) == []
    with pytest.raises(DataError, match="is not prepared data"):
        open_prepared(out)
    assert len(prepare(source, out, SINGLE).train) == 16  # and the way is free


@pytest.mark.parametrize("after", [0, 12, 26])
def test_a_crash_leaves_the_old_data_as_it_was(
    source: RawDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    out = tmp_path / "out"
    prepare(source, out, SINGLE)
    before = {file: file.read_bytes() for file in out.rglob("*") if file.is_file()}
    with monkeypatch.context() as patch:
        crash(patch, after)
        with pytest.raises(OSError, match="No space left"):
            prepare(source, out, Preparation(), force=True)
    assert {file: file.read_bytes() for file in out.rglob("*") if file.is_file()} == before


@pytest.mark.parametrize("moved", range(8))
def test_a_crash_while_replacing_never_leaves_a_mixture(
    source: RawDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moved: int
) -> None:
    out = tmp_path / "out"
    old = prepare(source, out, SINGLE).train.digest
    rename = Path.rename
    renamed: list[Path] = []

    def failing(self: Path, target: Path) -> Path:
        if len(renamed) == moved:
            raise KeyboardInterrupt
        renamed.append(target)
        return rename(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", failing)
        with pytest.raises(KeyboardInterrupt):
            prepare(source, out, Preparation(), force=True)
    if moved == 0:
        assert open_prepared(out).train.digest == old
    else:
        with pytest.raises(DataError, match="is not prepared data"):
            open_prepared(out)
    assert prepare(source, out, Preparation(), force=True).train.digest != old
    assert not (out / ".partial").exists()


def test_leftovers_of_a_killed_process_are_not_in_the_way(source: RawDataset, tmp_path: Path) -> None:
    (tmp_path / "out" / ".partial" / "new" / "train").mkdir(parents=True)
    (tmp_path / "out" / ".partial" / "new" / "train" / "ids.npy").write_bytes(b"half")
    prepare(source, tmp_path / "out", SINGLE)
    assert not (tmp_path / "out" / ".partial").exists()


def digests(prepared: Dataset) -> list[str]:
    return [split.digest for split in prepared.splits.values()]


def test_the_digest_stays_when_folders_move(source: RawDataset, tmp_path: Path) -> None:
    first = digests(prepare(source, tmp_path / "first", SINGLE))
    assert len({*first}) == 3
    shutil.move(source.root, tmp_path / "elsewhere" / "photos")
    again = table.read(tmp_path / "elsewhere" / "photos" / "labels.csv")
    assert digests(prepare(again, tmp_path / "second", SINGLE)) == first
    (tmp_path / "second").rename(tmp_path / "third")
    assert digests(open_prepared(tmp_path / "third")) == first


def test_the_digest_changes_with_labels_images_and_names(tmp_path: Path) -> None:
    values = random_labels(10)
    how = Preparation("single-positive", validation=0)

    def digest(name: str) -> str:
        return prepare(read_table(tmp_path / "photos", values), tmp_path / name, how).train.digest

    first = digest("first")
    values[4] = 1 - values[4]
    label = digest("label")
    values[4] = 1 - values[4]
    assert digest("same") == first
    again = tmp_path / "photos" / "labels.csv"
    again.write_text(again.read_text().replace("ant,bee", "bee,ant"))
    renamed = prepare(table.read(again), tmp_path / "renamed", how).train.digest
    file = tmp_path / "photos" / "004.jpg"
    file.write_bytes(file.read_bytes() + b"\0")  # looks the same, but is another file
    image = digest("image")
    seed = Preparation("single-positive", validation=0, label_seed=1)
    observed = prepare(read_table(tmp_path / "photos", values), tmp_path / "seed", seed).train.digest
    assert len({first, label, renamed, image, observed}) == 5


def test_the_index_says_how_the_data_was_made(source: RawDataset, tmp_path: Path) -> None:
    made = prepare(source, tmp_path / "out", SINGLE).made
    assert made["classes"] == list(CLASSES)
    assert made["root"] == str(source.root)
    assert made["splits"]["val"]["images"] == 4
    assert made["preparation"] == {
        "sparsify": "single-positive",
        "positives": 1,
        "negatives": 0,
        "share": 0.5,
        "label_seed": 1200,
        "prefer": "any",
        "annotate": "I",
        "budget": None,
        "answers": None,
        "cost": "flat",
        "validation": 0.2,
        "validation_labels": "full",
        "keep_train": 1.0,
        "keep_validation": 1.0,
        "keep_test": 1.0,
        "skip_broken": False,
        "scores": None,
        "score_positive": None,
        "score_negative": None,
    }


def test_images_with_odd_metadata_and_modes_are_fine(tmp_path: Path) -> None:
    source = read_table(tmp_path / "photos", random_labels(6))
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was held upright
    Image.new("RGB", (24, 16), "red").save(source.root / "000.jpg", exif=exif)
    Image.new("CMYK", (24, 16)).save(source.root / "001.jpg")
    Image.new("L", (1, 1)).save(source.root / "002.jpg")
    Image.new("P", (24, 16)).save(source.root / "003.jpg", format="PNG")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        prepared = prepare(source, tmp_path / "out", Preparation(validation=0))
    assert len(prepared.train) == 6


@pytest.mark.skipif(not VOC.is_dir(), reason="VOC 2012 is not in ../shared/data")
def test_the_published_labels_of_voc(tmp_path: Path) -> None:
    for name in ("ImageSets", "JPEGImages"):  # without the boxes, which take most of the time
        (tmp_path / name).symlink_to(VOC / name)
    splits = voc.read(tmp_path).splits
    labels = splits["train"].labels
    assert labels.values.shape == (5717, 20)
    train, val = split_rows(len(labels), 0.2)
    assert (len(train), len(val), val[:5].tolist(), val.sum()) == (4574, 1143, [5, 6, 11, 15, 22], 3_242_061)
    observed = sparsify(labels.values, SINGLE)
    assert ((observed == POSITIVE).sum(axis=1) == 1).all()
    columns = []
    for rows in (train, val):
        total = labels.take(rows).counts()
        columns += [total, np.floor(100 * (observed[rows] == POSITIVE).sum(axis=0) / total).astype(int)]
    columns.append(splits["test"].labels.counts())
    found = dict(zip(labels.classes, np.stack(columns, axis=1).tolist(), strict=True))
    assert found == {
        row.split()[0]: [int(number) for number in row.split()[1:]] for row in TABLE_K3.split("\n")
    }
    assert [int(column.sum()) for column in columns[::2]] == [6665, 1666, 8351]


def test_names_that_are_no_text_are_refused_before_images_are_decoded(tmp_path: Path) -> None:
    odd = "caf\udce9"  # as Python has names of files in an old encoding
    for name in (f"{odd}.jpg", "a.jpg"):
        file = tmp_path / "photos/cat" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"no image")
    with pytest.raises(DataError, match=r"the name of the image 'cat/caf\\udce9\.jpg' is no text in UTF-8"):
        prepare(folder.read(tmp_path / "photos"), tmp_path / "data", Preparation())
    (tmp_path / "photos").rename(tmp_path / odd)
    (tmp_path / odd / f"cat/{odd}.jpg").unlink()
    with pytest.raises(DataError, match=r"the name of the folder .* is no text in UTF-8: rename it"):
        prepare(folder.read(tmp_path / odd), tmp_path / "data", Preparation())
