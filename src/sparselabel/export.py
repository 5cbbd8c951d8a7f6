"""Export a finished run as one file: ONNX, or a program of ``torch.export``.

    images (B, H, W, 3) uint8 ─▶ evaluation's view ─▶ normalization ─▶ network
        ─▶ scores (B, L) calibrated ─▶ present (B, L) by the thresholds
        ─▶ maps (B, L, h, w) logits of cells, or of attention

Class names, thresholds and what they rest on go with it as text.
"""

import importlib.util
import io
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from sparselabel.data.transforms import View
from sparselabel.errors import ConfigError, ModelError, ResourceError, RunError, command, param
from sparselabel.files import named, require_file_to_write
from sparselabel.inference.class_thresholds import ClassThresholds, load_class_thresholds
from sparselabel.inference.engine import TORCH, without_remarks
from sparselabel.inference.scorer import cells_of, evaluation_view, load_classifier, load_scorer
from sparselabel.metrics.calibration import Floats
from sparselabel.models.classifier import Classifier
from sparselabel.run import Run

TOLERANCE = 1e-3
"""Largest allowed difference of the exported file's scores; usually it is a hundred times smaller."""


def seen(images: Tensor, size: int, center: float | None) -> Tensor:
    """(B, 3, size, size) uint8 of whole images (B, H, W, 3) uint8.

    The whole image is squashed into the square, or, if ``center`` is given, a central square whose side is
    that share of the short side. Differs from ``data.transforms.render`` by a gray level here and there.
    """
    height, width = (_positions(images, axis) for axis in (1, 2))
    high, wide = height[-1] + 0.5, width[-1] + 0.5  # as tensors: a size that is a number would be fixed
    down, across = high, wide
    if center is not None:
        down = across = center * torch.minimum(high, wide)
    pixels = images.permute(0, 3, 1, 2).float()
    rows = _rounded(pixels @ _weights(width, (wide - across) / 2, across, size).T)
    return _rounded(_weights(height, (high - down) / 2, down, size) @ rows).to(torch.uint8)


def _positions(images: Tensor, axis: int) -> Tensor:
    """The middles of pixels along an axis."""
    count = images.shape[axis]
    return torch.arange(count, dtype=torch.float32, device=images.device) + 0.5


def _weights(pixels: Tensor, start: Tensor, length: Tensor, size: int) -> Tensor:
    """(size, pixels) How much of each pixel a place of the view has: a triangle as wide as its share."""
    scale = length / size
    middles = start + (torch.arange(size, dtype=torch.float32, device=pixels.device) + 0.5) * scale
    reach = torch.clamp(scale, min=1.0)  # enlarged images are interpolated between neighbors
    weights = torch.clamp(1 - (pixels[None] - middles[:, None]).abs() / reach, min=0.0)
    return weights / weights.sum(dim=1, keepdim=True)


def _rounded(values: Tensor) -> Tensor:
    return torch.floor(values + 0.5)


KINDS = (".onnx", ".pt2")
OUTPUTS = ("scores", "maps", "present")
PREFIX = "sparselabel."
"""How the keys of our text begin in an ONNX file."""
TEXT = "sparselabel.json"
"""The same in a .pt2 file."""


class Exported(nn.Module):
    """The exported module: whole images in; calibrated scores, maps and decisions out."""

    slope: Tensor
    offset: Tensor
    thresholds: Tensor

    def __init__(
        self, model: Classifier, view: View, class_thresholds: ClassThresholds, thresholds: Floats
    ) -> None:
        super().__init__()
        self.model = model
        self.size = view.size
        self.center = None if view.squash else view.center
        for name, values in (
            ("slope", class_thresholds.calibration.slope),
            ("offset", class_thresholds.calibration.offset),
            ("thresholds", thresholds),
        ):
            self.register_buffer(name, torch.as_tensor(values, dtype=torch.float32))

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """``images`` (B, H, W, 3) uint8 RGB, all of one size."""
        output = self.model(seen(images, self.size, self.center), maps=True)
        scores = torch.sigmoid(self.slope * output.logits + self.offset)
        return scores, cells_of(output), scores >= self.thresholds


def exported(
    run: Run, precision: float | None = None, threshold: float | None = None
) -> tuple[Exported, dict[str, Any]]:
    """A run's module, and the text that goes with it."""
    class_thresholds = load_class_thresholds(run)
    thresholds = class_thresholds.thresholds(precision, threshold)
    view = evaluation_view(run.config())
    module = Exported(load_classifier(run).float(), view, class_thresholds, thresholds).eval()
    chosen = "precision" if precision is not None else "threshold" if threshold is not None else "f1"
    about = {
        "classes": [row.name for row in class_thresholds.classes],
        "thresholds": [round(value, 6) for value in thresholds.tolist()],
        "thresholds_for": chosen if chosen == "f1" else f"{chosen} {precision or threshold:g}",
        "trust": [{"trust": row.trust, "why": row.why} for row in class_thresholds.classes],
        "calibration": {
            "slope": class_thresholds.calibration.slope.tolist(),
            "offset": class_thresholds.calibration.offset.tolist(),
            "formula": "score = sigmoid(slope * logit + offset)",
        },
        "view": {
            "size": view.size,
            "crop": "all, squashed" if view.squash else f"central square, {view.center:g} of the short side",
            "resampling": "antialiased bilinear, inside the model",
        },
        "inputs": {"images": "uint8 RGB (batch, height, width, 3), upright"},
        "outputs": {
            "scores": "float32 (batch, classes), calibrated",
            "maps": f"float32 (batch, classes, h, w), {_logits_of(run)}",
            "present": "bool (batch, classes), scores >= thresholds",
        },
        "method": run.config().method,
        "versions": run.metadata().get("versions", {}),
    }
    return module, about


