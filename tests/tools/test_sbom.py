from pathlib import Path

import pytest

from tools import sbom


def package(name: str, **more: str) -> dict[str, object]:
    return {"metadata": {"name": name, "version": "1.0", **more}}


def test_a_bill_of_materials() -> None:
    bill = sbom.cyclonedx({"installed": [package("Typing_Ext", license="MIT"), package("sparselabel")]})
    assert bill["metadata"]["component"]["purl"] == "pkg:pypi/sparselabel@1.0"
    (other,) = bill["components"]
    assert (other["name"], other["licenses"]) == ("typing-ext", [{"license": {"name": "MIT"}}])


def test_an_audit_that_is_not_possible_is_skipped_by_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sbom, "find_spec", lambda name: None)
    assert sbom.audit(Path("constraints.txt")) == 0
    assert capsys.readouterr().out.startswith("audit skipped: pip-audit is not installed")
