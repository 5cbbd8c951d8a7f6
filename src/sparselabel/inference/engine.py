"""Inference engines for a CPU: OpenVINO, onnxruntime or PyTorch.

A network is converted for an engine once and kept in a cache by its weights and shape. Before an engine is
used, its outputs are compared with PyTorch's: if they differ by more than PyTorch itself rounds, PyTorch
takes over, with a warning.
"""

import copy
import ctypes
import hashlib
import importlib.util
import logging
import os
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from sparselabel.checksums import file_checksum
from sparselabel.config import AUTO
from sparselabel.errors import ConfigError, ModelWarning, SparselabelError, is_out_of_memory, param
from sparselabel.file_formats import read_json
from sparselabel.files import cache_folder, write_json
from sparselabel.models.backbone import Backbone, OwnNetwork, weights_digest
from sparselabel.models.pretrained_classifier import PublishedClassifier
from sparselabel.models.query2label import QueryHead
from sparselabel.schema import Count

TORCH = "torch"
PACKAGES = {"openvino": ("openvino",), "onnxruntime": ("onnxruntime", "onnx", "onnxscript")}
"""What each engine needs, the fastest first."""
EXTRAS = {"openvino": "openvino", "onnxruntime": "export"}
WORTH = 256
"""Number of images from which on converting a network pays off."""
TOLERANCE = 1e-4
"""Difference from PyTorch's logits that is always allowed, in standard deviations of all logits."""
ROUNDING = 2.0
"""Largest root mean square error of an engine, relative to PyTorch's, both against float64."""
COMPARED = 8  # images of the first batch
ROOM = 2 * 10**9  # bytes of the cache

Arrays = tuple[npt.NDArray[np.float32], ...]
Inference = Callable[[npt.NDArray[Any]], Arrays]


def missing_packages(engine: str) -> list[str]:
    """The packages that an engine needs and that are not installed."""
    return [name for name in PACKAGES.get(engine, ()) if importlib.util.find_spec(name) is None]


def choose_engine(asked: str, device: torch.device, precision: str = "32-true", images: int = WORTH) -> str:
    """The engine for this many images: the requested one, or the fastest installed one that pays off.

    Engines other than PyTorch need a CPU and 32 bits, or it is an error.
    """
    suits = device.type == "cpu" and precision == "32-true"
    if asked == AUTO:
        installed = [name for name in PACKAGES if not missing_packages(name)]
        return installed[0] if installed and suits and images >= WORTH else TORCH
    if asked == TORCH:
        return TORCH
    if asked not in PACKAGES:
        known = (AUTO, *PACKAGES, TORCH)
        raise ConfigError(
            f"there is no {param('engine', asked)}", f"take one of {', '.join(known)}", what="engine",
            value=asked, allowed=known,
        )  # fmt: skip
    if missing := missing_packages(asked):
        raise ConfigError(
            f"{param('engine', asked)} needs {' and '.join(missing)}",
            f"`pip install 'sparselabel[{EXTRAS[asked]}]'`",
            f"take {param('engine', AUTO)}",
            what="engine",
            value=asked,
        )
    if not suits:
        raise ConfigError(
            f"{param('engine', asked)} runs networks of 32 bits on a CPU, and this one has {precision} on "
            f"{device.type}",
            f"take {param('engine', AUTO)}",
            what="engine",
            value=asked,
        )
    return asked


