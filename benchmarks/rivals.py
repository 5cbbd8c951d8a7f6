"""Our work beside that of others, in one run: `make bench-rivals`. What is not installed is left out by name.

    python -m benchmarks.rivals [BACKBONE ...]

Each has a process of its own, and does its work three times; the best counts. Networks have random weights,
which their speed does not depend on, and label JPEG files of 500 x 375 pixels in batches of 32.
"""

import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from PIL import Image

from benchmarks import coco
from sparselabel.config import FinetunePhase, Handling, HeadPhase, Machine, Preparation, TrainConfig, Views
from sparselabel.data.prepare import prepare
from sparselabel.data.scenes import generate as scenes

BACKBONES = ("mobilenetv2_100", "vit_small_patch14_dinov2")
IMAGES, TURNS, BATCH, SIZE = 512, 3, 32, 224
FEW = 64  # images of a network that is not called mobile
Row = tuple[str, str, float, float]
Work = Callable[[], object]


def main(backbones: tuple[str, ...] = BACKBONES) -> Iterator[Row]:
    yield from _metrics()
    with TemporaryDirectory() as name:
        yield from _networks(Path(name), backbones)
    if _has("pycocotools"):
        read = coco.main()
        yield "pycocotools", "instances of COCO's size read", read["ours, s"], read["pycocotools, s"]


def _has(*names: str) -> bool:
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        print(f"left out, as it is not installed: {', '.join(missing)}")
    return not missing


def _networks(folder: Path, backbones: tuple[str, ...]) -> Iterator[Row]:
    """From files to scores: `predict`, and loops that people write."""
    photos = _drawn(folder / "photos")
    source = scenes.make(folder / "data", train=40, test=8, size=64)
    data = prepare(source, folder / "data", Preparation(sparsify="single-positive"))
    from sparselabel.training.train_run import train_run

    for backbone in backbones:
        run, mobile = folder / backbone, backbone.startswith("mobile")
        config = TrainConfig(
            backbone=backbone,
            weights="none",
            frozen=True,
            views=Views(size=SIZE),
            head=HeadPhase(epochs=1),
            finetune=FinetunePhase(epochs=0),
        )
        train_run(data, config, run, Machine(accelerator="cpu", workers=0), Handling(quiet=True))
        count = str(IMAGES if mobile else FEW)
        words = [str(run), str(photos), count, backbone]
        engine = "openvino" if _has("openvino") else "auto"
        ours = _seconds("ours", *words, engine)
        work = f"{backbone}, {count} files to scores by {engine}"
        yield "predict by PyTorch", work, ours, _seconds("ours", *words, "torch")
        yield "PyTorch, a plain loop", work, ours, _seconds("torch", *words)
        yield "PyTorch at its best (channels last, memory kept)", work, ours, _seconds("torch_best", *words)
        if _has("onnxruntime", "onnx", "onnxscript"):
            yield "onnxruntime, a plain loop on our export", work, ours, _seconds("onnx", *words)
    words = ["", str(photos), str(IMAGES), ""]
    if _has("torchvision"):
        yield (
            "torchvision's transforms",
            f"{IMAGES} files to views of {SIZE} pixels, one process",
            _seconds("input", *words),
            _seconds("input_torchvision", *words),
        )


def _metrics() -> Iterator[Row]:
    """Average precision of 40,137 images and 80 classes."""
    ours = _seconds("map")
    for name, package in (("scikit-learn", "sklearn"), ("torchmetrics", "torchmetrics")):
        if _has(package):
            yield name, "mAP of 40,137 images and 80 classes", ours, _seconds(f"map_{package}")


def _drawn(folder: Path) -> Path:
    random = np.random.default_rng(0)
    folder.mkdir()
    for number in range(IMAGES):
        blocks = random.integers(0, 256, (12, 16, 3), dtype=np.uint8)
        image = Image.fromarray(blocks).resize((500, 375), Image.Resampling.BICUBIC)
        image.save(folder / f"{number:04}.jpg", quality=90)
    return folder


def _seconds(work: str, *words: str) -> float:
    """What a process of its own says of a work."""
    command = [sys.executable, "-m", "benchmarks.rivals", "--work", work, *words]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(json.loads(done.stdout.splitlines()[-1]))


