"""The demo, with few images and one epoch."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from benchmarks import demo_weights
from sparselabel.cli import demo
from sparselabel.data.scenes.generate import make_scene
from sparselabel.models.backbone import make_backbone
from tests.cli.conftest import Command


def test_its_network_knows_something() -> None:
    """The weights fit the whole network, and tell classes apart that it was never told of here."""
    tensors = load_file(demo.WEIGHTS)
    assert {value.dtype for value in tensors.values()} == {torch.float16, torch.int64}
    assert demo.WEIGHTS.stat().st_size < 2**20
    made = {
        weights: make_backbone("test_resnet", weights, size=64, output_stride=16).eval()
        for weights in (str(demo.WEIGHTS), "none")
    }
    drawn = [make_scene(901, index, 64, alone=True) for index in range(240)]
    views = torch.stack([torch.from_numpy(scene.image).permute(2, 0, 1) for scene in drawn])
    classes = np.array([int(scene.classes[0]) for scene in drawn])
    right = {}
    for weights, backbone in made.items():
        with torch.no_grad():
            features = torch.nn.functional.normalize(backbone(views).mean(dim=(2, 3))).numpy()
        nearest = (features[120:] @ features[:120].T).argmax(axis=1)
        right[weights] = float((classes[:120][nearest] == classes[120:]).mean())
    assert right[str(demo.WEIGHTS)] > 0.8
    assert right["none"] < 0.5


@pytest.mark.filterwarnings("ignore::sparselabel.errors.DataWarning")  # so few images do not have all classes
def test_the_whole_way(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "IMAGES", 60)
    monkeypatch.setattr(demo, "TESTED", 30)
    head, finetune = replace(demo.CONFIG.head, epochs=1), replace(demo.CONFIG.finetune, epochs=1)
    monkeypatch.setattr(demo, "CONFIG", replace(demo.CONFIG, head=head, finetune=finetune))
    done = command("demo", "--out", "shown")
    assert done == 0
    for method in demo.METHODS:
        assert Path(f"shown/runs/{method}-seed0/result.json").is_file()
    assert Path("shown/heat-maps.png").is_file()
    assert "Where en+scl sees things" in done.out
    page = Path("shown/report.html").read_text(encoding="utf-8")
    assert all(f">{method}<" in page for method in demo.METHODS)
    lines = Path("shown/table.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in lines[1:]] == list(demo.METHODS)


@pytest.mark.filterwarnings("ignore::sparselabel.errors.DataWarning")
def test_how_its_network_was_taught(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(demo_weights, "IMAGES", 40)
    monkeypatch.setattr(demo_weights, "TESTED", 20)
    monkeypatch.setattr(demo_weights, "LEARNING", replace(demo_weights.LEARNING, epochs=1))
    monkeypatch.setattr(demo_weights, "WEIGHTS", tmp_path / "taught.safetensors")
    assert 0 < demo_weights.teach(tmp_path) < 1
    ours, new = load_file(demo.WEIGHTS), load_file(tmp_path / "taught.safetensors")
    assert {name: (value.shape, value.dtype) for name, value in new.items()} == {
        name: (value.shape, value.dtype) for name, value in ours.items()
    }
