import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from sparselabel.config import Preparation
from sparselabel.data.labels import NEGATIVE, POSITIVE, UNKNOWN
from sparselabel.data.prepare import prepare
from sparselabel.data.prepared_files import open_prepared
from sparselabel.data.readers import imagenet, reader
from sparselabel.data.readers.raw_dataset import RawDataset
from sparselabel.errors import DataError, DataWarning

FISH, BIRD, DOG = SYNSETS = ("n01440764", "n01530575", "n02085620")
TRUTH = (DOG, FISH, DOG, BIRD)
"""Of the validation images 1 to 4."""
REAL = [[2, 0], [0], [], [0]]
NAMES = [f"ILSVRC2012_val_{number:08}.JPEG" for number in range(1, 5)]
SOLUTION = "ImageId,PredictionString\n" + "".join(
    f"{name[:-5]},{key} 85 1 499 272 {key} 131 0 499 254 \n"
    for name, key in list(zip(NAMES, TRUTH, strict=True))[::-1]
)


def paint(*files: Path) -> None:
    for seed, file in enumerate(files):
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), (seed, 0, 0)).save(file, format="JPEG")


@pytest.fixture
def flat(tmp_path: Path) -> Path:
    """Class folders to train on, and the validation set as its archive unpacks."""
    root = tmp_path / "ILSVRC2012"
    paint(*(root / "train" / key / f"{key}_{number}.JPEG" for key in SYNSETS for number in (1, 10)))
    paint(*(root / "val" / name for name in NAMES))
    return root


@pytest.fixture
def folders(flat: Path) -> Path:
    """The validation set sorted into class folders too."""
    for name, key in zip(NAMES, TRUTH, strict=True):
        (flat / "val" / key).mkdir(exist_ok=True)
        (flat / "val" / name).rename(flat / "val" / key / name)
    return flat


def classes_of(source: RawDataset, split: str = "test") -> list[str]:
    labels = source.splits[split].labels
    assert (labels.per_image(POSITIVE) == 1).all()
    assert (labels.per_image(UNKNOWN) == len(SYNSETS) - 1).all()
    return [labels.classes[index] for index in labels.values.argmax(axis=1)]


def test_class_folders(folders: Path) -> None:
    source = imagenet.read(folders)
    assert (source.name, source.root, list(source.splits)) == ("ILSVRC2012", folders, ["train", "test"])
    train, test = source.splits["train"], source.splits["test"]
    assert train.labels.classes == SYNSETS
    assert train.labels.ids.tolist()[:2] == [
        "train/n01440764/n01440764_1.JPEG",
        "train/n01440764/n01440764_10.JPEG",
    ]
    assert classes_of(source, "train") == [FISH, FISH, BIRD, BIRD, DOG, DOG]
    assert test.labels.ids.tolist() == NAMES
    assert test.paths.tolist()[:2] == [f"val/{DOG}/{NAMES[0]}", f"val/{FISH}/{NAMES[1]}"]
    assert classes_of(source) == list(TRUTH)
    assert test.real is None
    assert reader("imagenet") is imagenet.read


def test_kaggle_has_a_folder_and_a_table(flat: Path, tmp_path: Path) -> None:
    root = tmp_path / "kaggle"
    (root / "ILSVRC/Data").mkdir(parents=True)
    flat.rename(root / "ILSVRC/Data/CLS-LOC")
    (root / "LOC_val_solution.csv").write_text(SOLUTION)
    words = (
        "n01440764 tench, Tinca tinca\nn01530575 brambling, Fringilla\nn02085620 Chihuahua\nn99999999 other"
    )
    (root / "LOC_synset_mapping.txt").write_text(words)
    source = imagenet.read(root)
    assert source.root == root / "ILSVRC/Data/CLS-LOC"
    assert source.splits["test"].paths.tolist() == [f"val/{name}" for name in NAMES]
    assert classes_of(source) == [
        "n02085620 Chihuahua",
        "n01440764 tench",
        "n02085620 Chihuahua",
        "n01530575 brambling",
    ]


def test_a_synset_a_image_goes_by_the_numbers_of_the_images(flat: Path) -> None:
    (flat / "imagenet_2012_validation_synset_labels.txt").write_text("\n".join(TRUTH) + "\n")
    (flat / "val" / NAMES[1]).unlink()  # some of the images
    assert classes_of(imagenet.read(flat)) == [TRUTH[0], *TRUTH[2:]]


def test_the_devkits_numbers_need_its_order(flat: Path, tmp_path: Path) -> None:
    devkit = flat / "ILSVRC2012_devkit_t12/data/ILSVRC2012_validation_ground_truth.txt"
    devkit.parent.mkdir(parents=True)
    devkit.write_text("1\n3\n1\n2\n")
    with pytest.raises(DataError, match=r"ground_truth.txt has the devkit's numbers, .* with `synsets`"):
        imagenet.read(flat)
    order = tmp_path / "order.txt"
    order.write_text(f"{DOG}\n{BIRD}\n{FISH}\n")
    assert classes_of(imagenet.read(flat, synsets=order)) == list(TRUTH)
    devkit.write_text("1\n4\n1\n2\n")
    with pytest.raises(DataError, match=r"line 2: must be a number from 1 to 3, the lines of .*, not '4'"):
        imagenet.read(flat, synsets=order)
    order.write_text("dog\n")
    with pytest.raises(DataError, match=r"order.txt, line 1: must be a synset id, not 'dog'"):
        imagenet.read(flat, synsets=order)


