from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from sparselabel.config import Preparation
from sparselabel.data.dataset import Dataset, PreparedSplit
from sparselabel.data.label_table import LabelTable
from sparselabel.data.labels import POSITIVE, UNKNOWN
from sparselabel.data.loaders import ImageLoader, in_order
from sparselabel.data.prepare import prepare
from sparselabel.data.readers.raw_dataset import RawDataset, RawSplit
from sparselabel.data.transforms import imagenet_test, squashed
from sparselabel.errors import ConfigError, DataWarning, ModelError
from sparselabel.inference.evaluate import evaluate_published
from sparselabel.metrics.average_precision import average_precision
from sparselabel.models.pretrained_classifier import imagenet_synsets, make_published
from tests.data.images import paint

NAME = "test_resnet.r160_in1k"
SYNSETS = imagenet_synsets()


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny network's weights with its head of 1,000 classes, made up and not normalized away."""
    torch.manual_seed(3)
    network = timm.create_model(NAME.partition(".")[0], pretrained=False)
    file = tmp_path_factory.mktemp("weights") / "tiny.safetensors"
    save_file(network.state_dict(), file)
    return file


def imagenet_like(folder: Path, best: list[int], classes: list[str]) -> Dataset:
    """Five images; ReaL gives the first two labels and the last none, the original label is ``best``'s."""
    names = [f"ILSVRC2012_val_{number:08}.png" for number in range(1, 6)]
    for seed, name in enumerate(names):
        paint(folder / "val" / name, seed, 40, 30)
    values = np.full((5, len(classes)), UNKNOWN, dtype=np.int8)
    values[np.arange(5), best] = POSITIVE
    real = np.where(values == POSITIVE, values, np.int8(0))
    real[0, (best[0] + 1) % len(classes)] = POSITIVE
    real[4] = UNKNOWN
    table = LabelTable(np.array(names), tuple(classes), values)
    test = RawSplit(table, np.array([f"val/{name}" for name in names]), real=real)
    train = RawSplit(table.take([0]), test.paths[:1])
    source = RawDataset("tiny", folder, {"train": train, "test": test})
    return prepare(source, folder / "prepared", Preparation(validation=0))


def logits_by_hand(part: PreparedSplit, weights: Path) -> Tensor:
    """What timm's network says of the central 95 % of the images, normalized by timm's numbers."""
    network = timm.create_model("test_resnet", pretrained=False)
    network.load_state_dict(load_file(weights))
    about: Any = timm.models.get_pretrained_cfg(NAME)
    view = replace(imagenet_test(160), center=0.95)
    views = next(iter(ImageLoader(part, view)([np.arange(len(part))], 0))).inputs[0]
    mean, deviation = (torch.tensor(numbers).view(3, 1, 1) for numbers in (about.mean, about.std))
    with torch.no_grad():
        return network.eval()((views / 255 - mean) / deviation).double()  # type: ignore[no-any-return]


@pytest.mark.filterwarnings("ignore:.*classes have no positive label")
def test_a_networks_own_head_on_its_own_classes(tmp_path: Path, weights: Path) -> None:
    model = make_published(NAME, str(weights))
    assert (model.size, model.center, model.classes) == (160, 0.95, 1000)
    part = imagenet_like(tmp_path / "one", [0] * 5, SYNSETS).split("test")
    logits = logits_by_hand(part, weights)
    best = logits.argmax(dim=1)
    labels = torch.where(torch.tensor([True, True, False, False, True]), best, (best + 500) % 1000)
    data = imagenet_like(tmp_path / "two", labels.tolist(), SYNSETS)
    seen: list[int] = []
    measured = evaluate_published(NAME, data.folder, "test", weights=str(weights), report=seen.append)
    assert sum(seen) == measured["images"] == 5
    assert (measured["run"], measured["split"], measured["recovery"]) == (NAME, "test", None)
    real = np.asarray(data.split("test").real)[:4]
    for way, scores in (("real", logits.softmax(dim=1)), ("real_by_logits", logits)):
        found = measured[way]
        assert (found["images"], found["top_1_single"], found["top_1"]) == (4, 0.6, 0.5)
        assert [subset["images"] for subset in found["by_number_of_labels"].values()] == [3, 1, 0, 0]
        present = np.flatnonzero(real.any(axis=0))
        expected = average_precision(scores[:4, present].numpy(), real[:, present]).mean()
        assert found["mean_average_precision"]["mean_of_present"] == pytest.approx(expected)
    precision = next(row["precision"] for row in measured["at_k"] if row["k"] == 1)
    assert precision == pytest.approx(0.6)


