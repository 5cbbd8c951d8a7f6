"""Exported files give the scores of `predict`: within 1e-4 at the view's size, within 5e-3 at others."""

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from sparselabel import load_predictor
from sparselabel.config import FinetunePhase, Handling, HeadPhase, Machine
from sparselabel.data.dataset import Dataset
from sparselabel.errors import ConfigError, ModelError, RunError
from sparselabel.export import OUTPUTS, TEXT, check_target, export_run, exported, largest_difference
from sparselabel.inference.class_thresholds import load_class_thresholds
from sparselabel.run import Run
from sparselabel.training.train_run import train_run
from tests.cli.conftest import Command, command
from tests.training.conftest import small, tiny

onnxruntime = pytest.importorskip("onnxruntime", reason="the extra `export` is not installed")
__all__ = ["command", "small"]
FULL = Path("/dev/full")


@pytest.fixture(scope="module")
def run(small: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = tiny(
        frozen=True, backbone="test_resnet", head=HeadPhase(epochs=2), finetune=FinetunePhase(epochs=0)
    )
    path = tmp_path_factory.mktemp("exported") / "run"
    train_run(small, config, path, Machine("cpu", workers=0), Handling(quiet=True))
    return path


@pytest.fixture(scope="module")
def queries(small: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of Query2Label."""
    head = HeadPhase(epochs=1)
    config = tiny(
        backbone="test_resnet", classifier="query2label", head=head, finetune=FinetunePhase(epochs=0)
    )
    path = tmp_path_factory.mktemp("queries") / "run"
    train_run(small, config, path, Machine("cpu", workers=0), Handling(quiet=True))
    return path


@pytest.fixture(scope="module", params=["linear", "token"])
def transformer(
    request: pytest.FixtureRequest, small: Dataset, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A run of a plain ViT."""
    none = FinetunePhase(epochs=0)
    config = tiny(backbone="test_vit", classifier=request.param, head=HeadPhase(epochs=1), finetune=none)
    path = tmp_path_factory.mktemp("transformer") / "run"
    train_run(small, config, path, Machine("cpu", workers=0), Handling(quiet=True))
    return path


@pytest.fixture(scope="module")
def onnx(run: Path) -> Path:
    out = run.parent / "model.onnx"
    export_run(Run(run), out)
    return out


@pytest.fixture(scope="module")
def photos(run: Path) -> list[Path]:
    """Three images: of the view's size, larger, and smaller and narrow."""
    random = np.random.default_rng(0)
    paths = []
    for number, (width, height) in enumerate([(32, 32), (90, 60), (20, 45)]):
        pixels = random.integers(0, 256, (height, width, 3), dtype=np.uint8)
        paths.append(run.parent / f"{number}.png")
        Image.fromarray(pixels).save(paths[-1])
    return paths


def pixels_of(path: Path) -> np.ndarray:
    with Image.open(path) as image:
        return np.asarray(image)[None]


def test_onnxruntime_gives_the_scores_of_predict(run: Path, onnx: Path, photos: list[Path]) -> None:
    session = onnxruntime.InferenceSession(onnx, providers=["CPUExecutionProvider"])
    for path, found, tolerance in zip(
        photos, load_predictor(run, device="cpu")(photos, maps=True), (1e-4, 5e-3, 5e-3), strict=True
    ):
        scores, maps, present = session.run(["scores", "maps", "present"], {"images": pixels_of(path)})
        assert scores[0] == pytest.approx(found.scores, abs=tolerance)
        assert found.maps is not None
        assert maps[0] == pytest.approx(found.maps, abs=50 * tolerance)
        named = {name for name, _ in found.labels}
        sure = np.abs(found.scores - load_class_thresholds(Run(run)).thresholds()) > tolerance
        assert present[0][sure].tolist() == [name in named for name in np.array(CLASSES(run))[sure]]


def CLASSES(run: Path) -> list[str]:  # noqa: N802
    return [row.name for row in load_class_thresholds(Run(run)).classes]


def test_the_examples_of_the_page(
    run: Path, onnx: Path, photos: list[Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from tests.test_readme import PAGES, blocks

    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "first").symlink_to(run)
    (tmp_path / "model.onnx").symlink_to(onnx)
    with Image.open(photos[0]) as image:
        image.save("photo.jpg", quality=95)
    ours, theirs = blocks("python", PAGES["predict.md"])
    names: dict[str, Any] = {}
    exec(ours, names)
    exec(theirs, names)
    names["image"].close()
    (expected,) = load_predictor(run, device="cpu")(["photo.jpg"])
    assert names["scores"][0] == pytest.approx(expected.scores, abs=1e-4)
    assert set(names["labels"]) == {name for name, _ in expected.labels}


def test_any_batch_and_size(onnx: Path) -> None:
    session = onnxruntime.InferenceSession(onnx, providers=["CPUExecutionProvider"])
    (given,) = session.get_inputs()
    assert (given.name, given.shape, given.type) == (
        "images",
        ["batch", "height", "width", 3],
        "tensor(uint8)",
    )
    for shape in ((1, 5, 300, 3), (5, 32, 32, 3), (2, 33, 31, 3)):
        scores, maps, present = session.run(None, {"images": np.zeros(shape, np.uint8)})
        assert (scores.shape[0], maps.ndim, present.dtype) == (shape[0], 4, np.bool_)
        assert scores.shape == maps.shape[:2] == present.shape


def test_names_and_thresholds_are_inside(run: Path, onnx: Path) -> None:
    session = onnxruntime.InferenceSession(onnx, providers=["CPUExecutionProvider"])
    text = session.get_modelmeta().custom_metadata_map
    class_thresholds = load_class_thresholds(Run(run))
    assert json.loads(text["sparselabel.classes"]) == CLASSES(run)
    assert json.loads(text["sparselabel.thresholds"]) == pytest.approx(class_thresholds.thresholds().tolist())
    assert text["sparselabel.thresholds_for"] == "f1"
    assert json.loads(text["sparselabel.trust"])[0]["why"] == class_thresholds.classes[0].why
    assert json.loads(text["sparselabel.view"])["size"] == 32
    assert not list(run.parent.glob("*partial*"))


def test_what_maps_are_is_inside(run: Path, queries: Path) -> None:
    assert exported(Run(run))[1]["outputs"]["maps"] == "float32 (batch, classes, h, w), logits of cells"
    module, about = exported(Run(queries))
    assert about["outputs"]["maps"].endswith(
        "logits of attention: where the model looked, shares that add up to 1, not scores of cells"
    )
    with torch.no_grad():
        _, maps, _ = module(torch.zeros(1, 64, 64, 3, dtype=torch.uint8))
    assert torch.sigmoid(maps).sum(dim=(2, 3)).numpy() == pytest.approx(np.ones((1, 12)), abs=1e-4)


def test_a_program_of_torch(run: Path, photos: list[Path], command: Command) -> None:
    out = run.parent / "model.pt2"
    done = command("export", run, out, "--threshold", "0.25")
    assert done == 0
    assert done.out.startswith(f"written: {out} (")
    assert "MB; run: scores within" in done.out
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        text = {TEXT: ""}
        program = torch.export.load(out, extra_files=text).module()
    about = json.loads(text[TEXT])
    assert (about["classes"], about["thresholds_for"]) == (CLASSES(run), "threshold 0.25")
    scores, _, present = program(torch.from_numpy(pixels_of(photos[0]).copy()))
    (found,) = load_predictor(run, device="cpu")(photos[:1])
    assert scores[0].detach().numpy() == pytest.approx(found.scores, abs=1e-4)
    assert torch.equal(present, scores >= 0.25)
    assert command("export", run, out) == 2  # it is there


@pytest.mark.parametrize("kind", ["onnx", "pt2"])
def test_query2label_is_exported_for_any_batch(
    queries: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    out = queries.parent / f"queries.{kind}"
    _, apart = export_run(Run(queries), out)  # with one image, and with three
    remarks = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert not remarks  # such as of ONNX's optimizer on every attention
    assert apart is not None
    assert apart < 1e-4


def test_a_vit_gives_its_scores_and_maps_for_any_batch(transformer: Path) -> None:
    files = [transformer.parent / f"vit.{kind}" for kind in ("onnx", "pt2")]
    for file in files:
        export_run(Run(transformer), file)
    session = onnxruntime.InferenceSession(files[0], providers=["CPUExecutionProvider"])
    program = torch.export.load(files[1]).module()
    module, _ = exported(Run(transformer))
    random = np.random.default_rng(0)
    for shape in ((1, 40, 24, 3), (3, 32, 32, 3)):
        images = random.integers(0, 256, shape, dtype=np.uint8)
        with torch.inference_mode():
            expected = module(torch.from_numpy(images))
            found = program(torch.from_numpy(images))
        for ours, onnx, torchs in zip(expected, session.run(OUTPUTS, {"images": images}), found, strict=True):
            assert onnx == pytest.approx(ours.numpy(), abs=1e-4)
            assert torchs.numpy() == pytest.approx(ours.numpy(), abs=1e-4)


def test_a_model_that_torch_cannot_take(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("the batch is fixed\nand more")

    monkeypatch.setattr("torch.export.export", refuse)
    said = r"cannot take this model \(RuntimeError: the batch is fixed\): `sparselabel predict` runs it"
    with pytest.raises(ModelError, match=f"{said}, or export a model with another backbone or classifier"):
        export_run(Run(run), run.parent / "refused.pt2")
    assert not list(run.parent.glob("refused*"))


def test_a_model_that_onnx_cannot_hold(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise torch.onnx.OnnxExporterError("step 2/3") from ValueError("cannot view\nand more")

    monkeypatch.setattr("torch.onnx.export", refuse)
    with pytest.raises(ModelError, match=r"this model \(ValueError: cannot view\): export a \.pt2 file"):
        export_run(Run(run), run.parent / "refused.onnx")
    assert not list(run.parent.glob("refused*"))


def test_thresholds_for_a_precision(run: Path) -> None:
    module, about = exported(Run(run), precision=0.9)
    assert about["thresholds_for"] == "precision 0.9"
    wanted = load_class_thresholds(Run(run)).thresholds(precision=0.9)
    assert module.get_buffer("thresholds").tolist() == pytest.approx(wanted.tolist())
    assert [value is None for value in about["thresholds"]] == (wanted > 1).tolist()


def test_the_check_sees_another_model(run: Path, onnx: Path, command: Command, tmp_path: Path) -> None:
    apart = largest_difference(Run(run), onnx)
    assert apart is not None
    assert apart < 1e-4
    command.monkeypatch.setattr("sparselabel.export.largest_difference", lambda *_: 0.5)
    command.monkeypatch.setattr("sparselabel.export._write_program", lambda module, about, out: out.touch())
    (tmp_path / "old.pt2").write_text("good")
    done = command("export", run, tmp_path / "old.pt2", "--force")
    assert done == 1
    assert "scores that differ from ours by 0.5, more than 0.001" in done.err
    assert [(file.name, file.read_text()) for file in tmp_path.glob("*.pt2")] == [("old.pt2", "good")]


def test_what_cannot_be_exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"ends in \.onnx or \.pt2, not .*model\.pb"):
        check_target(tmp_path / "model.pb", force=False)
    (tmp_path / "model.onnx").touch()
    with pytest.raises(ConfigError, match=r"model\.onnx exists already: .*force=True"):
        check_target(tmp_path / "model.onnx", force=False)
    check_target(tmp_path / "model.onnx", force=True)
    with pytest.raises(RunError, match="is not a run"):
        export_run(Run(tmp_path), tmp_path / "x.onnx")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"ONNX needs onnx and onnxscript: `pip install 'sparselabel"):
        check_target(tmp_path / "new.onnx", force=False)
    check_target(tmp_path / "new.pt2", force=False)


@pytest.mark.skipif(not FULL.exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("kind", ["onnx", "pt2"])
def test_a_full_disk_is_named_by_the_file(run: Path, kind: str, tmp_path: Path) -> None:
    out = tmp_path / f"model.{kind}"
    (tmp_path / f"model.partial.{kind}").symlink_to(FULL)
    with pytest.raises(OSError, match="No space left") as raised:
        export_run(Run(run), out)
    assert raised.value.filename == str(out)
    assert list(tmp_path.iterdir()) == []
