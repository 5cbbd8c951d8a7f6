"""Fixtures with the numbers of the authors' programs."""

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest

# A busy machine must not fail a test: how long things take is a matter of benchmarks.
hypothesis.settings.register_profile("no deadline", deadline=None)
hypothesis.settings.load_profile("no deadline")

os.environ["SPARSELABEL_CACHE"] = tempfile.mkdtemp()  # not that of whoever runs the tests

GOLDEN = Path(__file__).parent / "golden"


class Golden:
    """Cases of ``tests/golden/<name>``: each a dict with its arrays under ``inputs`` and ``outputs``."""

    def __init__(self, name: str) -> None:
        arrays = np.load(GOLDEN / f"{name}.npz")
        self.cases: dict[str, dict[str, Any]] = {}
        for case in json.loads((GOLDEN / f"{name}.json").read_text())["cases"]:
            for side in ("inputs", "outputs"):
                case[side] = {role: arrays[key] for role, key in case[side].items()}
            self.cases[case["id"]] = case

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        return [case for case in self.cases.values() if case["kind"] == kind]


@pytest.fixture(scope="session")
def cole() -> Golden:
    return Golden("cole")


@pytest.fixture(scope="session")
def reweighting() -> Golden:
    return Golden("reweighting")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 256 kB, where this user may mount one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)]
    if os.geteuid() or subprocess.run(words, check=False, capture_output=True).returncode:
        pytest.skip("no disk can be mounted")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)  # what is mapped may still be held