def test_real_goes_by_file_name_and_into_the_prepared_form(folders: Path, tmp_path: Path) -> None:
    (folders / "real.json").write_text(json.dumps(REAL))
    source = imagenet.read(folders)
    real = source.splits["test"].real
    assert real is not None
    fish, both, nothing = [POSITIVE, NEGATIVE, NEGATIVE], [POSITIVE, NEGATIVE, POSITIVE], [UNKNOWN] * 3
    assert real.tolist() == [both, fish, nothing, fish]
    (folders / "val" / DOG / NAMES[0]).write_bytes(b"broken")
    with pytest.warns(DataWarning, match="1 of 10 images cannot be decoded"):
        prepared = prepare(source, tmp_path / "out", Preparation(validation=0, skip_broken=True))
    test = prepared.split("test")
    assert test.truth.ids.tolist() == NAMES[1:]
    assert test.real is not None
    assert test.real.tolist() == [fish, nothing, fish]
    assert prepared.train.real is None
    bare = prepare(
        RawDataset("bare", source.root, {"train": source.splits["train"]}),
        tmp_path / "bare",
        Preparation(validation=0),
    )
    assert bare.train.digest == prepared.train.digest
    (tmp_path / "out/test/real.npy").unlink()
    with pytest.raises(DataError, match=r"real.npy is not there, or not a file: prepare the data again"):
        open_prepared(tmp_path / "out")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            [[2], [0], [2], [999]],
            r"list 4 \(ILSVRC2012_val_00000004.JPEG\): .* numbers of the 3 classes, .* not \[999\]",
        ),
        ([[2], ["0"], [2], [1]], r"list 2 .*not \['0'\]"),
        ([[2], 0, [2], [1]], r"list 2 .*not 0: ReaL is for all 1,000 classes"),
        ([[2], [0]], r"ILSVRC2012_val_00000003.JPEG is not among the 2 of .*real.json"),
        (
            [[0], [1], [1], [2]],
            r"keeps the single label of only 0% of the images: one of the two is in another order",
        ),
        ([[], [], [], []], r"has no label for any of the 4 images in val"),
        ({"a": 1}, r"real.json must hold a list of lists"),
    ],
)
def test_real_that_is_wrong(folders: Path, content: Any, message: str) -> None:
    (folders / "real.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match=message):
        imagenet.read(folders)


def test_real_elsewhere(folders: Path, tmp_path: Path) -> None:
    (tmp_path / "labels.json").write_text("[[2], [0")
    with pytest.raises(DataError, match=r"labels.json cannot be read \(.*: line 1, column 9\)"):
        imagenet.read(folders, real=tmp_path / "labels.json")
    with pytest.raises(DataError, match=r"nothing.json is not there") as raised:
        imagenet.read(folders, real=tmp_path / "nothing.json")
    assert raised.value.parameters == ["real"]
    (folders / "val" / FISH / NAMES[1]).rename(folders / "val" / FISH / "tench.JPEG")
    (tmp_path / "labels.json").write_text(json.dumps(REAL))
    with pytest.raises(DataError, match=r"tench.JPEG is not among ILSVRC2012_val_00000001.JPEG and so on"):
        imagenet.read(folders, real=tmp_path / "labels.json")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            SOLUTION + "ILSVRC2012_val_00000005,dog 1\n",
            r"csv, line 6: .* synset id of a class folder, not 'ILSVRC",
        ),
        (
            SOLUTION.partition(NAMES[1][:-5])[0],
            r"has no label of 2 images in val: .*_00000001.JPEG, .*_00000002",
        ),
        (
            "n01440764\nn01440764\nfish\nn01440764\n",
            r"csv, line 3: must be the synset id of a class folder, not 'fish'",
        ),
        ("n01440764\n", r"ILSVRC2012_val_00000002.JPEG is not among the 1 of"),
    ],
)
def test_labels_that_are_wrong(flat: Path, text: str, message: str) -> None:
    (flat / "LOC_val_solution.csv").write_text(text)
    with pytest.raises(DataError, match=message):
        imagenet.read(flat)


def test_folders_that_are_wrong(flat: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no class folders, and their labels are not there: add LOC_val_sol"):
        imagenet.read(flat)
    with pytest.raises(DataError, match=r"has no folder train, nor ILSVRC/Data/CLS-LOC/train"):
        imagenet.read(tmp_path)
    paint(flat / "val" / "n03000000" / "x.JPEG")
    with pytest.raises(DataError, match=r"4 images beside 1 folders: it must hold images alone"):
        imagenet.read(flat)
    for name in NAMES:
        (flat / "val" / name).unlink()
    with pytest.raises(DataError, match=r"val has class folders that .*train has not: n03000000"):
        imagenet.read(flat)
    (flat / "val").rename(tmp_path / "val")
    assert list(imagenet.read(flat).splits) == ["train"]
    with pytest.raises(DataError, match=r"has no folder val, which .*real.json is for"):
        imagenet.read(flat, real=tmp_path / "real.json")
    (flat / "synset_words.txt").write_text("tench\n")
    with pytest.raises(
        DataError, match=r"synset_words.txt, line 1: must be a synset id and words, not 'tench'"
    ):
        imagenet.read(flat)
    (flat / "train").rename(flat / "n01440764")
    (flat / "train").mkdir()
    with pytest.raises(DataError, match=r"train has no class folders like n01440764"):
        imagenet.read(flat)
