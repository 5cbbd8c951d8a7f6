import csv
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sparselabel.compare import Planned, Row, compare, plan, with_share, write_by_labels, write_table
from sparselabel.config import FullPhase, Handling, HeadPhase, Machine, Settings, TrainConfig
from sparselabel.errors import ConfigError
from sparselabel.vary import Varied

BASE = TrainConfig(head=HeadPhase(epochs=2, learning_rate=0.01), full=FullPhase(epochs=1, learning_rate=1e-5))
OUT = Path("out")


def test_plan_is_methods_times_rates_times_seeds() -> None:
    planned = plan(BASE, ["an", "an-ls"], [0.001, 1e-5], [0, 7], OUT)
    assert [str(run.path.relative_to(OUT)) for run in planned] == [
        "an-0.001-seed0",
        "an-0.001-seed7",
        "an-1e-05-seed0",
        "an-1e-05-seed7",
        "an-ls-0.001-seed0",
        "an-ls-0.001-seed7",
        "an-ls-1e-05-seed0",
        "an-ls-1e-05-seed7",
    ]
    for run in planned:
        tuned = replace(BASE.head, learning_rate=run.learning_rate)
        assert run.config == replace(BASE, method=run.method, seed=run.seed, head=tuned)


def test_without_rates_the_first_phase_keeps_its_own() -> None:
    (run,) = plan(BASE, ["an"], [], [0], OUT)
    assert (run.learning_rate, run.path.name) == (0.01, "an-0.01-seed0")
    assert run.config == BASE
    only_full = replace(BASE, head=HeadPhase(epochs=0))
    (run,) = plan(only_full, ["an"], [0.5], [0], OUT)
    assert run.config == replace(only_full, full=replace(BASE.full, learning_rate=0.5))


def test_each_method_takes_the_settings_it_has() -> None:
    base = replace(BASE, settings=Settings(expected_positives=2.5, smoothing=0.3))
    planned = plan(base, ["an", "an-ls", "role"], [], [0], OUT)
    assert [run.config.settings for run in planned] == [
        Settings(),
        Settings(smoothing=0.3),
        Settings(expected_positives=2.5),
    ]


def test_what_cannot_work_is_refused_before_anything_is_trained() -> None:
    with pytest.raises(ConfigError, match="nothing to compare: give --methods"):
        plan(BASE, [], [], [0], OUT)
    with pytest.raises(ConfigError, match="there is no method 'rolle': did you mean 'role'"):
        plan(BASE, ["an", "rolle"], [], [0], OUT)
    with pytest.raises(ConfigError, match="none of the methods an, bce has a setting 'momentum'"):
        plan(replace(BASE, settings=Settings(momentum=0.5)), ["an", "bce"], [], [0], OUT)
    with pytest.raises(ConfigError, match="learning-rate must be above 0"):
        plan(BASE, ["an"], [0.1, -1.0], [0], OUT)


