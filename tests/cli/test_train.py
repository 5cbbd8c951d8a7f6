"""Flags and files of ``train`` and ``compare``."""

import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from sparselabel.config import FinetunePhase, Handling, HeadPhase, Machine, TrainConfig, Views
from tests.cli.conftest import RESULT, Captured, Command


def test_train_without_flags_takes_the_defaults(command: Command, captured: Captured) -> None:
    done = command("train", "prepared", "--out", "runs/one")
    assert done == 0
    assert captured == [
        {
            "data": "prepared",
            "config": TrainConfig(),
            "out": Path("runs/one"),
            "machine": Machine(),
            "handling": Handling(),
            "command": ["sparselabel", "train", "prepared", "--out", "runs/one"],
        }
    ]
    assert done.out.splitlines() == [
        "best epoch: 2 of 3",
        "validation mAP: 50.00",
        "test mAP: 25.00",
        "all training labels, mAP: model 75.00, estimates (they contain the observed ones) 87.50",
        "next: sparselabel report runs/one",
    ]


def test_quiet_says_nothing(command: Command, captured: Captured) -> None:
    done = command("train", "prepared", "--out", "run", "--quiet")
    assert (done, done.out, done.err) == (0, "", "")
    assert captured[-1]["handling"] == Handling(quiet=True)


def test_a_long_path_with_brackets_is_printed_as_it_is(command: Command, captured: Captured) -> None:
    out = "runs/[bold]" + "x" * 300
    assert (
        command("train", "prepared", "--out", out).out.splitlines()[-1]
        == f"next: sparselabel report '{out}'"  # ready for a shell
    )


FILE = """
method = "role"
backbone = "resnet18"
frozen = true
seed = 4
workers = 0

[settings]
expected_positives = 2
weight = 0.5

[views]
size = 96

[head]
epochs = 7
lr = 0.1
optimizer = "sgd"
"""
OF_FILE = TrainConfig(
    method="role",
    backbone="resnet18",
    frozen=True,
    seed=4,
    settings={"expected_positives": 2, "weight": 0.5},
    views=Views(size=96),
    head=HeadPhase(epochs=7, lr=0.1, optimizer="sgd"),
)


def test_a_file_beats_the_defaults(command: Command, captured: Captured) -> None:
    Path("c.toml").write_text(FILE)
    assert command("train", "prepared", "--out", "run", "--config", "c.toml") == 0
    assert captured.config == OF_FILE
    assert captured[-1]["machine"] == replace(Machine(), workers=0)


def test_a_flag_beats_the_file(command: Command, captured: Captured) -> None:
    Path("c.toml").write_text(FILE)
    flags = shlex.split(
        "--seed 9 --head.epochs 3 --settings.weight 2 --views.flip 0 --finetune.epochs 1 --workers 3"
    )
    assert command("train", "prepared", "--out", "run", "--config", "c.toml", *flags) == 0
    assert captured.config == replace(
        OF_FILE,
        seed=9,
        head=replace(OF_FILE.head, epochs=3),
        settings={"expected_positives": 2, "weight": 2},
        views=Views(size=96, flip=0),
        finetune=FinetunePhase(epochs=1),
    )
    assert captured[-1]["machine"].workers == 3


def test_a_file_is_forgotten_after_its_command(command: Command, captured: Captured) -> None:
    Path("c.toml").write_text(FILE)
    command("train", "prepared", "--out", "run", "--config", "c.toml")
    command("train", "prepared", "--out", "run")
    assert captured.config == TrainConfig()


def test_the_resolved_copy_of_a_run_is_a_configuration_file(command: Command, captured: Captured) -> None:
    from sparselabel.config import save

    save(OF_FILE, Path("config.toml"))
    assert command("train", "prepared", "--out", "run", "--config", "config.toml") == 0
    assert captured.config == OF_FILE


@pytest.mark.parametrize(
    ("toml", "said"),
    [
        ('methd = "an"', 'Unknown option: "[methd]" from'),
        ('methd = "an"', "Did you mean --method?"),
        ("[head]\nepoch = 5", "Did you mean --head.epochs?"),
        ("[views]\nsise = 5", "Did you mean --views.size?"),
        ('[head]\nepochs = "five"', 'unable to convert "five" into int'),
        ("[head]\nepochs = -5", "--head.epochs must not be negative, not -5"),
        ("[views]\nflip = 5", "--views.flip must be in [0, 1], not 5.0"),
        (
            "seed = 1\nmethod = an",
            "sparselabel: error: c.toml cannot be read (Invalid value (at line 2, column 10))",
        ),
    ],
)
def test_a_wrong_file_is_wrong_usage(command: Command, captured: Captured, toml: str, said: str) -> None:
    Path("c.toml").write_text(toml)
    done = command("train", "prepared", "--out", "run", "--config", "c.toml")
    assert done == 2
    assert said in done.err
    assert captured == []


