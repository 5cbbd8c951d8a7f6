"""What the trainer derives from its configuration and data."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from sparselabel.config import FinetunePhase, Handling, HeadPhase, Machine, Views
from sparselabel.data.dataset import Dataset
from sparselabel.data.labels import POSITIVE
from sparselabel.data.loaders import Batch
from sparselabel.data.view_geometry import ViewGeometry
from sparselabel.errors import ConfigError
from sparselabel.losses.step import Progress
from sparselabel.models.classifier import Output
from sparselabel.training.checkpoint import TrainingState
from sparselabel.training.resolve import resolve
from sparselabel.training.train_run import train_run
from tests.training.conftest import tiny
from tests.training.trainers import make_trainer

if TYPE_CHECKING:
    from lightning_fabric import Fabric

PROGRESS = Progress(0, 4, 2, 1e-3)


def test_steps_of_phases_with_their_own_batches(small: Dataset, tmp_path: Path) -> None:
    config = tiny(head=HeadPhase(epochs=2, batch_size=16), finetune=FinetunePhase(epochs=3, batch_size=30))
    trainer = make_trainer(small, config, tmp_path)
    assert trainer.steps() == 2 * 4 + 3 * 3  # 61 images
    assert trainer.steps(TrainingState(epochs=1)) == 4
    assert trainer.steps(TrainingState(epochs=4)) == 2 * 4 + 2 * 3


def test_progress_counts_the_epochs_that_there_will_be(small: Dataset, tmp_path: Path) -> None:
    rates = {"lr": 1e-3, "batch_size": 16}
    config = tiny(head=HeadPhase(epochs=5, **rates), finetune=FinetunePhase(epochs=3, **rates))  # type: ignore[arg-type]
    trainer = make_trainer(small, config, tmp_path)
    assert trainer.progress(trainer.stage("head", 0, None), 1) == Progress(1, 8, 5, 1e-3)
    assert trainer.progress(trainer.stage("finetune", 5, None), 6) == Progress(6, 8, 5, 1e-3)
    stopped_early = trainer.stage("finetune", 2, None)  # after two epochs of the head instead of five
    assert trainer.progress(stopped_early, 4) == Progress(4, 5, 2, 1e-3)
    alone = make_trainer(small, tiny(finetune=FinetunePhase(epochs=0)), tmp_path)
    assert alone.progress(alone.stage("head", 0, None), 1) == Progress(1, 2, 0, 1e-2)


@pytest.mark.parametrize("method", ["an", "bce"])
def test_a_step_shows_the_truth_to_oracles_only(small: Dataset, tmp_path: Path, method: str) -> None:
    trainer = make_trainer(small, tiny(method), tmp_path)
    batch = Batch(torch.tensor([5, -1]), (torch.zeros(2, 3),), (ViewGeometry.whole(2),))
    step = trainer.make_step(batch, (Output(torch.zeros(2, 12)),), PROGRESS)
    assert step.rows.tolist() == [5, -1]
    assert step.valid.tolist() == [True, False]
    assert step.observed[0].tolist() == small.train.observed.values[5].tolist()
    assert step.geometries is batch.geometries
    assert step.spatial_labels is None
    if method == "an":
        assert step.truth is None
    else:
        assert step.truth is not None
        assert step.truth[0].tolist() == small.train.truth.values[5].tolist()


def test_unobserved_positives_are_true_and_not_observed(small: Dataset, tmp_path: Path) -> None:
    trainer = make_trainer(small, tiny(), tmp_path)
    truth, observed = small.train.truth.values, small.train.observed.values
    unobserved = trainer.unobserved_positives(torch.tensor([*range(61), -1])).numpy()
    assert np.array_equal(unobserved[:61], (truth == POSITIVE) & (observed != POSITIVE))
    assert unobserved[:61].any()
    assert not unobserved[61].any()  # padding
    assert trainer.truth_known


def test_every_epoch_has_its_own_seed_that_comes_again(small: Dataset, tmp_path: Path) -> None:
    trainer = make_trainer(small, tiny(), tmp_path)
    seeds = [trainer.epoch_seed(epoch) for epoch in range(50)]
    assert len(set(seeds)) == 50
    assert seeds[7] == make_trainer(small, tiny(), tmp_path / "again").epoch_seed(7)
    assert seeds[7] != make_trainer(small, tiny(seed=1), tmp_path / "other").epoch_seed(7)


def test_a_survey_sees_every_image_whole_in_order(small: Dataset, tmp_path: Path) -> None:
    trainer = make_trainer(small, tiny(), tmp_path)
    stage = trainer.stage("head", 0, None)
    steps = [*trainer.scan(stage, PROGRESS)]
    assert [len(step.rows) for step in steps] == [16, 16, 16, 13]
    assert torch.cat([step.rows for step in steps]).tolist() == [*range(61)]
    assert steps[3].geometries[0].box.tolist() == [[0, 0, 1, 1]] * 13
    assert not steps[0].outputs[0].logits.requires_grad
    assert not stage.eval_module.training


class OfTwo:
    """A process of two, whose other one has 0 in every buffer."""

    world_size = 2

    def __init__(self, fabric: Any) -> None:
        self.fabric = fabric

    def __getattr__(self, name: str) -> Any:
        return getattr(self.fabric, name)

    def broadcast(self, buffer: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(buffer)


def test_processes_survey_with_the_same_batch_norm(small: Dataset, tmp_path: Path) -> None:
    trainer = make_trainer(small, tiny(), tmp_path)
    stage = trainer.stage("finetune", 0, None)
    assert any(bool(buffer.any()) for buffer in stage.eval_module.buffers())
    trainer.fabric = cast("Fabric", OfTwo(trainer.fabric))
    next(trainer.scan(stage, PROGRESS))
    assert not any(bool(buffer.any()) for buffer in stage.eval_module.buffers())


@pytest.mark.parametrize(("method", "colors"), [("an", False), ("an+scl", True)])
def test_operations_that_move_pixels_are_for_methods_without_geometry(
    small: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, colors: bool
) -> None:
    views = Views(size=32, rand_augment=2, cutout=0.5)
    trainer = make_trainer(small, tiny(method, views=views), tmp_path)
    said: list[str] = []
    monkeypatch.setattr(trainer.log, "say", said.append)
    trainer.stage("head", 0, None)
    stage = trainer.stage("finetune", 2, None)
    _, batch = next(stage.batches(2, prefetch=lambda rows: None))
    assert said == ["RandAugment only changes colors: an+scl needs to know where things are"] * colors
    cutout = batch.geometries[0].cutout
    assert cutout is not None
    # The hole is there: one color, which operations that move pixels would have moved.
    if colors:
        for view, (left, top, width, height) in zip(
            batch.inputs[0], (32 * cutout).round().int(), strict=True
        ):
            hole = view[:, top : top + height, left : left + width][:, 2:-2, 2:-2]
            assert (hole == hole[:, :1, :1]).all()


def test_a_head_that_is_solved_takes_one_epoch_and_gives_calibrated_scores(
    small: Dataset, tmp_path: Path
) -> None:
    alone = {"frozen": True, "finetune": FinetunePhase(epochs=0), "head": HeadPhase()}
    out, here = tmp_path / "run", Machine("cpu", workers=0)
    result = train_run(small, tiny("auto", **alone), out, here, Handling(quiet=True))
    assert (result["method"], result["epochs"], result["best_epoch"]) == ("soft", 1, 1)
    assert result["test"]["value"] > 0.0
    again = Handling(resume=True, quiet=True)
    assert train_run(small, tiny("soft", **alone), out, here, again) == result
    weights = load_file(out / "model.safetensors")
    solved = make_trainer(small, resolve(small, tiny("soft", **alone)).config, tmp_path / "again")
    solved.network.load({name: value for name, value in weights.items() if name.startswith("head.")})
    scores = torch.sigmoid(solved.network.head(solved.loaders.features("train")).logits.detach())
    labeled = float(small.train.observed.per_image(POSITIVE).mean())
    assert labeled < float(scores.sum(1).mean()) < 4 * labeled


@pytest.mark.parametrize(
    "changes", [{"finetune": FinetunePhase(epochs=1)}, {"head": HeadPhase(raw_features=True)}, {"boost": 5}]
)
def test_a_head_is_solved_on_stored_pooled_features_alone(small: Dataset, changes: dict[str, Any]) -> None:
    config = tiny("soft", **({"frozen": True, "finetune": FinetunePhase(epochs=0)} | changes))
    with pytest.raises(
        ConfigError, match="soft computes a linear head from stored pooled features"
    ) as raised:
        resolve(small, config)
    assert (raised.value.what, raised.value.value) == ("method", "soft")
