"""Findings of the doctor on machines that lack packages."""

import json
import os
import re
import sys
import threading
import tomllib
from pathlib import Path
from urllib.error import HTTPError, URLError

import pytest

from sparselabel import doctor
from sparselabel.doctor import OPTIONAL, as_json, broken, examine
from sparselabel.errors import spell

ROOT = Path(__file__).parent.parent


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(request: object, timeout: float) -> None:
        raise URLError(OSError(111, "Connection refused"))

    monkeypatch.setattr(doctor, "urlopen", refuse)


def test_this_machine_has_what_is_needed(tmp_path: Path) -> None:
    findings = list(examine(tmp_path / "not" / "there"))
    names = [finding.name for finding in findings]
    assert names[:3] == ["Python", "packages", "torch"]
    assert {"cores", "RAM", "disk", "extra", "weights", "model hub"} <= set(names)
    assert not broken(findings)
    for finding in findings:
        assert bool(finding.remedy) == (finding.state != "ok"), finding
    said = as_json(findings)
    assert said["ok"] is True
    assert said["findings"][0].keys() == {"name", "state", "what", "remedy"}


def test_a_hub_that_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = doctor._hub()
    assert (hub.state, hub.what) == ("missing", "huggingface.co cannot be reached (Connection refused)")
    assert "`weights=FILE`" in spell(hub.remedy)

    def answer(request: object, timeout: float) -> None:
        raise HTTPError("https://huggingface.co", 404, "no", {}, None)  # type: ignore[arg-type]

    monkeypatch.setattr(doctor, "urlopen", answer)
    hub = doctor._hub()
    assert hub.what.startswith("huggingface.co answers in 0.")
    enough = threading.Event()

    def wait(request: object, timeout: float) -> None:
        enough.wait(5)
        raise OSError

    monkeypatch.setattr(doctor, "urlopen", wait)
    monkeypatch.setattr(doctor, "SECONDS", 0.1)
    hub = doctor._hub()
    assert hub.what == "huggingface.co cannot be reached (no answer in 0.1 s)"
    enough.set()


def test_secrets_are_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "huggingface_hub.constants.ENDPOINT", "https://me:s3cret@mirror.example/hub?token=t0k"
    )
    monkeypatch.setenv("HF_TOKEN", "hf_abcdef")
    said = str(doctor._hub())
    assert "mirror.example" in said
    for secret in ("s3cret", "t0k", "hf_abcdef", "me:"):
        assert secret not in said


def test_packages_that_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    real = doctor._version
    monkeypatch.setattr(doctor, "_version", lambda name: None if name in ("timm", "ray") else real(name))
    findings = [*doctor._needed(), *doctor._optional()]
    assert broken(findings)
    (needed,) = [finding for finding in findings if finding.name == "packages"]
    assert (needed.what, needed.remedy) == ("missing: timm", "pip install timm")
    extras = {finding.what: finding for finding in findings if finding.name == "extra"}
    assert extras["ray is not installed"].state == "missing"
    assert "sparselabel[cluster]" in extras["ray is not installed"].remedy


def test_torch_that_cannot_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    (torch,) = list(doctor._torch())
    assert (torch.state, "cannot be imported" in torch.what) == ("broken", True)


def test_weights_that_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = tmp_path / "hub"
    (hub / "models--timm--resnet50.a1_in1k" / "snapshots" / "abc").mkdir(parents=True)
    (hub / "models--empty--one").mkdir()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(hub))
    checkpoints = tmp_path / "torch" / "hub" / "checkpoints"
    checkpoints.mkdir(parents=True)
    (checkpoints / "resnet18.pth").touch()
    (checkpoints / "readme.txt").touch()
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    monkeypatch.setattr(doctor, "_in_packages", list)
    said = [finding.what for finding in doctor._weights()]
    assert said == ["hub cache: timm/resnet50.a1_in1k", "torch cache: resnet18.pth"]


def test_little_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "LITTLE_RAM", 1e18)
    monkeypatch.setattr(doctor, "LITTLE_DISK", 1e18)
    assert doctor._memory().state == doctor._disk(tmp_path).state == "missing"
    assert "`memories=file`" in spell(doctor._memory().remedy)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert doctor._disk(tmp_path).what.endswith("where you cannot write")


def test_optional_packages_name_the_extra_that_has_them() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for name, remedy in OPTIONAL.items():
        named = re.search(r"pip install 'sparselabel\[(\w+)\]'$", remedy)
        assert named, remedy
        assert any(re.match(rf"{name}(\[[\w,]+\])?>=", line) for line in extras[named[1]]), remedy


def test_a_run_with_an_estimate_that_is_not_trusted(tmp_path: Path) -> None:
    assert "expected positives" not in {finding.name for finding in examine(tmp_path)}
    said = {"how": "auto", "K": 2.4, "interval": [1.5, 4.0], "trusted": False, "why": "cannot be known"}
    (tmp_path / "expected.json").write_text(json.dumps(said))
    (finding,) = [finding for finding in examine(tmp_path) if finding.name == "expected positives"]
    assert (finding.state, finding.what) == ("missing", "K 2.40 (1.50 – 4.00): cannot be known")
    assert finding.remedy.endswith("known within about 0.6 instead of 1.5 – 4.0")
    (tmp_path / "expected.json").write_text(json.dumps(said | {"trusted": True}))
    (finding,) = [finding for finding in examine(tmp_path) if finding.name == "expected positives"]
    assert (finding.state, finding.remedy) == ("ok", "")
    (tmp_path / "expected.json").write_text(json.dumps(said | {"K": "many"}))
    (finding,) = [finding for finding in examine(tmp_path) if finding.name == "expected positives"]
    assert finding.state == "missing"
    assert "K must be a number" in finding.what