def test_a_file_that_cannot_be_read(command: Command) -> None:
    done = command("train", "prepared", "--out", "run", "--config", "none.toml")
    assert (done, done.err) == (2, "sparselabel: error: there is no configuration file none.toml\n")
    Path("binary.toml").write_bytes(b"\xff\xfe")
    done = command("train", "prepared", "--out", "run", "--config", "binary.toml")
    assert done == 2
    assert done.err.startswith(
        "sparselabel: error: binary.toml cannot be read (it is not text in UTF-8: line 1"
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--metod", "an"], "Unknown option: --metod. Did you mean --method?"),
        (["--head.epoch", "3"], "Unknown option: --head.epoch. Did you mean --head.epochs?"),
        (["--head.epochs", "five"], 'unable to convert "five" into int'),
        (["--precision", "8"], "Invalid value"),
        (["--seed", "-1"], "sparselabel: error: --seed must not be negative, not -1"),
    ],
)
def test_a_wrong_flag_is_wrong_usage(
    command: Command, captured: Captured, arguments: list[str], said: str
) -> None:
    done = command("train", "prepared", "--out", "run", *arguments)
    assert done == 2
    assert said in done.err
    assert captured == []


def test_other_wrong_usage(command: Command) -> None:
    done = command("tran")
    assert done == 2
    assert 'Did you mean "train"?' in done.err
    done = command("data")
    assert done == 2
    assert "needs FOLDER" in done.err
    done = command("compare", "prepared", "--methods", "an")
    assert done == 2
    assert "--out" in done.err


def test_compare(command: Command, captured: Captured) -> None:
    Path("c.toml").write_text("[head]\nepochs = 2\n")
    flags = shlex.split(
        "--methods an bce --seeds 0 1 --choose head.lr 0.1 0.01 --choose an:head.batch-size 8 "
        "--out comparison --config c.toml"
    )
    done = command("compare", "prepared", *flags)
    assert done == 0
    assert len(captured) == 8
    assert captured.config == TrainConfig(method="bce", seed=1, head=HeadPhase(epochs=2, lr=0.01))
    assert captured[0]["config"].head == HeadPhase(epochs=2, lr=0.1, batch_size=8)
    assert done.err.splitlines()[0] == "[1/8] an, head.lr 0.1, head.batch-size 8, seed 0"
    assert done.err.splitlines()[1] == "[1/8] done: an, head.lr 0.1, head.batch-size 8, seed 0: mAP 25.0"
    assert done.out.splitlines()[-2:] == [
        "written to comparison/table.csv, table.md and table.tex",
        "next: sparselabel report comparison/an-lr=0.1-batch-size=8-seed0 "
        "comparison/bce-lr=0.1-seed0 --out comparison/report.html",
    ]
    lines = Path("comparison/table.csv").read_text().splitlines()
    assert lines[1:] == [
        "an,0.1,8,50.00,25.00,,,0.00,0.00,,,,,,75.00,87.50,1,,,0,25.00,25.00",
        "bce,0.1,,50.00,25.00,,,0.00,0.00,,,,,,75.00,87.50,3,,,0,25.00,25.00",
    ]
    assert Path("comparison/table.md").read_text(encoding="utf-8").splitlines()[2] == (
        "| an | 0.1 | 8 | 50.0 | 25.0 ± 0.0 |"
    )
    assert r"bce & 0.1 &  & 50.0 & 25.0 $\pm$ 0.0 \\" in Path("comparison/table.tex").read_text(
        encoding="utf-8"
    )


