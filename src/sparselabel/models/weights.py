"""Load weights from a file: safetensors, or a torch file, which is loaded without running code."""

import io
import pickletools
import re
import sys
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from sparselabel.errors import DataWarning, ModelError, listing, param

RELEASED_PREFIXES = ("backbone.0.body.", "backbone.0.")  # ResNets and TResNets are inside a getter of layers
RELEASED_KEYS = ("query_embed.weight", "fc.W", "fc.b")


def is_released(names: Mapping[str, Any]) -> bool:
    """Whether these are the names of a whole Query2Label model of the authors' code."""
    return {*RELEASED_KEYS} <= {name.removeprefix("module.") for name in names}


def released_backbone(tensors: dict[str, Tensor], network: nn.Module) -> dict[str, Tensor]:
    """The backbone's weights of a released Query2Label model, under the names of this network."""
    own: dict[str, Tensor] = {}
    for name, value in tensors.items():
        key = name.removeprefix("module.")
        prefix = next((prefix for prefix in RELEASED_PREFIXES if key.startswith(prefix)), None)
        if prefix is not None:
            own[key.removeprefix(prefix)] = value
    if hasattr(network, "renamed"):
        renamed: dict[str, Tensor] = network.renamed(own)  # type: ignore[operator]
        return renamed
    return _converted(own, network)


def _converted(tensors: dict[str, Tensor], network: nn.Module) -> dict[str, Tensor]:
    """The tensors as timm converts them for this family of networks.

    It knows older names (TResNet's in Query2Label's code, Swin's) and resamples the tables of positions
    of transformers that were trained on images of another size.
    """
    checkpoint_filter_fn = getattr(sys.modules[type(network).__module__], "checkpoint_filter_fn", None)
    if checkpoint_filter_fn is None:
        return tensors
    full = {key: value.float() if value.is_floating_point() else value for key, value in tensors.items()}
    try:
        converted: dict[str, Tensor] = checkpoint_filter_fn(full, network)
    except (AttributeError, KeyError, RuntimeError):  # another family: its tensors are reported as unknown
        return tensors
    return converted


WRAPPERS = ("state_dict", "model", "model_ema", "state_dict_ema")  # where training programs keep weights
_scalar: Any = np.float64(0).__reduce__()[0]  # what makes one of bytes again
# Numpy's numbers, which training programs keep beside weights (a best mAP): plain data, and nothing else.
NUMBERS: list[Any] = [
    (_scalar, "numpy.core.multiarray.scalar"),
    _scalar,
    np.dtype,
    np.dtypes.Float64DType,
    np.dtypes.Float32DType,
]
COUNTER = "num_batches_tracked"  # of batch norm, which a file may leave out
SHARED = 1 << 30
"""Bytes by which tensors may be larger than their file: expanded and tied ones share theirs."""
PICKLES = 5
"""How many pickles a file of torch's old kind begins with; tensors follow."""
LONGEST_NAME = 1000  # letters of a class
SMALL = 1 << 27
"""Bytes that a network may always take."""
PREFIXES = ("module.", "backbone.", "network.", "model.", "encoder.")


def load_weights(network: nn.Module, path: Path, *, partial: bool = False) -> None:
    """Load a file's weights into a network without classifier; entries of a classifier are ignored.

    A file that does not fit the whole network is an error that names what is missing, unless ``partial``.
    """
    wanted, tensors = network.state_dict(), read_tensors(path)
    if is_released(tensors):
        tensors = released_backbone(tensors, network)
    else:
        tensors = network.renamed(tensors) if hasattr(network, "renamed") else tensors  # type: ignore[operator]
        tensors = _without_prefixes(tensors, set(wanted))
        if any(key in wanted and value.shape != wanted[key].shape for key, value in tensors.items()):
            tensors = _converted(tensors, network)
    fitting = {
        key: value for key, value in tensors.items() if key in wanted and value.shape == wanted[key].shape
    }
    needed = [key for key in wanted if not key.endswith(COUNTER)]
    missing, unknown = misfits(tensors, wanted)
    if missing:
        problem = (
            f"{path} fits {len(needed) - len(missing)} of the {len(needed)} tensors of this backbone; "
            f"{describe_misfits(missing, unknown)}"
        )
        if not partial or not fitting:
            remedies = [f"take a file for this {param('backbone')}"]
            if not partial:
                remedies.append(f"what fits of it ({param('partial_weights', True)})")
            raise ModelError(problem, *remedies, what=path)
        warnings.warn(DataWarning(problem, what=path), stacklevel=2)
    network.load_state_dict(fitting, strict=False)
    loaded = network.state_dict()
    refuse_not_finite({key: loaded[key] for key in fitting}, path)


