"""Our work beside that of others, in one run: `make bench-rivals`. What is not installed is left out by name.

    python -m benchmarks.rivals [metrics] [coco] [first] [input] [BACKBONE ...]

Each has a process of its own, and does its work three times; the best counts. A first classifier is made
once, by a whole process. Networks have random weights, which their speed does not depend on, and label JPEG
files of 500 x 375 pixels in batches of 32. Beside the ratio of wall times is that of the processor's: other
programs on the machine move it less.
"""

import importlib.util
import json
import resource
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
from benchmarks.common import table_of
from sparselabel.config import FinetunePhase, Handling, HeadPhase, Machine, Preparation, TrainConfig, Views
from sparselabel.data.prepare import prepare
from sparselabel.data.scenes import generate as scenes

BACKBONES = ("mobilenetv2_100", "vit_small_patch14_dinov2")
IMAGES, TURNS, BATCH, SIZE = 128, 3, 32, 224
FEW = 32  # images of a network that is not called mobile
TEMPORARY = TemporaryDirectory()
Seconds = tuple[float, float]  # of the wall's clock, and of the processor
Row = tuple[str, str, Seconds, Seconds]
Work = Callable[[], object]


def main(*names: str) -> Iterator[Row]:
    """The rows of these names; default: all."""
    names = names or ("metrics", "coco", "first", "input", *BACKBONES)
    if "metrics" in names:
        yield from _metrics()
    with TemporaryDirectory() as folder:
        photos = drawn(Path(folder) / "photos")
        if "input" in names:
            yield from _views(photos)
        if "first" in names:
            yield from _first_classifier(Path(folder), photos)
        yield from _networks(
            Path(folder), [name for name in names if name not in ("metrics", "coco", "first", "input")]
        )
    if "coco" in names and _has("pycocotools"):
        read = coco.main()
        ours = read["ours, s"], read["ours, s of computing"]
        theirs = read["pycocotools, s"], read["pycocotools, s of computing"]
        yield "pycocotools", "instances of COCO's size read", ours, theirs


def _has(*names: str) -> bool:
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        print(f"left out, as it is not installed: {', '.join(missing)}")
    return not missing


def _networks(folder: Path, backbones: list[str]) -> Iterator[Row]:
    """From files to scores: `predict`, and loops that people write."""
    photos = folder / "photos"
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
        scores, features = _seconds("ours", *words, engine), _seconds("features", *words, engine)
        to_scores = f"{backbone}, {count} files to scores by {engine}"
        to_features = f"{backbone}, {count} files to stored features by {engine}"
        yield "predict by PyTorch", to_scores, scores, _seconds("ours", *words, "torch")
        plain, best = _seconds("torch", *words), _seconds("torch_best", *words)
        onnx = _seconds("onnx", *words) if _has("onnxruntime", "onnx", "onnxscript") else None
        for work, ours in ((to_scores, scores), (to_features, features)):
            yield "PyTorch, a plain loop", work, ours, plain
            yield "PyTorch at its best (channels last, memory kept)", work, ours, best
            if onnx is not None:
                yield "onnxruntime, a plain loop on our export", work, ours, onnx


def _views(photos: Path) -> Iterator[Row]:
    words = ["", str(photos), str(IMAGES), ""]
    if _has("torchvision"):
        yield (
            "torchvision's transforms",
            f"{IMAGES} files to views of {SIZE} pixels, one process",
            _seconds("input", *words),
            _seconds("input_torchvision", *words),
        )


def _first_classifier(folder: Path, photos: Path) -> Iterator[Row]:
    """From files and a table of labels to a classifier, whole processes with all they import."""
    table = table_of(photos.iterdir(), folder / "labels.csv")
    work = f"{IMAGES} files and labels to a classifier on mobilenetv2_100's features, with imports"
    words = [str(photos), "--labels", str(table), "--out", str(folder / "first")]
    flags = ["--backbone", "mobilenetv2_100", "--weights", "none", "--frozen", "--quiet"]
    ours = [sys.executable, "-m", "sparselabel", "train", *words, *flags]
    seconds = _whole(ours)
    if _has("sklearn"):
        by_hand = _command("first", "", str(photos), str(IMAGES), "mobilenetv2_100")
        yield "PyTorch and scikit-learn, by hand", work, seconds, _whole(by_hand)
    for package in ("fastai", "autogluon"):
        _has(package)


def _metrics() -> Iterator[Row]:
    """Average precision of 40,137 images and 80 classes."""
    ours = _seconds("map")
    for name, package in (("scikit-learn", "sklearn"), ("torchmetrics", "torchmetrics")):
        if _has(package):
            yield name, "mAP of 40,137 images and 80 classes", ours, _seconds(f"map_{package}")


