"""docs/tutorial.md from top to bottom, and examples/own_loop.py; nothing is downloaded."""

import csv
import json
import re
import shlex
import subprocess
import threading
import webbrowser
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import numpy as np
import pytest
import torch
from PIL import Image

from sparselabel.data.answers import read_answers
from sparselabel.data.scenes.generate import CLASSES, make_scene
from sparselabel.review.server import ReviewServer
from sparselabel.run import Run
from tests.cli.conftest import Command
from tests.cli.conftest import command as command  # noqa: PLC0414 - a fixture

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
EXAMPLE = (ROOT / "examples" / "own_loop.py").read_text(encoding="utf-8")

# What a reader types, and what is run here: fewer images, and a small network of random numbers.
INSTEAD = {
    "--train 1000 --test 200": "--train 100 --test 6 --size 32",
    "--labels labels.csv": "--labels labels.csv --backbone test_resnet --weights none --views.size 32 "
    "--frozen --head.epochs 2 --workers 0 --settings.expected-positives 2.2",
}
TOOLS = {"mv", "sed"}
ANSWERS = 12
ORIGINAL = ReviewServer.serve_forever


def steps(page: str) -> list[tuple[str, str]]:
    """Language and content of the blocks that are to be run: those of commands have no language."""
    found = re.findall(r"^```(\w*)\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)
    return [(language, content) for language, content in found if language in ("", "python")]


def review_and_leave(server: ReviewServer) -> None:
    """A person who knows what was drawn answers some questions over HTTP, then presses Ctrl-C."""
    loop = threading.Thread(target=ORIGINAL, args=(server, 0.02), daemon=True)
    loop.start()

    def ask(path: str, body: dict[str, Any]) -> Any:
        origin = server.address.rsplit("/", 2)[0]
        headers = {"Origin": origin, "Content-Type": "application/json"}
        request = Request(server.address + path, json.dumps(body).encode(), headers)
        with urlopen(request, timeout=60) as reply:
            return json.load(reply)

    for _ in range(ANSWERS):
        (question,) = ask("next", {"count": 1})["questions"]
        truth = make_scene(0, int(Path(question["image"]).stem), 32).labels
        word = "yes" if truth[CLASSES.index(question["label"])] == 1 else "no"
        ask("answer", {"row": question["row"], "class": question["class"], "answer": word})
    server.shutdown()
    loop.join()
    raise KeyboardInterrupt


def run_line(line: str, command: Command) -> None:
    """A line as a shell runs it: our command in this process, others as they are."""
    words = shlex.split(line, comments=True)
    if words[0] == "sparselabel":
        done = command(*words[1:])
        assert done == 0, f"{line}\n{done.err}"
        return
    assert words[0] in TOOLS, line
    subprocess.run(line, shell=True, check=True)


@pytest.mark.filterwarnings("ignore::sparselabel.errors.DataWarning")
def test_the_tutorial_runs_from_top_to_bottom(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    monkeypatch.setattr(ReviewServer, "serve_forever", lambda server, *_: review_and_leave(server))
    page = PAGE
    for typed, instead in INSTEAD.items():
        assert page.count(typed) == 1, typed
        page = page.replace(typed, instead)
    names: dict[str, Any] = {}
    for language, content in steps(page):
        if language == "python":
            exec(compile(content, "tutorial.md", "exec"), names)
            continue
        for line in content.replace("\\\n", " ").splitlines():
            run_line(line, command)

    assert len(opened) == 1
    with (tmp_path / "tags.csv").open(newline="") as stream:
        tags = list(csv.DictReader(stream))
    assert [row["image"] for row in tags] == [f"photos/test/{number:06d}.jpg" for number in range(6)]
    assert not any(row["error"] for row in tags)
    answers = read_answers(tmp_path / "runs" / "photos" / "answers.csv")
    assert len(answers) == ANSWERS
    reviewed = Run(tmp_path / "runs" / "photos-reviewed")
    assert reviewed.finished
    assert reviewed.metadata()["answers"] == ANSWERS
    assert names["scores"].shape == (1, 12)
    assert names["file"].name == "000004.jpg"


def test_the_example_has_thirty_lines_and_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, _, code = EXAMPLE.partition('"""\n')
    assert sum(bool(line.strip()) for line in code.splitlines()) <= 30
    random = np.random.default_rng(0)
    lines = ["image,ant,bee,split"]
    for number in range(6):
        Image.fromarray(random.integers(0, 255, (20, 20, 3), np.uint8)).save(tmp_path / f"{number}.png")
        lines.append(f"{number}.png,1,,train" if number % 2 else f"{number}.png,,1,train")
    (tmp_path / "labels.csv").write_text("\n".join(lines))
    shorter = {"EPOCHS, BATCH, RATE = 5, 16, 1e-4": "EPOCHS, BATCH, RATE = 2, 3, 1e-4",
               "resnet18(weights=weights)": "resnet18(weights=None)",
               "weights.transforms()": "weights.transforms(crop_size=32, resize_size=32)",
               "expected_positives=2.2": "expected_positives=1.4"}  # fmt: skip
    example = EXAMPLE
    for typed, instead in shorter.items():
        assert example.count(typed) == 1, typed
        example = example.replace(typed, instead)
    monkeypatch.setattr("sys.argv", ["own_loop.py", str(tmp_path), str(tmp_path / "labels.csv")])
    torch.manual_seed(0)
    names: dict[str, Any] = {}
    exec(compile(example, "own_loop.py", "exec"), names)
    said = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in said] == ["epoch 1", "epoch 2"]
    assert names["classes"] == ["ant", "bee"]
    assert names["labels"].tolist() == [[-1, 1], [1, -1]] * 3
    assert torch.isfinite(names["model"].fc.weight).all()


def test_the_tutorial_shows_the_example_as_it_is() -> None:
    shown = re.search(
        r"^The part that is ours:\n\n```console\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL
    )
    assert shown is not None
    for line in shown[1].splitlines():
        if line.strip() != "...":
            assert line in EXAMPLE, line
