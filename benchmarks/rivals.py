"""Our work beside that of others, in one run: `make bench-rivals`. What is not installed is left out by name.

    python -m benchmarks.rivals [metrics] [coco] [first] [input] [BACKBONE ...]

Each has a process of its own. They take turns, three each (mAP: one), so that a busy machine slows all; the
best turn counts. A first classifier is made once, by a whole process. Networks have random weights, which
their speed does not depend on, and label JPEG files of 500 x 375 pixels in batches of 32. Beside the ratio of
wall times is that of the processor's: other programs on the machine move it less.
"""

import importlib.util
import json
import os
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
from benchmarks.common import Seconds, table_of
from sparselabel.config import FinetunePhase, Handling, HeadPhase, Machine, Preparation, TrainConfig, Views
from sparselabel.data.prepare import prepare
from sparselabel.data.scenes import generate as scenes

BACKBONES = ("mobilenetv2_100", "vit_small_patch14_dinov2")
IMAGES, TURNS, BATCH, SIZE = 128, 3, 32, 224
FEW = 32  # images of a network that is not called mobile
FIRST = 1000  # images of a first classifier
PASSES = 4  # over the images, where nothing but input is measured
TEMPORARY = TemporaryDirectory()
Row = tuple[str, str, Seconds, Seconds]
Work = Callable[[], object]


def main(*names: str) -> Iterator[Row]:
    """The rows of these names; default: all."""
    names = names or ("metrics", "coco", "first", "input", *BACKBONES)
    if "metrics" in names:
        yield from _metrics()
    if "coco" in names and _has("pycocotools"):
        read = coco.main()
        ours = read["ours, s"], read["ours, s of computing"]
        theirs = read["pycocotools, s"], read["pycocotools, s of computing"]
        yield "pycocotools", "instances of COCO's size read", ours, theirs
    with TemporaryDirectory() as name:
        folder = Path(name)
        if "first" in names:
            yield from _first_classifier(folder)
        photos = drawn(folder / "photos")
        if "input" in names and _has("torchvision"):
            yield from _input_rows(photos)
        for backbone in names:
            if backbone not in ("metrics", "coco", "first", "input"):
                yield from _network(folder, backbone)


def _has(*names: str) -> bool:
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        print(f"left out, as it is not installed: {', '.join(missing)}")
    return not missing


def _network(folder: Path, backbone: str) -> Iterator[Row]:
    """From files to scores: `predict`, stored features, and loops that people write."""
    from sparselabel.training.train_run import train_run

    run, photos = folder / backbone, folder / "photos"
    data_folder = folder / f"{backbone}-data"
    source = scenes.make(data_folder, train=40, test=8, size=64)
    data = prepare(source, data_folder, Preparation(sparsify="single-positive"))
    config = TrainConfig(
        backbone=backbone,
        weights="none",
        frozen=True,
        views=Views(size=SIZE),
        head=HeadPhase(epochs=1),
        finetune=FinetunePhase(epochs=0),
    )
    train_run(data, config, run, Machine(accelerator="cpu", workers=0), Handling(quiet=True))
    count = str(IMAGES if backbone.startswith("mobile") else FEW)
    words = [str(run), str(photos), count, backbone]
    onnx = _has("onnxruntime", "onnx", "onnxscript")
    engine = "openvino" if _has("openvino") else "onnxruntime" if onnx else "torch"
    works = {
        "scores": ("ours", *words, engine),
        "features": ("features", *words, engine),
        "PyTorch, a plain loop": ("torch", *words),
        "PyTorch at its best (channels last, memory kept)": ("torch_best", *words),
    }
    if onnx:
        works |= {
            "onnxruntime, a plain loop": ("onnx", *words),
            "onnxruntime, a plain loop on our export": ("onnx_ours", *words),
        }
    works |= {
        "ours, by PyTorch": ("ours", *words, "torch"),
        "ours, with a worker process for each core": ("ours", *words, engine, str(os.cpu_count())),
    }
    took = _beside(works)
    scores, features = took.pop("scores"), took.pop("features")
    for rival, seconds in took.items():
        yield rival, f"{backbone}, {count} files to scores by {engine}", scores, seconds
    for rival, seconds in took.items():
        if not rival.startswith("ours"):
            yield rival, f"{backbone}, {count} files to stored features by {engine}", features, seconds


def _input_rows(photos: Path) -> Iterator[Row]:
    cores = os.cpu_count() or 1
    for views, used in (("central crops", 1), ("central crops", cores), ("whole images", 1)):
        words = ["", str(photos), str(IMAGES), "", str(used), views]
        took = _beside({"ours": ("input", *words), "theirs": ("input_torchvision", *words)})
        work = f"{IMAGES * PASSES} files to batches of {views} at {SIZE} pixels, {used} of the cores"
        yield "torchvision's transforms, in a DataLoader", work, took["ours"], took["theirs"]