def _logits_of(run: Run) -> str:
    """What its maps are."""
    if run.config().has_attention:
        return "logits of attention: where the model looked, shares that add up to 1, not scores of cells"
    return "logits of cells"


def check_target(out: Path, force: bool) -> None:
    """Raise if nothing can be exported to a file, before any work."""
    if out.suffix.lower() not in KINDS:
        raise ConfigError(f"a model is exported to a file that ends in .onnx or .pt2, not {out}", value=out)
    if out.suffix.lower() == ".onnx":
        missing = [name for name in ("onnx", "onnxscript") if importlib.util.find_spec(name) is None]
        if missing:
            raise ConfigError(
                f"ONNX needs {' and '.join(missing)}",
                "`pip install 'sparselabel[export]'`",
                "export a .pt2 file",
            )
    require_file_to_write(out, "name another file")
    if out.exists() and not force:
        raise ConfigError(
            f"{out} exists already", "name another file", f"replace it ({param('force', True)})", what=out
        )


def export_run(
    run: Run, out: Path, *, precision: float | None = None, threshold: float | None = None
) -> tuple[dict[str, Any], float | None]:
    """Write a run as .onnx or .pt2, atomically, and only if its scores agree.

    Returns the text inside, and the largest difference, or None if it cannot be run here.
    """
    module, about = exported(run, precision, threshold)
    partial = out.with_name(f"{out.stem}.partial{out.suffix}")
    out.parent.mkdir(parents=True, exist_ok=True)
    try:
        with without_remarks():
            write = _write_onnx if out.suffix.lower() == ".onnx" else _write_program
            with named(out):
                write(module, about, partial)
        largest = largest_difference(run, partial)
        if largest is not None and not largest <= TOLERANCE:
            raise RunError(
                f"the exported model gives scores that differ from ours by {largest:.2g}, more than "
                f"{TOLERANCE:g}: torch's exporter has a fault with this backbone, so nothing is kept",
                f"use {command('predict')}",
                what=out,
                value=largest,
                allowed=TOLERANCE,
            )
        partial.replace(out)
    except MemoryError as error:
        raise ResourceError(f"{run.path} does not fit into memory while it is exported: {error}") from error
    finally:
        partial.unlink(missing_ok=True)
    return about, largest


def _example(module: Exported) -> tuple[tuple[Tensor], dict[str, Any]]:
    """Two images of a size that is neither the view's nor square, and which sizes may vary."""
    dims = torch.export.Dim
    shapes = {"images": {0: dims("batch"), 1: dims("height", min=2), 2: dims("width", min=2)}}
    return (torch.zeros(2, module.size + 3, module.size + 7, 3, dtype=torch.uint8),), shapes


def _program(module: Exported) -> Any:
    example, shapes = _example(module)
    try:
        return torch.export.export(module, example, dynamic_shapes=shapes)
    except Exception as error:  # torch may raise anything for a user's network
        first = str(error).strip().splitlines()[:1]
        raise ModelError(
            f"torch.export cannot take this model ({type(error).__name__}: {''.join(first)})",
            f"{command('predict')} runs it",
            "export a model with another backbone or classifier",
        ) from error


def _write_program(module: Exported, about: dict[str, Any], out: Path) -> None:
    # Not to the file: where the disk is full, torch's own writer of files ends the program.
    content = io.BytesIO()
    torch.export.save(_program(module), content, extra_files={TEXT: json.dumps(about, ensure_ascii=False)})
    out.write_bytes(content.getbuffer())


def _write_onnx(module: Exported, about: dict[str, Any], out: Path) -> None:
    _, shapes = _example(module)
    taken = _program(module)
    try:
        program = torch.onnx.export(
            taken,
            dynamo=True,
            input_names=["images"],
            output_names=[*OUTPUTS],
            dynamic_shapes=shapes,
            verbose=False,
        )
    except torch.onnx.OnnxExporterError as error:
        cause = error.__cause__ or error
        first = "".join(str(cause).strip().splitlines()[:1])
        raise ModelError(
            f"torch cannot make an ONNX file of this model ({type(cause).__name__}: {first})",
            "export a .pt2 file",
        ) from error
    if program is None:
        raise ModelError("torch made no ONNX program of this model", "export a .pt2 file")
    for key, value in about.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        program.model.metadata_props[PREFIX + key] = text
    program.save(out)


SIZES = ((1, 0.75, 1.25), (3, 1.0, 1.0))
"""Images at a time, and their height and width in sizes of the view."""


def largest_difference(run: Run, file: Path) -> float | None:
    """The largest difference of a score from the run's own, on random images; None without onnxruntime."""
    if file.suffix.lower() == ".onnx" and importlib.util.find_spec("onnxruntime") is None:
        return None
    scorer, view = load_scorer(run, "cpu", TORCH), evaluation_view(run.config())
    calibration, center = load_class_thresholds(run).calibration, None if view.squash else view.center
    random = np.random.default_rng(0)
    apart = 0.0
    for count, down, across in SIZES:
        shape = (count, round(down * view.size), round(across * view.size), 3)
        images = random.integers(0, 256, shape, dtype=np.uint8)
        logits = scorer(seen(torch.from_numpy(images), view.size, center)).logits
        ours = calibration(logits.double().numpy())
        apart = max(apart, float(np.abs(_scores(file, images) - ours).max()))
    return apart


def _scores(file: Path, images: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    if file.suffix.lower() == ".onnx":
        import onnxruntime

        session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
        return np.asarray(session.run(["scores"], {"images": images})[0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's remarks on its own inside
        program = torch.export.load(file).module()
    with torch.inference_mode():
        return np.asarray(program(torch.from_numpy(images))[0].numpy())
