import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from sparselabel import load_predictor
from sparselabel.config import FinetunePhase, Handling, HeadPhase, Machine
from sparselabel.data.dataset import Dataset
from sparselabel.inference import predictor as module
from sparselabel.inference.class_thresholds import load_class_thresholds
from sparselabel.inference.predictor import ReadView, images_of, stream
from sparselabel.metrics.calibration import logits_of
from sparselabel.models.classifier import Output
from sparselabel.run import Run
from sparselabel.training.train_run import train_run
from tests.data.shards import write_tar
from tests.inference.stub import CLASSES, paint, predictor
from tests.training.conftest import small, tiny

__all__ = ["small"]


def test_labels_by_thresholds_of_calibrated_scores(tmp_path: Path) -> None:
    red, both = paint(tmp_path / "red.png", 255, 0), paint(tmp_path / "both.png", 255, 255)
    first, second = predictor(0.5, 0.5, 0.3)([red, both])
    assert (first.image, first.labels) == (red, (("red", float(first.scores[0])),))
    assert first.scores == pytest.approx([0.99966, 0.00034, 0.26894], abs=1e-5)
    assert [name for name, _ in second.labels] == ["red", "green"]
    (low,) = predictor(0.5, 0.5, 0.26)([red])
    assert [name for name, _ in low.labels] == ["red", "a/b"]  # the surest first
    assert first.maps is None


@pytest.mark.parametrize("workers", [0, 2])
def test_order_and_broken_images(tmp_path: Path, workers: int) -> None:
    paths = [paint(tmp_path / f"{number}.png", 25 * number, 0) for number in range(10)]
    Path(paths[3]).write_bytes(b"no image")
    paths.insert(5, str(tmp_path / "gone.jpg"))
    found = list(predictor()(paths, batch=3, workers=workers, maps=True))
    assert [one.image for one in found] == paths
    assert [number for number, one in enumerate(found) if one.error] == [3, 5]
    assert "3.png cannot be read as an image" in (found[3].error or "")
    assert found[5].error == f"No such file: {tmp_path / 'gone.jpg'}: check its name"
    good = [one for one in found if one.error is None]
    assert [one.scores[0] for one in good] == sorted(one.scores[0] for one in good)
    assert good[0].maps is not None
    assert good[0].maps.shape == (3, 2, 2)
    assert good[0].maps[0] == pytest.approx(np.full((2, 2), -8.0))


def test_large_images_of_a_shard_are_in_small_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = {f"{n}.png": Path(paint(tmp_path / "a.png", 255, 0)).read_bytes() for n in range(7)}
    write_tar(tmp_path / "a.tar", content)
    size = len(content["0.png"])

    def batches() -> list[int]:
        found = stream(images_of(tmp_path / "a.tar"), ReadView(predictor().view), 4, 0)
        return [len(one.images) for one in found]

    assert batches() == [4, 3]
    monkeypatch.setattr(module, "LARGEST_BATCH", 2 * size)
    assert batches() == [2, 2, 2, 1]


def test_scores_that_are_not_finite_are_no_prediction(tmp_path: Path) -> None:
    paths = [paint(tmp_path / f"{red}.png", red, 0) for red in (255, 0)]
    damaged = predictor()
    colors = damaged.model

    def model(views: torch.Tensor, maps: bool = False) -> Output:
        output = colors(views, maps)
        return output._replace(logits=output.logits.where(output.logits[:, :1] > 0, torch.nan))

    damaged.model = model
    good, bad = damaged(paths)
    assert (good.error, [name for name, _ in good.labels]) == (None, ["red"])
    assert (bad.labels, len(bad.scores)) == ((), 0)
    assert bad.error == f"{paths[1]}: the model's scores of it are not finite: bring back its weights"


def test_all_of_a_batch_broken() -> None:
    found = list(predictor()(["gone1", "gone2", "gone3"], batch=2))
    assert [one.labels for one in found] == [()] * 3
    assert all(one.error for one in found)


def test_images_are_asked_for_as_they_are_needed() -> None:
    taken = 0

    def endless() -> Iterator[str]:
        nonlocal taken
        while True:
            taken += 1
            yield f"{taken}.jpg"

    loaded = stream(endless(), lambda path: np.zeros((3, 2, 2), np.uint8), batch=4, workers=0)
    assert next(loaded).images == ("1.jpg", "2.jpg", "3.jpg", "4.jpg")
    assert next(loaded).views.shape == (4, 3, 2, 2)
    assert taken <= 12


def test_a_run_on_stored_features_predicts_images(small: Dataset, tmp_path: Path) -> None:
    config = tiny(frozen=True, head=HeadPhase(epochs=2), finetune=FinetunePhase(epochs=0))
    result = train_run(small, config, tmp_path / "run", Machine("cpu", workers=0), Handling(quiet=True))
    assert result["test"]["decided"]["chosen_from"] == {"split": "val", "images": 15, "labels": "complete"}
    test = small.split("test")
    paths = [test.path(row) for row in range(len(test))]
    found = np.stack([one.scores for one in load_predictor(tmp_path / "run", device="cpu")(paths)])
    kept = np.load(tmp_path / "run" / "scores-test.npz")["scores"]
    expected = load_class_thresholds(Run(tmp_path / "run")).calibration(logits_of(kept))
    assert found == pytest.approx(expected, abs=1e-4)
    everything = next(iter(load_predictor(tmp_path / "run", threshold=0.0)(paths[:1], maps=True)))
    assert {name for name, _ in everything.labels} == set(small.classes)
    assert everything.maps is not None
    mean = torch.from_numpy(everything.maps).mean(dim=(1, 2)).double().numpy()
    assert load_class_thresholds(Run(tmp_path / "run")).calibration(mean[None])[0] == pytest.approx(
        everything.scores, abs=1e-4
    )


def test_classes_are_those_of_the_decisions() -> None:
    assert predictor().classes == CLASSES


WITHOUT = (
    "data.readers",
    "data.prepare",
    "report",
    "review",
    "training",
    "losses",
    "comparison",
    "plan",
    "cli",
)


def test_a_predictor_needs_neither_readers_nor_training(small: Dataset, tmp_path: Path) -> None:
    config = tiny(frozen=True, head=HeadPhase(epochs=1), finetune=FinetunePhase(epochs=0))
    train_run(small, config, tmp_path / "run", Machine("cpu", workers=0), Handling(quiet=True))
    code = """
import sys, sparselabel
predictor = sparselabel.load_predictor(sys.argv[1])
assert next(iter(predictor(sys.argv[2:]))).error is None
print(*sorted(name for name in sys.modules if name.startswith("sparselabel.")))
others = {"lightning_fabric", "matplotlib", "jinja2", "rich", "openvino", "onnxruntime"}
print(*(others & {*sys.modules}))
"""
    given = [tmp_path / "run", small.split("test").path(0)]
    done = subprocess.run([sys.executable, "-c", code, *given], capture_output=True, text=True, check=True)
    ours, others = done.stdout.splitlines()
    modules = [name.removeprefix("sparselabel.") for name in ours.split()]
    assert "inference.scorer" in modules
    assert [name for name in modules for part in WITHOUT if f"{name}.".startswith(f"{part}.")] == []
    assert {name for name in modules if name.startswith("inference.")} == {
        "inference.class_thresholds",
        "inference.engine",
        "inference.predictor",
        "inference.saved_scores",
        "inference.scorer",
    }
    assert others == ""