def _first_classifier(folder: Path) -> Iterator[Row]:
    """From files and a table of labels to a classifier, whole processes with all they import."""
    photos = drawn(folder / "thousand", FIRST)
    table = table_of(photos.iterdir(), folder / "labels.csv")
    work = f"{FIRST:,} files and labels to a classifier on mobilenetv2_100, whole programs"
    words = [str(photos), "--labels", str(table), "--out", str(folder / "first")]
    flags = ["--backbone", "mobilenetv2_100", "--weights", "none", "--frozen", "--quiet"]
    ours = _whole([sys.executable, "-m", "sparselabel", "train", *words, *flags])
    for package, name in (
        ("sklearn", "PyTorch and scikit-learn, by hand"),
        ("fastai", "fastai, fine_tune(1)"),
    ):
        if _has(package):
            theirs = _whole(_command(f"first_{package}", "", str(photos), str(FIRST), "mobilenetv2_100"))
            yield name, work, ours, theirs
    _has("autogluon")


def _metrics() -> Iterator[Row]:
    """Average precision of 40,137 images and 80 classes."""
    rivals = [("scikit-learn", "sklearn"), ("torchmetrics", "torchmetrics")]
    works = {name: (f"map_{package}",) for name, package in rivals if _has(package)}
    took = _beside({"ours": ("map",), **works}, turns=1)  # torchmetrics takes half a minute
    for name in works:
        yield name, "mAP of 40,137 images and 80 classes", took["ours"], took[name]


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


