"""Engines agree with PyTorch, are chosen in order, cached in a bounded folder, and fall back to PyTorch."""

import copy
import ctypes
import gc
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from sparselabel.config import FinetunePhase, Handling, HeadPhase, Machine, Preparation, TrainConfig, Views
from sparselabel.data.dataset import Dataset
from sparselabel.errors import ConfigError, ModelWarning, RunError
from sparselabel.inference import engine as engines
from sparselabel.inference.engine import TORCH, CellFeatures, CompiledNetwork, choose_engine
from sparselabel.inference.evaluate import evaluate_run
from sparselabel.inference.predictor import load_predictor
from sparselabel.inference.scorer import Scorer
from sparselabel.models.backbone import NONE, make_backbone, own_backbone
from sparselabel.models.classifier import Classifier
from sparselabel.models.heads import make_head
from sparselabel.run import Run
from sparselabel.training.train_run import train_run
from tests.training.conftest import small_scenes, tiny

CPU = torch.device("cpu")
FROZEN = tiny(frozen=True, views=Views(size=64), head=HeadPhase(epochs=1), finetune=FinetunePhase(epochs=0))
TUNED = tiny(views=Views(size=64), head=HeadPhase(epochs=1), finetune=FinetunePhase(epochs=1, lr=1e-2))
QUIET = Handling(quiet=True)


def here(engine: str = "auto") -> Machine:
    return Machine(accelerator="cpu", workers=0, engine=engine)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPARSELABEL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "networks"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return small_scenes(tmp_path_factory.mktemp("data"), 24, 40, Preparation("single-positive"))


def views(count: int = 5, size: int = 64) -> Tensor:
    return torch.randint(0, 256, (count, 3, size, size), generator=torch.manual_seed(0), dtype=torch.uint8)


def model(backbone: str, head: str, size: int = 64) -> Classifier:
    torch.manual_seed(0)
    made = make_backbone(backbone, NONE, size=size)
    return Classifier(made, make_head(head, made.width, 7, None)).eval()


def installed(*names: str) -> Callable[[str], object]:
    return lambda name: object() if name in names else None


@pytest.mark.parametrize(
    ("there", "chosen"),
    [
        (("openvino", "onnxruntime", "onnx", "onnxscript"), "openvino"),
        (("onnxruntime", "onnx", "onnxscript"), "onnxruntime"),
        (("onnxruntime",), TORCH),  # nothing could convert a network for it
        ((), TORCH),
    ],
)
def test_the_fastest_that_is_installed_is_chosen(
    there: tuple[str, ...], chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", installed(*there))
    assert choose_engine("auto", CPU) == chosen
    assert choose_engine("auto", CPU, images=engines.WORTH - 1) == TORCH
    assert choose_engine("auto", CPU, "bf16-mixed") == TORCH
    assert choose_engine("auto", torch.device("cuda")) == TORCH


def test_an_engine_that_is_not_there_or_does_not_suit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError) as raised:
        choose_engine("openvino", CPU, "64-true")
    assert (raised.value.what, raised.value.value) == ("engine", "openvino")
    with pytest.raises(ConfigError) as raised:
        choose_engine("tensorrt", CPU)
    assert raised.value.allowed == ("auto", "openvino", "onnxruntime", "torch")
    monkeypatch.setattr("importlib.util.find_spec", installed("onnxruntime"))
    with pytest.raises(ConfigError, match="onnx and onnxscript") as raised:
        choose_engine("onnxruntime", CPU)
    assert raised.value.remedies[0] == "`pip install 'sparselabel[export]'`"
    assert choose_engine(TORCH, CPU) == TORCH


HEADS = [
    ("test_resnet", "linear"),
    ("test_resnet", "tscam"),
    ("test_resnet", "query2label"),
    ("test_vit", "token"),
    ("test_vit", "tscam"),
]


@pytest.mark.parametrize(("backbone", "head"), HEADS)
def test_openvino_says_what_pytorch_says(backbone: str, head: str) -> None:
    assert_agrees("openvino", model(backbone, head, 160 if backbone == "test_vit" else 64))


@pytest.mark.slow
@pytest.mark.parametrize(("backbone", "head"), HEADS)
def test_onnxruntime_says_what_pytorch_says(backbone: str, head: str) -> None:
    assert_agrees("onnxruntime", model(backbone, head, 160 if backbone == "test_vit" else 64))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["swin_tiny_patch4_window7_224", "cvt_w24"])
def test_openvino_runs_large_networks(name: str) -> None:
    size = 224 if name.startswith("swin") else 96
    assert_agrees("openvino", model(name, "linear", size), size)


