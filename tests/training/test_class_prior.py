"""The prior of the class-aware selective loss: from files, and from an earlier run."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from sparselabel.config import FinetunePhase, Handling, HeadPhase, Machine
from sparselabel.data.dataset import Dataset
from sparselabel.errors import ConfigError, DataError, RunError
from sparselabel.losses import step as layout
from sparselabel.losses.class_selective import SelectiveUnknown
from sparselabel.run import Run
from sparselabel.training import train_run as running
from sparselabel.training.class_prior import column_means, read_prior, run_before, take_prior
from sparselabel.training.train_run import train_run
from tests.losses.steps import rule_of
from tests.training.conftest import tiny
from tests.training.test_train_patch import stop_after
from tests.training.trainers import make_trainer

HERE = Machine(accelerator="cpu", workers=0)
QUIET = Handling(quiet=True)
HEAD_ALONE = {"head": HeadPhase(epochs=3, lr=1e-2, batch_size=16), "finetune": FinetunePhase(epochs=0)}


def config(**settings: Any) -> Any:
    return tiny("csl-i", frozen=True, settings=dict(settings), **HEAD_ALONE)


def test_a_prior_is_read_from_json_and_tables(tmp_path: Path) -> None:
    classes = ("cat", "dog, small")
    (tmp_path / "a.json").write_text('{"dog, small": 1, "cat": 0.25}')
    (tmp_path / "a.csv").write_text('prior,class\n1.0,"dog, small"\n.25,cat\n')
    assert read_prior(tmp_path / "a.json", classes) == (0.25, 1.0)
    assert read_prior(tmp_path / "a.csv", classes) == (0.25, 1.0)


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("a.json", '{"cat": 0.5}', r"for each of the data's 2 classes; it lacks dog"),
        ("a.json", '{"cat": 0.5, "dog": 0.5, "cow": 0.1}', r"it has cow, which the data has not"),
        ("a.json", '{"cat": 1.5, "dog": 0.5}', r"a.json: cat must be in 0..1, not 1.5"),
        ("a.json", '{"cat": NaN, "dog": 0.5}', r"a.json: cat must be in 0..1, not nan"),
        ("a.json", '{"cat": "x", "dog": 0.5}', r"a.json: cat must be a number, not 'x'"),
        ("a.json", "[0.5, 0.5]", r"must be an object of JSON"),
        ("a.json", "cat: 0.5", r"cannot be read \(Expecting value"),
        ("a.csv", "class,share\ncat,0.5\n", r"must have columns class and prior, not class, share"),
        ("a.csv", "class,prior\ncat,often\n", r"line 2: the prior of cat must be a share .* not 'often'"),
        ("a.csv", "class,prior\ncat,0.1\ncat,0.1\n", r"line 3: class 'cat' is there twice"),
    ],
)
def test_what_is_wrong_with_a_file(tmp_path: Path, name: str, text: str, why: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=why):
        read_prior(tmp_path / name, ("cat", "dog"))


def test_refusals_come_before_a_folder_is_made(marked: Dataset, small: Dataset, tmp_path: Path) -> None:
    out = tmp_path / "run"
    for data, settings, why in (
        (marked, {"prior": "Auto"}, r"there is no file 'Auto'; auto is written in small letters"),
        (marked, {"prior": "auto", "unknown": "ignore"}, "in selective mode, but the mode is ignore: give"),
        (small, {"prior": "auto"}, r"the run that finds the prior leaves unknown labels out"),
    ):
        with pytest.raises(ConfigError, match=why):
            train_run(data, config(**settings), out, HERE, QUIET)
        assert not out.exists()


def test_the_run_before_is_the_method_alone_and_short() -> None:
    given = tiny(
        "patchml+cluster+cl", settings={"unknown": "selective", "prior": "auto", "near": 0.2, "weight": 2.0}
    )
    before = run_before(given)
    assert before.method == "patchml"
    assert before.settings == {"unknown": "ignore"}
    assert (before.head.epochs, before.finetune.epochs, before.watch) == (1, 1, 0)


def test_a_file_is_kept_in_the_run_and_must_stay(marked: Dataset, tmp_path: Path) -> None:
    shares = {name: 0.9 if number == 1 else 0.1 for number, name in enumerate(marked.classes)}
    file = tmp_path / "mine.json"
    file.write_text(json.dumps(shares))
    out = tmp_path / "run"
    train_run(marked, config(prior=str(file)), out, HERE, QUIET)
    assert json.loads((out / "prior.json").read_text()) == shares
    file.write_text(json.dumps(shares | {marked.classes[0]: 0.8}))
    with pytest.raises(RunError, match="a file of a prior of the same name, but of other content"):
        train_run(marked, config(prior=str(file)), out, HERE, Handling(quiet=True, resume=True))


def test_auto_is_the_mean_score_of_a_run_in_ignore_mode(marked: Dataset, tmp_path: Path) -> None:
    given = config(prior="auto", prior_threshold=0.3)
    alone = train_run(marked, run_before(given), tmp_path / "alone", HERE, QUIET)
    assert alone["epochs"] == 1
    train_run(marked, given, tmp_path / "run", HERE, QUIET)
    kept = json.loads((tmp_path / "run" / "prior.json").read_text())
    weights = load_file(tmp_path / "alone" / "model.safetensors")
    trainer = make_trainer(marked, run_before(given), tmp_path / "s")
    features = trainer.loaders.features("train")
    features = torch.nn.functional.normalize(features)
    seen = (features - weights["head.center"]) / weights["head.scale"]
    scores = torch.sigmoid(seen @ weights["head.linear.weight"].T + weights["head.linear.bias"])
    assert list(kept) == list(marked.classes)
    assert list(kept.values()) == pytest.approx(scores.double().mean(dim=0).tolist(), abs=1e-6)
    assert not (tmp_path / "run" / "prior").exists()


def test_a_run_killed_on_the_way_goes_on_with_the_same_prior(
    marked: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = config(prior="auto")
    whole = train_run(marked, given, tmp_path / "whole", HERE, QUIET)
    again = Handling(quiet=True, resume=True)
    monkeypatch.setattr(running, "column_means", _killed)  # the run for the prior is over, but not the prior
    with pytest.raises(KeyboardInterrupt):
        train_run(marked, given, tmp_path / "cut", HERE, QUIET)
    monkeypatch.undo()
    assert Run(tmp_path / "cut" / "prior").finished
    stop_after(monkeypatch, 1)
    with pytest.raises(KeyboardInterrupt):
        train_run(marked, given, tmp_path / "cut", HERE, again)
    monkeypatch.undo()
    assert train_run(marked, given, tmp_path / "cut", HERE, again) == whole
    assert (tmp_path / "cut/prior.json").read_text() == (tmp_path / "whole/prior.json").read_text()


def _killed(*arguments: object) -> None:
    raise KeyboardInterrupt


def test_the_target_rule_has_it(marked: Dataset) -> None:
    from sparselabel.training.resolve import method_of

    shares = tuple(0.1 for _ in marked.classes)
    method = method_of(config(prior="auto"))
    take_prior(method, shares)
    rule = rule_of(method)
    assert isinstance(rule, SelectiveUnknown)
    assert rule.prior == shares


def test_means_are_added_up_in_blocks_and_precisely(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "ENTRIES_AT_ONCE", 6)
    scores = torch.tensor([[0.0, 2**-26], [1.0, 0.0], [0.0, 0.0], [1.0, 1.0], [0.5, 0.0]])
    assert column_means(scores) == (0.5, (1 + 2**-26) / 5)  # float32 would lose the small one