def _beside(works: dict[str, tuple[str, ...]], turns: int = TURNS) -> dict[str, Seconds]:
    """The least seconds of a turn of each work; the first turn, which has what comes once, is not counted."""
    processes = {
        name: subprocess.Popen(_command(*words), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for name, words in works.items()
    }
    took: dict[str, list[Seconds]] = {name: [] for name in works}
    for _ in range(turns + 1):
        for name, process in processes.items():
            if process.stdin is None or process.stdout is None:
                raise RuntimeError(f"{name} has no pipes")
            process.stdin.write("\n")
            process.stdin.flush()
            line = process.stdout.readline()
            if not line:
                raise RuntimeError(f"{name} ended")
            wall, processor = json.loads(line)
            took[name].append((wall, processor))
    for process in processes.values():
        process.communicate()
    return {
        name: (min(wall for wall, _ in seconds[1:]), min(processor for _, processor in seconds[1:]))
        for name, seconds in took.items()
    }


def _whole(command: list[str]) -> Seconds:
    """What a process takes from its start to its end."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, input=b"\n")  # one turn, where there are turns
    wall, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _work(
    name: str, run: str = "", photos: str = "", count: str = "0", backbone: str = "", *more: str
) -> Work:
    files = [str(path) for path in sorted(Path(photos).glob("*.jpg"))[: int(count)]] if photos else []
    works: dict[str, Callable[[], Work]] = {
        "map": lambda: _map(name),
        "input": lambda: _input(files * PASSES, name.endswith("torchvision"), *more),
        "ours": lambda: _ours(Path(run), files, *more),
        "features": lambda: _features(files, backbone, *more),
        "onnx": lambda: _onnx_of_ours(Path(run), files) if name.endswith("ours") else _onnx(backbone, files),
        "first": lambda: _fastai(backbone, files) if name.endswith("fastai") else _by_hand(backbone, files),
        "torch": lambda: _torch(backbone, files, best=name.endswith("best")),
    }
    return works[name.partition("_")[0]]()


def _ours(run: Path, files: list[str], engine: str, workers: str = "") -> Work:
    from sparselabel.inference.predictor import load_predictor
    from sparselabel.resources import keep_freed_memory

    keep_freed_memory()
    predictor = load_predictor(run, device="cpu", engine=engine)
    return lambda: [*predictor(files, batch=BATCH, workers=int(workers) if workers else None)]


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


def _batches(files: list[str]) -> Iterator[Any]:
    """Views (B, 3, S, S) as most examples make them, by torchvision's transforms."""
    import torch
    from torchvision import transforms

    normalize = transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    seen = transforms.Compose([transforms.Resize((SIZE, SIZE)), transforms.ToTensor(), normalize])
    for start in range(0, len(files), BATCH):
        views = [seen(Image.open(file).convert("RGB")) for file in files[start : start + BATCH]]
        yield torch.stack(views)


def _made(backbone: str, classes: int) -> Any:
    import timm

    sized: dict[str, Any] = {"img_size": SIZE} if backbone.startswith("vit") else {}
    return timm.create_model(backbone, pretrained=False, num_classes=classes, **sized).eval()


def _by_hand(backbone: str, files: list[str]) -> Work:
    """Features in a plain loop, and a logistic regression for each class."""
    import torch
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier

    network = _made(backbone, 0)

    def first() -> None:
        with torch.no_grad():
            features = [network(views).numpy() for views in _batches(files)]
        labels = np.arange(len(files)) % 20
        OneVsRestClassifier(LogisticRegression(max_iter=1000)).fit(np.concatenate(features), labels)

    return first


def _fastai(backbone: str, files: list[str]) -> Work:
    """As its tutorial for several labels has it, with random weights: the head, then all, an epoch each."""
    from fastai.vision.all import ImageDataLoaders, Resize, vision_learner

    photos = Path(files[0]).parent
    given = {"fname": "labels.csv", "folder": photos.name, "label_delim": ";", "item_tfms": Resize(SIZE)}

    def first() -> None:
        data = ImageDataLoaders.from_csv(photos.parent, **given)
        vision_learner(data, backbone, pretrained=False).fine_tune(1)

    return first


def _torch(backbone: str, files: list[str], best: bool) -> Work:
    """As timm's pages have it."""
    import torch

    network = _made(backbone, 20)
    layout: Any = torch.channels_last if best else torch.contiguous_format
    if best:
        from sparselabel.resources import keep_freed_memory

        keep_freed_memory()
        network = network.to(memory_format=layout)

    @torch.no_grad()
    def loop() -> None:
        for views in _batches(files):
            network(views.contiguous(memory_format=layout)).sigmoid().numpy()

    return loop


def _onnx(backbone: str, files: list[str]) -> Work:
    """As onnxruntime's pages have it: a network of timm, exported by torch."""
    import onnxruntime
    import torch

    file, example = Path(TEMPORARY.name) / f"{backbone}.onnx", torch.zeros(2, 3, SIZE, SIZE)
    shapes = ({0: torch.export.Dim("batch")},)
    program = torch.onnx.export(_made(backbone, 20), (example,), dynamo=True, dynamic_shapes=shapes)
    program.save(file)  # type: ignore[union-attr]
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda: [session.run(None, {name: views.numpy()}) for views in _batches(files)]


def _onnx_of_ours(run: Path, files: list[str]) -> Work:
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


def _input(files: list[str], theirs: bool, cores: str, views: str) -> Work:
    """Both end with batches of bytes. A DataLoader of one core has no worker, of more one for each.

    Central crops are those of torchvision's reference for evaluation.
    """
    import torch

    torch.set_num_threads(int(cores))
    whole = views == "whole images"
    if not theirs:
        from sparselabel.data.transforms import imagenet_test, squashed
        from sparselabel.inference.predictor import ReadView, stream

        read = ReadView(squashed(SIZE) if whole else imagenet_test(SIZE))
        return lambda: [*stream(files, read, BATCH, None)]
    from torch.utils.data import DataLoader
    from torchvision import transforms

    view = (
        [transforms.Resize((SIZE, SIZE))] if whole else [transforms.Resize(256), transforms.CenterCrop(SIZE)]
    )
    images: Any = _Seen(files, transforms.Compose([*view, transforms.PILToTensor()]))
    workers = int(cores) if int(cores) > 1 else 0
    loader: DataLoader[Any] = DataLoader(images, batch_size=BATCH, num_workers=workers)
    return lambda: [*loader]


class _Seen:
    """A data set as people write it."""

    def __init__(self, files: list[str], transform: Callable[[Image.Image], Any]) -> None:
        self.files, self.transform = files, transform

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Any:
        return self.transform(Image.open(self.files[index]).convert("RGB"))


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


def _take_turns(*words: str) -> None:
    """Do a work once for every line that comes, and say the seconds of the wall's clock and the processor."""
    lines, sys.stdout = sys.stdout, sys.stderr  # what programs print is no answer
    work = _work(*words)
    for _ in sys.stdin:
        before, begin = _processor(), time.perf_counter()
        work()
        wall = time.perf_counter() - begin
        print(json.dumps((wall, _processor() - before)), file=lines, flush=True)


def _processor() -> float:
    """Seconds that this process and those it began have used, as far as these have ended."""
    return sum(os.times()[:4])


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        _take_turns(*sys.argv[2:])
    else:
        print("| rival | work | ours, s | rival, s | rival / ours | by processor time |")
        print("|---|---|---|---|---|---|")
        for rival, work, ours, theirs in main(*sys.argv[1:]):
            ratios = " | ".join(f"{other / own:.2f}" for own, other in zip(ours, theirs, strict=True))
            print(f"| {rival} | {work} | {ours[0]:.2f} | {theirs[0]:.2f} | {ratios} |", flush=True)
