"""Budgets in preparing: what is observed, where points lie, and PatchML's counts at COCO's size."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sparselabel.config import Preparation, Sparsify
from sparselabel.data.annotation_budget import SPREAD, annotate, points_on
from sparselabel.data.dataset import Dataset
from sparselabel.data.label_table import LabelTable
from sparselabel.data.labels import NEGATIVE, POSITIVE, UNKNOWN
from sparselabel.data.prepare import prepare
from sparselabel.data.readers.raw_dataset import RawDataset, RawSplit
from sparselabel.data.scenes import generate as scenes
from sparselabel.data.spatial_labels import SpatialLabels
from sparselabel.errors import ConfigError, DataError


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> RawDataset:
    return scenes.make(tmp_path_factory.mktemp("scenes"), train=60, test=5, size=48)


def budget(**more: object) -> Preparation:
    return Preparation(**{"sparsify": "budget", "budget": 0.5, "validation": 0.1, **more})  # type: ignore[arg-type]


def made(source: RawDataset, out: Path, how: Preparation) -> Dataset:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warnings.warn", lambda *_, **__: None)  # of classes that nobody bought
        return prepare(source, out, how)


def test_a_budget_that_buys_nothing_is_refused(drawn: RawDataset, tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError,
        match=r"`budget=0.001` buys nothing of split 'train', .*720 answers\) and one answer costs 0.0014 or",
    ):
        prepare(drawn, tmp_path / "out", budget(budget=0.001))
    assert not (tmp_path / "out").exists()


def test_a_budget_is_not_refused_for_validation_images_that_it_does_not_buy(
    drawn: RawDataset, tmp_path: Path
) -> None:
    own = RawDataset(
        "made up", drawn.root, {**drawn.splits, "val": drawn.splits["test"].take(np.arange(1))}
    )  # 12 answers
    train = made(own, tmp_path / "full", budget(budget=0.05, annotate="I")).train
    assert (train.observed.values != UNKNOWN).sum() == 36
    how = budget(budget=0.05, annotate="I", validation_labels="observed")
    with pytest.raises(ConfigError, match=r"`budget=0\.05` buys nothing of split 'val'"):
        prepare(own, tmp_path / "observed", how)


@pytest.mark.parametrize("kind", ["SP", "AP"])
def test_points_lie_on_the_things_they_are_of(drawn: RawDataset, tmp_path: Path, kind: str) -> None:
    train = made(drawn, tmp_path / "out", budget(annotate=kind)).train
    assert train.masks is not None
    assert train.seen.is_point.all()
    assert (train.observed.values[train.seen.rows, train.seen.classes] == POSITIVE).all()
    for row, index, (u, v) in zip(train.seen.rows, train.seen.classes, train.seen.centers, strict=True):
        things = train.spatial_labels.of_rows([row])[0]
        same = things[train.spatial_labels.classes[things] == index]
        pixel = int(v * 48), int(u * 48)
        assert any(train.masks.decode(spatial_label)[pixel] for spatial_label in same)
    pairs = {*zip(train.seen.rows.tolist(), train.seen.classes.tolist(), strict=True)}
    assert len(pairs) == (train.observed.values == POSITIVE).sum()
    if kind == "AP":
        known = zip(train.spatial_labels.rows.tolist(), train.spatial_labels.classes.tolist(), strict=True)
        assert len(train.seen) == sum(pair in pairs for pair in known)
    else:
        assert len(train.seen) == len(pairs)


def test_boxes_are_the_datas_and_the_index_says_what_was_bought(drawn: RawDataset, tmp_path: Path) -> None:
    prepared = made(drawn, tmp_path / "out", budget(annotate="SB", cost="per-positive"))
    train, bought = prepared.train, prepared.made["bought"]["train"]
    known = {
        (*row,) for row in np.hstack([train.spatial_labels.centers, train.spatial_labels.sizes]).tolist()
    }
    assert {(*row,) for row in np.hstack([train.seen.centers, train.seen.sizes]).tolist()} <= known
    answers, yes = (
        int((train.observed.values != UNKNOWN).sum()),
        int((train.observed.values == POSITIVE).sum()),
    )
    assert {name: bought[name] for name in ("answers", "positive", "points", "boxes", "images")} == {
        "answers": answers,
        "positive": yes,
        "points": 0,
        "boxes": yes,
        "images": int((train.observed.values != UNKNOWN).any(axis=1).sum()),
    }
    assert bought["seconds"] == pytest.approx(answers + 6 * yes)
    assert bought["seconds"] <= 0.5 * bought["seconds_of_all_answers"] == 0.5 * 54 * 12
    assert list(prepared.made["bought"]) == ["train"]
    assert prepared.split("val").observed.complete


def test_images_nobody_asked_about_stay_in(drawn: RawDataset, tmp_path: Path) -> None:
    how = budget(budget=None, answers=20, validation_labels="observed")
    prepared = made(drawn, tmp_path / "out", how)
    train, val = prepared.train, prepared.split("val")
    assert (len(train), (train.observed.values != UNKNOWN).sum(), len(train.seen)) == (54, 20, 0)
    assert (train.observed.per_image(UNKNOWN) == 12).sum() >= 34
    assert ((val.observed.values != UNKNOWN).sum(), [*prepared.made["bought"]]) == (20, ["train", "val"])
    other = made(drawn, tmp_path / "other", replace(how, label_seed=3)).train
    assert (other.observed.values != train.observed.values).any()
    assert other.digest != train.digest


def test_at_equal_numbers_all_kinds_ask_the_same_questions(drawn: RawDataset) -> None:
    split = drawn.splits["train"]
    found = {
        kind: annotate(split, budget(budget=None, answers=200, annotate=kind)) for kind in ("I", "SP", "AB")
    }
    for kind in ("SP", "AB"):
        np.testing.assert_array_equal(found[kind].observed, found["I"].observed)
    yes = found["I"].bought["positive"]
    assert len(found["SP"].seen) == yes < len(found["AB"].seen)
    assert found["I"].bought["seconds"] == 200
    assert found["SP"].bought["seconds"] == pytest.approx(200 * 84.9 / 80)
    assert found["AB"].bought["seconds"] == pytest.approx(200 + 6 * len(found["AB"].seen))


def test_points_near_the_middle_of_boxes_without_masks() -> None:
    count = 4000
    centers = np.tile(np.array([[0.5, 0.5], [0.2, 0.7]], np.float32), (count // 2, 1))
    sizes = np.tile(np.array([[0.5, 0.5], [0.02, 0.4]], np.float32), (count // 2, 1))
    spatial_labels = SpatialLabels(np.arange(count), np.zeros(count, np.int32), centers, sizes)
    points = points_on(spatial_labels, None, np.arange(count), np.random.default_rng(0))
    away = points.centers - centers
    assert points.is_point.all()
    assert np.abs(away).max(axis=0)[0] < 0.12
    np.testing.assert_allclose(away[::2].std(axis=0), SPREAD, rtol=0.05)
    assert np.abs(away[1::2, 0]).max() <= 0.01 + 1e-6  # not outside the narrow box


# PatchML tables 1 and 2: budget in %, kind, positives, thousands of negatives, and of annotated images.
PUBLISHED = [
    (0.25, "SP", 559, 15, 14.2),
    (1, "SP", 2314, 60, 44.0),
    (1, "SB", 1910, 51, 39.1),
    (4, "SP", 9142, 240, 78.9),
    (4, "SB", 7677, 202, 76.5),
]


def test_the_counts_of_p2() -> None:
    """Labels like COCO train2014's: 82,783 images with 2.91 of 80 classes each, with one box each."""
    random = np.random.default_rng(0)
    truth = (random.random((82_783, 80)) < 2.91 / 80).astype(np.int8)
    rows, classes = np.nonzero(truth)
    places = np.full((len(rows), 2), 0.5, np.float32)
    spatial_labels = SpatialLabels(
        rows, classes.astype(np.int32), places, places / np.float32(4), check=False
    )
    names = np.arange(82_783).astype(np.str_)
    split = RawSplit(LabelTable(names, tuple(map(str, range(80))), truth, check=False), names, spatial_labels)
    for percent, kind, positives, negatives, images in PUBLISHED:
        found = annotate(split, Sparsify("budget", annotate=kind, budget=percent / 100))  # type: ignore[arg-type]
        assert abs(found.bought["positive"] - positives) < 4 * np.sqrt(2 * positives)
        assert found.bought["negative"] == (found.observed == NEGATIVE).sum()
        assert found.bought["negative"] == pytest.approx(1000 * negatives, abs=600)
        assert found.bought["images"] == pytest.approx(1000 * images, abs=350)
        assert len(found.seen) == found.bought["positive"]


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ({"budget": None}, r"needs its size, as `budget=0.02` .* or `answers=1000`, and neither is given"),
        ({"answers": 3}, "or `answers=1000`, not both"),
        ({"budget": 2.0}, r"`budget` must be a share in \(0, 1\].* not 2.0: 2 % is `budget=0.02`"),
        ({"budget": 0.0, "annotate": "AB"}, r"`budget` must be a share above 0, where 1 is .* not 0.0"),
        ({"budget": None, "answers": 0}, "`answers` must be 1 or more, not 0"),
        (
            {"sparsify": "none"},
            "`budget=0.5` is for budget, not for `sparsify=none`: give `sparsify=budget`, or",
        ),
        ({"sparsify": "uniform", "budget": None, "annotate": "SP"}, "`annotate=SP` is for budget, not for"),
        (
            {"sparsify": "uniform", "budget": None, "cost": "per-positive"},
            "`cost=per-positive` is for budget",
        ),
    ],
)
def test_flags_that_do_not_belong_together(given: dict[str, object], rule: str) -> None:
    with pytest.raises(ConfigError, match=rule):
        budget(**given)


