"""A thread puts a checkpoint on the disk while training goes on."""

import errno
from pathlib import Path
from threading import Event

import pytest
import torch
from safetensors.torch import load_file

from sparselabel.config import Machine
from sparselabel.distributed import start_fabric
from sparselabel.errors import ResourceError
from sparselabel.losses.base import ComposedLoss
from sparselabel.losses.registry import make_method
from sparselabel.losses.step import Memory
from sparselabel.training import checkpoint
from sparselabel.training.checkpoint import CheckpointSaver, TrainingState, newest_checkpoint, write_tensors


@pytest.fixture
def saver(tmp_path: Path) -> CheckpointSaver:
    return CheckpointSaver(tmp_path, start_fabric(Machine(accelerator="cpu"), "32-true"))


def save(saver: CheckpointSaver, epochs: int, method: ComposedLoss | None = None) -> None:
    state = TrainingState(epochs=epochs, best_epoch=epochs, phase="head")
    saver.save(state, {"weight": torch.full((2,), float(epochs))}, None, {}, method or make_method("an"))


def test_the_checkpoint_before_stays_until_the_next_is_on_the_disk(
    saver: CheckpointSaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    with saver:
        save(saver, 1)
        saver.wait()
        on_disk, sync = Event(), checkpoint._sync
        monkeypatch.setattr(checkpoint, "_sync", lambda path: (on_disk.wait(60), sync(path)))
        save(saver, 2)
        assert [path.name for path in checkpoint.checkpoints(saver.folder)] == ["0001"]
        on_disk.set()
    newest = newest_checkpoint(saver.folder)
    assert newest is not None
    assert newest.model()["weight"].tolist() == [2, 2]


def test_an_error_of_the_disk_is_told_and_hides_nothing(
    saver: CheckpointSaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    with saver:
        save(saver, 1)
    monkeypatch.setattr(checkpoint, "_sync", full)
    with pytest.raises(ResourceError, match="0002"):  # noqa: SIM117
        with saver:
            save(saver, 2)
    with pytest.raises(KeyboardInterrupt):  # noqa: SIM117
        with saver:
            raise KeyboardInterrupt
    newest = newest_checkpoint(saver.folder)
    assert newest is not None
    assert newest.state.epochs == 1


def test_a_memory_that_waits_for_the_disk_is_told_before_the_next_epoch(
    saver: CheckpointSaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[list[str]] = []

    class Waiting(Memory):
        def state(self) -> dict[str, torch.Tensor]:
            return {}

        def on_checkpoint_saved(self) -> None:
            told.append([path.name for path in checkpoint.checkpoints(saver.folder)])

    method = make_method("an")
    monkeypatch.setattr(method, "row_stores", lambda: {"own": Waiting()})
    save(saver, 1, method)
    assert told == [["0001"]]


def test_tensors_have_the_rights_of_other_files(tmp_path: Path) -> None:
    write_tensors({"weight": torch.arange(6.0).reshape(2, 3).T}, tmp_path / "model.safetensors")
    (tmp_path / "other.json").touch()
    modes = [file.stat().st_mode for file in tmp_path.iterdir()]
    assert modes[0] == modes[1]
    assert load_file(tmp_path / "model.safetensors")["weight"].tolist() == [[0, 3], [1, 4], [2, 5]]
