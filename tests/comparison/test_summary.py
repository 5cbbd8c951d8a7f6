from pathlib import Path
from typing import Any

import pytest

from sparselabel.comparison.grid import Varied, choices
from sparselabel.comparison.planned_runs import Outcome, plan_runs
from sparselabel.comparison.summary import Row, rows_of, with_share
from sparselabel.config import HeadPhase, TrainConfig
from sparselabel.errors import RunError
from sparselabel.files import write_json

BASE = TrainConfig(head=HeadPhase(epochs=2))
RATES = choices(["head.lr", "0.1", "0.01"])
DIVERGED = RunError("training diverged")


def row(method: str, *test: float, value: str = "") -> Row:
    return Row(method, {0: 0.5}, dict(enumerate(test)), value)


def result(validation: float | None, test: float | None, **more: Any) -> dict[str, Any]:
    return {
        "oracle": False,
        "validation": None if validation is None else {"value": validation, **more},
        "test": None if test is None else {"value": test},
    }


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
        *(row("an", test, value=value) for value, test in (("1", 0.5), ("2", 0.7))),
        *(row("wan", 0.8, value=value) for value in ("1", "2")),
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


VALUES: dict[tuple[str, float, int], tuple[float, float]] = {
    ("an", 0.1, 0): (0.9, 0.1),  # the best single run, but not the best mean
    ("an", 0.1, 1): (0.1, 0.2),
    ("an", 0.01, 0): (0.6, 0.3),
    ("an", 0.01, 1): (0.5, 0.4),
    ("bce", 0.1, 0): (0.8, 0.7),
    ("bce", 0.1, 1): (0.8, 0.9),
    ("bce", 0.01, 0): (0.7, 1.0),  # a better test must not matter
    ("bce", 0.01, 1): (0.7, 1.0),
}


def outcomes(out: Path) -> list[Outcome]:
    planned = plan_runs(BASE, ["an", "bce"], [0, 1], out, RATES)
    return [Outcome(run, result(*VALUES[run.method, run.config.head.lr, run.seed])) for run in planned]


def test_what_is_best_in_the_mean_of_validation_is_chosen(tmp_path: Path) -> None:
    made = outcomes(tmp_path)
    write_json_cost(made[2].run.path, 4.0, 300)
    write_json_cost(made[3].run.path, 6.0, 200)
    an, bce = rows_of(made)
    assert (an.chosen, bce.chosen) == ((("head.lr", "0.01"),), (("head.lr", "0.1"),))
    assert (an.validation, an.test, an.recovered) == ({0: 0.6, 1: 0.5}, {0: 0.3, 1: 0.4}, 0.0)
    assert (bce.validation, bce.test, bce.recovered) == ({0: 0.8, 1: 0.8}, {0: 0.7, 1: 0.9}, 1.0)
    assert an.paths == {0: made[2].run.path, 1: made[3].run.path}
    assert (an.seconds, an.memory, bce.seconds) == ([4.0, 6.0], [300, 200], [])


def write_json_cost(path: Path, seconds: float, memory: int) -> None:
    path.mkdir(parents=True)
    write_json(path / "cost.json", {"seconds": seconds, "peak_memory": memory})


def test_a_choice_that_failed_is_not_taken_where_another_went_well(tmp_path: Path) -> None:
    made = outcomes(tmp_path)
    made[2] = Outcome(made[2].run, None, DIVERGED)
    an, _ = rows_of(made)
    assert (dict(an.chosen), an.test) == ({"head.lr": "0.1"}, {0: 0.1, 1: 0.2})
    assert [str(one) for one in an.failed] == ["an, head.lr 0.01, seed 0: training diverged"]
    made[0] = Outcome(made[0].run, None, DIVERGED)
    an, _ = rows_of(made)  # one run is left of each: the better validation counts
    assert (dict(an.chosen), an.test, len(an.failed)) == ({"head.lr": "0.01"}, {1: 0.4}, 2)


def test_a_method_of_which_every_run_failed_is_an_empty_row(tmp_path: Path) -> None:
    made = [Outcome(one.run, None, DIVERGED) if one.run.method == "an" else one for one in outcomes(tmp_path)]
    an, bce = rows_of(made)
    assert (an.test, an.validation, an.chosen, len(an.failed)) == ({}, {}, (), 4)
    assert bce.recovered is None


def test_data_without_validation_or_test(tmp_path: Path) -> None:
    planned = plan_runs(BASE, ["an", "bce"], [0], tmp_path)
    rows = rows_of([Outcome(run, result(None, 0.4 + 0.4 * place)) for place, run in enumerate(planned)])
    assert [(one.validation, one.test, one.recovered) for one in rows] == [
        ({}, {0: 0.4}, 0),
        ({}, {0: 0.8}, 1),
    ]
    rows = rows_of([Outcome(run, result(0.3, None)) for run in planned])
    assert [(one.validation, one.test, one.recovered) for one in rows] == [({0: 0.3}, {}, None)] * 2


def test_rows_of_values_numbers_of_labels_and_hidden_labels(tmp_path: Path) -> None:
    planned = plan_runs(
        BASE, ["an", "en"], [0, 1], tmp_path, varied=Varied("settings.momentum", ("0.5", "0.8"))
    )
    made = []
    for run in planned:
        value = float(run.config.settings.get("momentum", 0.0)) + run.seed / 100
        subset = {"average_precision": {"mean_of_present": value / 2}}
        empty = {"average_precision": {"mean_of_present": None}}
        found = result(value, value, by_number_of_labels={"1": subset, "2": empty})
        made.append(Outcome(run, found | {"recovery": {"model": value, "estimates": None}}))
    rows = rows_of(made)
    assert [(one.method, one.value, one.test) for one in rows] == [
        ("an", "", {0: 0.0, 1: 0.01}),
        ("en", "0.5", {0: 0.5, 1: 0.51}),
        ("en", "0.8", {0: 0.8, 1: 0.81}),
    ]
    assert rows[1].by_labels == {("validation", "1"): [0.25, 0.255]}
    assert rows[1].hidden == {"model": [0.5, 0.51]}