def drawn(folder: Path, count: int = IMAGES) -> Path:
    random = np.random.default_rng(0)
    folder.mkdir()
    for number in range(count):
        blocks = random.integers(0, 256, (12, 16, 3), dtype=np.uint8)
        image = Image.fromarray(blocks).resize((500, 375), Image.Resampling.BICUBIC)
        image.save(folder / f"{number:04}.jpg", quality=90)
    return folder


def _command(work: str, *words: str) -> list[str]:
    return [sys.executable, "-m", "benchmarks.rivals", "--work", work, *words]


def _seconds(work: str, *words: str) -> Seconds:
    """What a process of its own says of a work."""
    done = subprocess.run(_command(work, *words), check=True, capture_output=True, text=True)
    wall, processor = json.loads(done.stdout.splitlines()[-1])
    return wall, processor


def _whole(command: list[str]) -> Seconds:
    """What a process takes from its start to its end."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    wall, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _work(
    name: str, run: str = "", photos: str = "", count: str = "0", backbone: str = "", *more: str
) -> Work:
    files = [str(path) for path in sorted(Path(photos).glob("*.jpg"))[: int(count)]] if photos else []
    works: dict[str, Callable[[], Work]] = {
        "map": lambda: _map(name),
        "input": lambda: _input(files, name.endswith("torchvision")),
        "ours": lambda: _ours(Path(run), files, *more),
        "features": lambda: _features(files, backbone, *more),
        "onnx": lambda: _onnx(Path(run), files),
        "first": lambda: _by_hand(backbone, files),
        "torch": lambda: _torch(backbone, files, best=name.endswith("best")),
    }
    return works[name.partition("_")[0]]()


def _ours(run: Path, files: list[str], engine: str) -> Work:
    from sparselabel.inference.predictor import load_predictor
    from sparselabel.resources import keep_freed_memory

    keep_freed_memory()
    predictor = load_predictor(run, device="cpu", engine=engine)
    return lambda: [*predictor(files, batch=BATCH)]


def _features(files: list[str], backbone: str, engine: str) -> Work:
    """As training with a frozen backbone stores them."""
    from sparselabel.config import Machine
    from sparselabel.data.dataset import Dataset
    from sparselabel.data.transforms import squashed
    from sparselabel.distributed import start_fabric
    from sparselabel.inference.engine import CellFeatures, CompiledNetwork
    from sparselabel.models.backbone import make_backbone
    from sparselabel.training.features import compute_features

    folder = Path(TEMPORARY.name)
    table = table_of(map(Path, files), folder / "labels.csv")
    data = Dataset.from_table(table, Path(files[0]).parent, out=folder / "data", validation=0.0)
    fabric = start_fabric(Machine(accelerator="cpu"), "32-true")
    made = make_backbone(backbone, "none", size=SIZE)
    network = CompiledNetwork(CellFeatures(made.eval()), engine)
    given = (data.train, squashed(SIZE), network, (made.width,), fabric, None, lambda count: None)
    return lambda: compute_features(folder / "features.npy", *given)


def _by_hand(backbone: str, files: list[str]) -> Work:
    """Features in a plain loop, and a logistic regression for each class; once."""
    import timm
    import torch
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier
    from torchvision import transforms

    network = timm.create_model(backbone, pretrained=False, num_classes=0).eval()
    normalize = transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    seen = transforms.Compose([transforms.Resize((SIZE, SIZE)), transforms.ToTensor(), normalize])
    features = []
    with torch.no_grad():
        for start in range(0, len(files), BATCH):
            views = [seen(Image.open(file).convert("RGB")) for file in files[start : start + BATCH]]
            features.append(network(torch.stack(views)).numpy())
    labels = np.arange(len(files)) % 20
    OneVsRestClassifier(LogisticRegression(max_iter=1000)).fit(np.concatenate(features), labels)
    return lambda: None


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


def _best(work: Work) -> Seconds:
    """The least seconds of a turn; the first, which has what comes once, is not counted."""
    walls, processors = [], []
    for _ in range(TURNS + 1):
        begin, used = time.perf_counter(), time.process_time()
        work()
        walls.append(time.perf_counter() - begin)
        processors.append(time.process_time() - used)
    return min(walls[1:]), min(processors[1:])


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        print(json.dumps(_best(_work(*sys.argv[2:]))))
    else:
        print("| rival | work | ours, s | rival, s | rival / ours | by processor time |")
        print("|---|---|---|---|---|---|")
        for rival, work, ours, theirs in main(*sys.argv[1:]):
            ratios = " | ".join(f"{other / own:.2f}" for own, other in zip(ours, theirs, strict=True))
            print(f"| {rival} | {work} | {ours[0]:.2f} | {theirs[0]:.2f} | {ratios} |", flush=True)
