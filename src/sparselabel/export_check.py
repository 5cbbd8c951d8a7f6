"""Whether an exported file says what the run says."""

import importlib.util
import warnings
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from sparselabel.export import exported

SIZES = ((1, 0.75, 1.25), (3, 1.0, 1.0))
"""Pictures at a time, and their height and width in sizes of the view."""


def largest_difference(run: Path, file: Path) -> float | None:
    """The largest difference of a score, on random pictures; None without onnxruntime."""
    if file.suffix.lower() == ".onnx" and importlib.util.find_spec("onnxruntime") is None:
        return None
    module, _ = exported(run)
    random = np.random.default_rng(0)
    apart = 0.0
    for count, down, across in SIZES:
        shape = (count, round(down * module.size), round(across * module.size), 3)
        pictures = random.integers(0, 256, shape, dtype=np.uint8)
        with torch.inference_mode():
            ours = module(torch.from_numpy(pictures))[0].numpy()
        apart = max(apart, float(np.abs(_scores(file, pictures) - ours).max()))
    return apart


def _scores(file: Path, pictures: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    if file.suffix.lower() == ".onnx":
        import onnxruntime

        session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
        return np.asarray(session.run(["scores"], {"images": pictures})[0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's remarks on its own inside
        program = torch.export.load(file).module()
    with torch.inference_mode():
        return np.asarray(program(torch.from_numpy(pictures))[0].numpy())