def assert_agrees(engine: str, classifier: Classifier, size: int | None = None) -> None:
    size = size or (160 if classifier.backbone.has_token else 64)
    exact, fast = Scorer(classifier, CPU), Scorer(classifier, CPU, engine=engine)
    for count in (3, 1, 5):  # any number of images
        wanted, given = (scorer(views(count, size), maps=True) for scorer in (exact, fast))
        assert fast.engine_used == engine
        for ours, theirs in zip(wanted, given, strict=True):
            assert (ours is None) == (theirs is None)
            if ours is not None and theirs is not None:
                assert torch.allclose(theirs, ours, atol=1e-4 * float(ours.std()), rtol=1e-4)
    without = fast(views(5, size)).logits
    assert torch.allclose(without, given.logits, atol=1e-5 * float(without.std()))


def test_a_converted_network_is_kept_and_found_again(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    classifier = model("test_resnet", "linear")
    first = CompiledNetwork(CellFeatures(classifier.backbone), "openvino")(views())[0]
    kept = [*cache.iterdir()]
    assert [sorted(one.name for one in folder.iterdir()) for folder in kept] == [
        ["checksums.json", "network.bin", "network.xml"]
    ]
    with monkeypatch.context() as only_read:
        only_read.setattr(engines, "_convert_openvino", _not_again)
        again = CompiledNetwork(CellFeatures(copy.deepcopy(classifier.backbone)), "openvino")
        assert torch.equal(again(views())[0], first)
    for name in ("network.bin", "network.xml"):  # a flipped bit: made anew
        content = bytearray((kept[0] / name).read_bytes())
        content[len(content) // 2] ^= 1
        (kept[0] / name).write_bytes(content)
        assert torch.equal(CompiledNetwork(CellFeatures(classifier.backbone), "openvino")(views())[0], first)
        assert (kept[0] / name).read_bytes() != content
    with torch.no_grad():
        next(classifier.backbone.parameters()).add_(0.1)
    other = CompiledNetwork(CellFeatures(classifier.backbone), "openvino")(views())[0]
    assert not torch.equal(other, first)
    assert len([*cache.iterdir()]) == 2


def _not_again(*_: object) -> None:
    raise RuntimeError("converted again")


def test_the_cache_is_bounded_and_may_be_missing(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backbone = model("test_resnet", "linear").backbone
    CompiledNetwork(CellFeatures(backbone), "openvino")(views())
    (first,) = cache.iterdir()
    monkeypatch.setattr(engines, "ROOM", int(1.5 * sum(file.stat().st_size for file in first.iterdir())))
    CompiledNetwork(CellFeatures(backbone), "openvino")(views(size=32))
    (second,) = cache.iterdir()
    assert second.name != first.name
    monkeypatch.setattr(engines, "ROOM", 10)  # too large to be kept at all
    CompiledNetwork(CellFeatures(backbone), "openvino")(views(size=96))
    assert [*cache.iterdir()] == [second]
    monkeypatch.setenv("SPARSELABEL_CACHE", os.devnull)
    monkeypatch.setattr(engines, "ROOM", 10**9)
    network = CompiledNetwork(CellFeatures(backbone), "openvino")
    network(views(size=96))
    assert network.engine == "openvino"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="sigaltstack is looked at as glibc has it")
def test_openvino_leaves_no_signal_stack_behind() -> None:
    backbone = model("test_resnet", "linear").backbone
    before = _signal_stack()
    first, second = (CompiledNetwork(CellFeatures(backbone), "openvino") for _ in range(2))
    first(views())
    second(views())
    del first
    assert _signal_stack() == before
    del second
    gc.collect()
    assert _signal_stack() == before


def _signal_stack() -> tuple[int | None, int]:
    found = engines._SignalStack()
    ctypes.CDLL(None).sigaltstack(None, ctypes.byref(found))
    return found.start, found.size


def test_a_module_of_somebody_else_is_not_kept(cache: Path) -> None:
    backbone = own_backbone(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()), 64, 7).backbone
    network = CompiledNetwork(CellFeatures(backbone), "openvino")
    network(views())
    assert network.engine == "openvino"
    assert not cache.exists()


class LosesDigits(nn.Module):
    """A network whose float32 outputs have a rounding error of about 3e-4."""

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        large = images * images.new_full((), 1 / 255) + 1e4
        return (large.sqrt().square() - 1e4,)


@pytest.mark.parametrize("times", [0.5, 1.5, 4])
def test_an_engine_may_round_as_pytorch_does(times: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is compared with float64 where PyTorch's own rounding is above the tolerance."""

    def loaded(module: nn.Module, *_: object) -> Any:
        def run(inputs: Any) -> Any:
            images = torch.from_numpy(inputs)
            (exact,), (ours,) = module(images.double()), module(images)
            return ((exact - times * (ours - exact)).float().numpy(),)

        return run

    monkeypatch.setattr(engines, "_loaded", loaded)
    network = CompiledNetwork(LosesDigits(), "openvino")
    images = views().float()
    (exact,), (ours,) = LosesDigits()(images.double()), LosesDigits()(images)
    assert float((ours - exact).abs().max() / exact.std()) > engines.TOLERANCE
    if times < engines.ROUNDING:
        assert network.check(images) == "openvino"
    else:
        with pytest.warns(ModelWarning, match="as openvino does not: its logits differ by"):
            assert network.check(images) == TORCH


@pytest.mark.parametrize("fault", ["differs", "fails", "shape"])
def test_pytorch_takes_over_where_an_engine_is_wrong(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    classifier = model("test_resnet", "linear")

    def loaded(module: nn.Module, *_: object) -> Any:
        if fault == "fails":
            raise RuntimeError("an operation it does not know")

        def run(inputs: Any) -> Any:
            right = module(torch.from_numpy(inputs))[0].detach().numpy()
            return (right[:, :, :1] if fault == "shape" else right + right.std() * np.float32(0.01),)

        return run

    monkeypatch.setattr(engines, "_loaded", loaded)
    scorer = Scorer(classifier, CPU, engine="openvino")
    with pytest.warns(ModelWarning, match="PyTorch runs this network") as warned:
        given = scorer(views())
    assert (warned[0].message.what, warned[0].message.value) == ("engine", "openvino")  # type: ignore[union-attr]
    assert scorer.engine_used == TORCH
    assert torch.equal(given.logits, Scorer(classifier, CPU)(views()).logits)


@pytest.mark.parametrize("config", [FROZEN, TUNED], ids=["frozen", "finetuned"])
def test_a_run_is_scored_by_the_engine_it_names(data: Dataset, tmp_path: Path, config: TrainConfig) -> None:
    run = Run(tmp_path / "run")
    train_run(data, config, run.path, here("openvino"), QUIET)
    trained = np.load(run.scores_file("test"))["scores"]
    assert run.metadata()["engine"] == ("openvino" if config.frozen else TORCH)
    measured = evaluate_run(run, "test")
    assert measured["engine"] == run.metadata()["engine"]
    np.testing.assert_array_equal(np.load(run.scores_file("test"))["scores"], trained)
    for engine in ("openvino", TORCH):
        measured = evaluate_run(run, "test", engine=engine)
        assert measured["engine"] == engine
        np.testing.assert_allclose(np.load(run.scores_file("test"))["scores"], trained, atol=1e-5)


def test_stored_features_say_what_made_them(data: Dataset, tmp_path: Path) -> None:
    def files() -> set[str]:
        return {file.name for file in data.features_folder.iterdir()}

    config = tiny(
        frozen=True, views=Views(size=48), head=HeadPhase(epochs=1), finetune=FinetunePhase(epochs=0)
    )
    train_run(data, config, tmp_path / "exact", here(), QUIET)
    before = files()
    train_run(data, config, tmp_path / "fast", here("openvino"), QUIET)
    made = files() - before
    assert {name.split("-")[1] for name in made} == {"openvino"}
    assert {name.split("-")[0] for name in made} == {*data.splits}
    (tmp_path / "fast" / "result.json").unlink()
    with pytest.raises(RunError) as raised:
        train_run(data, config, tmp_path / "fast", here(TORCH), Handling(quiet=True, resume=True))
    assert (raised.value.what, raised.value.allowed) == ("engine", "openvino")
    train_run(data, config, tmp_path / "fast", here(), Handling(quiet=True, resume=True))
    assert Run(tmp_path / "fast").metadata()["engine"] == "openvino"
    assert files() - before == made


def test_features_that_are_there_are_taken(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny(
        frozen=True, views=Views(size=40), head=HeadPhase(epochs=1), finetune=FinetunePhase(epochs=0)
    )
    train_run(data, config, tmp_path / "exact", here(TORCH), QUIET)
    monkeypatch.setattr(engines, "WORTH", 1)
    monkeypatch.setattr(engines, "_loaded", _not_again)
    train_run(data, config, tmp_path / "again", here(), QUIET)
    assert Run(tmp_path / "again").metadata()["engine"] == TORCH


def test_a_predictor_takes_an_engine_for_many_images(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train_run(data, TUNED, tmp_path / "run", here(), QUIET)
    images = [str(data.train.path(row)) for row in range(6)]
    predictor = load_predictor(tmp_path / "run")
    exact = [*predictor(images)]
    assert predictor.engine == TORCH
    monkeypatch.setattr("sparselabel.inference.predictor.WORTH", 6)
    fast = [*predictor(images)]
    assert predictor.engine == "openvino"
    for one, other in zip(exact, fast, strict=True):
        assert one.image == other.image
        np.testing.assert_allclose(one.scores, other.scores, atol=1e-5)
    asked = load_predictor(tmp_path / "run", engine="openvino")
    np.testing.assert_array_equal(next(asked(images[:1])).scores.shape, (len(data.classes),))
    assert asked.engine == "openvino"
