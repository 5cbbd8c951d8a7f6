"""Runs that are really killed, and go on to the same bits."""

import multiprocessing
import shutil
import signal
import time
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from sparselabel.config import FullPhase, Handling, HeadPhase, Machine, TrainConfig
from sparselabel.data.dataset import Prepared, open_prepared
from sparselabel.train.checkpoint import checkpoints, newest_checkpoint
from sparselabel.train.run import train_run
from tests.train.conftest import tiny

CONFIG = tiny(
    "role",
    head=HeadPhase(epochs=3, learning_rate=1e-2, batch=16, weight_average=0.5),
    full=FullPhase(epochs=9, learning_rate=1e-3, batch=16, schedule="cosine", start="best"),
)


def work(data: Path, out: Path, config: TrainConfig) -> None:
    import torch

    torch.set_num_threads(1)
    machine = Machine(accelerator="cpu", workers=0)
    train_run(open_prepared(data), config, out, machine, Handling(resume=True, quiet=True))


def start(data: Path, out: Path) -> BaseProcess:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["sparselabel.train.run", "timm"])
    process = context.Process(target=work, args=(data, out, CONFIG))
    process.start()
    return process


@pytest.fixture(scope="module")
def uninterrupted(small: Prepared, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("whole") / "run"
    process = start(small.folder, out)
    process.join()
    assert process.exitcode == 0
    return out


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
        assert files[0].read_bytes() == files[1].read_bytes(), name


def wait_for(epochs: int, run: Path, process: BaseProcess) -> None:
    """Until the run has so many epochs in its log; with -1 until it has just begun."""
    log, begun = run / "metrics.jsonl", run / "config.toml"
    while process.is_alive():
        if begun.exists() if epochs < 0 else log.exists() and len(log.read_bytes().splitlines()) > epochs:
            return
        time.sleep(0.001)


def test_killed_again_and_again_it_ends_with_the_same_bits(
    small: Prepared, uninterrupted: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    # At once, in both phases, at their border, and a moment after an epoch, in the middle of the next.
    for epochs, moment in ((-1, 0.0), (0, 0.0), (1, 0.02), (2, 0.0), (3, 0.03), (6, 0.01), (10, 0.0)):
        process = start(small.folder, out)
        wait_for(epochs, out, process)
        time.sleep(moment)
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL
    process = start(small.folder, out)
    process.join()
    assert process.exitcode == 0
    assert_same(out, uninterrupted)


def test_a_half_written_checkpoint_is_ignored(small: Prepared, uninterrupted: Path, tmp_path: Path) -> None:
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


def test_a_finished_run_is_left_alone(small: Prepared, uninterrupted: Path) -> None:
    before = (uninterrupted / "result.json").stat().st_mtime_ns
    began = time.time()
    process = start(small.folder, uninterrupted)
    process.join()
    assert process.exitcode == 0
    assert (uninterrupted / "result.json").stat().st_mtime_ns == before
    assert time.time() > began
