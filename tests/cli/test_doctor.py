"""``sparselabel doctor``: its text and its JSON."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparselabel import doctor
from sparselabel.doctor import Finding
from tests.cli.conftest import Command


def test_what_it_prints(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    findings = [Finding("torch", "ok", "2.6"), Finding("extra", "missing", "no [ray]", "pip install ray")]
    asked: list[Path] = []

    def examine(folder: Path) -> Iterator[Finding]:
        asked.append(folder)
        yield from findings

    monkeypatch.setattr(doctor, "examine", examine)
    done = command("doctor", "elsewhere")
    assert (done, asked) == (0, [Path("elsewhere")])
    assert done.out.splitlines() == [
        "✓ torch: 2.6",
        "– extra: no [ray]",
        "    pip install ray",
        "all that is required is there; – marks what is optional",
    ]
    said = json.loads(command("doctor", "--json").out)
    assert said["findings"][1] == {
        "name": "extra", "state": "missing", "what": "no [ray]", "remedy": "pip install ray"
    }  # fmt: skip
    findings.append(Finding("packages", "broken", "missing: timm", "pip install timm"))
    done = command("doctor")
    assert (done, "✗ packages: missing: timm\n    pip install timm" in done.out) == (1, True)
    done = command("doctor", "--json")
    assert (done, json.loads(done.out)["ok"]) == (1, False)
