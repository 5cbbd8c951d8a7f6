import json
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from sparselabel.data.scenes.generate import CLASSES, Scene, make, make_scene, points
from sparselabel.errors import DataError


@cache
def many() -> tuple[Scene, ...]:
    return tuple(make_scene(0, index) for index in range(300))


def table() -> npt.NDArray[np.int8]:
    return np.stack([scene.labels for scene in many()])


def test_a_scene_depends_on_its_seed_index_and_split_alone() -> None:
    first, again = make_scene(5, 3), make_scene(5, 3)
    np.testing.assert_array_equal(first.image, again.image)
    np.testing.assert_array_equal(first.instances, again.instances)
    for other in (make_scene(6, 3), make_scene(5, 4), make_scene(5, 3, split="test")):
        assert not np.array_equal(first.image, other.image)


def test_scenes_stay_the_same_from_release_to_release() -> None:
    # Labels and mean colors, not bytes: Pillow may round an edge differently one day.
    names = [[CLASSES[k] for k in np.flatnonzero(make_scene(0, index).labels)] for index in range(3)]
    assert names == [["bird"], ["tree", "sun"], ["tree", "cloud", "bird"]]
    means = [make_scene(0, index).image.mean() for index in range(3)]
    assert means == pytest.approx([180.4, 189.8, 182.2], abs=1)


def test_there_are_about_two_and_a_half_classes_in_a_image_and_never_none() -> None:
    counts = table().sum(axis=1)
    assert 2.2 <= counts.mean() <= 2.8
    assert counts.min() == 1
    assert counts.max() >= 5


def test_classes_have_a_long_tail() -> None:
    share = table().mean(axis=0)
    assert len(CLASSES) == len(share) == 12
    assert share.max() == share[CLASSES.index("tree")]
    assert 0.4 <= share.max() <= 0.6
    assert 0.02 <= share.min() <= 0.09
    assert share.max() / share.min() >= 5


def test_classes_of_a_theme_occur_together() -> None:
    labels = table().astype(float)
    correlation = np.corrcoef(labels.T)

    def between(one: str, other: str) -> float:
        return float(correlation[CLASSES.index(one), CLASSES.index(other)])

    assert between("star", "moon") > 0.3
    assert between("fish", "boat") > 0.3
    assert between("tree", "fish") < -0.1


@given(
    index=st.integers(0, 10**6), size=st.sampled_from([64, 96, 128]), split=st.sampled_from(["train", "test"])
)
@settings(max_examples=25)
def test_masks_boxes_labels_and_points_agree(index: int, size: int, split: str) -> None:
    scene = make_scene(1, index, size, split)
    assert scene.image.shape == (size, size, 3)
    assert scene.image.dtype == scene.instances.dtype == np.uint8
    count = len(scene.classes)
    assert np.unique(scene.instances[scene.instances > 0]).tolist() == list(range(1, count + 1))
    assert np.flatnonzero(scene.labels).tolist() == np.unique(scene.classes).tolist()
    assert scene.centers.shape == scene.sizes.shape == (count, 2)
    clicks = points(scene)
    for number in range(count):
        rows, columns = np.nonzero(scene.instances == number + 1)
        assert len(rows) >= 12 * (size / 96) ** 2
        low, high = (
            scene.centers[number] - scene.sizes[number] / 2,
            scene.centers[number] + scene.sizes[number] / 2,
        )
        assert (low * size).tolist() == pytest.approx([columns.min(), rows.min()], abs=1e-3)
        assert (high * size).tolist() == pytest.approx([columns.max() + 1, rows.max() + 1], abs=1e-3)
        x, y = np.floor(clicks[number] * size).astype(int)
        assert scene.instances[y, x] == number + 1


def test_things_in_front_hide_those_behind() -> None:
    # Objects have more pixels alone than they show: some are partly covered, so boxes overlap.
    covered = 0
    for scene in many()[:100]:
        low, high = scene.centers - scene.sizes / 2, scene.centers + scene.sizes / 2
        meet = (np.maximum(low[:, None], low) < np.minimum(high[:, None], high)).all(axis=2)
        covered += int(meet.sum()) - len(low)
    assert covered >= 40


def test_sizes_show_the_same_scene() -> None:
    for index in range(5):
        small, large = make_scene(2, index, 64), make_scene(2, index, 128)
        np.testing.assert_array_equal(small.labels, large.labels)
        halved = np.asarray(Image.fromarray(large.image).resize((64, 64), Image.Resampling.BOX), dtype=float)
        assert np.abs(halved - small.image).mean() < 8


def test_points_are_deterministic_and_deep_inside() -> None:
    instances = np.zeros((64, 64), dtype=np.uint8)
    instances[10:31, 20:41] = 1
    instances[30:61, 50:53] = 2
    empty = np.zeros((64, 64, 3), dtype=np.uint8)
    none = np.zeros((2, 2), dtype=np.float32)
    scene = Scene(empty, np.zeros(12, np.int8), instances, np.array([0, 1], np.int32), none, none)
    assert (points(scene) * 64).tolist() == [[30.5, 20.5], [51.5, 45.5]]