@pytest.mark.parametrize(
    ("methods", "rates", "seeds", "said"),
    [
        (["an", "bce", "an"], [], [0], "--methods names an more than once: name each once"),
        (["an"], [0.1, 0.01, 0.1], [0], "--learning-rates names 0.1 more than once"),
        (["an"], [0.1, 0.10000001], [0], "--learning-rates names 0.1 more than once"),  # one folder for both
        (["an"], [], [2, 1, 0, 1, 2], "--seeds names 2, 1 more than once"),
    ],
)
def test_what_is_named_twice_is_refused(
    methods: list[str], rates: list[float], seeds: list[int], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        plan(BASE, methods, rates, seeds, OUT)


def test_a_setting_is_varied_for_the_methods_that_have_it() -> None:
    varied = Varied("settings.momentum", ("0.8", "0.5"))
    base = replace(BASE, settings=Settings(expected_positives=2.5))
    planned = plan(base, ["an", "en"], [0.1, 0.2], [0], OUT, varied)
    assert [(run.path.name, run.value) for run in planned] == [
        ("an-0.1-seed0", ""),
        ("an-0.2-seed0", ""),
        ("en-momentum=0.8-0.1-seed0", "0.8"),
        ("en-momentum=0.8-0.2-seed0", "0.8"),
        ("en-momentum=0.5-0.1-seed0", "0.5"),
        ("en-momentum=0.5-0.2-seed0", "0.5"),
    ]
    assert planned[0].config.settings == Settings()
    assert planned[-1].config.settings == Settings(expected_positives=2.5, momentum=0.5)
    assert planned[-1].config.head.learning_rate == 0.2


def test_what_is_no_setting_of_a_method_is_varied_for_all() -> None:
    planned = plan(BASE, ["an", "bce"], [], [0], OUT, Varied("views.smallest-crop", ("0.25", "1")))
    assert [(run.method, run.config.views.smallest_crop) for run in planned] == [
        ("an", 0.25),
        ("an", 1),
        ("bce", 0.25),
        ("bce", 1),
    ]
    planned = plan(BASE, ["an"], [], [0], OUT, Varied("full.learning-rate", ("0.1",)))
    assert planned[0].path.name == "an-learning-rate=0.1-0.01-seed0"


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("settings.momentum", "0.5", "none of the methods an, bce has a setting 'momentum'"),
        ("settings.momentun", "0.5", "unknown key 'momentun': did you mean 'momentum'"),
        ("seed", "3", "--vary cannot be seed: give --seeds"),
        ("method", "an", "--vary cannot be method: give --methods"),
        ("head.learning-rate", "0.1", "--vary cannot be head.learning-rate: give --learning-rates"),
        ("head.epochs", "0", "--vary head.epochs 0 would add or drop a phase"),
    ],
)
def test_what_must_not_be_varied(name: str, value: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        plan(BASE, ["an", "bce"], [], [0], OUT, Varied(name, (value,)))


def row(method: str, *test: float, validation: tuple[float, ...] = (0.5,)) -> Row:
    return Row(method, 0.001, list(validation), list(test))


def test_mean_and_spread() -> None:
    assert row("an", 0.5, 0.7).mean == pytest.approx(0.6)
    assert row("an", 0.5, 0.7).spread == pytest.approx(0.02**0.5)
    assert row("an", 0.5).spread is None


def test_the_share_of_the_gap() -> None:
    rows = with_share([row("an", 0.5), row("role", 0.7, 0.6), row("bce", 0.9), row("iu", 0.3)])
    assert [found.recovered for found in rows] == pytest.approx([0.0, 0.375, 1.0, -0.5])


def test_the_share_of_the_gap_at_the_same_value() -> None:
    rows = [
        row("bce", 0.9),
        *(replace(row("an", value), value=name) for name, value in (("1", 0.5), ("2", 0.7))),
        *(replace(row("wan", 0.8), value=name) for name in ("1", "2")),
    ]
    found = [one.recovered for one in with_share(rows)]
    assert found[0] is None  # the oracle was trained once; there is no gap without a value
    assert found[1:] == pytest.approx([0, 0, 0.75, 0.5])


@pytest.mark.parametrize(
    "rows",
    [
        [row("an", 0.5), row("role", 0.7)],
        [row("bce", 0.5), row("role", 0.7)],
        [row("an", 0.5), row("bce", 0.5)],
        [row("an"), row("bce")],  # no test split
        [],
    ],
)
def test_no_share_without_a_gap(rows: list[Row]) -> None:
    assert with_share(rows) == rows


def written(rows: list[Row], folder: Path) -> list[list[str]]:
    write_table(rows, folder / "table.csv")
    with (folder / "table.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


def test_the_table(tmp_path: Path) -> None:
    rows = with_share(
        [
            row("an", 0.5, 0.52),
            row("role", 0.70004, 0.6, validation=(0.4, 0.5)),
            row("bce", 0.9, 0.92, validation=()),
        ]
    )
    assert written(rows, tmp_path) == [
        ["method", "learning_rate", "validation", "test", "spread", "gap_recovered", "test_0", "test_1"],
        ["an", "0.001", "50.00", "51.00", "1.41", "0.000", "50.00", "52.00"],
        ["role", "0.001", "45.00", "65.00", "7.07", "0.350", "70.00", "60.00"],
        ["bce", "0.001", "", "91.00", "1.41", "1.000", "90.00", "92.00"],
    ]


def test_the_table_without_a_test_split(tmp_path: Path) -> None:
    assert written([row("an"), row("bce")], tmp_path) == [
        ["method", "learning_rate", "validation", "test", "spread", "gap_recovered"],
        ["an", "0.001", "50.00", "", "", ""],
        ["bce", "0.001", "50.00", "", "", ""],
    ]


def test_the_table_of_a_varied_setting(tmp_path: Path) -> None:
    rows = [
        row("an", 0.5),
        replace(
            row("en", 0.5, 0.6), value="2", by_labels={("test", "1"): [0.25, 0.75], ("test", "4+"): [0.5]}
        ),
    ]
    write_table(rows, tmp_path / "table.csv", "settings.weight")
    assert (tmp_path / "table.csv").read_text().splitlines() == [
        "method,varied,value,learning_rate,validation,test,spread,gap_recovered,test_0,test_1",
        "an,settings.weight,,0.001,50.00,50.00,,,50.00",
        "en,settings.weight,2,0.001,50.00,55.00,7.07,,50.00,60.00",
    ]
    write_by_labels(rows, tmp_path / "labels.csv", "settings.weight")
    assert (tmp_path / "labels.csv").read_text().splitlines() == [
        "method,varied,value,split,labels,mAP,spread",
        "en,settings.weight,2,test,1,50.00,35.36",
        "en,settings.weight,2,test,4+,50.00,",
    ]
    write_by_labels(rows, tmp_path / "labels.csv")
    assert (tmp_path / "labels.csv").read_text().splitlines()[:2] == [
        "method,split,labels,mAP,spread",
        "en,test,1,50.00,35.36",
    ]


def test_rows_of_values_and_numbers_of_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    def train(data: Any, config: TrainConfig, *rest: Any) -> dict[str, Any]:
        value = (config.settings.momentum or 0.0) + config.seed / 100
        subset = {"images": 3, "average_precision": {"mean_of_present": value / 2}}
        empty = {"images": 0, "average_precision": {"mean_of_present": None}}
        measured = {"value": value, "by_number_of_labels": {"1": subset, "2": empty}}
        return {"validation": measured, "test": {"value": value, "by_number_of_labels": None}}

    monkeypatch.setattr("sparselabel.train.run.train_run", train)
    monkeypatch.setattr("sparselabel.train.run.checked", lambda data, config: None)
    planned = plan(BASE, ["an", "en"], [], [0, 1], OUT, Varied("settings.momentum", ("0.5", "0.8")))
    data: Any = SimpleNamespace(splits={"val": None})
    rows = compare(data, planned, Machine(workers=0))
    assert [(one.method, one.value, one.test) for one in rows] == [
        ("an", "", [0.0, 0.01]),
        ("en", "0.5", [0.5, 0.51]),
        ("en", "0.8", [0.8, 0.81]),
    ]
    assert rows[1].by_labels == {("validation", "1"): [0.25, 0.255]}


class Trainer:
    """Stands in for ``train_run`` and gives the values that a test wants, by (method, rate, seed)."""

    def __init__(self, values: dict[tuple[str, float, int], tuple[float | None, float | None]]) -> None:
        self.values = values
        self.calls: list[tuple[Path, Handling]] = []
        self.titles: list[str] = []

    def __call__(
        self, data: Any, config: TrainConfig, out: Path, machine: Machine, *rest: Any
    ) -> dict[str, Any]:
        self.calls.append((out, rest[0]))
        self.titles.append(rest[-1])
        validation, test = self.values[config.method, config.head.learning_rate, config.seed]
        return {
            "validation": None if validation is None else {"value": validation},
            "test": None if test is None else {"value": test},
        }


def stand_in(trainer: Trainer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparselabel.train.run.train_run", trainer)
    monkeypatch.setattr("sparselabel.train.run.checked", lambda data, config: None)


def train_with(trainer: Trainer, planned: list[Planned], monkeypatch: pytest.MonkeyPatch) -> list[Row]:
    stand_in(trainer, monkeypatch)
    data: Any = SimpleNamespace(splits={"val": None})
    return compare(data, planned, Machine(workers=0))


def test_the_rate_is_chosen_by_mean_validation(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = Trainer(
        {
            ("an", 0.1, 0): (0.9, 0.1),  # the best single run, but not the best mean
            ("an", 0.1, 1): (0.1, 0.2),
            ("an", 0.01, 0): (0.6, 0.3),
            ("an", 0.01, 1): (0.5, 0.4),
            ("bce", 0.1, 0): (0.8, 0.7),
            ("bce", 0.1, 1): (0.8, 0.9),
            ("bce", 0.01, 0): (0.7, 1.0),  # a better test must not matter
            ("bce", 0.01, 1): (0.7, 1.0),
        }
    )
    planned = plan(BASE, ["an", "bce"], [0.1, 0.01], [0, 1], OUT)
    rows = train_with(trainer, planned, monkeypatch)
    assert rows == [
        Row("an", 0.01, [0.6, 0.5], [0.3, 0.4], recovered=0.0),
        Row("bce", 0.1, [0.8, 0.8], [0.7, 0.9], recovered=1.0),
    ]
    assert [path for path, _ in trainer.calls] == [run.path for run in planned]
    assert {handling for _, handling in trainer.calls} == {Handling(resume=True)}
    assert trainer.titles == [run.path.name for run in planned]


def test_data_without_validation_or_test(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = Trainer({("an", 0.01, 0): (None, 0.4), ("bce", 0.01, 0): (None, 0.8)})
    rows = train_with(trainer, plan(BASE, ["an", "bce"], [], [0], OUT), monkeypatch)
    assert [(found.validation, found.test, found.recovered) for found in rows] == [
        ([], [0.4], 0.0),
        ([], [0.8], 1.0),
    ]
    trainer = Trainer({("an", 0.01, 0): (0.3, None), ("bce", 0.01, 0): (0.4, None)})
    rows = train_with(trainer, plan(BASE, ["an", "bce"], [], [0], OUT), monkeypatch)
    assert [(found.validation, found.test, found.recovered) for found in rows] == [
        ([0.3], [], None),
        ([0.4], [], None),
    ]


def test_the_report_says_which_run_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[tuple[str, int, int]] = []
    trainer = Trainer({("an", 0.01, 0): (0.3, 0.4), ("an", 0.01, 1): (0.3, 0.4)})
    stand_in(trainer, monkeypatch)
    data: Any = SimpleNamespace(splits={"val": None})
    planned = plan(BASE, ["an"], [], [0, 1], OUT)
    compare(data, planned, Machine(), lambda run, number, total: said.append((run.path.name, number, total)))
    assert said == [("an-0.01-seed0", 0, 2), ("an-0.01-seed1", 1, 2)]


def test_finished_runs_are_not_trained_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from PIL import Image

    from sparselabel.config import Preparation
    from sparselabel.data.prepare import prepare
    from sparselabel.data.readers import folder
    from sparselabel.json_file import write_json
    from sparselabel.run_folder import RunFolder

    for number in range(2):
        for name in ("cat", "dog"):
            path = tmp_path / "photos" / name / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (16, 16), (number, 0, 0)).save(path)
    data = prepare(folder.read(tmp_path / "photos"), tmp_path / "data", Preparation(validation=0))
    (run,) = plan(BASE, ["an"], [], [0], tmp_path / "runs")
    finished = RunFolder(run.path)
    about = {"data_digest": {name: split.digest for name, split in data.splits.items()}}
    finished.begin(run.config, about, resume=False, force=False)
    write_json(finished.result_file, {"validation": None, "test": {"value": 0.25}})

    def refuse(*_: Any) -> Any:
        raise ValueError("trained again")

    monkeypatch.setattr("sparselabel.train.run.train", refuse)
    assert compare(data, [run], Machine(accelerator="cpu", workers=0)) == [Row("an", 0.01, [], [0.25])]
    finished.result_file.unlink()
    monkeypatch.setattr("sparselabel.train.run.Learner", refuse)
    with pytest.raises(ValueError, match="trained again"):
        compare(data, [run], Machine(accelerator="cpu", workers=0))
