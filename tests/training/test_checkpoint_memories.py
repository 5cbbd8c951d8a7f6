"""Row stores in files: log lines, and missing files."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from sparselabel.config import FinetunePhase, Handling, Machine
from sparselabel.data.dataset import Dataset
from sparselabel.errors import RunError
from sparselabel.training.train_run import train_run
from tests.training.conftest import tiny

IN_FILES = Machine(accelerator="cpu", workers=0, memories="file")
CONFIG = tiny("en+scl", settings={"top_maps": 3})


class StopError(Exception):
    """Ends a run after its third epoch, as a crash would."""


@pytest.fixture
def stopped(small: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    from sparselabel.training.trainer import Trainer

    original = Trainer.save

    def save(self: Trainer, stage: object, state: object) -> None:
        original(self, stage, state)  # type: ignore[arg-type]
        if state.epochs == 3:  # type: ignore[attr-defined]
            raise StopError

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "save", save)
        with pytest.raises(StopError):
            train_run(small, CONFIG, tmp_path / "run", IN_FILES, Handling(quiet=True))
    return tmp_path / "run"


def test_files_are_named_in_words(small: Dataset, stopped: Path, capfd: pytest.CaptureFixture[str]) -> None:
    machine = replace(IN_FILES, memories="ram")
    train_run(small, CONFIG, stopped, machine, Handling(resume=True))
    said = capfd.readouterr().err.splitlines()
    assert said[0] == (
        "kept in files of the run: running scores (0.01 MB), heat maps (0.01 MB), heat map classes (0.01 MB)"
    )
    assert said[1] == "this run already keeps them in files, so memories=ram has no effect"
    assert "resuming after epoch 3" in said


def test_a_missing_file_is_named(small: Dataset, stopped: Path) -> None:
    shutil.rmtree(stopped / "memory")
    said = (
        r"run/memory lacks running-scores-0-of-1\.rows, which the checkpoint 0003 needs, .*: bring it back "
        r"as it was, "
        "or begin anew with `force=True`"
    )
    for memories in ("auto", "ram", "file"):
        machine = replace(IN_FILES, memories=memories)
        with pytest.raises(RunError, match=said):
            train_run(small, CONFIG, stopped, machine, Handling(resume=True, quiet=True))
    (stopped / "checkpoints" / "0003" / "memory-0.safetensors").unlink()
    with pytest.raises(RunError, match=r"memory-0\.safetensors is missing: remove the folder"):
        train_run(small, CONFIG, stopped, IN_FILES, Handling(resume=True, quiet=True))


def test_why_estimates_are_not_measured(
    small: Dataset, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    # A wild learning rate ruins what the head has learned, so that the best epoch is not the last.
    wild = FinetunePhase(epochs=3, lr=3.0, batch_size=16)
    config = tiny("role", settings={"expected_positives": 2}, finetune=wild)
    result = train_run(small, config, tmp_path / "run", IN_FILES, Handling())
    assert result["best_epoch"] < result["epochs"]
    assert result["recovery"]["estimates"] is None
    assert "of all training labels only the model's knowledge is measured" in capfd.readouterr().err