def _work(
    name: str, run: str = "", photos: str = "", count: str = "0", backbone: str = "", *more: str
) -> Work:
    files = [str(path) for path in sorted(Path(photos).glob("*.jpg"))[: int(count)]] if photos else []
    if name.startswith("map"):
        return _map(name)
    if name.startswith("input"):
        return _input(files, name.endswith("torchvision"))
    if name == "ours":
        return _ours(Path(run), files, *more)
    if name == "onnx":
        return _onnx(Path(run), files)
    return _torch(backbone, files, best=name.endswith("best"))


def _ours(run: Path, files: list[str], engine: str) -> Work:
    from sparselabel.inference.predictor import load_predictor
    from sparselabel.resources import keep_freed_memory

    keep_freed_memory()
    predictor = load_predictor(run, device="cpu", engine=engine)
    return lambda: [*predictor(files, batch=BATCH)]


def _torch(backbone: str, files: list[str], best: bool) -> Work:
    """As timm's pages have it, with torchvision's transforms."""
    import timm
    import torch
    from torchvision import transforms

    sized: dict[str, Any] = {"img_size": SIZE} if backbone.startswith("vit") else {}
    network = timm.create_model(backbone, pretrained=False, num_classes=20, **sized).eval()
    layout: Any = torch.channels_last if best else torch.contiguous_format
    if best:
        from sparselabel.resources import keep_freed_memory

        keep_freed_memory()
        network = network.to(memory_format=layout)
    normalize = transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    seen = transforms.Compose([transforms.Resize((SIZE, SIZE)), transforms.ToTensor(), normalize])

    @torch.no_grad()
    def loop() -> None:
        for start in range(0, len(files), BATCH):
            views = [seen(Image.open(file).convert("RGB")) for file in files[start : start + BATCH]]
            network(torch.stack(views).contiguous(memory_format=layout)).sigmoid().numpy()

    return loop


def _onnx(run: Path, files: list[str]) -> Work:
    """Whole images into the exported file, as docs/predict.md shows it."""
    import onnxruntime

    from sparselabel.export import export_run
    from sparselabel.run import Run

    file = run / "model.onnx"
    export_run(Run(run), file)
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])

    def loop() -> None:
        for start in range(0, len(files), BATCH):
            images = [np.asarray(Image.open(file).convert("RGB")) for file in files[start : start + BATCH]]
            session.run(["scores"], {"images": np.stack(images)})

    return loop


def _input(files: list[str], theirs: bool) -> Work:
    if not theirs:
        from sparselabel.data.transforms import squashed
        from sparselabel.inference.predictor import ReadView

        read = ReadView(squashed(SIZE))
        return lambda: [read(file) for file in files]
    from torchvision import transforms

    seen = transforms.Compose([transforms.Resize((SIZE, SIZE)), transforms.PILToTensor()])
    return lambda: [seen(Image.open(file).convert("RGB")) for file in files]


def _map(name: str) -> Work:
    random = np.random.default_rng(0)
    labels = (random.random((40_137, 80)) < 0.036).astype(np.int8)
    scores = random.random(labels.shape).astype(np.float32)
    if name == "map":
        from sparselabel.metrics.average_precision import average_precision

        return lambda: average_precision(scores, labels)
    if name == "map_sklearn":
        from sklearn.metrics import average_precision_score

        return lambda: average_precision_score(labels, scores, average=None)
    import torch
    from torchmetrics.functional.classification import multilabel_average_precision

    given, truth = torch.from_numpy(scores), torch.from_numpy(labels).long()
    return lambda: multilabel_average_precision(given, truth, num_labels=80, average=None)


def _best(work: Work) -> float:
    """Seconds of the best turn; the first, which has what comes once, is not counted."""
    seconds = []
    for _ in range(TURNS + 1):
        begin = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - begin)
    return min(seconds[1:])


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        print(json.dumps(_best(_work(*sys.argv[2:]))))
    else:
        print("| rival | work | ours, s | rival, s | rival / ours |\n|---|---|---|---|---|")
        for rival, work, ours, theirs in main(tuple(sys.argv[1:]) or BACKBONES):
            print(f"| {rival} | {work} | {ours:.2f} | {theirs:.2f} | {theirs / ours:.2f} |", flush=True)
