"""``sparselabel.train`` on data in memory, with callbacks and custom models."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning_fabric.loggers.csv_logs import CSVLogger
from PIL import Image
from safetensors.torch import load_file
from torch import nn

from sparselabel.data.answers import HEADER, as_line
from sparselabel.data.dataset import Dataset
from sparselabel.data.labels import UNKNOWN
from sparselabel.errors import ConfigError, DataError, ModelError, RunError, SparselabelError
from sparselabel.run import Run
from sparselabel.training.callbacks import Callback
from sparselabel.training.train import train

TINY: dict[str, Any] = {
    "method": "en",
    "expected_positives": 1.8,
    "backbone": "resnet18",
    "weights": "none",
    "views": {"size": 32},
    "accelerator": "cpu",
    "workers": 0,
    "quiet": True,
    "watch": 2,
}


def arrays(seed: int = 0) -> tuple[Any, Any, Any]:
    """24 images whose red, green and blue corners are the classes; one positive each is known."""
    random = np.random.default_rng(seed)
    truth = (random.random((24, 3)) < 0.5).astype(int)
    truth[np.arange(24), random.integers(0, 3, 24)] = 1
    images = random.integers(0, 60, (24, 32, 40, 3), dtype=np.uint8)
    for row, column in np.argwhere(truth):
        images[row, :16, column * 12 : column * 12 + 12, column] = 250
    observed = np.full_like(truth, -1)
    first = truth.argmax(axis=1)
    observed[np.arange(24), first] = 1
    return images, truth, observed


@pytest.fixture
def data() -> Dataset:
    images, truth, observed = arrays()
    return Dataset.from_arrays(images, observed, classes=["red", "green", "blue"], test=(images, truth))


class Watching(Callback):
    def __init__(self, stop_after: int = 0) -> None:
        self.calls: list[str] = []
        self.stop_after = stop_after

    def on_fit_start(self, trainer: Any) -> None:
        self.calls.append("start")

    def on_step_end(self, trainer: Any, losses: dict[str, torch.Tensor]) -> None:
        assert losses["labels"].isfinite()
        self.calls.append("step")

    def on_epoch_end(self, trainer: Any, record: dict[str, Any]) -> None:
        self.calls.append(f"epoch {record['epoch']}")
        trainer.should_stop = record["epoch"] == self.stop_after

    def on_fit_end(self, run: Run) -> None:
        assert run.finished
        self.calls.append("end")


def test_data_in_memory_to_metrics_and_predictions(data: Dataset, tmp_path: Path) -> None:
    watching, csv = Watching(stop_after=2), CSVLogger(tmp_path / "csv")
    # Features of a random backbone hardly vary: standardized, their rounding shows in the scores.
    head = {"epochs": 5, "raw_features": True}
    run = train(data, tmp_path / "run", frozen=True, head=head, callbacks=[watching], loggers=[csv], **TINY)
    assert watching.calls == ["start", "step", "step", "epoch 1", "step", "step", "epoch 2", "end"]
    assert run.result()["epochs"] == 2
    assert (tmp_path / "csv" / "lightning_logs" / "version_0" / "metrics.csv").is_file()
    assert run.config().settings == {"expected_positives": 1.8}
    scores = run.scores("test")
    assert scores.shape == (24, 3)
    assert run.metrics("test")["mAP"] == pytest.approx(run.result()["test"]["value"])
    images = arrays()[0]
    tensor = torch.from_numpy(images[1]).permute(2, 0, 1)
    alone = run.predict(images[1])[0].scores  # in a batch of its own, as rounding depends on it
    np.testing.assert_allclose(run.predict(images[:3])[1].scores, alone, rtol=1e-6)
    for given in (Image.fromarray(images[1]), tensor, tensor / 255, images[1] / 255.0):
        np.testing.assert_array_equal(run.predict(given)[0].scores, alone)
    Image.fromarray(images[1]).save(tmp_path / "a.png")
    np.testing.assert_array_equal(run.predict(tmp_path / "a.png")[0].scores, alone)
    assert [one.image for one in run.predict([images[0], str(tmp_path / "a.png")])] == [
        "image 0",
        str(tmp_path / "a.png"),
    ]
    assert run.maps(images[:2])[0].shape == (3, 1, 1)  # type: ignore[union-attr]
    assert "<html" in run.report().read_text()
    bad = run.predict([np.full((4, 4, 3), 2.5)])[0]
    assert "floats in 0..1" in str(bad.error)


def test_answers_of_a_review(data: Dataset, tmp_path: Path) -> None:
    split = data.split("train")
    row, column = np.argwhere(np.asarray(split.observed.values) == UNKNOWN)[0]
    answers = tmp_path / "answers.csv"
    asked = (str(split.observed.ids[row]), data.classes[column])
    answers.write_bytes(HEADER + as_line((*asked, "1", "now", "ann")))
    run = train(data, tmp_path / "run", frozen=True, head={"epochs": 1}, answers=answers, **TINY)
    assert run.metadata()["answers"] == 1
    observed = run.data().split("train").observed.values
    assert observed[row, column] == 1
    assert (np.asarray(observed) != np.asarray(split.observed.values)).sum() == 1


def test_a_run_on_data_in_memory_is_opened_again_with_the_data(data: Dataset, tmp_path: Path) -> None:
    run = train(data, tmp_path / "run", frozen=True, head={"epochs": 1}, **TINY)
    again = Run.open(tmp_path / "run")
    assert again.scores("test").shape == (24, 3)  # kept in the run
    with pytest.raises(DataError, match="in memory") as gone:
        again.scores("train")
    assert gone.value.what == "data"
    np.testing.assert_array_equal(Run.open(tmp_path / "run", data).scores("train"), run.scores("train"))
    resumed = train(run.data(), tmp_path / "run", frozen=True, head={"epochs": 1}, resume=True, **TINY)
    assert resumed.result() == run.result()


def test_a_stopped_run_resumes_to_the_same_bits(data: Dataset, tmp_path: Path) -> None:
    """With an optimizer and a scheduler of one's own, whose state is in the checkpoint."""

    class Killed(Callback):
        def on_step_end(self, trainer: Any, losses: dict[str, torch.Tensor]) -> None:
            self.steps = getattr(self, "steps", 0) + 1
            if self.steps == 3:
                raise KeyboardInterrupt

    own: dict[str, Any] = {
        "optimizer": lambda parameters: torch.optim.RMSprop(parameters, lr=1e-3, momentum=0.9),
        "scheduler": lambda optimizer, steps: torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=steps),
        "finetune": {"epochs": 2, "batch_size": 10},
        "head": {"epochs": 0},
    }
    train(data, tmp_path / "whole", **own, **TINY)
    with pytest.raises(KeyboardInterrupt):
        train(data, tmp_path / "killed", callbacks=[Killed()], **own, **TINY)
    train(data, tmp_path / "killed", resume=True, **own, **TINY)
    whole, resumed = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "killed"))
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


