"""Runs with points and boxes: on images, on stored features of cells, and what is refused before."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from sparselabel.config import FinetunePhase, Handling, HeadPhase, Machine, Setting, Views
from sparselabel.data.dataset import Dataset
from sparselabel.data.labels import POSITIVE, UNKNOWN
from sparselabel.data.spatial_labels import SpatialLabels
from sparselabel.errors import ConfigError, ResourceError
from sparselabel.losses.patchml import cell_labels
from sparselabel.losses.step import Progress
from sparselabel.training import phase_loaders
from sparselabel.training.checkpoint import newest_checkpoint
from sparselabel.training.train_run import train_run
from sparselabel.training.trainer import Trainer
from tests.training.conftest import tiny
from tests.training.trainers import make_trainer

HERE = Machine(accelerator="cpu", workers=0)
QUIET = Handling(quiet=True)
HEAD_ALONE = {"head": HeadPhase(epochs=3, lr=1e-2, batch_size=16), "finetune": FinetunePhase(epochs=0)}
PROGRESS = Progress(1, 3, 0, 0.1)


def losses(run: Path) -> list[dict[str, float]]:
    return [json.loads(line)["losses"] for line in (run / "metrics.jsonl").read_text().splitlines()]


def test_a_step_has_the_marks_of_its_rows_and_no_hidden_ones(marked: Dataset, tmp_path: Path) -> None:
    trainer = make_trainer(marked, tiny("patchml"), tmp_path)
    stage = trainer.stage("finetune", 0, None)
    seen, checked = marked.train.seen, 0
    assert 0 < len(seen) < len(marked.train.spatial_labels)
    for _, batch in stage.batches(0, prefetch=lambda rows: None):
        step = trainer.make_step(batch, trainer.forward(stage, batch)[0], PROGRESS)
        assert step.spatial_labels is not None
        for place, row in enumerate(step.rows.tolist()):
            mine = step.spatial_labels.rows == place
            assert step.spatial_labels.classes[mine].tolist() == seen.classes[seen.rows == row].tolist()
            np.testing.assert_array_equal(step.spatial_labels.centers[mine], seen.centers[seen.rows == row])
            assert (marked.train.observed.values[row, step.spatial_labels.classes[mine]] == POSITIVE).all()
            checked += int(mine.sum())
    assert checked == len(seen)  # every row once
    padded = trainer.make_step(batch._replace(rows=torch.full_like(batch.rows, -1)), step.outputs, PROGRESS)
    assert padded.spatial_labels is not None
    assert len(padded.spatial_labels) == 0


def test_a_crop_and_a_flip_take_the_cells_along(marked: Dataset, tmp_path: Path) -> None:
    """A cell that is positive in a view shows the middle of a mark, or is covered by it, in the image."""
    trainer = make_trainer(marked, tiny("patchml"), tmp_path)
    stage = trainer.stage("finetune", 0, None)
    found = flipped = 0
    for _, batch in stage.batches(0, prefetch=lambda rows: None):
        step = trainer.make_step(batch, trainer.forward(stage, batch)[0], PROGRESS)
        assert step.spatial_labels is not None
        labels = cell_labels(step.observed, step.spatial_labels, step.geometries[0], (8, 8))
        for place, which, down, across in (labels == POSITIVE).nonzero().tolist():
            corner = torch.tensor([[[across / 8, down / 8], [(across + 1) / 8, (down + 1) / 8]]])
            ends = step.geometries[0][torch.tensor([place])].to_image(corner)[0]
            low, high = ends.amin(0).numpy(), ends.amax(0).numpy()
            mine = (step.spatial_labels.rows == place) & (step.spatial_labels.classes == which)
            half = step.spatial_labels.sizes[mine] / 2
            meets = (step.spatial_labels.centers[mine] - half < high) & (
                step.spatial_labels.centers[mine] + half > low
            )
            assert meets.all(axis=1).any()
            found += 1
            flipped += bool(step.geometries[0].flip[place])
    assert found > 100
    assert 0 < flipped < found


@pytest.mark.parametrize("classifier", ["linear", "tscam"])
def test_stored_cells_give_the_losses_of_images_seen_whole(
    marked: Dataset, tmp_path: Path, classifier: str
) -> None:
    whole = {**HEAD_ALONE, "views": Views(size=64, smallest_crop=1.0, flip=0.0), "classifier": classifier}
    train_run(marked, tiny("patchml", **whole), tmp_path / "images", HERE, QUIET)
    result = train_run(marked, tiny("patchml", frozen=True, **whole), tmp_path / "stored", HERE, QUIET)
    for images, stored in zip(losses(tmp_path / "images"), losses(tmp_path / "stored"), strict=True):
        assert stored == pytest.approx(images, rel=2e-3)  # half precision
        assert stored["patches"] > 0
    files = {file.name.partition("-")[0]: np.load(file, mmap_mode="r") for file in _features(marked, 64)}
    assert files["train"].dtype == np.float16
    assert files["train"].shape[0] == len(marked.train)
    assert files["train"].shape[2:] == (2, 2)
    # A linear head pools: validation and test need no cells.
    assert files["val"].ndim == (2 if classifier == "linear" else 4)
    assert result["validation"] is not None


def _features(data: Dataset, size: int) -> list[Path]:
    """The files that the newest run made."""
    return sorted((data.folder / "features").glob("*.npy"), key=lambda file: file.stat().st_mtime_ns)


@pytest.mark.parametrize(
    ("method", "frozen"), [("patchml", False), ("patchml+cluster+scl", True), ("csl-i+cluster", False)]
)
def test_a_resumed_run_ends_with_the_same_bits(
    marked: Dataset, tmp_path: Path, method: str, frozen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    phases: dict[str, Any] = HEAD_ALONE if frozen else {}
    config = tiny(method, frozen=frozen, settings=_settings(method), **phases)
    train_run(marked, config, tmp_path / "whole", HERE, QUIET)
    stop_after(monkeypatch, 2)
    with pytest.raises(KeyboardInterrupt):
        train_run(marked, config, tmp_path / "cut", HERE, QUIET)
    monkeypatch.undo()
    train_run(marked, config, tmp_path / "cut", HERE, Handling(quiet=True, resume=True))
    whole, cut = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "cut"))
    assert all(torch.equal(value, cut[key]) for key, value in whole.items())
    assert losses(tmp_path / "whole") == losses(tmp_path / "cut")


def _settings(method: str) -> dict[str, Setting]:
    return {"near": 0.2, "far": 0.4} if "cluster" in method else {}


def stop_after(patch: pytest.MonkeyPatch, epochs: int) -> None:
    """Kill a run in the epoch after so many."""
    original = Trainer.train_epoch

    def killed(self: Trainer, stage: Any, epoch: int, bar: Any) -> Any:
        if epoch == epochs:
            raise KeyboardInterrupt
        return original(self, stage, epoch, bar)

    patch.setattr(Trainer, "train_epoch", killed)


def test_pseudo_labels_are_for_images_without_labels(marked: Dataset, tmp_path: Path) -> None:
    config = tiny("patchml+cluster", frozen=True, settings={"near": 0.2, "far": 0.4}, **HEAD_ALONE)
    train_run(marked, config, tmp_path / "run", HERE, QUIET)
    newest = newest_checkpoint(tmp_path / "run" / "checkpoints")
    assert newest is not None
    kept = load_file(newest.path / "memory-0.safetensors")["terms.pseudo.labels.labels/values"].numpy()
    unlabeled = (marked.train.observed.values == UNKNOWN).all(axis=1)
    assert 0 < unlabeled.sum() < len(unlabeled)
    assert (kept[~unlabeled] == UNKNOWN).all()
    assert {*np.unique(kept[unlabeled]).tolist()} == {-1, 0, 1}
    # In the first epoch there are none.
    assert [loss["pseudo"] > 0 for loss in losses(tmp_path / "run")] == [False, True, True]


@pytest.mark.parametrize("method", ["csl-p", "patchml+fixmatch"])
def test_methods_run_on_a_transformer(marked: Dataset, tmp_path: Path, method: str) -> None:
    for classifier in ("tscam", "token"):
        config = tiny(
            method,
            backbone="test_vit",
            classifier=classifier,
            views=Views(size=160),
            head=HeadPhase(epochs=0),
            finetune=FinetunePhase(epochs=1, lr=1e-3, batch_size=16),
        )
        train_run(marked, config, tmp_path / classifier, HERE, QUIET)
        assert all(np.isfinite(value) for value in losses(tmp_path / classifier)[0].values())


def test_two_views_the_second_recolored(marked: Dataset, tmp_path: Path) -> None:
    trainer = make_trainer(marked, tiny("fixmatch"), tmp_path)
    stage = trainer.stage("finetune", 0, None)
    _, batch = next(stage.batches(0, prefetch=lambda rows: None))
    assert [len(part) for part in (batch.inputs, batch.geometries)] == [2, 2]
    assert not torch.equal(batch.geometries[0].box, batch.geometries[1].box)
    outputs = trainer.forward(stage, batch)[0]
    assert [output.logits.shape for output in outputs] == [(16, len(marked.classes))] * 2
    stage.module.eval()
    alone = [stage.module(view).logits for view in batch.inputs]
    for output, expected in zip(trainer.forward(stage, batch)[0], alone, strict=True):
        torch.testing.assert_close(output.logits, expected)
    train_run(marked, tiny("fixmatch"), tmp_path / "run", HERE, QUIET)
    assert [*losses(tmp_path / "run")[0]] == ["labels", "strong"]


def test_what_cannot_work_is_refused_before_a_folder_is_made(
    marked: Dataset, small: Dataset, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    bare = replace(marked, splits={**marked.splits, "train": _without_marks(marked)})
    for data, config, why in (
        (small, tiny("csl-i", settings={"unknown": "ignore"}), "csl-i leaves unknown labels out and so"),
        (
            small,
            tiny("csl-i+cluster", settings={"prototypes": "cells"}),
            "csl-i.cluster needs points or",
        ),
        (bare, tiny("patchml"), r"patchml needs points or boxes; this data has none: prepare data whose"),
        (marked, tiny("fixmatch", frozen=True), "fixmatch compares two fresh views .* leave `frozen` out"),
        (
            marked,
            tiny("patchml", frozen=True, classifier="token"),
            "`classifier=token` reads the class token",
        ),
        (
            marked,
            tiny("patchml", frozen=True, views=Views(size=32, geometry="imagenet")),
            r"`views=\{'geometry': 'imagenet'\}` shows their middle",
        ),
        (marked, tiny("patchml", classifier="query2label"), "query2label has none"),
        (marked, tiny("patchml+cluster", settings={"near": 0.8}), r"near \(d⁺\) must be below far"),
    ):
        with pytest.raises(ConfigError, match=why):
            train_run(data, config, out, HERE, QUIET)
        assert not out.exists()
    hidden = replace(
        marked, splits={**marked.splits, "train": replace(marked.train, seen=SpatialLabels.none())}
    )
    with pytest.raises(ConfigError, match=r"none that training may see: its \d+ are for evaluation"):
        train_run(hidden, tiny("patchml"), out, HERE, QUIET)


def _without_marks(data: Dataset) -> Any:
    return replace(data.train, spatial_labels=SpatialLabels.none(), seen=SpatialLabels.none())


def test_cells_that_the_disk_cannot_hold_are_refused_with_their_size(
    marked: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(phase_loaders, "free_disk", lambda path: 10_000_000)
    config = tiny("patchml", frozen=True, views=Views(size=512), **HEAD_ALONE)
    # 61 images of 256 numbers on 16 × 16 cells at 2 bytes, and pooled ones of the other splits.
    with pytest.raises(ResourceError, match=r"take \d+\.\d+ MB and .* has 10.00 MB free: make room"):
        train_run(marked, replace(config, backbone="resnet18"), tmp_path / "run", HERE, QUIET)
