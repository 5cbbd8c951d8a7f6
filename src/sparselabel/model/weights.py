"""Weights from a file the user names: safetensors, or a torch file that is loaded without running it."""

import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sparselabel.errors import DataWarning, ModelError, listing

WRAPPERS = ("state_dict", "model", "model_ema", "state_dict_ema")  # where training programs keep weights
PREFIXES = ("module.", "backbone.", "network.", "model.", "encoder.")


def load_weights(network: nn.Module, path: Path, *, partial: bool = False) -> None:
    """Load a file's weights into a network without classifier; entries of a classifier are ignored.

    A file that fits less than the whole network is refused, with the entries that did not match, unless
    ``partial``.
    """
    found = _stripped(read_tensors(path), set(network.state_dict()))
    wanted = network.state_dict()
    fitting = {key: value for key, value in found.items() if key in wanted and value.shape == wanted[key].shape}
    missing = [key for key in wanted if key not in fitting and not key.endswith("num_batches_tracked")]
    if missing:
        shapes = [
            f"{key} {tuple(found[key].shape)} instead of {tuple(wanted[key].shape)}" if key in found else key
            for key in missing
        ]
        said = (
            f"{path} fits {len(wanted) - len(missing)} of the {len(wanted)} tensors of this backbone; "
            f"missing or of another shape: {listing(shapes, 5)}; in the file but unknown: "
            f"{listing([key for key in found if key not in wanted], 5) or 'none'}"
        )
        if not partial or not fitting:
            raise ModelError(f"{said}. Is it for another backbone? --partial-weights takes what fits")
        warnings.warn(said, DataWarning, stacklevel=2)
    network.load_state_dict(fitting, strict=False)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """All tensors of a safetensors or torch file by name; nothing in the file is executed."""
    if not path.is_file():
        raise ModelError(f"weights file {path} does not exist: give a file, `pretrained` or `none`")
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return load_file(path)
        content: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise ModelError(
            f"{path} cannot be read as weights ({error}): it must be a safetensors file, or a torch file of "
            "plain tensors (torch.save(model.state_dict(), file))"
        ) from error
    for wrapper in WRAPPERS:
        if isinstance(content, dict) and isinstance(content.get(wrapper), dict):
            content = content[wrapper]
    if not isinstance(content, dict):
        raise ModelError(f"{path} holds a {type(content).__name__}, not tensors by name")
    return {key: value for key, value in content.items() if isinstance(value, Tensor)}


def _stripped(tensors: dict[str, Tensor], wanted: set[str]) -> dict[str, Tensor]:
    """Take a common prefix off the names if more of them fit without it."""
    best = tensors
    while True:
        candidates = [
            {key.removeprefix(prefix): value for key, value in best.items()}
            for prefix in PREFIXES
            if any(key.startswith(prefix) for key in best)
        ]
        better = max(candidates, key=lambda found: len(wanted & set(found)), default=best)
        if len(wanted & set(better)) <= len(wanted & set(best)):
            return best
        best = better
