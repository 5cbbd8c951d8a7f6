"""Run the command in this process or in a process of its own."""

import json
import os
import subprocess
import sys
import threading
import webbrowser
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar
from urllib.request import Request, urlopen

import numpy as np
import pytest
from PIL import Image

import sparselabel
from sparselabel.cli import main
from sparselabel.config import Preparation, TrainConfig
from sparselabel.review.server import ReviewServer

RESULT: dict[str, Any] = {
    "oracle": False,
    "best_epoch": 2,
    "epochs": 3,
    "validation": {"name": "mAP", "value": 0.5},
    "test": {"name": "mAP", "value": 0.25},
    "recovery": {"model": 0.75, "estimates": 0.875},
}


class Done(int):
    """The exit code of a command that was run in this process."""

    out: str
    err: str


class Command:
    """Runs the command in this process, as a shell would."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self.capsys, self.monkeypatch = capsys, monkeypatch

    def __call__(self, *arguments: object) -> Done:
        self.capsys.readouterr()
        with self.monkeypatch.context() as patch:
            patch.setattr(sys, "argv", ["sparselabel", *map(str, arguments)])
            patch.setattr("warnings.showwarning", None)  # main sets it; put back afterwards
            try:
                main()
                code = 0
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else 0
        done = Done(code)
        done.out, done.err = self.capsys.readouterr()
        return done


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Command:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return Command(capsys, monkeypatch)


class Captured(list[dict[str, Any]]):
    """What ``train_run`` was given, call by call."""

    @property
    def config(self) -> TrainConfig:
        config: TrainConfig = self[-1]["config"]
        return config


class Opened(str):
    """Stands in for prepared data: the path that was opened, with a validation split."""

    temporary = None

    __slots__ = ()
    splits = ("train", "val")
    classes = ("ant", "bee", "cat")
    name = "made-up"
    folder = Path("prepared")
    made: ClassVar = {"preparation": asdict(Preparation(sparsify="single-positive"))}
    train = SimpleNamespace(
        observed=SimpleNamespace(matrix=np.array([[1, -1, -1]]), known=1),
        truth=SimpleNamespace(matrix=np.zeros((1, 3)), known=3),
    )


@pytest.fixture
def captured(monkeypatch: pytest.MonkeyPatch) -> Captured:
    calls = Captured()
    names = ("data", "config", "out", "machine", "handling", "command")

    def take(*given: Any, **_: Any) -> dict[str, Any]:
        calls.append(dict(zip(names, given, strict=False)))  # compare gives a title too
        return RESULT

    monkeypatch.setattr("sparselabel.training.train_run.train_run", take)
    monkeypatch.setattr("sparselabel.training.train_run.check_run", lambda *given: None)
    monkeypatch.setattr("sparselabel.data.prepared_files.open_prepared", Opened)
    return calls


@pytest.fixture
def person(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Stands in for the browser and who is before it: answers so many questions, then presses Ctrl-C."""

    original = ReviewServer.serve_forever

    def sits_down(*answers: str, whole: int = 0) -> list[str]:
        opened: list[str] = []

        def serve(server: ReviewServer, *_: object) -> None:
            loop = threading.Thread(target=original, args=(server, 0.02), daemon=True)
            loop.start()

            def ask(path: str, body: Any) -> Any:
                origin = server.address.rsplit("/", 2)[0]
                headers = {"Content-Type": "application/json", "Origin": origin}
                request = Request(server.address + path, json.dumps(body).encode(), headers)
                with urlopen(request) as reply:
                    return json.load(reply)

            for word in answers:
                (question,) = ask("next", {"count": 1})["questions"]
                with urlopen(f"{server.address}map/{question['row']}/{question['class']}") as reply:
                    assert reply.read(4) == b"\x89PNG"
                ask("answer", {"row": question["row"], "class": question["class"], "answer": word})
            for _number in range(whole):
                (question,) = ask("next", {"count": 1})["questions"]
                ask("answer", {"row": question["row"], "present": [0]})
            server.shutdown()
            loop.join()
            raise KeyboardInterrupt

        monkeypatch.setattr(ReviewServer, "serve_forever", serve)
        monkeypatch.setattr(webbrowser, "open", opened.append)
        return opened

    return sits_down


def images(folder: Path, **classes: int) -> Path:
    for name, count in classes.items():
        for number in range(count):
            path = folder / name / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (8, 8), (number, 0, 0)).save(path)
    return folder


def in_a_subprocess(*arguments: str, cwd: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    source = str(Path(sparselabel.__file__).parents[1])
    return subprocess.run(
        [sys.executable, "-m", "sparselabel", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1", "PYTHONUTF8": "1", **environment},
    )
