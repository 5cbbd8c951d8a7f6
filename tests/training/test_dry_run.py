"""Dry runs forecast the cost from a few steps and leave nothing behind."""

import mmap
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from sparselabel.config import FinetunePhase, Handling, HeadPhase, Machine, Preparation, Views
from sparselabel.data.dataset import Dataset
from sparselabel.errors import ConfigError, ResourceError, RunError
from sparselabel.resources import RESET
from sparselabel.training.class_prior import run_before
from sparselabel.training.dry_run import PhaseCost, RunCost, _gpu, dry_run
from sparselabel.training.network import Network
from sparselabel.training.train_run import train_run
from tests.training.conftest import small_scenes, tiny

HERE = Machine(accelerator="cpu", workers=0)
QUIET = Handling(quiet=True, dry_run=True)


def everything_under(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))


@pytest.mark.parametrize("method", ["an", "role", "en+scl", "em+apl", "ll-cp"])
def test_it_tells_phases_and_sizes_and_leaves_nothing(small: Dataset, tmp_path: Path, method: str) -> None:
    before = everything_under(small.folder)
    settings = {"warm_up": 1} if method == "em+apl" else {}
    full = FinetunePhase(epochs=2, lr=1e-3, batch_size=8, micro_batches=2)
    config = tiny(method, finetune=full, settings=settings)
    cost = dry_run(small, config, tmp_path / "run", HERE, QUIET)
    assert everything_under(tmp_path) == set()
    assert everything_under(small.folder) == before
    assert [(phase.name, phase.epochs, phase.steps, phase.batch_size) for phase in cost.phases] == [
        ("head", 2, 4, 16),
        ("finetune", 2, 8, 8),
    ]
    assert all(0 < phase.ram < 2**36 and phase.seconds > 0 for phase in cost.phases)
    assert [phase.scored for phase in cost.phases] == [15 + 61 * (method == "em+apl")] * 2
    assert cost.scored == 15 + 20 + 61
    assert cost.gpu == cost.features == cost.files == 0
    assert min(cost.beginning, cost.metrics, cost.end, *(phase.saving for phase in cost.phases)) > 0


def test_a_head_that_is_computed_takes_one_step(small: Dataset, tmp_path: Path) -> None:
    config = tiny("soft", frozen=True, finetune=FinetunePhase(epochs=0))
    (phase,) = dry_run(small, config, tmp_path / "run", HERE, QUIET).phases
    assert (phase.epochs, phase.steps, phase.batch_size) == (1, 1, 61)
    assert phase.seconds > 0


def test_sizes_are_those_of_the_run(small: Dataset, tmp_path: Path) -> None:
    config = tiny("en+scl", finetune=FinetunePhase(epochs=1, batch_size=16, optimizer="adamw", ema_decay=0.9))
    cost = dry_run(small, config, tmp_path / "run", HERE, QUIET)
    train_run(small, config, tmp_path / "run", HERE, Handling(quiet=True))
    newest = tmp_path / "run" / "checkpoints" / "0003"
    on_disk = sum(file.stat().st_size for file in newest.iterdir())
    assert cost.phases[-1].checkpoint == pytest.approx(on_disk, rel=0.1)  # files have headers
    assert cost.model == pytest.approx((tmp_path / "run" / "model.safetensors").stat().st_size, rel=0.05)
    assert cost.scores == 4 * len(small.classes) * (15 + 20)


