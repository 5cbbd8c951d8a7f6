"""The notebooks in examples/ run from top to bottom and show the expected outputs."""

import re
from pathlib import Path
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat", reason="the development tools are not installed")
nbclient = pytest.importorskip("nbclient", reason="the development tools are not installed")
EXAMPLES = Path(__file__).parents[1] / "examples"


def executed(name: str, folder: Path) -> list[Any]:
    """The outputs of a notebook that is run in a folder of its own."""
    notebook = nbformat.read(EXAMPLES / name, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells)  # stored without
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(folder)}}).execute()
    return [output for cell in notebook.cells for output in cell.get("outputs", ())]


def text_of(outputs: list[Any]) -> str:
    return "\n".join(output.get("text") or output.get("data", {}).get("text/plain", "") for output in outputs)


def pages_of(outputs: list[Any]) -> list[str]:
    return [output["data"]["text/html"] for output in outputs if "text/html" in output.get("data", {})]


def test_own_images(tmp_path: Path) -> None:
    outputs = executed("own_images.ipynb", tmp_path)
    found = re.search(r"test mAP (\d+\.\d)", text_of(outputs))
    assert found is not None
    assert float(found[1]) > 90
    assert "300.jpg shows ['lemon', 'plum'] and we found [(" in text_of(outputs)
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 1
    assert any('src="runs/fruit/report.html"' in page for page in pages_of(outputs))
    assert {file.name for file in (tmp_path / "fruit-model").iterdir()} == {
        "model.safetensors",
        "config.json",
        "README.md",
    }


def test_new_loss(tmp_path: Path) -> None:
    outputs = executed("new_loss.ipynb", tmp_path)
    assert "[6/6] done: pu, seed 1" in text_of(outputs)
    tables = [page for page in pages_of(outputs) if "<td>forgiving</td>" in page]
    assert len(tables) == 3  # the comparison, its table, its differences
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 1
