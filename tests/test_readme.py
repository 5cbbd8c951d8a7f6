"""The README's Python examples run as they stand, and its commands and those of the analyses exist."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import torch

from sparselabel.cli import app
from sparselabel.compare.plan import plan
from sparselabel.config import TrainConfig
from sparselabel.method.catalog import METHODS
from sparselabel.vary import Varied

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
ANALYSES, COMPARISONS = (
    (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8") for name in ("analyses", "comparisons")
)


def blocks(language: str, page: str = README) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)


def test_the_loop_of_your_own_runs() -> None:
    torch.manual_seed(0)
    names: dict[str, Any] = {}
    (example,) = blocks("python")
    exec(compile(example, "README.md", "exec"), names)
    estimates = names["estimated_labels"]
    assert estimates.shape == (100, 5)
    assert (estimates[names["observed"] == 1] > 0.9).all()


COMMANDS = [
    line
    for page in (README, ANALYSES, COMPARISONS)
    for block in blocks("", page)
    for line in block.replace("\\\n", " ").splitlines()
    if line.startswith("sparselabel ")
]


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_are_understood(command: str) -> None:
    words = shlex.split(command, comments=True)[1:]
    if "--recipe" in words:
        del words[words.index("--recipe") : words.index("--recipe") + 2]  # read before the rest
    _, bound, _ = app.parse_args(words, exit_on_error=False, print_error=False)
    assert bound.arguments


SWEEPS = re.findall(r"`(--methods [^`]+--vary [^`]+)`", ANALYSES)


@pytest.mark.parametrize("flags", SWEEPS)
def test_sweeps_can_be_planned(flags: str) -> None:
    words = shlex.split(f"compare prepared {flags} --out k")
    _, bound, _ = app.parse_args(words, exit_on_error=False, print_error=False)
    vary, methods = bound.arguments["vary"], bound.arguments["methods"]
    runs = plan(TrainConfig(), methods, (0,), Path("k"), varied=Varied.of(vary))
    assert len(runs) > len(methods)


def test_every_method_is_listed() -> None:
    listed = re.findall(
        r"`([a-z+-]+)`", "".join(line for line in README.splitlines() if line.startswith("| `"))
    )
    assert set(METHODS) <= set(listed)


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "docs/results.md",
        "docs/recipes.md",
        "docs/analyses.md",
        "docs/comparisons.md",
        "docs/architecture.md",
        "CONTRIBUTING.md",
    ],
)
def test_no_placeholder_is_left(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert re.findall(r"\b[A-Z]+_(?:TABLE|WORDS)\b", text) == []
