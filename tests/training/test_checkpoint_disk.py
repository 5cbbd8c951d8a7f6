"""Checkpoints that will not fit are refused before training."""

from dataclasses import replace
from pathlib import Path

import pytest

from sparselabel.config import FinetunePhase, Handling, HeadPhase, Machine
from sparselabel.data.dataset import Dataset
from sparselabel.errors import ResourceError
from sparselabel.training import checkpoint as disk
from sparselabel.training.dry_run import dry_run
from sparselabel.training.train_run import check_run, train_run
from tests.training.conftest import tiny

HERE = Machine(accelerator="cpu", workers=0)
HEAD_ALONE = {"head": HeadPhase(epochs=5, batch_size=16), "finetune": FinetunePhase(epochs=0)}
# 61 images × 12 classes: running scores of 4 bytes, and heat maps of 2 × 2 cells; three at once.
REMEMBERED = 61 * 12 * (4 + 2 * 2)


def with_free(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(disk, "free_disk", lambda path: size)


def test_what_is_remembered_in_ram_is_in_three_checkpoints(
    small: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny("en+scl", **HEAD_ALONE)
    with_free(monkeypatch, 3 * REMEMBERED)
    check_run(small, config, tmp_path / "run", HERE)
    with_free(monkeypatch, 3 * REMEMBERED - 1)
    said = (
        r"needs 0\.02 MB of disk: 3 × 0\.01 MB for checkpoints \(0\.01 MB of it what en\+scl remembers of "
        r"every image\); 0\.02 MB are free in .*/run: make room, or take an `out` on a larger disk, or "
        r"take `memories=file` \(once 0\.01 MB instead\)"
    )
    for begin in (train_run, dry_run, check_run):
        with pytest.raises(ResourceError, match=said):
            begin(small, config, tmp_path / "run", HERE)
    assert not (tmp_path / "run").exists()
    check_run(small, tiny("an", **HEAD_ALONE), tmp_path / "run", HERE)


def test_a_short_run_has_fewer(small: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_free(monkeypatch, 2 * REMEMBERED)
    two = {**HEAD_ALONE, "head": HeadPhase(epochs=2, batch_size=16)}
    check_run(small, tiny("en+scl", **two), tmp_path / "run", HERE)
    with_free(monkeypatch, 2 * REMEMBERED - 1)
    with pytest.raises(ResourceError, match=r"2 × \d\.\d\d MB for checkpoints"):
        check_run(small, tiny("en+scl", **two), tmp_path / "run", HERE)


def test_it_is_what_a_run_writes(small: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = FinetunePhase(epochs=2, batch_size=16, optimizer="adamw", ema_decay=0.9)
    config = tiny("en+scl", head=HeadPhase(epochs=0), finetune=full)
    train_run(small, config, tmp_path / "run", HERE, Handling(quiet=True))
    one = sum(file.stat().st_size for file in (tmp_path / "run/checkpoints/0002").iterdir())
    with_free(monkeypatch, round(2 * one * 1.01))
    check_run(small, config, tmp_path / "new", HERE)
    with_free(monkeypatch, round(2 * one * 0.9))  # files have headers, and the head is not counted
    with pytest.raises(ResourceError, match=r"2 × \d\.\d\d MB for checkpoints"):
        check_run(small, config, tmp_path / "new", HERE)
    # What is there already will be written over.
    dry_run(small, config, tmp_path / "run", HERE, Handling(quiet=True, force=True, dry_run=True))


def test_files_of_another_number_of_processes_make_room_for_checkpoints_but_not_for_files(
    small: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny("en+scl", **HEAD_ALONE)
    (tmp_path / "run" / "memory").mkdir(parents=True)
    (tmp_path / "run" / "run.json").touch()  # as little of a run as is taken for one
    (tmp_path / "run" / "memory" / "heat-maps-0-of-2.rows").write_bytes(bytes(REMEMBERED))
    with_free(monkeypatch, 2 * REMEMBERED)
    force = Handling(quiet=True, force=True, dry_run=True)
    dry_run(small, config, tmp_path / "run", HERE, force)
    in_files = replace(HERE, memories="file")
    files = 2 * 4096 + 2 * 61 * 12 * (2 + 2 * 2)  # running scores of 2 bytes there
    with_free(monkeypatch, files - 1)
    with pytest.raises(ResourceError, match=r"and 0\.02 MB of files"):
        dry_run(small, config, tmp_path / "run", in_files, force)
    with_free(monkeypatch, files)
    dry_run(small, config, tmp_path / "run", in_files, force)