class CompiledNetwork:
    """A module run by an engine, from one tensor (B, ...) on the CPU to a tuple of tensors.

    It is converted when it first sees a batch, for inputs of that shape and any B. ``engine`` is what runs
    it: PyTorch, if the engine fails or differs. ``logits`` maps its outputs to what is compared.
    """

    def __init__(
        self, module: nn.Module, engine: str, logits: Callable[..., Tensor] = lambda first, *_: first
    ) -> None:
        self.module, self.engine, self._logits = module, engine, logits
        self._run: Inference | None = None

    @torch.no_grad()
    def __call__(self, inputs: Tensor) -> tuple[Tensor, ...]:
        """The module's outputs."""
        if self.engine != TORCH and self._run is None:
            self.check(inputs)
        return self.run(inputs)

    @torch.no_grad()
    def run(self, inputs: Tensor) -> tuple[Tensor, ...]:
        """The same, without a check."""
        self.module.eval()  # it may be part of a model that is trained meanwhile
        if self.engine == TORCH:
            outputs: tuple[Tensor, ...] = self.module(inputs)
            return outputs
        if self._run is None:
            self._run = _loaded(self.module, self.engine, inputs)
        return tuple(torch.from_numpy(one) for one in self._run(inputs.numpy()))

    @torch.no_grad()
    def check(self, inputs: Tensor) -> str:
        """Convert it and compare some images with PyTorch; returns the engine that will run it."""
        wanted, inputs = self.engine, inputs[:COMPARED]
        try:
            logits = self._logits(*self.run(inputs)).double()
            problem = _difference(
                logits, self._logits(*self.module(inputs)).double(), lambda: self._exact(inputs)
            )
        except Exception as error:  # converters may raise anything on an unknown network
            if is_out_of_memory(error):
                raise
            problem = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        if self.engine != TORCH and problem:
            self.engine, self._run = TORCH, None
            warnings.warn(
                ModelWarning(
                    f"PyTorch runs this network, as {wanted} does not: {problem}", what="engine", value=wanted
                ),
                stacklevel=2,
            )
        return self.engine

    def _exact(self, inputs: Tensor) -> Tensor:
        """The logits in float64."""
        module = copy.deepcopy(self.module).double()
        return self._logits(*module(inputs.double() if inputs.is_floating_point() else inputs))


def _difference(given: Tensor, wanted: Tensor, exact: Callable[[], Tensor]) -> str:
    """The problem with an engine's logits, or "" if they are close to PyTorch's or as exact.

    Large transformers amplify the rounding errors of float32, PyTorch's too: to 1e-4 and more on some images.
    """
    if given.shape != wanted.shape:
        return f"its outputs have shape {tuple(given.shape)} instead of {tuple(wanted.shape)}"
    spread = float(wanted.std()) if wanted.numel() > 1 else 0.0
    apart = float((given - wanted).abs().max()) / (spread or 1.0)
    if apart <= TOLERANCE:
        return ""
    right = exact()
    error, own_error = (float((one - right).square().mean().sqrt()) for one in (given, wanted))
    return "" if error <= ROUNDING * own_error else f"its logits differ by {apart:.1e} of their spread"


def _loaded(module: nn.Module, engine: str, example: Tensor) -> Inference:
    """The module for an engine: from the cache, or converted now and cached."""
    convert, load, file = {
        "openvino": (_convert_openvino, _load_openvino, "network.xml"),
        "onnxruntime": (_convert_onnx, _load_onnx, "network.onnx"),
    }[engine]
    folder = cache_folder("networks") / _key(module, engine, example)
    # The weights of a user's module do not determine what it computes.
    own = any(isinstance(one, OwnNetwork) for one in module.modules())
    if not own and _is_whole(folder, file):
        try:
            loaded = load(folder / file)
            os.utime(folder)
            return loaded
        except Exception:  # damaged, or of a version that cannot be read: it is made anew
            shutil.rmtree(folder, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="sparselabel-") as temporary:
        with without_remarks():
            convert(module, example, Path(temporary) / file)
        loaded = load(Path(temporary) / file)
        if not own:
            with suppress(OSError):  # a cache that cannot be written is none
                _keep(Path(temporary), folder)
    return loaded