def test_compare_takes_what_a_recipe_says(command: Command, captured: Captured) -> None:
    done = command("compare", "voc", "--recipe", "scl/voc", "--out", "comparison")
    assert done == 0
    runs = [(call["config"].method, call["config"].settings.get("weight")) for call in captured]
    assert runs == [
        ("bce", None), ("an", None), ("an-ls", None), ("an-ls", None), ("wan", None), ("role", None),
        ("en", None), ("en+cl", 0.1), ("en+cl", 1.0), ("en+scl", 0.1), ("en+scl", 1.0),
    ]  # fmt: skip
    assert captured.config.settings.get("expected_positives") == 1.5
    rows = [line.split(",") for line in Path("comparison/table.csv").read_text().splitlines()]
    published = rows[0].index("published test mAP")
    assert {row[0]: row[published] for row in rows[1:]}["en+scl"] == "88.80"
    captured.clear()
    flags = ["--methods", "an", "iu", "--seeds", 4, "--choose", "head.batch-size", 4, "--out", "other"]
    assert command("compare", "voc", "--recipe", "scl/voc", *flags) == 0  # neither has a K
    assert [(call["config"].method, call["config"].seed) for call in captured] == [("an", 4), ("iu", 4)]
    assert captured.config.head.batch_size == 4
    done = command("compare", "voc", "--recipe", "scl/voc", *flags, "--settings.threshold", ".5")
    assert (done, "none of the methods an, iu has a setting 'threshold'" in done.err) == (2, True)


def test_compare_goes_on_after_a_failure(
    command: Command, captured: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sparselabel.errors import RunError

    def train(data: object, config: TrainConfig, *given: object) -> object:
        if config.method == "an":
            raise RunError("training diverged")
        if config.seed == 1:
            raise ZeroDivisionError("division by zero")
        return RESULT

    monkeypatch.setattr("sparselabel.training.train_run.train_run", train)
    flags = shlex.split("--methods an bce --seeds 0 1 --out comparison")
    done = command("compare", "prepared", *flags)
    assert done == 1
    assert "failed: an, seed 0: training diverged" in done.err.splitlines()
    assert done.err.splitlines()[-2:] == [
        "failed: bce, seed 1: ZeroDivisionError: division by zero",
        "sparselabel: error: 3 of 4 runs failed (see RUN.error.txt beside each): fix the cause and give the "
        "same command again; finished runs are skipped",
    ]
    assert Path("comparison/an-seed0.error.txt").read_text() == "training diverged\n"
    assert Path("comparison/bce-seed1.error.txt").read_text().startswith("Traceback (most recent call last)")
    lines = Path("comparison/table.md").read_text(encoding="utf-8").splitlines()
    assert lines[2:] == ["| an |  |  | 2 |", "| bce | 50.0 | 25.0 | 1 |"]
    monkeypatch.setattr("sparselabel.training.train_run.train_run", lambda *given: RESULT)
    assert command("compare", "prepared", *flags) == 0
    assert not Path("comparison/an-seed0.error.txt").exists()


def test_compare_is_stopped_by_the_user(
    command: Command, captured: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*given: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sparselabel.training.train_run.train_run", stop)
    assert command("compare", "prepared", "--methods", "an", "bce", "--out", "comparison") == 130


def test_compare_needs_methods(command: Command, captured: Captured) -> None:
    done = command("compare", "prepared", "--methods", "an", "bce", "--against", "wan", "--out", "comparison")
    assert (done, "--against wan is none of the methods: an, bce" in done.err) == (2, True)
    done = command("compare", "prepared", "--out", "comparison")
    assert (done, "nothing to compare: give --methods" in done.err) == (2, True)


def test_compare_varies_a_setting(command: Command, captured: Captured) -> None:
    flags = shlex.split("--methods an en --vary settings.expected-positives 1.0 2 --out comparison")
    done = command("compare", "prepared", *flags)
    assert done == 0
    assert [call["config"].settings.get("expected_positives") for call in captured] == [None, 1, 2]
    assert done.err.splitlines()[2].startswith("[2/3] en with 1, seed 0 (about ")
    assert "settings.expected-positives" in done.out
    lines = Path("comparison/table.csv").read_text().splitlines()
    assert [line.split(",")[:5] for line in lines[1:3]] == [
        ["an", "settings.expected-positives", "", "50.00", "25.00"],
        ["en", "settings.expected-positives", "1", "50.00", "25.00"],
    ]
    header = "method,varied,value,split,labels,mAP,spread"
    assert Path("comparison/table-by-labels.csv").read_text().splitlines() == [header]
    done = command("compare", "prepared", "--methods", "an", "--vary", "views.size", "--out", "comparison")
    assert (done, "--vary needs a name and its values" in done.err) == (2, True)


def test_compare_refuses_a_wrong_method_first(command: Command, captured: Captured) -> None:
    done = command("compare", "prepared", "--methods", "an", "rolle", "--out", "comparison")
    assert done == 2
    assert "there is no method 'rolle': did you mean 'role'?" in done.err
    assert captured == []