@pytest.mark.filterwarnings("ignore:.*classes have no positive label")
def test_other_classes_are_refused(tmp_path: Path, weights: Path) -> None:
    few = imagenet_like(tmp_path / "few", [0, 1, 2, 0, 1], ["ant", "bee", "cow"]).folder
    with pytest.raises(
        ConfigError, match="has a head for 1,000 classes, the data has 3: they must be the same"
    ):
        evaluate_published(NAME, few, "test", weights=str(weights))
    other = imagenet_like(tmp_path / "other", [0] * 5, [*SYNSETS[:2], "tench", *SYNSETS[3:]]).folder
    with pytest.raises(
        ConfigError, match=r"output 2 of test_resnet.* is n01484850, but class 2 .* is 'tench'"
    ):
        evaluate_published(NAME, other, "test", weights=str(weights))
    with pytest.raises(ConfigError, match=r"must be a score in \[0, 1\], not 2") as raised:
        evaluate_published(NAME, other, "test", weights=str(weights), threshold=2)
    assert (raised.value.what, raised.value.value) == ("threshold", 2)


def test_weights_must_have_the_head(tmp_path: Path, weights: Path) -> None:
    without = {name: value for name, value in load_file(weights).items() if not name.startswith("fc.")}
    save_file(without, tmp_path / "backbone.safetensors")
    with pytest.raises(ModelError, match=r"missing or of another shape: fc.weight, fc.bias"):
        make_published(NAME, str(tmp_path / "backbone.safetensors"))
    with pytest.raises(ConfigError, match="timm has no backbone 'resnet5'"):
        make_published("resnet5", "none")


@pytest.mark.filterwarnings("ignore:.*classes have no positive label")
def test_a_backbone_that_comes_without_a_classifier(tmp_path: Path) -> None:
    few = imagenet_like(tmp_path / "few", [0, 1, 2, 0, 1], ["ant", "bee", "cow"]).folder
    file = tmp_path / "other.safetensors"
    save_file({"norm.weight": torch.ones(1024)}, file)
    for weights in ("pretrained", "none", str(file)):
        with pytest.raises(ConfigError, match=f"^cvt_w24 with weights {weights} has no classifier") as error:
            evaluate_published("cvt_w24", few, "test", weights=weights)
        assert (error.value.value, error.value.parameters) == (weights, ["weights"])


def test_a_released_query2label_model(tmp_path: Path) -> None:
    """Its own head and scores, on images squashed to a size; of other classes it is refused."""
    from sparselabel.models.backbone import make_backbone
    from sparselabel.models.classifier import Classifier
    from sparselabel.models.query2label import QueryHead
    from tests.models.test_query2label_released import their_file
    from tests.training.conftest import small_scenes

    data = small_scenes(tmp_path / "data", 20, 10, Preparation())
    torch.manual_seed(0)
    backbone, head = make_backbone("resnet18", "none", size=64), QueryHead(512, 12, inner=64)
    file = tmp_path / "checkpoint.pkl"
    torch.save({"state_dict": their_file("resnet101", backbone.network, head)}, file)
    measured = evaluate_published("resnet18", data.folder, "test", weights=str(file), size=64)
    views = next(iter(ImageLoader(data.split("test"), squashed(64))(in_order(np.arange(10), 10), 0)))
    with torch.no_grad():
        logits = Classifier(backbone, head).eval()(views.inputs[0]).logits
    with pytest.warns(DataWarning, match="have no positive image"):
        wanted = average_precision(torch.sigmoid(logits).numpy(), data.split("test").truth.values)
    found = [row["average_precision"] for row in measured["classes"]]
    assert found == pytest.approx(wanted.tolist(), nan_ok=True)
    torch.save({"state_dict": their_file("resnet101", backbone.network, QueryHead(512, 7))}, file)
    with pytest.raises(ConfigError, match="has a head for 7 classes, the data has 12"):
        evaluate_published("resnet18", data.folder, "test", weights=str(file), size=64)
    with pytest.raises(ConfigError, match="is for a file of a Query2Label model") as raised:
        evaluate_published("test_resnet", data.folder, "test", weights="none", size=64)
    assert (raised.value.what, raised.value.value, raised.value.parameters) == ("size", 64, ["size"])