def test_a_folder_of_scenes(tmp_path: Path) -> None:
    done: list[int] = []
    source = make(tmp_path / "scenes", train=7, test=3, size=64, seed=4, progress=done.append)
    assert done == [1] * 10
    assert source.name == "scenes"
    assert {name: len(split.labels) for name, split in source.splits.items()} == {"train": 7, "test": 3}
    for name, split in source.splits.items():
        assert split.labels.complete
        assert split.labels.classes == CLASSES
        for row in range(len(split.labels)):
            scene = make_scene(4, row, 64, name)
            np.testing.assert_array_equal(split.labels.values[row], scene.labels)
            spatial_labels = split.spatial_labels.take([row])
            assert spatial_labels.classes.tolist() == scene.classes.tolist()
            np.testing.assert_allclose(spatial_labels.centers, scene.centers)
            np.testing.assert_allclose(spatial_labels.sizes, scene.sizes)
            with Image.open(source.root / str(split.paths[row])) as image:
                assert np.abs(np.asarray(image, dtype=float) - scene.image).mean() < 4
            with Image.open(source.root / f"masks/{name}/{row:06d}.png") as mask:
                np.testing.assert_array_equal(np.asarray(mask), scene.instances)
            assert split.masks is not None
            for number, spatial_label in enumerate(split.spatial_labels.of_rows([row])[0].tolist(), 1):
                np.testing.assert_array_equal(split.masks.decode(spatial_label), scene.instances == number)


def test_scenes_that_are_there_are_taken_and_missing_ones_made_again(tmp_path: Path) -> None:
    first = make(tmp_path, train=4, test=2, size=48)
    image = tmp_path / str(first.splits["train"].paths[1])
    before = image.stat().st_mtime_ns
    done: list[int] = []
    again = make(tmp_path, train=4, test=2, size=48, progress=done.append)
    assert image.stat().st_mtime_ns == before
    assert done == [6]
    np.testing.assert_array_equal(again.splits["train"].labels.values, first.splits["train"].labels.values)
    image.unlink()
    make(tmp_path, train=4, test=2, size=48)
    assert image.exists()


def test_an_interrupted_folder_is_made_again(tmp_path: Path) -> None:
    done: list[int] = []

    def stop(count: int) -> None:
        done.append(count)
        if len(done) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make(tmp_path, train=4, test=2, size=48, progress=stop)
    assert json.loads((tmp_path / "scenes.json").read_text())["complete"] is False
    assert len(make(tmp_path, train=4, test=2, size=48).splits["test"].labels) == 2


def test_other_settings_and_other_images_are_refused(tmp_path: Path) -> None:
    make(tmp_path / "a", train=2, test=1, size=48)
    with pytest.raises(DataError, match=r"other settings \(train 2 not 3, seed 0 not 9\): delete it"):
        make(tmp_path / "a", train=3, test=1, size=48, seed=9)
    (tmp_path / "b" / "images").mkdir(parents=True)
    with pytest.raises(DataError, match=r"images but no scenes\.json"):
        make(tmp_path / "b", train=2, test=1)
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "scenes.json").write_text("{")
    with pytest.raises(DataError, match=r"scenes\.json cannot be read \(.*line 1, column 2\)"):
        make(tmp_path / "c", train=2, test=1)


def test_one_large_thing_alone(tmp_path: Path) -> None:
    drawn = [make_scene(5, index, 48, alone=True) for index in range(240)]
    assert {int(scene.labels.sum()) for scene in drawn} == {1}
    assert {len(scene.classes) for scene in drawn} == {1}
    often = np.sum([scene.labels for scene in drawn], axis=0)
    assert (often >= 8).all()  # 20 of each are to be expected, also of what is rare in scenes
    areas = [float(scene.sizes.prod()) for scene in drawn]
    among = [area for index in range(60) for area in make_scene(5, index, 48).sizes.prod(axis=1).tolist()]
    assert 1.5 < np.median(areas) / np.median(among) < 4
    made = make(tmp_path, train=3, test=1, size=48, seed=5, alone=True)
    assert made.splits["train"].labels.values.tolist() == [scene.labels.tolist() for scene in drawn[:3]]
    with pytest.raises(DataError, match=r"other settings \(alone True not None\)"):
        make(tmp_path, train=3, test=1, size=48, seed=5)


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(DataError, match="must be 32 to 4096 pixels wide, not 16: take a larger size"):
        make_scene(0, 0, 16)
    with pytest.raises(DataError, match="no split 'tset': did you mean 'test'"):
        make_scene(0, 0, split="tset")
    with pytest.raises(DataError, match="at least one image"):
        make(Path("unused"), train=0)
    with pytest.raises(DataError, match="wide, not 100000: a few hundred will do"):
        make(Path("unused"), size=100_000)
    assert not Path("unused").exists()


def test_a_seed_is_not_negative(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="the seed of scenes must not be negative, but is -1"):
        make(tmp_path / "out", train=2, test=2, seed=-1)
    assert not (tmp_path / "out").exists()