def misfits(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> tuple[list[str], list[str]]:
    """The tensors that are missing or of another shape, with both shapes, and those found but not wanted."""
    missing = [
        f"{key} {tuple(found[key].shape)} instead of {tuple(value.shape)}" if key in found else key
        for key, value in wanted.items()
        if not key.endswith(COUNTER) and (key not in found or found[key].shape != value.shape)
    ]
    return missing, [key for key in found if key not in wanted]


def describe_misfits(missing: list[str], unknown: list[str]) -> str:
    """The result of ``misfits`` as text."""
    return (
        f"missing or of another shape: {listing(missing, 5) or 'none'}; in the file but unknown: "
        f"{listing(unknown, 5) or 'none'}"
    )


def refuse_not_finite(loaded: Mapping[str, Tensor], path: Path) -> None:
    """Raise if weights of a file are not finite: training would seem to diverge."""
    for name, value in loaded.items():
        if value.is_floating_point() and not bool(torch.isfinite(value).all()):
            wrong = int((~torch.isfinite(value)).sum())
            raise ModelError(
                f"{path}: tensor {name} has values that are not finite ({wrong:,} of {value.numel():,})",
                "take another file",
            )


def require_weights_file(path: Path) -> None:
    """Raise unless there is such a file."""
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise ModelError(f"weights file {path} {what}", "give a file, `pretrained` or `none`")


def read_tensors(path: Path) -> dict[str, Tensor]:
    """All tensors of a safetensors or torch file by name; nothing in the file is executed."""
    require_weights_file(path)
    try:
        content: Any
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            content = load_file(path)
        else:
            refuse_traps(path)
            with torch.serialization.safe_globals(NUMBERS):
                content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise ModelError(
            f"{path} cannot be read as weights ({_reason(error)}): it must be a safetensors file, or a torch "
            "file of plain tensors (torch.save(model.state_dict(), file))"
        ) from error
    for wrapper in WRAPPERS:
        if isinstance(content, dict) and isinstance(content.get(wrapper), dict):
            content = content[wrapper]
    if not isinstance(content, dict):
        raise ModelError(
            f"{path} holds a {type(content).__name__}, not tensors by name",
            "save a model's own (torch.save(model.state_dict(), file))",
            "take another file",
        )
    tensors = {
        key: value for key, value in content.items() if isinstance(key, str) and isinstance(value, Tensor)
    }
    odd = [f"{key} ({value.dtype}, {value.layout})" for key, value in tensors.items() if not _is_plain(value)]
    if odd:
        raise ModelError(
            f"{path} has tensors that are no plain numbers (sparse, packed, quantized, or none at all): "
            f"{listing(odd, 3)}",
            "take another file",
            what=path,
            value=odd,
        )
    size = sum(value.numel() * value.element_size() for value in tensors.values())
    if size > path.stat().st_size + SHARED:
        raise ModelError(
            f"{path} has {path.stat().st_size:,} bytes, and its tensors would take {size:,}",
            "take another file",
            what=path,
            value=size,
        )
    return tensors


@contextmanager
def no_larger_than(file: Path) -> Iterator[None]:
    """Raise if networks that are made inside take much more memory than a file of their weights has bytes.

    The configuration of a run from elsewhere may name one of billions of weights.
    """
    room, taken = 2 * file.stat().st_size + SMALL, 0

    def count(_module: nn.Module, _name: str, parameter: nn.Parameter | None) -> None:
        nonlocal taken
        taken += 0 if parameter is None else parameter.nbytes
        if taken > room:
            problem = f"{file} has {file.stat().st_size:,} bytes, and the network of its run takes more"
            raise ModelError(problem, "bring back the file or the run as it was", what=file)

    hook = register_module_parameter_registration_hook(count)
    try:
        yield
    finally:
        hook.remove()


def _is_plain(value: Tensor) -> bool:
    """Whether a tensor is numbers in memory, one after the other, that can be copied to others."""
    if value.layout != torch.strided or value.is_meta or value.is_quantized:
        return False
    try:
        torch.empty(1, dtype=value.dtype).float()
    except RuntimeError:  # of less than a byte
        return False
    return True


def refuse_traps(path: Path) -> None:
    """Raise for a file of torch's that would take memory or time without end.

    Packed ones of a few megabytes may be terabytes of zeros. Torch's words about a class that it does not
    know take hours where its name has a million letters.
    """
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            size = sum(info.file_size for info in archive.infolist())
            if size > path.stat().st_size + SHARED:
                raise ValueError(f"it is compressed, and would take {size:,} bytes")
            for name in archive.namelist():
                if name.endswith(".pkl"):
                    _refuse_long_names(io.BytesIO(archive.read(name)))
    else:
        with path.open("rb") as stream:
            for _ in range(PICKLES):
                _refuse_long_names(stream)


def _refuse_long_names(stream: IO[bytes]) -> None:
    """Raise if a pickle names a class at great length; what else is wrong with it torch says."""
    try:
        for code, value, _ in pickletools.genops(stream):
            if code.name in ("GLOBAL", "INST") and len(str(value)) > LONGEST_NAME:
                break
        else:
            return
    except Exception:  # of what is no pickle
        return
    raise ValueError(f"it names a class by {len(str(value)):,} letters")


def _reason(error: Exception) -> str:
    """The problem with a file, without torch's advice to load it unsafely."""
    message = str(error)
    if "weights_only" not in message:
        return message.partition("\n")[0] or type(error).__name__
    refused = re.search(r"GLOBAL (\S+)", message)
    content = (
        f"more than tensors and numbers, as {refused[1]}"
        if refused
        else "other things than tensors and numbers"
    )
    return f"it holds {content}, and is not run"


def _without_prefixes(tensors: dict[str, Tensor], wanted: set[str]) -> dict[str, Tensor]:
    """The tensors with up to three prefixes off (``module.model.`` is two): those that fit best."""
    tried = latest = [tensors]
    for _ in range(3):
        latest = [
            {key.removeprefix(prefix): value for key, value in names.items()}
            for names in latest
            for prefix in PREFIXES
            if any(key.startswith(prefix) for key in names)
        ]
        tried = tried + latest
    return max(tried, key=lambda names: len(wanted & set(names)))
