"""mAP-loc from batches equals mAP-loc image by image."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw

from sparselabel.config import FinetunePhase, Handling, HeadPhase, Machine, Preparation, Views
from sparselabel.data.dataset import Dataset
from sparselabel.data.view_geometry import ViewGeometry
from sparselabel.errors import ConfigError, DataError
from sparselabel.inference.evaluate import evaluate_run
from sparselabel.metrics.average_precision import precision_of_classes
from sparselabel.metrics.localization import LocalizationMetric, location_precision
from sparselabel.models.classifier import Output
from sparselabel.run import Run
from sparselabel.training.train_run import train_run
from tests.metrics.test_cell_coverage import plain
from tests.training.conftest import small_scenes, tiny

GRID = (6, 5)
BOXES = torch.tensor([[0.0, 0, 1, 1], [0.2, 0.1, 0.6, 0.7]])


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return small_scenes(tmp_path_factory.mktemp("data"), 20, 14, Preparation("single-positive"))


def random_output(count: int, classes: int) -> tuple[torch.Tensor, torch.Tensor]:
    made = torch.Generator().manual_seed(5)
    return torch.randn(count, classes, *GRID, generator=made), torch.rand(count, classes, generator=made)


@pytest.mark.parametrize("ground_truth", ["any", "boxes"])
def test_masks_and_boxes_seen_through_views(data: Dataset, ground_truth: str) -> None:
    part = data.split("test")
    maps, scores = random_output(len(part), len(part.truth.classes))
    located = LocalizationMetric(part, ground_truth)  # type: ignore[arg-type]
    geometries = ViewGeometry(BOXES[torch.arange(len(part)) % 2], torch.arange(len(part)) % 3 == 0)
    for batch in (torch.arange(0, 5), torch.arange(5, 10), torch.arange(10, 14)):
        located.update(batch, Output(scores[batch], maps[batch]), geometries[batch])
    found = located.compute(scores.numpy())
    assert found is not None
    assert part.masks is not None
    rows, classes, right = [], [], []
    for row, index in zip(*np.nonzero(part.truth.values == 1), strict=True):
        things = [
            spatial_label
            for spatial_label in part.spatial_labels.of_rows([row])[0]
            if part.spatial_labels.classes[spatial_label] == index
        ]
        size = part.masks.sizes[things[0]]
        truth = np.zeros(size * 8, np.bool_)
        for spatial_label in things:
            if ground_truth == "any":
                truth |= part.masks.decode(spatial_label).repeat(8, 0).repeat(8, 1)
            else:
                (left, top), (end, bottom) = (
                    np.rint(
                        (
                            part.spatial_labels.centers[spatial_label]
                            + side * part.spatial_labels.sizes[spatial_label] / 2
                        )
                        * size[::-1]
                        * 8
                    )
                    for side in (-1, 1)
                )
                truth[int(top) : int(bottom), int(left) : int(end)] = True
        geometry = np.array([*geometries.box[row].tolist(), bool(geometries.flip[row])])
        covered, shown = plain(truth, geometry, GRID), maps[row, index].numpy()
        scaled = (shown - shown.min()) / (shown.max() - shown.min())
        right.append([covered[scaled >= cut].mean() >= 0.5 for cut in (0.6, 0.7, 0.8, 0.9)])
        rows.append(row)
        classes.append(index)
    positive = part.truth.values
    expected = location_precision(
        scores.numpy(), positive, np.array(rows), np.array(classes), np.array(right)
    )
    assert found["mean"] == pytest.approx(expected.mean, abs=1e-9)
    assert (found["pairs"], found["without"]) == (len(rows), 0)
    assert (found["masks"], found["boxes"]) == ((14, 0) if ground_truth == "any" else (0, 14))


def test_by_masks_alone_images_that_show_nothing_are_ranked_too(data: Dataset) -> None:
    part = data.split("test")
    assert part.masks is not None
    truth = part.truth.values.copy()
    truth[[3, 8]] = 0
    masks = replace(part.masks, offsets=np.cumsum([0, *~np.isin(part.spatial_labels.rows, [3, 5, 8])]))
    located = LocalizationMetric(
        replace(part, observed=part.observed.with_values(truth), masks=masks), "masks"
    )
    assert located.ranked.tolist() == [row for row in range(14) if row != 5]  # which shows things without


def test_a_class_of_which_one_thing_has_no_mask_is_judged_by_boxes(data: Dataset) -> None:
    part = data.split("test")
    assert part.masks is not None
    offsets = part.masks.offsets.copy()
    first = int(part.spatial_labels.of_rows([3])[0][0])
    lost = replace(
        part.masks, offsets=np.where(np.arange(len(offsets)) == first, offsets[first + 1], offsets)
    )
    located = LocalizationMetric(replace(part, masks=lost))
    assert [*zip(located.rows[~located.masked], located.classes[~located.masked], strict=True)] == [
        (3, part.spatial_labels.classes[first])
    ]
    alone = LocalizationMetric(replace(part, masks=lost), "masks")
    assert (alone.pairs, bool(alone.masked.all())) == (located.pairs - 1, True)
    with pytest.raises(DataError, match=r"split 'test' has no masks of classes that are there: leave"):
        LocalizationMetric(replace(part, masks=None), "masks")


def test_images_without_masks_leave_the_ranking_by_masks(data: Dataset) -> None:
    part = data.split("test")
    assert part.masks is not None
    kept = np.isin(np.arange(len(part)), [1, 4, 5, 8, 11, 13])
    # Which things have a mask is all that counts here: nobody reads the texts.
    some = replace(part.masks, offsets=np.cumsum([0, *kept[part.spatial_labels.rows]]))
    _, scores = random_output(len(part), len(part.truth.classes))
    located = LocalizationMetric(replace(part, masks=some), "masks")
    located.shares[:] = 1  # everything is shown where it is, so mAP-loc is mAP of the six images
    found = located.compute(scores.numpy())
    assert found is not None
    six, there = part.truth.values[kept], part.truth.values[kept].any(axis=0)
    expected = precision_of_classes(scores.numpy()[kept], six, "sklearn", False)[there].mean()
    assert found["mean"] == pytest.approx(expected)
    assert (found["ranked"], found["masks"], found["boxes"], found["without"]) == (6, 6, 0, 0)
    everything = LocalizationMetric(replace(part, masks=some))
    everything.shares[:] = 1
    whole = everything.compute(scores.numpy())
    assert whole is not None
    assert (whole["ranked"], whole["masks"], whole["boxes"]) == (14, 6, 8)


@pytest.mark.parametrize("geometry", ["squashed", "imagenet"])
def test_a_run_is_judged_by_masks_and_its_numbers_are_kept(
    data: Dataset, tmp_path: Path, geometry: str
) -> None:
    run = tmp_path / "run"
    views = Views(size=32, geometry=geometry)  # type: ignore[arg-type]
    config = tiny(
        frozen=geometry == "squashed", head=HeadPhase(epochs=1), finetune=FinetunePhase(epochs=0), views=views
    )
    train_run(data, config, run, Machine(accelerator="cpu", workers=0), Handling(quiet=True))
    measured = evaluate_run(Run(run), "test")
    located = measured["location"]
    assert json.loads((run / "evaluation-test.json").read_text())["location"] == located
    with np.load(run / "location-test.npz") as kept:
        assert kept["shares"].shape == (located["pairs"], 4)
        scores = np.load(run / "scores-test.npz")["scores"]
        again = location_precision(
            scores, data.split("test").truth.values, kept["rows"], kept["classes"], kept["shares"] >= 0.5
        )
    assert (located["mean"], located["masks"], located["cuts"]) == (again.mean, 14, [0.6, 0.7, 0.8, 0.9])
    boxes = evaluate_run(Run(run), "test", ground_truth="boxes")["location"]
    assert (boxes["masks"], boxes["boxes"]) == (0, 14)
    assert boxes["mean"] >= located["mean"]  # a box is never smaller than its mask


def test_a_drawing_of_marks_in_a_view(data: Dataset, tmp_path: Path) -> None:
    """Masks and boxes on the cells of a crop, as an image to look at."""
    part = data.split("test")
    located = LocalizationMetric(part)
    geometry = np.array([[0.1, 0.2, 0.6, 0.6, 1.0]])
    pair = int(np.argmax(located._counts))
    judges = {"masks": located, "boxes": LocalizationMetric(part, "boxes")}
    covered = {name: judge.covered(np.array([pair]), geometry, (12, 12))[0] for name, judge in judges.items()}
    image = Image.open(part.path(int(located.rows[pair]))).convert("RGB")
    side = image.width
    view = image.crop((round(0.1 * side), round(0.2 * side), round(0.7 * side), round(0.8 * side)))
    view = view.resize((360, 360)).transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    sheet = Image.new("RGB", (720, 360))
    for number, shares in enumerate(covered.values()):
        shown = view.copy()
        pen = ImageDraw.Draw(shown, "RGBA")
        for row, column in np.argwhere(shares > 0):
            corner = (30 * int(column), 30 * int(row))
            box = (*corner, corner[0] + 29, corner[1] + 29)
            pen.rectangle(box, fill=(255, 0, 0, int(180 * shares[row, column])), outline=(255, 255, 255))
        sheet.paste(shown, (360 * number, 0))
    sheet.save(tmp_path / "places.png")
    # What a mask covers its box covers too, and nothing outside the mask's box is covered.
    assert (covered["masks"] <= covered["boxes"] + 1e-6).all()
    assert 0 < covered["masks"].sum() < covered["boxes"].sum()


def test_only_runs_have_places(capsys: pytest.CaptureFixture[str]) -> None:
    from sparselabel.cli.evaluate import evaluate

    with pytest.raises(ConfigError, match=r"ground_truth.* is for runs"):
        evaluate(pretrained="resnet50", data=Path("nowhere"), ground_truth="masks")