@pytest.mark.skipif(not RESET.exists(), reason="only Linux counts the peak anew")
def test_loading_the_best_epoch_is_measured(
    small: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny(
        head=HeadPhase(epochs=1, batch_size=16),
        finetune=FinetunePhase(epochs=1, batch_size=16, ema_decay=0.9),
    )
    plain = dry_run(small, config, tmp_path / "run", HERE, QUIET)
    size, load, loaded = 300_000_000, Network.load, []

    def large(network: Network, weights: dict[str, torch.Tensor]) -> None:
        loaded.append(len(weights))
        with mmap.mmap(-1, size) as file:  # not malloc, which may keep what was freed
            file.write(b"x" * size)
            load(network, weights)

    monkeypatch.setattr(Network, "load", large)
    measured = dry_run(small, config, tmp_path / "run", HERE, QUIET)
    whole = Network(config, len(small.classes)).classifier.state_dict()
    assert loaded == [5, len(whole)]  # the head's weight, bias, center, scale and unit_norm, then all
    assert [
        one.ram > other.ram + size / 2 for one, other in zip(measured.phases, plain.phases, strict=True)
    ] == [True, True]
    assert everything_under(tmp_path) == set()


def test_a_temporary_folder_without_room_is_not_filled(
    small: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparselabel.training.dry_run.peak_memory", lambda: 1_000)
    assert dry_run(small, tiny(), tmp_path / "run", HERE, QUIET).phases[-1].ram == 1_000
    monkeypatch.setattr("sparselabel.training.dry_run.free_disk", lambda path: 5_000)
    monkeypatch.setattr("sparselabel.training.dry_run.save_tensors", None)  # not called
    cost = dry_run(small, tiny(), tmp_path / "run", HERE, QUIET)
    assert cost.phases[-1].ram == 1_000 + 2 * cost.model  # one copy to be written, and one read back


def test_a_gpu_tells_what_torch_has_reserved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.max_memory_reserved", lambda device: 5)
    assert _gpu(torch.device("cuda"), torch.cuda.max_memory_reserved) == 5
    assert _gpu(torch.device("cpu"), torch.cuda.max_memory_reserved) == 0


def test_memories_in_files_are_not_made(small: Dataset, tmp_path: Path) -> None:
    machine = Machine(accelerator="cpu", workers=0, memories="file")
    cost = dry_run(small, tiny("en+scl"), tmp_path / "run", machine, QUIET)
    # Two slots of heat maps (12 classes, 2 × 2 cells, a byte each) and of float16 running scores.
    assert cost.files == 2 * 4096 + 2 * 61 * 12 * (4 + 2)
    assert cost.disk >= cost.files
    assert everything_under(tmp_path) == set()


def test_features_are_estimated(tmp_path: Path) -> None:
    data = small_scenes(tmp_path / "data", 40, 10, Preparation(sparsify="single-positive"))
    cost = dry_run(data, tiny(frozen=True, finetune=FinetunePhase(epochs=0)), tmp_path / "run", HERE, QUIET)
    assert cost.features == 50 * 256 * 4  # train, validation and test, of test_efficientnet's width
    assert cost.features_time > 0
    assert not (data.folder / "features").exists()


def test_features_of_cells_stay_on_the_disk(tmp_path: Path) -> None:
    data = small_scenes(tmp_path / "data", 40, 10, Preparation(sparsify="single-positive"))
    cells = {"frozen": True, "finetune": FinetunePhase(epochs=0), "views": Views(size=64)}
    cost = dry_run(data, tiny("en+scl", **cells), tmp_path / "run", HERE, QUIET)
    # Only training needs cells, 2 × 2 of them in float16: validation and test are 8 and 10 images.
    assert cost.features == 32 * 256 * 4 * 2 + 18 * 256 * 4
    assert cost.features - 32 * 256 * 4 * 2 == 18 * 256 * 4


def test_what_a_run_refuses_is_refused(small: Dataset, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="observed negatives"):
        dry_run(small, tiny("iu"), tmp_path / "run", HERE, QUIET)
    train_run(
        small,
        tiny(finetune=FinetunePhase(), head=HeadPhase(epochs=1)),
        tmp_path / "run",
        HERE,
        Handling(quiet=True),
    )
    with pytest.raises(RunError, match="holds a run already"):
        dry_run(small, tiny(), tmp_path / "run", HERE, QUIET)
    dry_run(small, tiny(), tmp_path / "run", HERE, Handling(quiet=True, force=True, dry_run=True))
    assert (tmp_path / "run" / "result.json").is_file()


def test_a_step_that_does_not_fit_names_the_ways_out(
    small: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sparselabel.training.trainer import Trainer

    def full(*_: Any) -> Any:
        raise torch.OutOfMemoryError("Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 12 GiB")

    monkeypatch.setattr(Trainer, "forward", full)
    said = r"a step of phase finetune \(16 images of 32 pixels, test_efficientnet\) does not fit \(Tried to "
    with pytest.raises(ResourceError, match=said) as raised:
        dry_run(small, tiny(head=HeadPhase(epochs=0)), tmp_path / "run", HERE, QUIET)
    assert raised.value.parameters == [
        "finetune.grad_checkpointing",
        "finetune.micro_batches",
        "precision",
        "finetune.batch_size",
        "views.size",
        "dry_run",
    ]


def test_the_sum() -> None:
    head = PhaseCost("head", 5, 100, 8, 0.1, 50, 0.02, 2_000, 0, 10)
    full = PhaseCost("finetune", 2, 100, 8, 1.0, 50, 0.04, 3_000, 0, 1_000)
    cost = RunCost((head, full), 100, 4_000, 400, 7.0, 5, 300, 0, 0, 0)
    assert cost.seconds == pytest.approx(7 + 5 * (10 + 1) + 2 * (100 + 2) + 4)
    assert (cost.ram, cost.disk) == (3_400, 3 * 1_000 + 300 + 5)
    assert (
        replace(cost, phases=(replace(head, epochs=1), replace(full, epochs=1))).disk == 2 * 1_000 + 300 + 5
    )
    assert replace(cost, scores=70).disk == cost.disk + 70
    there = replace(cost, ram_there=1_000, ram_taken=2_400)
    assert [there.ram_short, replace(there, ram_taken=2_399).ram_short] == [False, True]
    estimated = replace(cost, expected_time=2.0, prior_time=30.0, prior_disk=9_000)
    assert estimated.seconds == pytest.approx(cost.seconds + 32)
    phases = (replace(head, saving=0.5, beginning=3.0), full)
    assert replace(cost, phases=phases).seconds == pytest.approx(cost.seconds + 5 * 0.5 + 3)
    measured = replace(cost, beginning=4.0, metrics=0.25, end=6.0)
    assert measured.measuring == 7 * 0.25 + 6
    assert measured.seconds == pytest.approx(cost.seconds + 4 + 7 * 0.25 + 6)
    assert estimated.disk == 9_000 + 5  # the prior's run is gone before training begins


def test_estimating_before_training_is_counted(tmp_path: Path) -> None:
    # Data of its own: beside the shared ones another test may have left features.
    data = small_scenes(tmp_path / "data", 76, 20, Preparation(sparsify="single-positive"))
    config = tiny("en", settings={"expected_positives": "auto"})
    cost = dry_run(data, config, tmp_path / "run", HERE, QUIET)
    assert cost.features == 61 * 256 * 4  # of the training split only, though the backbone is not frozen
    assert min(cost.features_time, cost.expected_time) > 0
    trained = sum(phase.time for phase in cost.phases) + cost.scored * cost.phases[-1].scoring
    before = cost.beginning + cost.features_time + cost.expected_time
    assert cost.seconds == pytest.approx(before + trained + cost.measuring)
    assert not (data.folder / "features").exists()


def test_two_samples_tell_how_long_all_images_take(
    small: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def seconds(features: Any, labels: Any, *_: Any) -> float:
        assert features.shape == (len(labels), 256)
        return 1 + 0.1 * len(labels)

    monkeypatch.setattr("sparselabel.training.estimate_positives.SAMPLE", 20)
    monkeypatch.setattr("sparselabel.training.estimate_positives._seconds", seconds)
    config = tiny("en", settings={"expected_positives": "auto"}, head=HeadPhase(epochs=0))
    cost = dry_run(small, config, tmp_path / "run", HERE, QUIET)
    assert cost.expected_time == pytest.approx(1 + 0.1 * 61)  # every image has a label


def test_features_of_cells_and_those_to_estimate_from(tmp_path: Path) -> None:
    data = small_scenes(tmp_path / "data", 40, 10, Preparation(sparsify="single-positive"))
    cells = {"frozen": True, "finetune": FinetunePhase(epochs=0), "views": Views(size=64)}
    config = tiny("en+scl", settings={"expected_positives": "auto"}, **cells)
    cost = dry_run(data, config, tmp_path / "run", HERE, QUIET)
    assert cost.features == 32 * 256 * 4 * 2 + 18 * 256 * 4 + 32 * 256 * 4


def test_labels_that_tell_by_their_numbers_need_no_features(tmp_path: Path) -> None:
    data = small_scenes(tmp_path / "data", 40, 10, Preparation(sparsify="positive-share", share=0.6))
    cost = dry_run(data, tiny("pu", settings={"expected_positives": "auto"}), tmp_path / "run", HERE, QUIET)
    assert cost.features == 0
    assert cost.expected_time > 0


def test_the_run_that_finds_a_prior_is_counted(marked: Dataset, tmp_path: Path) -> None:
    config = tiny("csl-i+cl", settings={"prior": "auto"}, head=HeadPhase(epochs=5, batch_size=16))
    cost = dry_run(marked, config, tmp_path / "run", HERE, QUIET)
    assert everything_under(tmp_path) == set()
    before = run_before(config)
    assert [before.method, before.head.epochs, before.finetune.epochs] == ["csl-i", 2, 1]
    assert cost.prior_time > 0
    assert cost.prior_disk == dry_run(marked, before, tmp_path / "run", HERE, QUIET).disk
    assert cost.prior_disk < cost.disk
