"""What commands import at start-up, which is most of the time of short commands."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
from PIL import Image

import sparselabel
from tests.report.figures.made_up import constant_maps, make_data, make_run, score, watch

LABELS = np.eye(5, dtype=np.int8)[[0, 1, 2, 3, 4, 0, 1, 2]]
WITHOUT_TORCH = (
    "--help",
    "--version",
    "train --help",
    "predict --help",
    "prepare --help",
    "prepare coco --help",
    "recipes",
    "recipes scl/voc",
    "prepare scenes --train 12 --test 4 --size 32 --out scenes",
    "prepare table labels.csv --images photos --out table",
    "data scenes",
    "data scenes --json",
    "labels scenes --out observed.csv",
    "differ one two --samples 10",
    "figure scores one two --split test",
    "figure heat-maps one",
)
RUN_ALL = """
import contextlib, io, json, sys
from sparselabel.cli import app
said = {}
for line in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            app(line.split(), result_action="return_value")
        except (Exception, SystemExit) as error:
            said[line] = f"{type(error).__name__}: {error}"
    if "torch" in sys.modules:
        said[line] = "imports torch"
        break
print(json.dumps(said))
"""


def in_python(program: str, *arguments: str, cwd: Path) -> str:
    source = str(Path(sparselabel.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {source!r})\n{program}", *arguments],
        capture_output=True,
        text=True,
        check=True,
        cwd=cwd,
    )
    return done.stdout


def test_commands_that_need_no_torch_do_not_import_it(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    for number in range(6):
        Image.new("RGB", (16, 16), (40 * number, 0, 0)).save(tmp_path / "photos" / f"{number}.png")
    lines = [f"{number}.png,{'cat' if number % 2 else 'dog'}" for number in range(6)]
    (tmp_path / "labels.csv").write_text("\n".join(["image,labels", *lines]) + "\n")
    data = make_data(tmp_path, LABELS)
    for name in ("one", "two"):
        run = make_run(tmp_path / name, data)
        score(run, data, "test", LABELS * 0.5)
        watch(run, 0, [0], [[0.5] * 5], maps=constant_maps([[0.5] * 5], 2))
    said = json.loads(in_python(RUN_ALL, json.dumps(WITHOUT_TORCH), cwd=tmp_path))
    assert said == {}


def test_training_and_prediction_import_nothing_that_takes_seconds(tmp_path: Path) -> None:
    program = """
import sys
from sparselabel.slow_imports import import_fabric, import_timm
import_timm()
import timm, torch
print("torch._dynamo" in sys.modules, "torch._dynamo.utils" in sys.modules, torch.compiler.disable.__module__)
import_fabric()
import lightning_fabric
print("torchmetrics" in sys.modules, "transformers" in sys.modules, "scipy" in sys.modules)
import sparselabel.inference.predictor, sparselabel.training.train_run
print([name for name in sys.modules if name.startswith(OTHERS)])
"""
    others = "sparselabel.data.readers.", "sparselabel.report", "sparselabel.review"
    said = in_python(f"OTHERS = {others}\n{program}", cwd=tmp_path).splitlines()
    assert said == ["False False torch.compiler", "False False False", "[]"]
