"""Training all runs of a comparison."""

import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from safetensors.torch import save_file
from torch import Tensor

from sparselabel.comparison import runner
from sparselabel.comparison.compare import label_counts
from sparselabel.comparison.grid import CHOOSE, Varied, choices
from sparselabel.comparison.planned_runs import Outcome, PlannedRun, RunsCallback, in_comparison, plan_runs
from sparselabel.comparison.runner import check_all, error_file, train_all
from sparselabel.comparison.summary import Row, rows_of, with_labels
from sparselabel.config import FinetunePhase, Handling, HeadPhase, Machine, Preparation, TrainConfig, Views
from sparselabel.data.dataset import Dataset
from sparselabel.data.labels import UNKNOWN
from sparselabel.data.prepare import prepare
from sparselabel.data.scenes import generate as scenes
from sparselabel.errors import ConfigError, ModelError, ResourceError, RunError, param
from sparselabel.inference.engine import TORCH, CompiledNetwork
from sparselabel.locks import locked
from sparselabel.metrics.imagenet_real import real_metrics
from sparselabel.recipes import load
from sparselabel.run import Run

HERE = Machine(accelerator="cpu", workers=0)
TINY = TrainConfig(
    backbone="test_resnet",
    weights="none",
    frozen=True,
    views=Views(size=32),
    head=HeadPhase(epochs=1, lr=0.01),
    watch=0,
)
RESULT: dict[str, Any] = {"oracle": False, "validation": {"value": 0.5}, "test": {"value": 0.25}}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return small_scenes(tmp_path_factory.mktemp("scenes"))


def small_scenes(folder: Path) -> Dataset:
    """A few scenes with one positive label each."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # classes without positives in so few images
        source = scenes.make(folder, train=20, test=10, size=32, seed=0)
        return prepare(source, folder, Preparation(sparsify="single-positive"))


def compare(data: Dataset, *given: Any, **more: Any) -> list[Row]:
    """Train all, and sum up."""
    return with_labels(rows_of(train_all(data, *given, **more)), *label_counts(data))


class Told(RunsCallback):
    """Keeps what it was told."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def on_skipped(self, finished: int) -> None:
        self.said.append(f"{finished} before")

    def on_start(self, run: PlannedRun, others: int = 0) -> None:
        self.said.append(f"begins {run}")

    def on_end(self, outcome: Outcome) -> None:
        self.said.append(f"ends {outcome.run}{f': {outcome.error}' * bool(outcome.error)}")


def stand_in(monkeypatch: pytest.MonkeyPatch, train: Callable[..., Any]) -> None:
    monkeypatch.setattr("sparselabel.training.train_run.train_run", train)