def own_network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3, 4), nn.ReLU(), nn.Conv2d(8, 6, 3, 4))


def test_a_model_of_ones_own(data: Dataset, tmp_path: Path) -> None:
    settings = {name: value for name, value in TINY.items() if name not in ("backbone", "weights")}
    model = own_network()
    run = train(data, tmp_path / "run", model=model, finetune={"epochs": 1}, head={"epochs": 0}, **settings)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), own_network().parameters(), strict=True))
    views = torch.randint(0, 256, (2, 3, 32, 32), dtype=torch.uint8)
    output = run.model(views, maps=True)
    assert (output.logits.shape, output.maps.shape) == ((2, 3), (2, 3, 2, 2))
    with pytest.raises(ModelError) as unit:
        run.model(views / 255)
    assert (unit.value.what, unit.value.allowed) == ("images", (0, 255))
    for strange in (views[0], views.permute(0, 2, 3, 1), views.numpy()):
        with pytest.raises(ModelError) as shape:
            run.model(strange)
        assert (shape.value.what, shape.value.allowed) == ("images", ("B", 3, "S", "S"))
    with pytest.raises(ModelError) as absent:
        _ = Run.open(tmp_path / "run").model
    assert absent.value.what == "model"
    opened = Run.open(tmp_path / "run", model=own_network())
    assert torch.equal(opened.model(views, maps=True).logits, output.logits)
    for other, given in (
        (nn.Flatten(), (2, 3 * 32 * 32)),
        (nn.Flatten(0, 1), (6, 32, 32)),
        (nn.AdaptiveMaxPool2d(2, return_indices=True), "tuple"),
        (nn.Unflatten(0, (1, 2)), (1, 2, 3, 32, 32)),
    ):
        with pytest.raises(ModelError) as refused:
            train(data, tmp_path / "other", model=other, **settings)
        assert (refused.value.value, refused.value.allowed) == (given, (2, 3))


def own_classifier() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(own_network(), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Linear(24, 3))


OWN: dict[str, Any] = {name: value for name, value in TINY.items() if name not in ("backbone", "weights")} | {
    "finetune": {"epochs": 2, "lr": 1e-2}
}


