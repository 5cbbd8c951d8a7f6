"""Every command's help fits a screen and has an example."""

import re
from collections.abc import Iterator

import pytest
from cyclopts import App
from rich.console import Console

from sparselabel.cli import app
from tests.cli.conftest import Command

SCREEN = 50  # lines of 80 letters


def commands(parent: App, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield words
    for name in parent:
        if not name.startswith("-"):
            yield from commands(parent[name], (*words, name))


ALL = list(commands(app))


def test_all_commands_are_looked_at() -> None:
    assert len(ALL) >= 35
    for words in ((), ("train",), ("prepare", "table"), ("figure", "sweep"), ("review",), ("doctor",)):
        assert words in ALL


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_it_fits_a_screen_and_has_an_example(
    command: Command, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.setattr(app, "_console", Console(width=80))
    done = command(*words, "--help")
    assert done == 0
    lines = done.out.rstrip().splitlines()
    assert len(lines) <= SCREEN
    assert max(map(len, lines)) <= 80
    start = "Start with" if not words else "Example:"
    assert re.search(f"{start} sparselabel {' '.join(words)}", " ".join(done.out.split()))


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_help_all_shows_the_rest(
    command: Command, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.setattr(app, "_console", Console(width=80))
    short, whole = command(*words, "--help").out, command(*words, "--help-all").out
    left = re.search(r"^(\d+) more flags: --help-all instead of --help shows them\.$", short, re.MULTILINE)

    def flags(text: str) -> int:
        return len(re.findall(r"^│ (?:[* ]  )?--[a-z]", text, re.MULTILINE))

    assert flags(whole) == flags(short) + (int(left[1]) if left else 0)
    assert "more flags" not in whole
    assert (short == whole) == (left is None)


def test_help_of_training_names_what_is_often_wanted(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "_console", Console(width=80))
    short, whole = command("train", "--help").out, command("train", "--help-all").out
    for flag in ("--out", "--method", "--frozen", "--resume", "--force"):
        assert f" {flag} " in short
    assert whole.count("[default: resnet50]") == short.count("[default: resnet50]") == 1
    assert " --budget " in command("prepare", "scenes", "--help-all").out
