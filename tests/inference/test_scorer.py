"""Training, evaluation, prediction and reports give the same scores for the best epoch."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch

from sparselabel.config import FinetunePhase, Handling, HeadPhase, Machine, Preparation, TrainConfig, Views
from sparselabel.data.dataset import Dataset
from sparselabel.data.loaders import Batch, Rows
from sparselabel.data.view_geometry import ViewGeometry
from sparselabel.errors import RunError
from sparselabel.inference.evaluate import evaluate_run, evaluate_together
from sparselabel.inference.maps import write_maps
from sparselabel.inference.predictor import load_predictor
from sparselabel.inference.scorer import Scorer, load_scorer
from sparselabel.metrics.calibration import logits_of
from sparselabel.models.classifier import Output
from sparselabel.run import Run
from sparselabel.training.train_run import train_run
from tests.training.conftest import small_scenes, tiny

HERE, QUIET = Machine(accelerator="cpu", workers=0), Handling(quiet=True)
FINETUNED = tiny(views=Views(size=64), head=HeadPhase(epochs=1), finetune=FinetunePhase(epochs=1, lr=1e-2))
FROZEN = tiny(frozen=True, views=Views(size=64), head=HeadPhase(epochs=1), finetune=FinetunePhase(epochs=0))
Precision = Literal["32-true", "bf16-mixed", "16-mixed", "64-true"]
BOOSTED = replace(FROZEN, boost=5.0)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return small_scenes(tmp_path_factory.mktemp("data"), 24, 40, Preparation("single-positive"))


@pytest.mark.filterwarnings("ignore:.*AMP with fp16 is not supported on CPU")
@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed", "16-mixed", "64-true"])
@pytest.mark.parametrize("config", [FINETUNED, FROZEN, BOOSTED], ids=["finetuned", "frozen", "boosted"])
def test_training_and_evaluation_say_the_same(
    data: Dataset, tmp_path: Path, config: TrainConfig, precision: Precision
) -> None:
    run = Run(tmp_path / "run")
    result = train_run(data, replace(config, precision=precision), run.path, HERE, QUIET)
    trained = np.load(run.scores_file("test"))["scores"]
    measured = evaluate_run(run, "test")
    np.testing.assert_array_equal(np.load(run.scores_file("test"))["scores"], trained)
    assert measured["mean_average_precision"] == result["test"]["mean_average_precision"]
    assert measured["mean_average_precision"]["sklearn"]["mean"] == result["test"]["value"]

    predictor = load_predictor(run.path, device="cpu")
    test = data.split("test")
    paths = [test.path(row) for row in range(len(test))]
    for maps in (False, True):
        predicted = np.stack([one.scores for one in predictor(paths, maps=maps)])
        calibrated = predictor.class_thresholds.calibration(logits_of(trained))
        np.testing.assert_allclose(predicted, calibrated, rtol=1e-4)
    write_maps(run, "test", [0, 5, 39], [1, 2, 3])
    np.testing.assert_allclose(
        np.load(run.maps_file("test"))["scores"],
        trained[[0, 5, 39], [1, 2, 3]],
        rtol=1e-2 if precision.endswith("mixed") else 1e-5,  # in batches of another size
    )


def test_precisions_differ_so_the_above_says_something(data: Dataset, tmp_path: Path) -> None:
    train_run(data, replace(FINETUNED, precision="bf16-mixed"), tmp_path / "run", HERE, QUIET)
    scorer = load_scorer(Run(tmp_path / "run"), "cpu")
    views = torch.arange(3 * 64 * 64, dtype=torch.int32).remainder(251).to(torch.uint8).view(1, 3, 64, 64)
    own, floats = scorer(views).logits, replace(scorer, precision="32-true")(views).logits
    assert own.dtype == torch.bfloat16
    assert floats.dtype == torch.float32
    assert not torch.equal(own.float(), floats)


def test_logits_do_not_depend_on_maps(data: Dataset, tmp_path: Path) -> None:
    train_run(data, replace(FINETUNED, precision="bf16-mixed"), tmp_path / "run", HERE, QUIET)
    scorer = load_scorer(Run(tmp_path / "run"), "cpu")
    views = torch.arange(2 * 3 * 64 * 64).remainder(241).to(torch.uint8).view(2, 3, 64, 64)
    without, with_maps = scorer(views), scorer(views, maps=True)
    assert without.maps is None
    assert with_maps.maps is not None
    assert torch.equal(without.logits, with_maps.logits)
    assert torch.allclose(with_maps.maps.float().mean(dim=(2, 3)), without.logits.float(), atol=0.05)


def test_runs_of_other_precisions_are_not_evaluated_together(data: Dataset, tmp_path: Path) -> None:
    runs = [Run(tmp_path / name) for name in ("floats", "mixed")]
    train_run(data, FROZEN, runs[0].path, HERE, QUIET)
    train_run(data, replace(FROZEN, precision="bf16-mixed"), runs[1].path, HERE, QUIET)
    with pytest.raises(RunError, match="precisions") as raised:
        evaluate_together(runs, "test")
    assert raised.value.remedies == ("evaluate them apart",)


def test_a_run_that_is_not_finished_has_no_scorer(data: Dataset, tmp_path: Path) -> None:
    train_run(data, FROZEN, tmp_path / "run", HERE, QUIET)
    run = Run(tmp_path / "run")
    run.result_file.unlink()
    with pytest.raises(RunError, match="is not finished"):
        load_scorer(run)
    with pytest.raises(RunError, match="is not finished"):
        Run.open(run.path)


class Numbers:
    """A loader whose inputs are the rows."""

    def __call__(self, batches: Sequence[Rows], epoch: int) -> Iterator[Batch]:
        for rows in map(torch.from_numpy, batches):
            yield Batch(rows, (rows[:, None].float(),), (ViewGeometry.whole(len(rows)),))


def test_rows_of_other_shards_are_zero() -> None:
    scorer = Scorer(Output, torch.device("cpu"))
    first, second = (
        scorer.scores(Numbers(), 5, shard=shard, shards=2, scores_of=lambda logits: logits + 1)
        for shard in (0, 1)
    )
    assert first[:, 0].tolist() == [1, 0, 3, 0, 5]
    assert (first + second)[:, 0].tolist() == [1, 2, 3, 4, 5]
