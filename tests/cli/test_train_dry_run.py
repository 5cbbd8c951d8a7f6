import pytest

from sparselabel.cli.train import show
from sparselabel.training.dry_run import PhaseCost, RunCost


def test_a_gpu_and_files_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    phase = PhaseCost("finetune", 80, 10_000, 8, 0.5, 0, 0.0, 2 * 10**9, 9 * 10**9, 10**9)
    show(RunCost((phase,), 0, 10**9, 10**9, 600.0, 8 * 10**9, 3 * 10**8, 12 * 10**9, 64 * 10**9, 10**11))
    said = capsys.readouterr().out
    for words in (
        "time: about 4 days 15 h, of which 10 min for features",
        "GPU: 9.00 GB of 12.00 GB",
        "RAM: 3.00 GB per process, without its loaders, 1.00 GB of them stored features; 64.00 GB more",
        "disk: 11.30 GB, 8.00 GB of them what the method remembers; 100.00 GB are free at --out",
        "features to be kept beside the data: 1.00 GB",
    ):
        assert words in said
    assert "may not fit" not in said


def test_what_comes_before_training_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    phase = PhaseCost("head", 1, 10, 8, 0.5, 0, 0.0, 10**9, 0, 10**6)
    show(RunCost((phase,), 0, 10**6, 0, 6.0, 0, 0, 0, 10**9, 10**9, 4.0, 30.0, 0))
    said = " ".join(capsys.readouterr().out.split())
    assert (
        "time: about 45 s, of which 6.0 s for features, 4.0 s to estimate expected positives, "
        "30 s for the run that finds the prior"
    ) in said


def test_a_disk_that_may_be_too_small_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    phase = PhaseCost("finetune", 5, 10, 8, 0.5, 0, 0.0, 10**9, 0, 18 * 10**6)
    show(RunCost((phase,), 0, 0, 0, 0.0, 0, 3 * 10**6, 0, 64 * 10**9, 45 * 10**6))
    said = capsys.readouterr().out
    assert "disk: 57.00 MB; 45.00 MB are free at --out\nthat may not fit: make room, or take an --out" in said


def test_ram_that_may_be_too_small_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    phase = PhaseCost("finetune", 5, 10, 8, 0.5, 0, 0.0, 9 * 10**9, 0, 10**6)
    show(RunCost((phase,), 0, 0, 0, 0.0, 0, 0, 0, 6 * 10**9, 10**9, ram_taken=10**9))
    said = capsys.readouterr().out
    assert "RAM: 9.00 GB per process, without its loaders; 6.00 GB more were free\nthat may not fit: " in said