def test_what_cannot_be_bought_is_said_before_images_are_opened(drawn: RawDataset, tmp_path: Path) -> None:
    train = drawn.splits["train"]
    bare = replace(
        drawn,
        root=tmp_path / "nowhere",
        splits={"train": replace(train, spatial_labels=SpatialLabels.none())},
    )
    with pytest.raises(DataError, match=r"kind SB need boxes, and the data has none: .* take `annotate=I`"):
        prepare(bare, tmp_path / "out", budget(annotate="SB"))
    with pytest.raises(ConfigError, match=r"999 answers are more than the 720 questions that 60 images"):
        prepare(bare, tmp_path / "out", budget(budget=None, answers=999))


def test_a_budget_may_be_that_of_all_boxes_and_no_more(drawn: RawDataset, tmp_path: Path) -> None:
    train = drawn.splits["train"]
    most = 1 + 6 * len(train.spatial_labels) / 720
    how = budget(annotate="AB", budget=most, validation=0)
    bought = made(drawn, tmp_path / "all", how).made["bought"]["train"]
    assert (bought["answers"], bought["boxes"]) == (720, len(train.spatial_labels))
    assert bought["seconds"] == 720 * most
    elsewhere = replace(drawn, root=tmp_path / "nowhere")  # said before images are opened
    for kind, cost, share in (("AB", "flat", most), ("SP", "flat", 84.9 / 80), ("SB", "flat", 101 / 80)):
        more = budget(annotate=kind, cost=cost, budget=share + 0.01)
        least = math.floor(share * 1e4) / 1e4
        said = rf"annotation {kind} of every class .* costs {share:.6g} of .* at most `budget={least:g}`"
        with pytest.raises(ConfigError, match=said):
            prepare(elsewhere, tmp_path / "out", more)
