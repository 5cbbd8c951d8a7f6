"""``sparselabel.compare`` on a few scenes."""

import builtins
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import sparselabel
from sparselabel.comparison.compare import Comparison, compare
from sparselabel.comparison.evaluate_maps import evaluate_maps, has_places, maps_to_evaluate
from sparselabel.config import HeadPhase, TrainConfig
from sparselabel.data.dataset import Dataset
from sparselabel.data.labels import UNKNOWN
from sparselabel.errors import ConfigError, DataError, RunError
from sparselabel.run import Run
from tests.comparison.test_runner import TINY, data  # noqa: F401

HERE: dict[str, Any] = {"accelerator": "cpu", "workers": 0, "quiet": True}


@pytest.fixture(scope="module")
def made(data: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Comparison:  # noqa: F811
    out = tmp_path_factory.mktemp("runs") / "compare"
    return compare(data, ["an", "bce", "an-ls"], out=out, seeds=2, config=TINY, **HERE)


def test_what_was_trained(made: Comparison) -> None:
    assert [(one.run.method, one.run.seed) for one in made.outcomes] == [
        (method, seed) for method in ("an", "bce", "an-ls") for seed in (0, 1)
    ]
    assert (made.failed, made.against, made.varied) == ([], "an", None)
    assert {file.name for file in made.folder.glob("*.*")} == {
        "comparison.json", "table.csv", "table-by-labels.csv", "table.md", "table.tex",
    }  # fmt: skip
    assert repr(made) == f"Comparison({str(made.folder)!r}: an, bce, an-ls; 6 runs)"


def test_the_table_is_a_frame(made: Comparison) -> None:
    table = made.table().set_index("method")
    assert list(table.index) == ["an", "bce", "an-ls"]
    values = [json.loads((one.run.path / "result.json").read_text()) for one in made.outcomes[2:4]]
    tests = [100 * value["test"]["value"] for value in values]
    assert table.loc["bce", "test"] == pytest.approx(sum(tests) / 2)
    assert table.loc["bce", ["test_0", "test_1"]].tolist() == pytest.approx(tests)
    assert table["failed"].tolist() == [0, 0, 0]
    assert table["gap_recovered"].tolist()[:2] == [0.0, 1.0]


def test_all_pairs_are_compared(made: Comparison) -> None:
    found = made.differences()
    assert found[["method", "other"]].to_numpy().tolist() == [
        ["an", "bce"], ["an", "an-ls"], ["bce", "an-ls"],
    ]  # fmt: skip
    means = made.table().set_index("method")["test"]
    assert found["difference"].tolist() == pytest.approx(
        [means["an"] - means["bce"], means["an"] - means["an-ls"], means["bce"] - means["an-ls"]]
    )
    assert (found["low"] <= found["high"]).all()
    assert found["zero_outside"].tolist() == [
        not low <= 0 <= high for low, high in zip(found["low"], found["high"], strict=True)
    ]


def test_without_test_images_there_is_nothing_to_differ(made: Comparison) -> None:
    untested = [replace(one, result={**(one.result or {}), "test": None}) for one in made.outcomes]
    other = replace(made, outcomes=tuple(untested))
    for refused in (other.differences, other.figure):
        with pytest.raises(DataError, match=r"no run of .* has a test mAP") as error:
            refused()
        assert error.value.what == "test"


def test_it_is_opened_again(made: Comparison, monkeypatch: pytest.MonkeyPatch) -> None:
    again = sparselabel.Comparison.open(made.folder)
    assert again.table().equals(made.table())
    assert again.differences().equals(made.differences())
    assert (again.labels, again.notes, again.data) == (made.labels, made.notes, made.data)
    with pytest.raises(RunError, match=r"has no comparison\.json") as refused:
        Comparison.open(made.folder.parent)
    assert refused.value.what == made.folder.parent


def test_it_shows_itself(made: Comparison) -> None:
    shown = made._repr_html_()
    assert shown.startswith("<table><thead><tr><th>method</th>")
    assert shown.count("<tr>") == 4
    figure = made.figure()
    axes = figure.axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["an", "bce", "an-ls"]
    assert axes.get_xlabel() == "test mAP, %"
    assert figure._repr_png_().startswith(b"\x89PNG")  # type: ignore[attr-defined]


def test_a_second_call_trains_nothing(
    made: Comparison,
    data: Dataset,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sparselabel.training.train_run.train_run", None)
    settings = {"out": made.folder, "seeds": [0, 1], "config": TINY, **HERE}
    again = compare(str(data.folder), ["an", "bce", "an-ls"], **settings)
    assert again.table().equals(made.table())


def test_keywords_are_settings(tmp_path: Path, data: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    seen: list[TrainConfig] = []

    def train(data: Dataset, config: TrainConfig, *given: Any) -> dict[str, Any]:
        seen.append(config)
        metrics = {
            name: {"value": value, "name": "mAP"} for name, value in (("validation", 0.5), ("test", 0.25))
        }
        return {"oracle": False} | metrics

    monkeypatch.setattr("sparselabel.training.train_run.train_run", train)
    monkeypatch.setattr("sparselabel.training.stacked_heads.stack_key", lambda *given: None)  # one by one
    given = {"head": {"epochs": 3}, "smoothing": 0.2, "watch": 1, **HERE}
    found = compare(data, ["an", "an-ls"], out=tmp_path, config=TINY, choose={"head.lr": [0.1, 0.2]}, **given)
    assert [config.settings for config in seen] == [{}, {}, {"smoothing": 0.2}, {"smoothing": 0.2}]
    assert {config.head for config in seen} == {HeadPhase(epochs=3, lr=lr) for lr in (0.1, 0.2)}
    assert {config.watch for config in seen} == {1}
    assert found.rows[0].chosen == (("head.lr", "0.1"),)
    assert "no bootstrap for an-ls" in found.sheet().notes[0]
    with pytest.raises(ConfigError, match="has a setting 'smoothin'"):
        compare(data, ["an-ls"], out=tmp_path, config=TINY, smoothin=0.2, **HERE)
    with pytest.raises(ConfigError) as refused:
        compare(data, ["an"], out=tmp_path, force=True)
    assert refused.value.what == "force"
    with pytest.raises(ConfigError) as refused:
        compare(data, ["an"], out=tmp_path, vary={"head.lr": [1.0], "watch": [1]})
    assert refused.value.what == "vary"
    with pytest.raises(ConfigError) as refused:
        compare(data, ["an"], out=tmp_path, seeds=0)
    assert refused.value.what == "seeds"
    with pytest.raises(ConfigError) as refused:
        compare(data, "an", out=tmp_path / "x")
    assert (refused.value.what, refused.value.value) == ("methods", "an")


def test_without_pandas(made: Comparison, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *given: Any, **more: Any) -> Any:
        if name == "pandas":
            raise ImportError(name)
        return real(name, *given, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError, match=r"sparselabel\[pandas\]") as refused:
        made.table()
    assert refused.value.what == "pandas"
    assert made._repr_html_().startswith("<table>")


def test_draws_of_labels(tmp_path: Path, data: Dataset) -> None:  # noqa: F811
    made = compare(
        data, ["an", "bce"], out=tmp_path / "c", seeds=1, label_seeds=[3, 1200], config=TINY, **HERE
    )
    assert [one.run.path.name for one in made.outcomes] == [
        "an-labels3-seed0", "an-labels1200-seed0", "bce-labels3-seed0", "bce-labels1200-seed0",
    ]  # fmt: skip
    assert [*made.rows[0].test] == [(3, 0), (1200, 0)]
    table = made.table()
    assert list(table.columns)[-2:] == ["test_labels3_seed0", "test_labels1200_seed0"]
    assert (table["test_low"] <= table["test"]).all()
    redrawn, own = (Run(made.rows[0].paths[key]).data() for key in ((3, 0), (1200, 0)))
    assert (redrawn.label_seed, own.label_seed) == (3, None)
    assert own.train.digest == data.train.digest
    assert Run(made.rows[0].paths[3, 0]).split("train").digest == redrawn.train.digest != data.train.digest
    again = Comparison.open(made.folder)
    assert [*again.rows[0].test] == [(3, 0), (1200, 0)]
    assert again.table().equals(table)
    with pytest.raises(ConfigError) as refused:
        compare(data, ["an"], out=tmp_path / "d", label_seeds=[-1], config=TINY, **HERE)
    assert refused.value.what == "label_seeds"


def test_kinds_of_annotation(tmp_path: Path, data: Dataset) -> None:  # noqa: F811
    kinds = ["none", "single-positive", "budget,annotate=SP,budget=.5"]
    made = compare(data, ["an", "an-ls"], out=tmp_path / "c", annotations=kinds, config=TINY, **HERE)
    assert [one.run.path.name for one in made.outcomes[:3]] == [
        "an-none-seed0", "an-single-positive-seed0", "an-budget,annotate=SP,budget=0.5-seed0",
    ]  # fmt: skip
    table = made.table()
    names = ["none", "single-positive", "budget,annotate=SP,budget=0.5"]
    assert table["annotation"].tolist() == [name for name in names for _ in range(2)]
    assert table["method"].tolist() == ["an", "an-ls"] * 3
    for row in made.rows:
        labels = Run(next(iter(row.paths.values()))).data().train.observed.values
        assert row.labels == (labels != UNKNOWN).sum()
    assert table["difference"].notna().tolist() == [False, True] * 3
    assert table["difference"][3] == pytest.approx(table["test"][3] - table["test"][2])
    pairs = made.differences()
    within = pairs[pairs["annotation"] == pairs["other_annotation"]]
    across = pairs[pairs["annotation"] != pairs["other_annotation"]]
    assert (len(within), len(across)) == (3, 6)
    assert (across["method"] == across["other"]).all()
    assert Comparison.open(made.folder).table().equals(table)
    figure = made.figure()
    assert figure.axes[0].get_yticklabels()[2].get_text() == "an, single-positive"


def test_maps_are_evaluated_where_there_are_boxes(made: Comparison, data: Dataset) -> None:  # noqa: F811
    assert has_places(data)
    row = made.rows[0]
    values = [
        json.loads((path / "evaluation-test.json").read_text())["location"]["mean"]
        for path in row.paths.values()
    ]
    assert row.measures["mAP-loc"] == values
    assert made.table()["mAP-loc"][0] == pytest.approx(50 * sum(values))
    assert "mAP-loc" in made.sheet().columns
    assert maps_to_evaluate([Run(one.run.path) for one in made.outcomes], "test") == []


def test_maps_are_evaluated_together_where_runs_share_a_backbone(
    made: Comparison,
    data: Dataset,  # noqa: F811
) -> None:
    runs = [Run(one.run.path, data) for one in made.outcomes]
    groups = maps_to_evaluate(runs, "val")
    assert [[run.config().seed for run in group] for group in groups] == [[0] * 3, [1] * 3]  # random weights
    evaluate_maps(groups[0], "val")
    assert [len(group) for group in maps_to_evaluate(runs, "val")] == [3]
