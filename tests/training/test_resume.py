"""Killed runs resume to the same bits."""

import multiprocessing
import shutil
import signal
import time
from dataclasses import replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from sparselabel.config import FinetunePhase, Handling, HeadPhase, Machine, TrainConfig
from sparselabel.data.dataset import Dataset
from sparselabel.data.loaders import Batch
from sparselabel.data.prepared_files import open_prepared
from sparselabel.losses.step import Progress, Step
from sparselabel.models.backbone import Backbone
from sparselabel.models.classifier import Output
from sparselabel.training.checkpoint import TrainingState, checkpoints, newest_checkpoint
from sparselabel.training.phases import Stage
from sparselabel.training.train_run import train_run
from sparselabel.training.trainer import Trainer
from tests.training.conftest import tiny


class Kind(NamedTuple):
    """A kind of run: its configuration, and where it keeps its memories."""

    config: TrainConfig
    memories: Literal["auto", "file"]


FULL = FinetunePhase(epochs=9, lr=1e-3, batch_size=16, schedule="cosine")
KINDS = {
    "role": Kind(
        tiny(
            "role",
            head=HeadPhase(epochs=3, lr=1e-2, batch_size=16, ema_decay=0.5),
            finetune=replace(FULL, start="best"),
        ),
        "auto",
    ),
    "heat maps in a file": Kind(
        tiny("en+scl", head=HeadPhase(epochs=3, lr=1e-2, batch_size=16), finetune=FULL), "file"
    ),
    "best heat maps": Kind(
        tiny(
            "en+scl",
            settings={"top_maps": 3},
            head=HeadPhase(epochs=3, lr=1e-2, batch_size=16),
            finetune=replace(FULL, start="best"),
        ),
        "auto",
    ),
    "best heat maps in a file": Kind(
        tiny(
            "en+scl",
            settings={"top_maps": 3},
            head=HeadPhase(epochs=3, lr=1e-2, batch_size=16),
            finetune=FULL,
        ),
        "file",
    ),
    "soft labels in a file": Kind(
        tiny(
            "em+apl",
            settings={"warm_up": 2},
            head=HeadPhase(epochs=3, lr=1e-2, batch_size=16),
            finetune=FULL,
        ),
        "file",
    ),
    "corrected labels": Kind(
        tiny(
            "ll-cp",
            settings={"share": 0.01},
            head=HeadPhase(epochs=3, lr=1e-2, batch_size=16),
            finetune=replace(FULL, start="best"),
        ),
        "auto",
    ),
}


def work(data: Path, out: Path, kind: Kind) -> None:
    torch.set_num_threads(1)
    machine = Machine(accelerator="cpu", workers=0, memories=kind.memories)
    train_run(open_prepared(data), kind.config, out, machine, Handling(resume=True, quiet=True))


def start(data: Path, out: Path, kind: Kind = KINDS["role"]) -> BaseProcess:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["sparselabel.training.train_run", "timm"])
    process = context.Process(target=work, args=(data, out, kind))
    process.start()
    return process


def finished(data: Path, out: Path, kind: Kind) -> Path:
    process = start(data, out, kind)
    process.join()
    assert process.exitcode == 0
    return out