def test_a_model_that_returns_logits(data: Dataset, tmp_path: Path) -> None:
    model = own_classifier()
    run = train(data, tmp_path / "run", model=model, **OWN)
    assert (run.config().classifier, run.config().head.epochs) == ("none", 0)
    views = torch.randint(0, 256, (2, 3, 32, 32), dtype=torch.uint8)
    trained, mean = run.model, run.model.backbone.mean
    own = trained.backbone.network.model
    assert isinstance(own, nn.Sequential)
    assert torch.equal(trained(views).logits, own((views - mean) / trained.backbone.std))
    assert not torch.equal(next(own.parameters()), next(model.parameters()))
    images = arrays()[0]
    assert run.metrics("test")["mAP"] == pytest.approx(run.result()["test"]["value"])
    assert run.maps(images[:2])[0].shape == (3, 1, 1)  # type: ignore[union-attr]
    assert "<html" in run.report().read_text()
    assert run.export(tmp_path / "model.pt2").is_file()
    with pytest.raises(ModelError) as absent:
        Run.open(tmp_path / "run").predict(images[0])
    assert absent.value.what == "model"
    opened = Run.open(tmp_path / "run", data, model=own_classifier())
    np.testing.assert_array_equal(opened.predict(images[0])[0].scores, run.predict(images[0])[0].scores)
    again = train(run.data(), tmp_path / "run", model=own_classifier(), resume=True, **OWN)
    assert again.result() == run.result()


@pytest.mark.parametrize(
    ("settings", "what", "value"),
    [
        ({"method": "en+scl"}, "method", "en+scl"),
        ({"method": "en+cl"}, None, None),  # compares scores, which logits give
        ({"frozen": True, "head": {"epochs": 1}}, "frozen", True),
        ({"head": {"epochs": 2}}, "head.epochs", 2),
        ({"finetune": {"epochs": 0}}, "finetune.epochs", 0),
        ({"classifier": "tscam"}, "classifier", "tscam"),
        ({"boost": 5}, "boost", 5),
    ],
)
def test_what_a_model_of_logits_cannot_do(
    data: Dataset, tmp_path: Path, settings: dict[str, Any], what: str | None, value: Any
) -> None:
    if what is None:
        train(data, tmp_path / "run", model=own_classifier(), **OWN | settings)
        return
    with pytest.raises(ConfigError) as error:
        train(data, tmp_path / "run", model=own_classifier(), **OWN | settings)
    assert (error.value.what, error.value.value) == (what, value)
    assert not (tmp_path / "run").exists()
    assert not (tmp_path / "run-data").exists()


def test_a_killed_run_of_a_model_of_logits_goes_on_to_the_same_bits(data: Dataset, tmp_path: Path) -> None:
    class Killed(Callback):
        def on_epoch_end(self, trainer: Any, record: dict[str, Any]) -> None:
            raise KeyboardInterrupt

    train(data, tmp_path / "whole", model=own_classifier(), **OWN)
    with pytest.raises(KeyboardInterrupt):
        train(data, tmp_path / "killed", model=own_classifier(), callbacks=[Killed()], **OWN)
    train(data, tmp_path / "killed", model=own_classifier(), resume=True, **OWN)
    whole, resumed = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "killed"))
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


@pytest.mark.parametrize("own", [own_network, own_classifier])
def test_a_prior_is_found_with_a_model_of_ones_own(own: Callable[[], nn.Module], tmp_path: Path) -> None:
    """A copy of it, as it was given, trains for the prior."""
    images, truth, observed = arrays()
    observed[:, 0] = truth[:, 0]  # some negatives are known
    data = Dataset.from_arrays(images, observed)
    settings = {name: value for name, value in OWN.items() if name != "expected_positives"}
    settings |= {"method": "csl-i", "head": {"epochs": 0}, "finetune": {"epochs": 1, "lr": 1e-2}}
    before = train(data, tmp_path / "before", model=own(), unknown="ignore", **settings)
    run = train(data, tmp_path / "run", model=own(), prior="auto", **settings)
    prior = json.loads(run.prior_file.read_text())
    assert [*prior.values()] == pytest.approx(before.scores("train").mean(axis=0).tolist(), abs=1e-6)


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"model": nn.Flatten}, "model"),
        ({"model": lambda images: images}, "model"),
        ({"model": "resnet18"}, "model"),
        ({"model": own_network(), "backbone": "resnet18"}, "backbone"),
        ({"optimizer": torch.optim.SGD([torch.zeros(1)], lr=0.1)}, "optimizer"),
        ({"optimizer": lambda parameters: None} | TINY, "optimizer"),
        ({"scheduler": 3}, "scheduler"),
        ({"callbacks": Callback()}, "callbacks"),
        ({"callbacks": [print]}, "callbacks"),
        ({"callbacks": [Callback]}, "callbacks"),
        ({"data": np.zeros((4, 4))}, "data"),
    ],
)
def test_what_is_of_another_kind_is_refused_by_name(
    data: Dataset, tmp_path: Path, given: dict[str, Any], what: str
) -> None:
    arguments: dict[str, Any] = {"data": data, "out": tmp_path / "run"} | given
    with pytest.raises(SparselabelError) as refused:
        train(**arguments)
    assert refused.value.what == what


