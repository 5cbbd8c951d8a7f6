import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from safetensors.torch import load_file

from sparselabel.config import FinetunePhase, Handling, HeadPhase, Machine, Preparation
from sparselabel.data.dataset import Dataset
from sparselabel.data.labels import POSITIVE
from sparselabel.data.prepare import prepare
from sparselabel.data.scenes import generate as scenes
from sparselabel.errors import ConfigError, DataError, DataWarning, ResourceError, RunError
from sparselabel.inference.evaluate import evaluate_run
from sparselabel.locks import locked
from sparselabel.losses.base import ComposedLoss, Needs, TargetLoss, cross_entropy
from sparselabel.losses.registry import METHODS, Method
from sparselabel.losses.step import Scan
from sparselabel.losses.target_rules import AssumedNegative
from sparselabel.metrics.average_precision import average_precision
from sparselabel.run import Run
from sparselabel.training.checkpoint import Checkpoint
from sparselabel.training.resolve import resolve
from sparselabel.training.train_run import train_run
from tests.training.conftest import small_scenes, tiny

HERE = Machine(accelerator="cpu", workers=0)
QUIET = Handling(quiet=True)


def lines(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def test_a_run_leaves_what_it_promises(small: Dataset, tmp_path: Path) -> None:
    run = tmp_path / "run"
    result = train_run(small, tiny("role"), run, HERE, QUIET, ["sparselabel", "train"])
    records = lines(run)
    assert [r["phase"] for r in records] == ["head", "head", "finetune", "finetune"]
    assert set(records[0]["losses"]) == {"labels", "count", "estimates"}
    hidden = (small.train.truth.values == POSITIVE) & (small.train.observed.values != POSITIVE)
    assert [sum(r["hidden_positives"]) for r in records] == [hidden.sum()] * 4
    values = [r["validation"]["value"] for r in records]
    assert result["best_epoch"] == 1 + int(np.argmax(values))
    assert result["validation"]["value"] == pytest.approx(max(values), abs=1e-6)
    assert result["validation"]["name"] == "mAP"
    assert 0 < result["recovery"]["estimates"] <= 1
    assert not list((run / "checkpoints").glob("*.partial"))
    watched = np.load(run / "watched" / "0004.npz")
    assert watched["rows"].tolist() == [0, 30, 60]
    assert watched["scores"].shape == (3, 12)
    assert watched["maps"].shape == (3, 12, 1, 1)
    assert json.loads((run / "run.json").read_text())["command"] == ["sparselabel", "train"]

    measured = evaluate_run(Run(run), "test")
    assert measured["mean_average_precision"]["sklearn"]["mean"] == pytest.approx(
        result["test"]["value"], abs=1e-6
    )
    kept = np.load(run / "scores-test.npz")
    assert kept["ids"].tolist() == small.split("test").truth.ids.tolist()
    with pytest.warns(DataWarning, match="2 of 12 classes have no positive image"):
        ap = average_precision(kept["scores"], small.split("test").truth.values)
    assert [row["average_precision"] for row in measured["classes"]] == pytest.approx(ap.tolist())


def test_frozen_training_equals_training_the_head_on_whole_images(small: Dataset, tmp_path: Path) -> None:
    from sparselabel.config import Views

    # A copy: other tests keep features beside the shared data.
    data = Dataset.open(
        shutil.copytree(small.folder, tmp_path / "data", ignore=shutil.ignore_patterns("features"))
    )
    alone: dict[str, Any] = {
        "head": replace(tiny().head, raw_features=True),
        "finetune": FinetunePhase(epochs=0),
        "views": Views(size=32, smallest_crop=1.0, flip=0.0),
    }
    stored = train_run(data, tiny(frozen=True, **alone), tmp_path / "stored", HERE, QUIET)
    fresh = train_run(data, tiny(**alone), tmp_path / "fresh", HERE, QUIET)
    a, b = lines(tmp_path / "stored"), lines(tmp_path / "fresh")
    assert [r["losses"]["labels"] for r in a] == pytest.approx([r["losses"]["labels"] for r in b], abs=1e-5)
    assert stored["test"]["value"] == pytest.approx(fresh["test"]["value"], abs=1e-3)
    stored_splits = {file.name.split("-")[0] for file in (data.folder / "features").glob("*.npy")}
    assert stored_splits == {"train", "val", "test"}
    assert "maps" not in np.load(tmp_path / "stored" / "watched" / "0001.npz")


def test_the_head_phase_leaves_the_backbone_alone(small: Dataset, tmp_path: Path) -> None:
    def backbone(run: Path) -> dict[str, torch.Tensor]:
        weights = load_file(run / "model.safetensors")
        return {k: v for k, v in weights.items() if k.startswith("backbone.")}

    train_run(small, tiny(finetune=FinetunePhase(epochs=0)), tmp_path / "a", HERE, QUIET)
    longer = HeadPhase(epochs=3, lr=1e-1)
    train_run(small, tiny(finetune=FinetunePhase(epochs=0), head=longer), tmp_path / "b", HERE, QUIET)
    first, second = backbone(tmp_path / "a"), backbone(tmp_path / "b")
    assert first.keys() == second.keys()
    assert all(torch.equal(first[key], second[key]) for key in first)


def test_linear_init_starts_from_the_best_epoch_with_its_estimates(
    small: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sparselabel.losses.role import LabelEstimates

    carried: list[torch.Tensor] = []
    original = LabelEstimates.begin_phase

    def spy(self: LabelEstimates) -> None:
        carried.append(self.estimates())
        original(self)
        carried.append(self.estimates())

    monkeypatch.setattr(LabelEstimates, "begin_phase", spy)
    config = tiny(
        "role",
        head=HeadPhase(epochs=4, lr=0.3, batch_size=16),
        finetune=FinetunePhase(epochs=1, start="best", lr=1e-9),
        frozen=True,
    )
    train_run(small, config, tmp_path / "run", HERE, QUIET)
    before, after = carried
    torch.testing.assert_close(before.clamp(1e-5, 1 - 1e-5), after, rtol=1e-3, atol=1e-6)
    values = [r["validation"]["value"] for r in lines(tmp_path / "run")]
    # The best head, seen through the same backbone, is what the full phase begins with.
    assert values[4] == pytest.approx(max(values[:4]), abs=0.06)


def test_weight_average_and_patience(small: Dataset, tmp_path: Path) -> None:
    config = tiny(
        head=HeadPhase(epochs=9, lr=1e-9, ema_decay=0.9, patience=2, grad_clip=1.0, optimizer="sgd"),
        finetune=FinetunePhase(epochs=0),
        frozen=True,
    )
    result = train_run(small, config, tmp_path / "run", HERE, QUIET)
    assert result["epochs"] == 3  # nothing changes after the first epoch, so two more are enough
    assert result["best_epoch"] == 1


def test_without_validation_the_last_epoch_counts(tmp_path: Path) -> None:
    how = Preparation(sparsify="single-positive", validation=0.0)
    data = small_scenes(tmp_path / "data", 24, 8, how)
    result = train_run(
        data, tiny(frozen=True, finetune=FinetunePhase(epochs=0)), tmp_path / "run", HERE, QUIET
    )
    assert result["best_epoch"] == 2
    assert result["validation"] is None
    assert resolve(data, tiny("epr")).config.settings == {"expected_positives": "auto"}
    for config, flag in (
        (tiny(head=HeadPhase(epochs=2, patience=1)), r"`head=\{'patience': 1\}`"),
        (tiny(finetune=FinetunePhase(epochs=1, patience=4)), r"`finetune=\{'patience': 4\}`"),
    ):
        said = (
            f"^{flag} waits for a better validation, but the data has no validation split: take 0, which "
            r"never stops early, or prepare data with one \(`.* prepare \.\.\.` with `validation=0\.2`\)$"
        )
        with pytest.raises(ConfigError, match=said):
            train_run(data, config, tmp_path / "other", HERE, QUIET)


def test_sparse_validation_says_which_number_it_is(tmp_path: Path) -> None:
    how = Preparation(sparsify="single-positive", validation_labels="observed")
    data = small_scenes(tmp_path / "data", 40, 8, how)
    result = train_run(
        data, tiny(frozen=True, finetune=FinetunePhase(epochs=0)), tmp_path / "run", HERE, QUIET
    )
    assert result["validation"]["name"] == "observed-label mAP"
    assert result["validation"]["by_number_of_labels"] is None
    assert result["test"]["name"] == "mAP"


def test_a_run_is_never_overwritten_unasked(small: Dataset, tmp_path: Path) -> None:
    config = tiny(frozen=True, finetune=FinetunePhase(epochs=0))
    first = train_run(small, config, tmp_path / "run", HERE, QUIET)
    with pytest.raises(RunError, match="holds a run already"):
        train_run(small, config, tmp_path / "run", HERE, QUIET)
    resume = Handling(resume=True, quiet=True)
    assert (
        train_run(small, config, tmp_path / "run", HERE, resume) == first
    )  # finished: nothing is done again
    with pytest.raises(RunError, match="another configuration"):
        train_run(small, tiny("wan", frozen=True), tmp_path / "run", HERE, resume)
    train_run(
        small,
        tiny("wan", frozen=True, finetune=FinetunePhase(epochs=0)),
        tmp_path / "run",
        HERE,
        Handling(force=True, quiet=True),
    )
    assert json.loads((tmp_path / "run" / "result.json").read_text())["method"] == "wan"


def test_impossible_wishes_are_refused_before_training(small: Dataset, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="iu leaves unknown labels out"):
        train_run(small, tiny("iu"), tmp_path / "run", HERE, QUIET)
    with pytest.raises(ConfigError, match="'an' has no setting 'smoothing'"):
        train_run(small, tiny("an", settings={"smoothing": 0.1}), tmp_path / "run2", HERE, QUIET)
    assert not (tmp_path / "run2").exists()


def test_double_precision(small: Dataset, tmp_path: Path) -> None:
    result = train_run(small, tiny("role", precision="64-true"), tmp_path / "run", HERE, QUIET)
    assert load_file(tmp_path / "run" / "model.safetensors")["head.linear.weight"].dtype == torch.float64
    assert 0 < result["test"]["value"] < 1


def test_a_full_disk_is_explained_and_loses_nothing(
    small: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sparselabel.training import checkpoint

    config = tiny(frozen=True, finetune=FinetunePhase(epochs=0), head=HeadPhase(epochs=3))
    whole = train_run(small, config, tmp_path / "whole", HERE, QUIET)
    original, count = safetensors.torch.save_file, [0]

    def save_until_full(tensors: dict[str, torch.Tensor], path: Path) -> None:
        count[0] += 1
        if count[0] > 4:  # three files a checkpoint: full in the second
            raise OSError(28, "No space left on device")
        original(tensors, path)

    monkeypatch.setattr(checkpoint, "save_file", save_until_full)
    with pytest.raises(ResourceError, match=r"0002 could not be written .*No space left.* `resume=True`"):
        train_run(small, config, tmp_path / "run", HERE, QUIET)
    monkeypatch.setattr(checkpoint, "save_file", original)
    assert train_run(small, config, tmp_path / "run", HERE, Handling(resume=True, quiet=True)) == whole


def test_tensorboard_gets_the_numbers(small: Dataset, tmp_path: Path) -> None:
    config = tiny(frozen=True, finetune=FinetunePhase(epochs=0))
    train_run(small, config, tmp_path / "run", HERE, Handling(quiet=True, tensorboard=True))
    assert len(list((tmp_path / "run" / "tensorboard").glob("events.*"))) == 1


class Surveyor(AssumedNegative):
    """A reading that wants to see the whole training set before every epoch."""

    needs = Needs(scan=True)

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[list[int]] = []

    def scan(self, steps: Scan) -> None:
        rows = []
        for step in steps(None):
            assert not step.outputs[0].logits.requires_grad
            rows += step.rows.tolist()
        self.seen.append(rows)


def test_a_part_that_asks_for_it_sees_all_images_before_every_epoch(
    small: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    surveyor = Surveyor()
    monkeypatch.setitem(
        METHODS,
        "surveyor",
        Method("surveyor", lambda: ComposedLoss(TargetLoss(surveyor, cross_entropy)), Needs(scan=True)),
    )
    train_run(small, tiny("surveyor"), tmp_path / "run", HERE, QUIET)
    assert surveyor.seen == [list(range(len(small.train)))] * 4


def test_the_last_phase_decides_and_the_kept_model_is_the_judged_one(
    small: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tiny(
        head=HeadPhase(epochs=3, lr=1e-2, batch_size=16),
        finetune=FinetunePhase(epochs=4, lr=3e-1, batch_size=16, patience=4),  # spoils what the head learned
    )
    result = train_run(small, config, tmp_path / "run", HERE)
    values = [record["validation"]["value"] for record in lines(tmp_path / "run")]
    said = " ".join(capsys.readouterr().err.split())
    head, best = (100 * max(part) for part in (values[:3], values[3:]))
    assert head > best
    assert (
        f"{head:.2f} in epoch {1 + int(np.argmax(values[:3]))}, and at best {best:.2f} in fine-tuning" in said
    )
    assert result["epochs"] == 7  # patience does not count epochs of the head phase
    assert result["best_epoch"] == 4 + int(np.argmax(values[3:]))
    assert result["validation"]["value"] == pytest.approx(max(values[3:]), abs=1e-6)
    measured = evaluate_run(Run(tmp_path / "run"), "val")
    assert measured["mean_average_precision"]["sklearn"]["mean"] == pytest.approx(max(values[3:]), abs=1e-6)


@pytest.mark.parametrize("method", ["an", "role"])
def test_a_run_that_diverges_is_stopped_and_says_what_to_do(
    small: Dataset, tmp_path: Path, method: str
) -> None:
    config = tiny(method, finetune=FinetunePhase(epochs=2, lr=1e30, batch_size=16, optimizer="sgd"))
    said = (
        r"diverged in phase finetune \(learning rate 1e\+30\), as the loss 'labels' of epoch 3 is (nan|inf): "
    )
    way_out = r"begin anew \(`force=True`\) with a smaller `finetune.lr`, or .*`finetune=\{'grad_clip': 1\}`"
    with pytest.raises(RunError, match=said + way_out):
        train_run(small, config, tmp_path / "run", HERE, QUIET)
    assert max(path.name for path in (tmp_path / "run" / "checkpoints").iterdir()) == "0002"


def test_a_model_that_is_spoilt_by_the_last_step_is_noticed_too(small: Dataset, tmp_path: Path) -> None:
    one_step = FinetunePhase(epochs=2, lr=1e38, batch_size=64, optimizer="sgd")  # its loss is still finite
    with pytest.raises(RunError, match=r"1e\+38\), as scores of split 'val' are not finite"):
        train_run(small, tiny(head=HeadPhase(epochs=0), finetune=one_step), tmp_path / "run", HERE, QUIET)


def test_evaluation_refuses_data_that_was_prepared_anew(tmp_path: Path) -> None:
    how = Preparation(sparsify="single-positive")
    data = small_scenes(tmp_path / "data", 40, 8, how)
    train_run(data, tiny(frozen=True, finetune=FinetunePhase(epochs=0)), tmp_path / "run", HERE, QUIET)
    with pytest.warns(DataWarning, match="cannot be learned"):
        prepare(
            scenes.make(tmp_path / "data", train=40, test=8, size=32, seed=1),
            tmp_path / "data",
            Preparation(sparsify="single-positive", validation=0.5),
            force=True,
        )
    with pytest.raises(RunError, match=r"split 'val' of .* is not what .*run was trained with: prepare it"):
        evaluate_run(Run(tmp_path / "run"), "val")
    assert evaluate_run(Run(tmp_path / "run"), "test")["images"] == 8


def test_force_removes_nothing_when_the_new_run_cannot_work(small: Dataset, tmp_path: Path) -> None:
    train_run(
        small, tiny("an", finetune=FinetunePhase(epochs=0)), tmp_path / "run", HERE, Handling(quiet=True)
    )
    before = (tmp_path / "run" / "result.json").read_bytes()
    wrong = tiny("en+scl", finetune=FinetunePhase(epochs=1, batch_size=16, start="best"))
    with pytest.raises(ConfigError, match="which has the last epoch only"):
        train_run(
            small,
            wrong,
            tmp_path / "run",
            replace(HERE, memories="file"),
            Handling(quiet=True, force=True),
        )
    assert (tmp_path / "run" / "result.json").read_bytes() == before


def test_files_of_a_finished_run_are_removed(small: Dataset, tmp_path: Path) -> None:
    train_run(
        small,
        tiny("en+scl"),
        tmp_path / "run",
        replace(HERE, memories="file"),
        Handling(quiet=True),
    )
    assert not (tmp_path / "run" / "memory").exists()


def test_a_damaged_checkpoint_is_named(small: Dataset, tmp_path: Path) -> None:
    config = tiny("an", finetune=FinetunePhase(epochs=0))
    train_run(small, config, tmp_path / "run", HERE, Handling(quiet=True))
    (tmp_path / "run" / "result.json").unlink()
    (tmp_path / "run" / "checkpoints" / "0002" / "model.safetensors").write_bytes(b"short")
    with pytest.raises(RunError, match=r"model\.safetensors is damaged .* remove the folder"):
        train_run(small, config, tmp_path / "run", HERE, Handling(quiet=True, resume=True))
    with pytest.raises(ConfigError, match="give one"):
        Handling(resume=True, force=True)
    newest = tmp_path / "run" / "checkpoints" / "0002"
    optimizer = (newest / "optimizer.pt").read_bytes()
    for damaged in (b"", optimizer[: len(optimizer) // 2], b"\x80\x02" + optimizer[2:]):
        (newest / "optimizer.pt").write_bytes(damaged)
        with pytest.raises(RunError, match=r"optimizer\.pt is damaged .* remove the folder .*0002: then"):
            Checkpoint(newest).optimizer()
    with pytest.MonkeyPatch.context() as patch:  # too little memory does not make a checkpoint damaged

        def full(*_: object, **__: object) -> None:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")

        patch.setattr(torch, "load", full)
        (newest / "optimizer.pt").write_bytes(optimizer)
        with pytest.raises(RuntimeError, match="can't allocate memory"):
            Checkpoint(newest).optimizer()
    for damaged in (b"", b"\xff\xfe", b"[]", b"{}", b'{"processes": 1, "epoch": 2}'):
        (newest / "state.json").write_bytes(damaged)
        with pytest.raises(RunError, match=r"state\.json .*: remove the folder .*0002: then `resume=True`"):
            Checkpoint(newest)


def test_damaged_features_are_named(small: Dataset, tmp_path: Path) -> None:
    config = tiny("an", frozen=True, finetune=FinetunePhase(epochs=0))
    data = replace(small, folder=tmp_path / "data")
    train_run(data, config, tmp_path / "run", HERE, Handling(quiet=True))
    (file,) = (tmp_path / "data" / "features").glob("train-*.npy")
    good = file.read_bytes()
    for damaged in (b"", b"nothing of numpy's", good[:-100]):
        file.write_bytes(damaged)
        with pytest.raises(DataError, match=rf"{file.name} cannot be read \(.*\): remove it, and it is comp"):
            train_run(data, config, tmp_path / "run", HERE, Handling(quiet=True, force=True))
    file.write_bytes(good[:-4] + b"\xff\xff\xff\x7f")
    with pytest.raises(DataError, match=rf"{file.name}, row 60 is damaged \(.*\): remove it"):
        train_run(data, config, tmp_path / "run", HERE, Handling(quiet=True, force=True))
    file.unlink()
    train_run(data, config, tmp_path / "run", HERE, Handling(quiet=True, force=True))
    assert file.read_bytes() == good


@pytest.mark.parametrize("resume", [False, True])
def test_two_processes_do_not_train_one_run(small: Dataset, tmp_path: Path, resume: bool) -> None:
    run = tmp_path / "run"
    with locked(run), pytest.raises(RunError) as error:
        train_run(small, tiny(), run, HERE, replace(QUIET, resume=resume))
    assert (error.value.what, error.value.value) == (run, [os.getpid()])
    assert [*run.iterdir()] == []