@pytest.fixture(scope="module")
def uninterrupted(small: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return finished(small.folder, tmp_path_factory.mktemp("whole") / "run", KINDS["role"])


def assert_same(run: Path, other: Path) -> None:
    for name in ("model.safetensors", "metrics.jsonl", "result.json"):
        assert (run / name).read_bytes() == (other / name).read_bytes(), name
    assert sorted(p.name for p in (run / "checkpoints").iterdir()) == sorted(
        p.name for p in (other / "checkpoints").iterdir()
    )
    newest = [newest_checkpoint(r / "checkpoints") for r in (run, other)]
    assert newest[0] is not None
    assert newest[1] is not None
    for name in ("model", "method", "memory-0"):
        files = [checkpoint.path / f"{name}.safetensors" for checkpoint in newest if checkpoint is not None]
        if any(key.endswith("/identity") for key in load_file(files[0])):
            continue  # which slots are the newest, and the name of the file, may differ
        assert files[0].read_bytes() == files[1].read_bytes(), name
    for epoch in sorted((run / "watched").iterdir()):
        assert_same_arrays(epoch, other / "watched" / epoch.name)


def assert_same_arrays(file: Path, other: Path) -> None:
    ours, theirs = np.load(file), np.load(other)
    assert set(ours) == set(theirs)
    for name in ours:
        assert np.array_equal(ours[name], theirs[name]), (file.name, name)


def wait_for(epochs: int, run: Path, process: BaseProcess) -> None:
    """Until the run has so many epochs in its log; with -1 until it has just begun."""
    log, begun = run / "metrics.jsonl", run / "config.toml"
    while process.is_alive():
        if begun.exists() if epochs < 0 else log.exists() and len(log.read_bytes().splitlines()) > epochs:
            return
        time.sleep(0.001)


@pytest.mark.parametrize("name", KINDS)
def test_killed_again_and_again_it_ends_with_the_same_bits(small: Dataset, tmp_path: Path, name: str) -> None:
    kind, out = KINDS[name], tmp_path / "run"
    uninterrupted = finished(small.folder, tmp_path / "whole", kind)
    # At once, in both phases, at their border, and a moment after an epoch, in the middle of the next.
    for epochs, moment in ((-1, 0.0), (0, 0.0), (1, 0.02), (2, 0.0), (3, 0.03), (6, 0.01), (10, 0.0)):
        process = start(small.folder, out, kind)
        wait_for(epochs, out, process)
        time.sleep(moment)
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL
    assert_same(finished(small.folder, out, kind), uninterrupted)


def test_mixed_precision_goes_on_to_the_same_bits(
    small: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With all that is kept beside the weights: an average of them, a step in parts, a second look."""
    full = FinetunePhase(
        epochs=2, lr=1e-3, batch_size=32, schedule="one-cycle", optimizer="adamw",
        ema_decay=0.9, micro_batches=2, grad_checkpointing=True,
    )  # fmt: skip
    config = tiny(
        "en+cl", head=HeadPhase(epochs=0), finetune=full, precision="bf16-mixed", backbone="test_resnet"
    )
    here = Machine(accelerator="cpu", workers=0)
    inside: set[torch.dtype] = set()
    outside: set[torch.dtype] = set()

    def seen(self: Trainer, batch: Batch, outputs: tuple[Output, ...], progress: Progress) -> Step:
        outside.add(outputs[0].logits.dtype)
        return make_step(self, batch, outputs, progress)

    def stem(self: Backbone, views: Tensor) -> Tensor:
        found = forward(self, views)
        if self.training:
            inside.add(found.dtype)
        return found

    make_step, forward = Trainer.make_step, Backbone.forward
    monkeypatch.setattr(Trainer, "make_step", seen)
    monkeypatch.setattr(Backbone, "forward", stem)
    result = train_run(small, config, tmp_path / "whole", here, Handling(quiet=True))
    assert 0 < result["test"]["value"] < 1
    assert inside == {torch.bfloat16}
    assert outside == {torch.float32}  # losses are never computed in half precision

    save = Trainer.save

    def dies(self: Trainer, stage: Stage, state: TrainingState) -> None:
        if state.epochs == 2:
            raise KeyboardInterrupt
        save(self, stage, state)

    monkeypatch.setattr(Trainer, "save", dies)
    with pytest.raises(KeyboardInterrupt):
        train_run(small, config, tmp_path / "run", here, Handling(quiet=True))
    monkeypatch.setattr(Trainer, "save", save)
    train_run(small, config, tmp_path / "run", here, Handling(resume=True, quiet=True))
    assert_same(tmp_path / "run", tmp_path / "whole")


def test_a_half_written_checkpoint_is_ignored(small: Dataset, uninterrupted: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    shutil.copytree(uninterrupted, out)
    (out / "result.json").unlink()
    last = checkpoints(out / "checkpoints")[-1]
    last.rename(last.with_name(last.name + ".partial"))  # killed just before it got its name
    (last.with_name(last.name + ".partial") / "model.safetensors").write_bytes(b"half")
    # The one before is kept if it is the best: then the run goes on from there, else from the start.
    process = start(small.folder, out)
    process.join()
    assert process.exitcode == 0
    assert_same(out, uninterrupted)


def test_a_finished_run_is_left_alone(small: Dataset, uninterrupted: Path) -> None:
    before = (uninterrupted / "result.json").stat().st_mtime_ns
    began = time.time()
    process = start(small.folder, uninterrupted)
    process.join()
    assert process.exitcode == 0
    assert (uninterrupted / "result.json").stat().st_mtime_ns == before
    assert time.time() > began
