"""Runs of methods that correct labels, of combinations, and of the boosted head."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from sparselabel.config import FinetunePhase, Handling, HeadPhase, Machine
from sparselabel.data.dataset import Dataset
from sparselabel.data.labels import UNKNOWN
from sparselabel.errors import ConfigError
from sparselabel.inference.evaluate import evaluate_run
from sparselabel.inference.scorer import load_classifier
from sparselabel.run import Run
from sparselabel.training.checkpoint import newest_checkpoint
from sparselabel.training.resolve import method_of, resolve
from sparselabel.training.train_run import train_run
from tests.losses.steps import rule_of
from tests.training.conftest import tiny

HERE = Machine(accelerator="cpu", workers=0)
QUIET = Handling(quiet=True)
HEAD_ALONE = {"head": HeadPhase(epochs=4, lr=1e-2, batch_size=16), "finetune": FinetunePhase(epochs=0)}


def memory(run: Path, name: str) -> torch.Tensor:
    from safetensors.torch import load_file

    newest = newest_checkpoint(run / "checkpoints")
    assert newest is not None
    return load_file(newest.path / "memory-0.safetensors")[name]


@pytest.mark.parametrize("frozen", [True, False])
def test_soft_labels_grow_by_the_epoch(small: Dataset, tmp_path: Path, frozen: bool) -> None:
    config = tiny("em+apl", frozen=frozen, settings={"warm_up": 1}, **HEAD_ALONE)
    train_run(small, config, tmp_path / "run", HERE, QUIET)
    kept = memory(tmp_path / "run", "label_loss.soft_labels.soft/values")
    unknown = torch.from_numpy(np.array(small.train.observed.values)) == UNKNOWN
    # Three rounds of ⌊.9·n/3⌋ each, and every one the score of its round.
    wanted = 3 * (unknown.sum(dim=0) * 9 // 30)
    labeled = ~kept.signbit() & unknown
    assert labeled.sum(dim=0).tolist() == wanted.tolist()
    assert ((kept[labeled] >= 0) & (kept[labeled] <= 1)).all()


def test_corrections_grow_by_the_step_and_leave_the_data_alone(small: Dataset, tmp_path: Path) -> None:
    before = np.array(small.train.observed.values)
    config = tiny("ll-cp", frozen=True, settings={"share": 0.01}, **HEAD_ALONE)
    train_run(small, config, tmp_path / "run", HERE, QUIET)
    bits = np.unpackbits(memory(tmp_path / "run", "label_loss.rule.corrected/values").numpy(), axis=1)
    classes = len(small.classes)
    # 61 rows in batches of 16, 16, 16 and 13, in three epochs.
    assert bits.sum() == 3 * sum(-(-size * classes // 100) for size in (16, 16, 16, 13))
    assert (before[bits[:, :classes].astype(bool)] == UNKNOWN).all()
    assert np.array_equal(small.train.observed.values, before)


def test_a_combination_trains_with_counts_of_every_class(small: Dataset, tmp_path: Path) -> None:
    config = tiny("en+asl", frozen=True, settings={"expected_positives": "auto"}, **HEAD_ALONE)
    train_run(small, config, tmp_path / "run", HERE, QUIET)
    assert (tmp_path / "run" / "expected.json").exists()
    epochs = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert [list(json.loads(line)["losses"]) for line in epochs] == [["labels"]] * 4


def test_under_a_boosted_head_a_preset_is_that_of_its_paper(small: Dataset, tmp_path: Path) -> None:
    config = tiny("ll-r", boost=5.0, settings={"preset": "voc"}, **HEAD_ALONE)
    for asked, preset, share in ((config, "boostlu", 0.005), (replace(config, boost=None), "voc", 0.002)):
        resolved = resolve(small, asked).config
        assert resolved.settings["preset"] == preset
        assert float(vars(rule_of(method_of(resolved)))["share"]) == share
    other = tiny("em", boost=5.0, settings={"preset": "voc"})
    assert resolve(small, other).config.settings["preset"] == "voc"


def test_a_boosted_head_is_boosted_in_evaluation_too(small: Dataset, tmp_path: Path) -> None:
    result = train_run(small, tiny("en+scl", boost=5.0), tmp_path / "run", HERE, QUIET)
    assert load_classifier(Run(tmp_path / "run")).head.boost == 5.0
    measured = evaluate_run(Run(tmp_path / "run"), "test")["mean_average_precision"]["sklearn"]["mean"]
    assert measured == pytest.approx(result["test"]["value"], abs=1e-6)


def test_what_cannot_work_is_refused_before_a_folder_is_made(small: Dataset, tmp_path: Path) -> None:
    out = tmp_path / "run"
    for config, why in ((tiny("em+apl"), "em.apl labels after `warm_up=5` epochs, but the run has 4"),):
        with pytest.raises(ConfigError, match=why):
            train_run(small, config, out, HERE, QUIET)
        assert not out.exists()
    with pytest.raises(ConfigError, match=r"boost` must be a number above 0 .*, not 0"):
        tiny("an", boost=0)
