"""The README's Python examples run as they stand, and its commands and those of other pages exist."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import torch

from sparselabel.cli import app
from sparselabel.comparison.grid import Varied
from sparselabel.comparison.planned_runs import plan_runs
from sparselabel.config import TrainConfig
from sparselabel.losses.registry import METHODS

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = {path.name: path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").glob("*.md"))}
ANALYSES, DATA = PAGES["analyses.md"], PAGES["data.md"]


def blocks(language: str, page: str = README) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)


def test_the_readmes_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    names: dict[str, Any] = {}
    example, trained = blocks("python")
    exec(compile(trained, "README.md", "exec"), {})
    exec(compile(example, "README.md", "exec"), names)
    estimates = names["criterion"].method.estimates()
    assert estimates.shape == (100, 5)
    assert (estimates[names["labels"] == 1] > 0.5).all()


def test_the_page_on_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    try:
        for block in blocks("python", PAGES["python.md"]):
            exec(compile(block, "python.md", "exec"), names)
    finally:
        METHODS.pop("soft-negative", None)  # the page registers it
    assert (tmp_path / "runs" / "own" / "report.html").is_file()


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= 120


def test_the_reviews_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (example,) = blocks("python", PAGES["review.md"])
    exec(compile(example, "review.md", "exec"), {})
    assert len((tmp_path / "answers.csv").read_text().splitlines()) == 21


COMMANDS = [
    line
    for page in (README, *PAGES.values())
    for block in blocks("", page)
    for line in block.replace("\\\n", " ").splitlines()
    if line.startswith("sparselabel ")
]


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_are_understood(command: str) -> None:
    words = shlex.split(command, comments=True)[1:]
    _, bound, _ = app.parse_args(words, exit_on_error=False, print_error=False)
    assert bound.arguments or len(words) == 1  # a verb alone, such as `sparselabel recipes`


SWEEPS = re.findall(r"`(--methods [^`]+--vary [^`]+)`", ANALYSES)


@pytest.mark.parametrize("flags", SWEEPS)
def test_sweeps_can_be_planned(flags: str) -> None:
    words = shlex.split(f"compare prepared {flags} --out k")
    _, bound, _ = app.parse_args(words, exit_on_error=False, print_error=False)
    vary, methods = bound.arguments["vary"], bound.arguments["methods"]
    runs = plan_runs(TrainConfig(), methods, (0,), Path("k"), varied=Varied.of(vary))
    assert len(runs) > len(methods)


def test_every_method_is_listed() -> None:
    listed = re.findall(
        r"`([a-z+-]+)`",
        "".join(line for line in PAGES["choosing.md"].splitlines() if line.startswith("| `")),
    )
    assert set(METHODS) <= set(listed)


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", *(f"docs/{name}" for name in PAGES)])
def test_no_placeholder_is_left(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert re.findall(r"\b[A-Z]+_(?:TABLE|WORDS)\b", text) == []


def test_every_problem_is_explained() -> None:
    source = (ROOT / "src" / "sparselabel" / "data" / "checks.py").read_text(encoding="utf-8")
    names = re.findall(
        r"^ +(?:Problem\()?f?\"(?:\{near\})?([a-z]+(?:-[a-z]+)*)\",$", source, flags=re.MULTILINE
    )
    explained = re.findall(
        r"`([a-z-]+)`", "".join(line for line in DATA.splitlines() if line.startswith("| `"))
    )
    assert len(names) == 18
    assert set(names) <= set(explained)


@pytest.mark.parametrize(
    "how", re.findall(r"^\| `([a-z-]+(?: --[^`]+)?)` \|", DATA.split("## Hiding labels")[1], re.MULTILINE)
)
def test_ways_of_hiding_are_understood(how: str) -> None:
    words = shlex.split(f"prepare voc VOC2012 --out prepared --sparsify {how}")
    _, bound, _ = app.parse_args(words, exit_on_error=False, print_error=False)
    assert bound.arguments["to"].how.sparsify == how.split(maxsplit=1)[0]