def _key(module: nn.Module, engine: str, example: Tensor) -> str:
    """The cache key of a converted network: weights, layers, shape, and the versions of the converters."""
    packages = ("sparselabel", "torch", "timm", *PACKAGES[engine])
    decides = [
        weights_digest(module),
        repr(module),
        *(str(one.tolist()) for one in module.buffers() if one.numel() < 10),  # not all are in a state dict
        str(tuple(example.shape[1:])),
        str(example.dtype),
        *(f"{name} {version(name)}" for name in packages),
    ]
    return f"{engine}-{hashlib.blake2b(chr(10).join(decides).encode(), digest_size=16).hexdigest()}"


def _keep(made: Path, folder: Path) -> None:
    """Copy a converted network into the cache, whole or not at all; the oldest make room for it."""
    size = _size(made)
    if size > ROOM:
        return
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    for one in folder.parent.glob("*.partial"):  # of a process that was killed
        if one.stat().st_mtime < made.stat().st_mtime - 3600:
            shutil.rmtree(one, ignore_errors=True)
    cached = sorted(folder.parent.iterdir(), key=lambda one: one.stat().st_mtime)
    taken = {one: _size(one) for one in cached}
    while cached and sum(taken.values()) + size > ROOM:
        shutil.rmtree(cached[0], ignore_errors=True)
        del taken[cached.pop(0)]
    partial = Path(tempfile.mkdtemp(suffix=".partial", dir=folder.parent))
    try:
        shutil.copytree(made, partial, dirs_exist_ok=True)
        write_json(partial / SUMS, {one.name: file_checksum(one) for one in made.iterdir()})
        partial.rename(folder)
    except OSError:  # the disk is full, or another process was first
        shutil.rmtree(partial, ignore_errors=True)


SUMS = "checksums.json"


def _is_whole(folder: Path, file: str) -> bool:
    """Whether an undamaged converted network is in the cache."""
    try:
        sums = read_json(folder / SUMS, dict[str, Count])
        if file in sums and all(file_checksum(folder / name) == known for name, known in sums.items()):
            return True
    except (OSError, SparselabelError):
        pass
    shutil.rmtree(folder, ignore_errors=True)
    return False


def _size(folder: Path) -> int:
    return sum(one.stat().st_size for one in folder.iterdir())


def _convert_openvino(module: nn.Module, example: Tensor, file: Path) -> None:
    import openvino
    from openvino.frontend import FrontEndManager
    from openvino.frontend.pytorch.ts_decoder import TorchScriptPythonDecoder

    # Not openvino.convert_model, which traces twice and reports its use to a server.
    example = _two(example)
    traced = torch.jit.trace(module, example, check_trace=False, strict=False)  # type: ignore[no-untyped-call]
    converter = FrontEndManager().load_by_framework("pytorch")
    decoder = TorchScriptPythonDecoder(traced, example_input=(example,))  # a name keeps it alive
    network = converter.load(decoder)
    (port,) = network.get_inputs()
    network.set_partial_shape(port, openvino.PartialShape([-1, *example.shape[1:]]))
    network.set_element_type(port, openvino.Type.u8 if example.dtype == torch.uint8 else openvino.Type.f32)
    openvino.save_model(converter.convert(network), file, compress_to_fp16=False)


def _two(example: Tensor) -> Tensor:
    """Two images: of one alone, converters take the 1 for a constant."""
    return torch.cat([example, example])[:2]