def test_no_classifier_is_for_a_module_of_ones_own(data: Dataset, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        train(data, tmp_path / "run", classifier="none", **TINY)
    assert (error.value.what, error.value.value) == ("classifier", "none")


def test_keywords_that_are_none_are_named(data: Dataset, tmp_path: Path) -> None:
    for wrong, what in (
        ({"methd": "an"}, "methd"),
        ({"expected_positive": 2}, "expected_positive"),
        ({"weight": "w.safetensors"}, "weight"),  # a setting of scl, which auto does not choose here
    ):
        with pytest.raises(ConfigError, match="did you mean") as error:
            train(data, tmp_path / "run", **wrong)
        assert error.value.what == what
    assert error.value.parameters == ["weights"]
    with pytest.raises(ConfigError, match=r"give `head=\{'batch_size': 8\}`") as error:
        train(data, tmp_path / "run", batch_size=8)
    assert error.value.parameters == ["head.batch_size", "finetune.batch_size"]
    train(data, tmp_path / "run", frozen=True, head={"epochs": 1}, **TINY)
    with pytest.raises(RunError, match="holds a run already"):
        train(data, tmp_path / "run", frozen=True, head={"epochs": 1}, **TINY)


def test_auto_is_a_method_that_takes_what_is_given(data: Dataset, tmp_path: Path) -> None:
    given = {name: value for name, value in TINY.items() if name != "method"}
    run = train(data, tmp_path / "run", frozen=True, head={"epochs": 1}, **given)
    assert (run.config().method, run.config().settings["expected_positives"]) == ("pu", 1.8)
    assert repr(run) == f"Run({str(tmp_path / 'run')!r})"
    assert (
        repr(data) == "Dataset('arrays': 3 classes; 19 images in train, 5 images in val, 24 images in test)"
    )


def test_several_processes_do_not_share_data_in_memory(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match="in memory") as error:
        train(data, tmp_path / "run", **TINY)
    assert (error.value.what, error.value.value, error.value.allowed) == ("devices", 2, 1)
    assert not (tmp_path / "run-data").exists()


def test_files_keep_their_prepared_form_beside_the_run(tmp_path: Path) -> None:
    images, truth, _ = arrays()
    (tmp_path / "photos").mkdir()
    lines = ["image,label"]
    for number, image in enumerate(images):
        Image.fromarray(image).save(tmp_path / "photos" / f"{number}.png")
        lines.append(f"{number}.png,{['red', 'green', 'blue'][int(truth[number].argmax())]}")
    (tmp_path / "labels.csv").write_text("\n".join(lines))
    data = Dataset.from_table(tmp_path / "labels.csv", tmp_path / "photos", validation=0.25)
    run = train(data, tmp_path / "run", **TINY | {"head.epochs": 1, "frozen": True})
    assert run.metadata()["data"] == str(tmp_path / "run-data")
    del data, run
    assert Run.open(tmp_path / "run").scores("val").shape == (6, 3)
    with pytest.raises(ConfigError) as unknown:
        Dataset.from_table(tmp_path / "labels.csv", tmp_path / "photos", validtion=0.25)
    assert unknown.value.what == "validtion"


AUTO = {key: value for key, value in TINY.items() if key not in ("method", "expected_positives")}


def test_a_keyword_in_the_wrong_place_is_sent_to_the_right_one(tmp_path: Path) -> None:
    data = Dataset.from_arrays(*arrays()[:2], validation=0.25)
    with pytest.raises(ConfigError) as epochs:
        train(data, tmp_path / "run", epochs=2, **AUTO)
    assert (epochs.value.what, epochs.value.value) == ("epochs", 2)
    assert "give `head={'epochs': 2}`, or give `finetune={'epochs': 2}`" in str(epochs.value)
    with pytest.raises(ConfigError, match="did you mean 'expected_positives'"):
        train(data, tmp_path / "run", expected_positve=2, **AUTO)
    assert not (tmp_path / "run-data").exists()
