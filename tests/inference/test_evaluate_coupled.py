"""Maps coupled with attention, for TS-CAM on a transformer only."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from sparselabel.cli.evaluate import evaluate
from sparselabel.config import FinetunePhase, Handling, HeadPhase, Machine, Preparation, Views
from sparselabel.data.dataset import Dataset
from sparselabel.data.decode import load
from sparselabel.data.transforms import draw, render, views_of
from sparselabel.data.view_geometry import ViewGeometry
from sparselabel.errors import ConfigError, ModelError
from sparselabel.inference.evaluate import evaluate_coupled
from sparselabel.metrics.localization import LocalizationMetric
from sparselabel.models.classifier import Output
from sparselabel.models.tscam import with_attention
from sparselabel.run import Run
from tests.training.conftest import small_scenes, tiny


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return small_scenes(tmp_path_factory.mktemp("data"), 20, 14, Preparation("single-positive"))


def trained(data: Dataset, folder: Path, backbone: str, classifier: str) -> Path:
    from sparselabel.training.train_run import train_run

    config = tiny(
        backbone=backbone,
        classifier=classifier,
        views=Views(size=64),
        head=HeadPhase(epochs=1, batch_size=16),
        finetune=FinetunePhase(epochs=0),
    )
    train_run(data, config, folder / "run", Machine(accelerator="cpu", workers=0), Handling(quiet=True))
    return folder / "run"


@torch.no_grad()
def by_hand(run: Path, data: Dataset) -> LocalizationMetric:
    """One image after the other, the maps multiplied here."""
    part, model = data.split("test"), Run(run).model
    located, view = LocalizationMetric(part), views_of(Run(run).config().views)[1]
    for row in range(len(part)):
        image = load(part.path(row), view.at_least)
        geometry = draw(view, (0, 0, row, 0), image.width, image.height)
        pixels = torch.from_numpy(render(image, geometry, view.size))[None]
        _, attention = with_attention(model.backbone, partial(model.backbone, pixels))
        output = model(pixels, maps=True)
        seen = Output(output.logits, output.maps * attention[:, None])
        located.update(torch.tensor([row]), seen, ViewGeometry.from_params(geometry[None]))
    return located


def test_coupled_maps_are_judged_and_kept_beside_the_others(
    data: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = trained(data, tmp_path, "test_vit", "tscam")
    evaluate(run, coupled=True, workers=0)
    assert "mAP-loc, coupled with attention" in capsys.readouterr().out
    kept = json.loads((run / "evaluation-test.json").read_text())
    scores = np.load(run / "scores-test.npz")["scores"]
    expected = by_hand(run, data).compute(scores)
    assert expected is not None
    assert kept["location_coupled"]["mean"] == pytest.approx(expected["mean"], abs=1e-9)
    assert kept["location_coupled"]["pairs"] == kept["location"]["pairs"] == expected["pairs"]
    plain = np.load(run / "location-test.npz")["shares"]
    assert not np.allclose(plain, by_hand(run, data).shares)  # attention makes a difference


def test_other_classifiers_and_networks_are_refused(data: Dataset, tmp_path: Path) -> None:
    linear = trained(data, tmp_path / "linear", "test_vit", "linear")
    with pytest.raises(ConfigError, match="class token's attention") as raised:
        evaluate_coupled(Run(linear), "test")
    assert (raised.value.what, raised.value.value, raised.value.allowed) == ("coupled", "linear", "tscam")
    assert raised.value.parameters == ["coupled", "classifier"]
    convolutions = trained(data, tmp_path / "resnet", "test_resnet", "tscam")
    with pytest.raises(ModelError, match="take a ViT or DeiT"):
        evaluate_coupled(Run(convolutions), "test")
    with pytest.raises(ConfigError, match=r"coupled.* is for runs"):
        evaluate(pretrained="resnet50", data=Path("nowhere"), coupled=True)