def test_a_comparison_is_trained_once(data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planned = plan_runs(TINY, ["bce", "an"], [0], tmp_path / "out")
    told = Told()
    rows = compare(data, planned, HERE, told)
    assert told.said == [
        "0 before",
        "begins bce, seed 0",
        "ends bce, seed 0",
        "begins an, seed 0",
        "ends an, seed 0",
    ]
    result = json.loads((planned[1].path / "result.json").read_text())
    assert rows[1].test == {0: result["test"]["value"]}
    assert [row.recovered for row in rows] == [1.0, 0.0]
    images, classes = data.train.truth.values.shape
    assert [row.labels for row in rows] == [
        images * classes,
        images,
    ]  # one positive per image; the oracle all
    assert (planned[0].path / "scores-test.npz").is_file()
    assert all(row.seconds[0] > 0 and row.memory[0] > 10**7 for row in rows)

    def refuse(*_: Any) -> Any:
        raise ValueError("trained again")

    stand_in(monkeypatch, refuse)
    told = Told()
    assert compare(data, planned, HERE, told) == rows
    assert told.said == ["2 before"]
    (planned[1].path / "result.json").unlink()
    assert str(compare(data, planned, HERE)[1].failed[0]).endswith("ValueError: trained again")
    other = plan_runs(replace(TINY, head=HeadPhase(epochs=1, lr=0.5)), ["bce", "an"], [0], tmp_path / "out")
    with pytest.raises(RunError, match=r"bce, seed 0: .*was begun with another configuration \(`head.lr"):
        compare(data, other, HERE)


def test_a_combination_that_sees_the_truth_and_labels_of_real(data: Dataset, tmp_path: Path) -> None:
    test = data.split("test")
    real = np.array(test.truth.values)
    real[0] = UNKNOWN
    splits = data.splits | {"test": replace(test, real=real)}
    rows = compare(replace(data, splits=splits), plan_runs(TINY, ["bce+asl", "an"], [0], tmp_path), HERE)
    images, classes = data.train.truth.values.shape
    assert [(row.oracle, row.labels) for row in rows] == [(True, images * classes), (False, images)]
    assert rows[0].names == {"validation": "mAP", "test": "mAP"}
    scores = np.load(rows[1].paths[0] / "scores-test.npz")["scores"]
    by_hand = real_metrics(scores, test.observed.values, real)
    assert rows[1].measures["top-1"] == [pytest.approx(by_hand["top_1_single"])]
    assert rows[1].measures["ReaL top-1"] == [pytest.approx(by_hand["top_1"])]
    assert rows[1].measures["ReaL mAP"] == [pytest.approx(by_hand["mean_average_precision"]["mean"])]
    one = by_hand["by_number_of_labels"]["1"]["average_precision"]["mean_of_present"]
    assert rows[1].measures.get("ReaL mAP, 1 label", [None]) == [one and pytest.approx(one)]
    published = load("scl/imagenet")[1].published
    assert {*rows[1].measures} <= {*published}


def test_weights_that_changed_under_the_same_name_are_not_skipped(data: Dataset, tmp_path: Path) -> None:
    from safetensors.torch import save_file

    from sparselabel.models.backbone import make_backbone

    file = tmp_path / "weights.safetensors"
    whole = make_backbone("test_resnet", "none", size=32).state_dict()
    weights = {name.removeprefix("network."): value.contiguous() for name, value in whole.items()}
    save_file(weights, file)
    planned = plan_runs(replace(TINY, weights=str(file)), ["an"], [0], tmp_path / "out")
    compare(data, planned, HERE)
    compare(data, planned, HERE)
    save_file({name: value * 2 for name, value in weights.items()}, file)
    with pytest.raises(
        RunError, match=r"an, seed 0: .* a weights file of the same name, but of other content"
    ):
        compare(data, planned, HERE)


def test_a_failure_is_that_runs_only(data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Path, Handling, str]] = []

    def train(data: Dataset, config: TrainConfig, out: Path, machine: Machine, *rest: Any) -> dict[str, Any]:
        calls.append((out, rest[0], rest[-1]))
        if config.method == "an":
            raise RunError("training diverged")
        return RESULT

    stand_in(monkeypatch, train)
    planned = plan_runs(TINY, ["an", "bce"], [0], tmp_path)
    told = Told()
    an, bce = compare(data, planned, HERE, told)
    assert told.said[2] == "ends an, seed 0: training diverged"
    assert [str(one.error) for one in an.failed] == ["training diverged"]
    assert (an.failed[0].run, an.test, bce.test) == (planned[0], {}, {0: 0.25})
    assert calls == [(run.path, Handling(resume=True), run.path.name) for run in planned]
    assert error_file(planned[0]).read_text() == "training diverged\n"
    monkeypatch.setattr("sparselabel.training.train_run.check_run", lambda *given: None)
    with pytest.raises(RunError, match="training diverged"):  # the other processes would wait for this one
        compare(data, planned, replace(HERE, devices=2))
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(RunError, match="training diverged"):
        compare(data, planned, HERE)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_what_ends_the_program_ends_the_comparison(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    def stop(*_: Any) -> None:
        raise error

    stand_in(monkeypatch, stop)
    with pytest.raises(error):
        compare(data, plan_runs(TINY, ["an", "bce"], [0], tmp_path), HERE)


def never(*_: Any) -> None:
    raise ValueError("trained")


@pytest.mark.parametrize(
    ("name", "values", "error", "said"),
    [
        (
            "backbone",
            ("test_resnet", "resnet55"),
            ConfigError,
            "an with resnet55, seed 0: timm has no backbone",
        ),
        (
            "weights",
            ("none", "no.pt"),
            ModelError,
            "an with no.pt, seed 0: weights file no.pt does not exist",
        ),
    ],
)
def test_what_cannot_work_is_found_before_the_first_run(
    data: Dataset,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    values: tuple[str, ...],
    error: type[Exception],
    said: str,
) -> None:
    stand_in(monkeypatch, never)
    planned = plan_runs(
        replace(TINY, frozen=False), ["an"], [0], tmp_path / "out", varied=Varied(name, values)
    )
    with pytest.raises(error, match=said):
        compare(data, planned, HERE)
    assert not (tmp_path / "out").exists()


def test_views_that_stored_features_do_not_see_are_found_first(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(monkeypatch, never)
    planned = plan_runs(TINY, ["an"], [0], tmp_path / "out", varied=Varied("views.cutout", ("0", "0.5")))
    with pytest.raises(ConfigError, match=r"an with 0\.5, seed 0: `views=\{'cutout': 0\.5\}` would change"):
        compare(data, planned, HERE)
    assert not (tmp_path / "out").exists()


def test_an_engine_that_is_wrong_for_the_backbone_is_tried_once(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[CompiledNetwork] = []

    def check(network: CompiledNetwork, views: Tensor) -> str:
        tried.append(network)
        return TORCH

    monkeypatch.setattr(CompiledNetwork, "check", check)
    config = replace(TINY, views=Views(size=40))  # of which there are no features yet
    planned = plan_runs(config, ["an", "wan"], [0], tmp_path / "out", label_seeds=[0, 1, 2])
    check_all(data, planned, replace(HERE, engine="openvino"), tmp_path / "out")
    assert len(tried) == 1


def test_memories_that_fit_nowhere_are_found_first(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(monkeypatch, never)
    keep = make_memory_without_room(monkeypatch)
    base = replace(TINY, settings={"expected_positives": 2.0})
    with pytest.raises(ResourceError, match=r"en, seed 0: .* needs 0.00 MB of memory"):
        compare(data, plan_runs(base, ["an", "en"], [0], tmp_path), replace(HERE, memories=keep))


def make_memory_without_room(monkeypatch: pytest.MonkeyPatch) -> Any:
    from sparselabel.losses.memory import row_store as keeping

    monkeypatch.setattr(keeping.make_row_store, "__kwdefaults__", {
        **(keeping.make_row_store.__kwdefaults__ or {}), "memory": lambda: 0,
    })  # fmt: skip
    return "ram"


def test_folders_are_checked_first(data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, never)
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="file is a file, and a folder is needed") as taken:
        compare(data, plan_runs(TINY, ["an"], [0], tmp_path / "file"), HERE)
    assert taken.value.parameters == ["out"]
    (tmp_path / "out" / "an-seed0").mkdir(parents=True)
    (tmp_path / "out" / "an-seed0" / "photo.jpg").write_text("")
    with pytest.raises(RunError, match=r"an, seed 0: .*exists and is not a run"):
        compare(data, plan_runs(TINY, ["an"], [0], tmp_path / "out"), HERE)
    (tmp_path / "out" / "an-seed0" / "config.toml").write_text("seed = 3\n")
    about = {"data": "elsewhere", "data_digest": {"train": "x"}}
    (tmp_path / "out" / "an-seed0" / "run.json").write_text(json.dumps(about))
    with pytest.raises(RunError, match=r"an, seed 0: "):
        compare(data, plan_runs(TINY, ["an"], [0], tmp_path / "out"), HERE)
    if os.geteuid():  # root may write everywhere
        (tmp_path / "shut").mkdir(mode=0o500)
        with pytest.raises(RunError, match="shut cannot be written"):
            compare(data, plan_runs(TINY, ["an"], [0], tmp_path / "shut"), HERE)


def test_a_comparison_has_no_force() -> None:
    run = plan_runs(TINY, ["an"], [0], Path("out"))[0]
    begun = RunError(
        "runs/a was begun otherwise",
        f"replace it ({param('force', True)})",
        f"choose another {param('out')}",
        what="runs/a",
        value=3,
    )
    error = in_comparison(begun, run)
    assert (type(error), error.problem) == (RunError, "an, seed 0: runs/a was begun otherwise")
    assert (error.parameters, error.what, error.value) == (["out"], "runs/a", 3)
    assert error.remedies[-1] == "delete its folder, so that it begins anew"
    plain = ResourceError("the disk is full", "make room")
    assert in_comparison(plain).args == plain.args


def test_a_choice_needs_validation(data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, lambda *_: RESULT)
    bare = Dataset(**{**vars(data), "splits": {k: v for k, v in data.splits.items() if k != "val"}})
    words = ["head.lr", "0.1", "0.2"]
    with pytest.raises(ConfigError, match="chosen by validation, but the data has no validation split"):
        compare(bare, plan_runs(TINY, ["an"], [0], tmp_path, choices(words)), HERE)
    assert compare(bare, plan_runs(TINY, ["an"], [0], tmp_path, choices(words[:2])), HERE)[0].test == {
        0: 0.25
    }


def test_runs_that_differ_in_seed_and_rate_begin_together(data: Dataset, tmp_path: Path) -> None:
    weights = tmp_path / "weights.safetensors"
    save_file(timm.create_model("test_resnet").state_dict(), weights)
    head, finetune = replace(TINY.head, epochs=2), FinetunePhase(epochs=0)
    base = replace(TINY, weights=str(weights), head=head, finetune=finetune, settings={"warm_up": 1})
    choose = [Varied.of(["head.lr", 0.1, 0.01], CHOOSE)]
    planned = plan_runs(base, ["an", "em+apl"], [0, 1], tmp_path / "out", choose, label_seeds=[7, 8])
    groups: list[tuple[str, int | None, int]] = []

    class Groups(RunsCallback):
        def on_start(self, run: PlannedRun, others: int = 0) -> None:
            groups.append((run.method, run.label_seed, others))

    outcomes = train_all(data, planned, HERE, Groups())
    assert [outcome.error for outcome in outcomes] == [None] * 16
    assert sorted(groups) == [("an", 7, 3), ("an", 8, 3), *[("em+apl", 7, 0)] * 4, *[("em+apl", 8, 0)] * 4]
    assert [outcome.run.path for outcome in outcomes] == [run.path for run in planned]
    for run in planned:
        assert Run(run.path).metadata()["label_seed"] == run.label_seed
        assert Run(run.path).config().head.lr == run.config.head.lr


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere runs are trained in this process")
def test_groups_have_processes_where_their_features_are_stored(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = tmp_path / "weights.safetensors"
    torch.manual_seed(1)
    save_file(timm.create_model("test_resnet").state_dict(), weights)
    base = replace(TINY, weights=str(weights), finetune=FinetunePhase(epochs=0))
    methods, train_group = ["bce", "an", "wan", "iun"], runner._train_group

    def told(data: Dataset, group: list[PlannedRun], *given: Any) -> Iterator[Outcome]:
        if group[0].method == "wan":
            os._exit(1)
        for outcome in train_group(data, group, *given):
            yield replace(outcome, result={"process": os.getpid()} | (outcome.result or {}))

    monkeypatch.setattr(runner, "_train_group", told)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    planned = plan_runs(base, methods, [0, 1], tmp_path / "out")
    outcomes = {(one.run.method, one.run.seed): one for one in train_all(data, planned, HERE)}
    results = {key: outcome.result or {} for key, outcome in outcomes.items()}
    processes = [{results[name, seed].get("process") for seed in (0, 1)} for name in methods]
    assert processes[0] == {os.getpid()}  # which stores the features
    assert processes[2] == {None}
    assert len(set.union(*processes)) == 4
    for seed in (0, 1):
        killed, trained = outcomes["wan", seed], outcomes["an", seed]
        assert "its process was killed" in error_file(killed.run).read_text()
        assert trained.result == results["an", seed] | Run(trained.run.path).result()


def test_two_processes_do_not_train_one_comparison(data: Dataset, tmp_path: Path) -> None:
    planned = plan_runs(TINY, ["an"], [0], tmp_path / "out")
    with locked(tmp_path / "out"), pytest.raises(RunError) as error:
        train_all(data, planned, HERE)
    assert error.value.what == tmp_path / "out"
