"""Runs in the hub's layout: files, round trip, and no execution of code."""

import json
import pickle
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import huggingface_hub
import numpy as np
import pytest
import torch

from sparselabel import config as configuration
from sparselabel.config import FinetunePhase, Handling, HeadPhase, Machine
from sparselabel.data.dataset import Dataset
from sparselabel.errors import ModelError, RunError
from sparselabel.hub import CARD, CONFIG, MODEL
from sparselabel.run import Run
from sparselabel.training.train import train
from sparselabel.training.train_run import train_run
from tests.training.conftest import small, tiny
from tests.training.test_train import OWN, arrays, own_classifier

__all__ = ["small"]
IMAGES = np.random.default_rng(3).integers(0, 256, (3, 40, 50, 3), dtype=np.uint8)


@pytest.fixture(scope="module")
def run(small: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("trained") / "scenes"
    config = tiny("en", frozen=True, head=HeadPhase(epochs=2, lr=0.1), finetune=FinetunePhase(epochs=0))
    train_run(small, config, out, Machine(accelerator="cpu", workers=0), Handling(quiet=True))
    return Run.open(out)


def test_what_is_saved_predicts_the_same_bits(run: Run, small: Dataset, tmp_path: Path) -> None:
    folder = run.save_pretrained(tmp_path / "model")
    assert {file.name for file in folder.iterdir()} == {MODEL, CONFIG, CARD}
    back = Run.from_pretrained(folder)
    for mine, theirs in zip(run.predict(IMAGES, maps=True), back.predict(IMAGES, maps=True), strict=True):
        assert mine.labels == theirs.labels
        np.testing.assert_array_equal(mine.scores, theirs.scores)
        np.testing.assert_array_equal(mine.maps, theirs.maps)
    assert (back.classes, back.config()) == (run.classes, run.config())
    assert back.result()["test"]["value"] == run.result()["test"]["value"]
    assert back.export(tmp_path / "model.pt2").is_file()
    with pytest.raises(RunError):
        back.metrics("test")
    again = Run.from_pretrained(folder, data=small.folder)
    assert again.metrics("test")["mAP"] == run.metrics("test")["mAP"]
    assert {file.name for file in folder.iterdir()} == {MODEL, CONFIG, CARD}  # measures are not written here


@pytest.mark.parametrize(
    ("scores", "kept"),
    [
        ("text:hf-hub:timm/ViT-B-16-SigLIP", "text:hf-hub:timm/ViT-B-16-SigLIP"),
        ("/home/me/s.npz", "s.npz"),
    ],
)
def test_scores_are_named_without_their_folder(run: Run, tmp_path: Path, scores: str, kept: str) -> None:
    other = Run(Path(shutil.copytree(run.path, tmp_path / "other")))
    configuration.save(replace(run.config(), settings={"scores": scores}), other.config_file)
    saved = json.loads((other.save_pretrained(tmp_path / "model") / CONFIG).read_text())
    assert saved["config"]["settings"] == {"scores": kept}


def test_the_card_and_the_configuration(run: Run, small: Dataset, tmp_path: Path) -> None:
    folder = run.save_pretrained(tmp_path / "model")
    card, config = (folder / CARD).read_text(), (folder / CONFIG).read_text()
    for text in (card, config):
        assert str(small.folder.parent) not in text
        assert str(run.path.parent) not in text
    front = card.split("---")[1]
    assert "library_name: sparselabel" in front
    assert "# license: choose one" in front
    value = 100 * run.result()["test"]["value"]
    assert f"| test | mAP | {value:.1f} | 20 images, labels complete |" in card
    assert "`en`" in card
    assert "61 images, 1.00 labels each are known to be present and 0.00 to be absent" in card
    assert all(name in card for name in run.classes)
    assert json.loads(config, parse_constant=pytest.fail)["id2label"]["0"] == run.classes[0]
    with pytest.raises(RunError) as there:
        run.save_pretrained(folder)
    assert there.value.value == [MODEL, CONFIG, CARD]
    run.save_pretrained(folder, force=True)


def test_from_the_hub(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, asked = run.save_pretrained(tmp_path / "snapshot"), []

    def snapshot_download(name: str, **options: Any) -> str:
        asked.append((name, options))
        if name != "somebody/scenes":
            raise OSError("there is none")
        return str(folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    back = Run.from_pretrained("somebody/scenes", revision="v1")
    np.testing.assert_array_equal(back.predict(IMAGES)[0].scores, run.predict(IMAGES)[0].scores)
    assert asked == [("somebody/scenes", {"revision": "v1", "allow_patterns": [MODEL, CONFIG, CARD]})]
    with pytest.raises(ModelError, match="there is none") as absent:
        Run.from_pretrained("runs/mistyped")
    assert absent.value.what == "runs/mistyped"


def test_nothing_in_the_files_is_run(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Payload:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "ran",)

    folder = run.save_pretrained(tmp_path / "model")
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Payload()))
    monkeypatch.setattr(torch, "load", pytest.fail)
    Run.from_pretrained(folder).predict(IMAGES)
    (folder / MODEL).write_bytes(pickle.dumps(Payload()))
    with pytest.raises(RunError, match="damaged"):
        Run.from_pretrained(folder).predict(IMAGES)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("content", ["{}", '{"library_name": "timm"}', "[1]", "{"])
def test_files_of_others_are_refused(run: Run, tmp_path: Path, content: str) -> None:
    folder = run.save_pretrained(tmp_path / "model")
    (folder / CONFIG).write_text(content)
    with pytest.raises((ModelError, RunError)) as refused:
        Run.from_pretrained(folder)
    assert refused.value.what in (folder, folder / CONFIG)
    (folder / CONFIG).unlink()
    with pytest.raises(ModelError) as absent:
        Run.from_pretrained(folder)
    assert absent.value.value == [CONFIG]


def test_a_module_of_ones_own_comes_back_with_the_module(tmp_path: Path) -> None:
    images, _, observed = arrays()
    data = Dataset.from_arrays(images, observed, classes=["red", "green", "blue"])
    run = train(data, tmp_path / "run", model=own_classifier(), **OWN)
    folder = run.save_pretrained(tmp_path / "model")
    assert "module of its author's own, `Sequential`" in (folder / CARD).read_text()
    back = Run.from_pretrained(folder, model=own_classifier())
    np.testing.assert_array_equal(back.predict(images)[3].scores, run.predict(images)[3].scores)
    with pytest.raises(ModelError) as absent:
        Run.from_pretrained(folder).predict(images)
    assert absent.value.what == "model"
