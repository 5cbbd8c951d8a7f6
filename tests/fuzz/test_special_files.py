"""Pipes and devices among files from elsewhere: nobody waits for them, or reads without end."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fuzz.session import Sample

NAMES = (
    *("answers", "coco list", "configuration", "cub", "features", "imagenet devkit", "job on a cluster"),
    *("label-studio", "nuswide", "predictions", "prepared data", "run checkpoint", "run figures", "scenes"),
    *("scores npz", "table long", "voc", "weights"),
)


@pytest.fixture
def _seconds() -> Iterator[None]:
    """A read that waits for a pipe computes nothing: time is by the clock."""

    def stop(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(300)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("_seconds")
@pytest.mark.parametrize("name", NAMES)
def test_they_are_refused_by_name(tmp_path: Path, name: str) -> None:
    sample = Sample(name, tmp_path / "sample")
    for file in (sample.files[0], sample.files[-1]):
        for make in (os.mkfifo, lambda file: file.symlink_to("/dev/zero")):
            file.unlink()
            make(file)
            assert sample.fault_of(file, None) == ""
