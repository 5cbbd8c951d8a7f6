import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from sparselabel.run import Run
from sparselabel.training import logger as module
from sparselabel.training.logger import Log

RECORD: dict[str, Any] = {"epoch": 1, "phase": "head", "losses": {"labels": 0.5}, "validation": None}


def shown(monkeypatch: pytest.MonkeyPatch, folder: Path, *, terminal: bool, **options: Any) -> str:
    """What a run of one epoch shows."""
    stream = io.StringIO()

    def console() -> Console:
        return Console(file=stream, force_terminal=terminal, width=100, highlight=False, soft_wrap=True)

    monkeypatch.setattr(module, "status_console", console)
    log = Log(Run(folder), speaks=True, **options)
    with log.bar(10, "training") as bar:
        bar.advance(4)
        log.epoch(RECORD)
    log.say("done")
    return stream.getvalue()


def test_a_run_alone_says_every_epoch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text = shown(monkeypatch, tmp_path, terminal=False)
    assert text.splitlines() == ["training ...", "epoch   1 (head) | labels 0.5000", "done"]
    text = shown(monkeypatch, tmp_path, terminal=True)
    for words in ("training", "4/10", "epoch   1 (head) | labels 0.5000", "done"):
        assert words in text


def test_a_term_that_waits_has_no_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = RECORD | {"losses": {"labels": 0.5, "consistency": 0.0}}
    Log(Run(tmp_path), speaks=True).epoch(record, ["consistency"])
    assert "labels 0.5000 consistency joins after the warm-up" in capsys.readouterr().err
    assert '"consistency": 0.0' in (tmp_path / "metrics.jsonl").read_text()


def test_a_run_of_many_shows_its_bar_and_only_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert shown(monkeypatch, tmp_path, terminal=False, title="an-0.1-seed0") == ""
    text = shown(monkeypatch, tmp_path, terminal=True, title="an-0.1-seed0")
    assert "an-0.1-seed0: training" in text
    assert "4/10" in text
    assert "epoch" not in text
    assert "done" not in text
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 2  # numbers are kept all the same


def test_a_quiet_run_shows_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert shown(monkeypatch, tmp_path, terminal=True, quiet=True) == ""


def test_a_damaged_line_is_dropped_and_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = ['{"epoch": 1}', '{"epo\xff', '{"epoch": 3}', '{"epoch": 4}', '{"epoch']
    (tmp_path / "metrics.jsonl").write_bytes("\n".join(lines).encode("latin-1"))
    log = Log(Run(tmp_path), speaks=True)
    log.keep_epochs(3)
    assert (tmp_path / "metrics.jsonl").read_text() == '{"epoch": 1}\n{"epoch": 3}\n'
    assert capsys.readouterr().err == (
        f"{tmp_path / 'metrics.jsonl'} is damaged: 1 epoch will be missing in curves\n"
    )
    log.keep_epochs(1)
    assert (tmp_path / "metrics.jsonl").read_text() == '{"epoch": 1}\n'
    assert capsys.readouterr().err == ""


def test_epochs_without_a_checkpoint_begin_anew_and_it_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = Log(Run(tmp_path), speaks=True)
    log.keep_epochs(0)
    assert capsys.readouterr().err == ""  # a new run
    (tmp_path / "metrics.jsonl").write_text('{"epoch": 1}\n{"epoch": 2}\n')
    log.keep_epochs(0)
    assert (
        capsys.readouterr().err == f"no checkpoint in {tmp_path / 'checkpoints'}: the run begins at epoch 1\n"
    )
    log.keep_epochs(0)
    assert capsys.readouterr().err == ""


def test_a_loss_that_went_astray_can_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Log(Run(tmp_path), speaks=True).epoch(RECORD | {"losses": {"labels": 7e31, "count": 99999.0}})
    assert capsys.readouterr().err == "epoch   1 (head) | labels 7.000e+31 count 99999.0000\n"


def test_metrics_are_not_written_through_a_link(tmp_path: Path) -> None:
    run, own = Run(tmp_path / "run"), tmp_path / "own"
    run.path.mkdir()
    run.metrics_file.symlink_to(own)
    log = Log(run, speaks=True, quiet=True)
    log.keep_epochs(0)
    log.epoch(RECORD)
    assert not own.exists()
    assert len(run.metrics_file.read_text().splitlines()) == 1