def _load_openvino(file: Path) -> Inference:
    """The network for one image at a time, in parallel threads.

    This is faster than threads that share an image, and scores do not depend on the batch.
    """
    import openvino

    threads = torch.get_num_threads()
    options = {
        "INFERENCE_PRECISION_HINT": "f32",  # its own choice may be bfloat16
        "PERFORMANCE_HINT": "THROUGHPUT",
        "NUM_STREAMS": threads,
        "INFERENCE_NUM_THREADS": threads,
        "ENABLE_CPU_PINNING": False,  # several processes would share the first cores
    }
    core = openvino.Core()
    core.set_property({"ENABLE_MMAP": False})  # the file may go while the network is used
    with _signal_stack_kept():
        network = core.read_model(file)
        network.reshape([1, *[*network.input().partial_shape][1:]])
        queue = openvino.AsyncInferQueue(core.compile_model(network, "CPU", options))
    shapes = [tuple(output.shape[1:]) for output in network.outputs]

    def run(inputs: npt.NDArray[Any]) -> Arrays:
        outputs = tuple(np.empty((len(inputs), *shape), np.float32) for shape in shapes)

        def keep(request: Any, row: int) -> None:
            for number, output in enumerate(outputs):
                output[row] = request.get_output_tensor(number).data[0]

        with _signal_stack_kept():
            queue.set_callback(keep)
            for row in range(len(inputs)):
                queue.start_async({0: np.ascontiguousarray(inputs[row : row + 1])}, row, share_inputs=True)
            queue.wait_all()
        return outputs

    return run


class _SignalStack(ctypes.Structure):
    """``stack_t`` of glibc's signal.h: where this thread handles signals."""

    _fields_ = (("start", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t))


@contextmanager
def _signal_stack_kept() -> Iterator[None]:
    """Take back the thread's signal stack, which OpenVINO replaces by one that goes with its network.

    The next signal that Python handles, as when a process of a loader ends, would end the program.
    """
    if not sys.platform.startswith("linux"):
        yield
        return
    system, before = ctypes.CDLL(None), _SignalStack()
    system.sigaltstack(None, ctypes.byref(before))
    try:
        yield
    finally:
        system.sigaltstack(ctypes.byref(before), None)


def _convert_onnx(module: nn.Module, example: Tensor, file: Path) -> None:
    example = _two(example)
    shapes = ({0: torch.export.Dim("batch")},)
    program = torch.onnx.export(
        torch.export.export(module, (example,), dynamic_shapes=shapes),
        dynamo=True,
        dynamic_shapes=shapes,
        verbose=False,
    )
    program.save(file)  # type: ignore[union-attr]


def _load_onnx(file: Path) -> Inference:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name

    def run(inputs: npt.NDArray[Any]) -> Arrays:
        return tuple(session.run(None, {name: np.ascontiguousarray(inputs)}))

    return run


@contextmanager
def without_remarks() -> Iterator[None]:
    """Silence exporters and converters, which log messages for every layer."""
    optimizer = logging.getLogger("onnxscript.optimizer")
    level = optimizer.level
    optimizer.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        optimizer.setLevel(level)


class CellFeatures(nn.Module):
    """A backbone as engines take it: cell features (B, D, h, w), and the class token (B, D) if asked for."""

    def __init__(self, backbone: Backbone, with_token: bool = False) -> None:
        super().__init__()
        self.backbone, self.with_token = backbone, with_token

    def extra_repr(self) -> str:
        """What tells it from one with other outputs."""
        return f"with_token={self.with_token}"

    def forward(self, views: Tensor) -> tuple[Tensor, ...]:
        """``views`` (B, 3, S, S) uint8."""
        return self.backbone.with_token(views) if self.with_token else (self.backbone(views),)


class QueryOutputs(nn.Module):
    """A Query2Label head as engines take it: logits (B, L) and attention (B, L, h, w)."""

    def __init__(self, head: QueryHead) -> None:
        super().__init__()
        self.head = head

    def forward(self, features: Tensor) -> tuple[Tensor, ...]:
        """``features`` (B, D, h, w)."""
        output = self.head(features, maps=True)
        return output.logits, output.attention


class NetworkLogits(nn.Module):
    """A published classifier in the form that engines take: it returns logits (B, L) alone."""

    def __init__(self, model: PublishedClassifier) -> None:
        super().__init__()
        self.model = model

    def forward(self, views: Tensor) -> tuple[Tensor, ...]:
        """``views`` (B, 3, S, S) uint8."""
        return (self.model(views).logits,)
