"""Check what this machine has for sparselabel, and suggest how to get what is missing.

Nothing here reads or shows tokens: of addresses only the host is shown.
"""

import os
import platform
import re
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, distributions, requires, version
from pathlib import Path
from typing import Any, Literal, TypedDict
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from sparselabel.errors import SparselabelError, command, listing
from sparselabel.file_formats import read_json
from sparselabel.schema import Finite

State = Literal["ok", "missing", "broken"]

OPTIONAL = {
    "onnx": "export as ONNX: pip install 'sparselabel[export]'",
    "onnxruntime": "running exported models: pip install 'sparselabel[export]'",
    "openvino": "the quickest engine on a CPU: pip install 'sparselabel[openvino]'",
    "ray": "runs on a cluster: pip install 'sparselabel[cluster]'",
    "tensorboard": "curves in TensorBoard: pip install 'sparselabel[tensorboard]'",
    "pyarrow": "Parquet tables: pip install 'sparselabel[parquet]'",
    "transformers": "the backbone cvt_w24: pip install 'sparselabel[cvt]'",
}
"""Packages that only some things need, and what for."""
WEIGHTS = (".safetensors", ".pth", ".pt", ".bin", ".onnx", ".ckpt")
SMALLEST = 2_000_000  # bytes of a file that may hold a network's weights
WITHOUT_HUB = (
    f"give weights as a file ({command('train', 'DATA', weights='FILE')}), or start from random ones "
    f"({command('train', 'DATA', weights='none')})"
)
SECONDS = 2.0  # that the hub has to answer
LITTLE_RAM, LITTLE_DISK = 4e9, 5e9


@dataclass(frozen=True)
class Finding:
    """One finding, with a remedy unless it is ok: ``missing`` is optional, ``broken`` is required."""

    name: str
    state: State
    what: str
    remedy: str = ""


def _finding(name: str, what: str, remedy: str = "", state: State = "missing") -> Finding:
    """A finding that is ok unless it has a remedy."""
    return Finding(name, state if remedy else "ok", what, remedy)


def examine(folder: Path) -> Iterator[Finding]:
    """All findings, one after the other; ``folder`` is where data and runs would be written."""
    remedy = "sparselabel needs Python 3.11 or newer: make an environment with one"
    python = f"{platform.python_version()}, {platform.platform()}"
    yield _finding("Python", python, "" if sys.version_info >= (3, 11) else remedy, "broken")
    yield from _needed()
    yield from _torch()
    installed = os.cpu_count() or 1
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else installed
    yield _finding("cores", f"{usable}" if usable == installed else f"{usable} of {installed}")
    yield _memory()
    yield _disk(folder)
    yield from _expected_positives(folder)
    yield from _optional()
    yield from _weights()
    yield _hub()


def _needed() -> Iterator[Finding]:
    """The packages that everything needs, by what sparselabel itself asks for."""
    try:
        wanted = requires("sparselabel") or []
    except PackageNotFoundError:
        yield Finding("sparselabel", "broken", "not installed, only found", "pip install . in its folder")
        return
    names = [re.split(r"[ ;<>=!~(\[]", line, maxsplit=1)[0] for line in wanted if "extra ==" not in line]
    absent = [name for name in names if _version(name) is None]
    if absent:
        remedy = f"pip install {' '.join(absent)}"
        yield Finding("packages", "broken", f"missing: {', '.join(absent)}", remedy)
    else:
        yield _finding("packages", f"all {len(names)} that are needed")


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _torch() -> Iterator[Finding]:
    """Torch's build, and the GPUs that it can use."""
    try:
        import torch
    except (ImportError, OSError) as error:
        remedy = "install torch anew: https://pytorch.org"
        yield Finding("torch", "broken", f"cannot be imported ({error})", remedy)
        return
    built = torch.version.cuda or getattr(torch.version, "hip", None)
    yield _finding("torch", f"{torch.__version__}, built for {f'CUDA {built}' if built else 'CPUs'}")
    try:
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        for number in range(count):
            gpu = torch.cuda.get_device_properties(number)
            free, total = torch.cuda.mem_get_info(number)
            yield _finding(f"GPU {number}", f"{gpu.name}, {_gb(free)} of {_gb(total)} free")
    except RuntimeError as error:
        reason = str(error).partition("\n")[0]
        yield _finding("GPU", f"cannot be used ({reason})", "check the driver with nvidia-smi")
        return
    if count:
        return
    if torch.backends.mps.is_available():
        yield _finding("GPU", f"Apple's, by {command('train', 'DATA', accelerator='mps')}")
        return
    frozen = command("train", "DATA", frozen=True)
    remedy = f"on a CPU train the head on stored features, minutes instead of hours: {frozen}"
    if Path("/proc/driver/nvidia/version").exists():
        remedy = "there is a driver, but torch is built without CUDA or cannot reach it: install a CUDA build"
    yield _finding("GPU", "none that torch can use", remedy)


def _memory() -> Finding:
    from sparselabel.resources import available_memory

    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    free = available_memory()  # as the container's control group leaves it
    remedy = f"end other programs, or take small batches and {command('train', 'DATA', memories='file')}"
    return _finding("RAM", f"{_gb(free)} free for us, of {_gb(total)}", remedy if free < LITTLE_RAM else "")


def _disk(folder: Path) -> Finding:
    existing = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    usage = shutil.disk_usage(existing)
    what = f"{_gb(usage.free)} free, of {_gb(usage.total)}, in {existing}"
    if not os.access(existing, os.W_OK):
        return _finding("disk", f"{what}, where you cannot write", "work in a folder of yours")
    remedy = "make room, or work on a larger disk: runs and features are kept there"
    return _finding("disk", what, remedy if usage.free < LITTLE_DISK else "")


class Expected(TypedDict):
    """The fields of a run's expected.json that are shown."""

    how: Literal["auto", "counted"]
    K: Finite
    interval: tuple[Finite, Finite]
    trusted: bool
    why: str


def _expected_positives(run: Path) -> Iterator[Finding]:
    """How far the estimate of K can be trusted that a run in this folder was trained with."""
    file = run / "expected.json"
    if not file.is_file():  # no run, or one without an estimate
        return
    try:
        estimate = read_json(file, Expected)
    except SparselabelError as error:
        yield _finding("expected positives", error.problem, "train again")
        return
    how, k, (low, high), why = estimate["how"], estimate["K"], estimate["interval"], estimate["why"]
    from sparselabel.expected_positives.class_counts import remedy_of

    remedy = "" if estimate["trusted"] else remedy_of(how, k, (low, high))
    yield _finding("expected positives", f"K {k:.2f} ({low:.2f} – {high:.2f}): {why}", remedy)


def _optional() -> Iterator[Finding]:
    for name, remedy in OPTIONAL.items():
        if installed := _version(name):
            yield _finding("extra", f"{name} {installed}")
        else:
            yield _finding("extra", f"{name} is not installed", f"only for {remedy}")


def _weights() -> Iterator[Finding]:
    """Weights that are on this machine: the hub's and torch's caches, and packages that carry some."""
    weights = {"hub cache": _hub_cache(), "torch cache": _torch_cache(), "packages": _in_packages()}
    for source, names in weights.items():
        if names:
            yield _finding("weights", f"{source}: {listing(names, 8)}")
    if not any(weights.values()):
        remedy = f"a backbone's are downloaded when it is first used; without a network: {WITHOUT_HUB}"
        yield _finding("weights", "none found on this machine", remedy)


def _hub_cache() -> list[str]:
    from huggingface_hub.constants import HF_HUB_CACHE

    return sorted(
        folder.name.removeprefix("models--").replace("--", "/")
        for folder in _entries(Path(HF_HUB_CACHE))
        if folder.name.startswith("models--") and any(_entries(folder / "snapshots"))
    )


def _torch_cache() -> list[str]:
    home = os.environ.get("TORCH_HOME") or Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")) / "torch"
    folder = Path(home).expanduser() / "hub" / "checkpoints"
    return sorted(file.name for file in _entries(folder) if file.suffix in WEIGHTS)


def _in_packages() -> list[str]:
    """Packages of this environment that carry a large file of weights, by the name of the package."""
    names = set()
    for package in distributions():
        for file in package.files or ():
            if file.suffix in WEIGHTS:
                path = Path(str(package.locate_file(file)))
                if path.is_file() and path.stat().st_size >= SMALLEST:
                    names.add(f"{package.metadata['Name']} ({path})")
    return sorted(names)


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _hub() -> Finding:
    """Whether the model hub answers within a short time."""
    from huggingface_hub.constants import ENDPOINT, HF_HUB_OFFLINE

    host = urlsplit(ENDPOINT).hostname or "the hub"
    if HF_HUB_OFFLINE:
        return _finding("model hub", "switched off by HF_HUB_OFFLINE", f"unset it, or {WITHOUT_HUB}")
    start = time.monotonic()
    reason = _why_silent(ENDPOINT)
    if reason:
        return _finding("model hub", f"{host} cannot be reached ({reason})", WITHOUT_HUB)
    return _finding("model hub", f"{host} answers in {time.monotonic() - start:.1f} s")


def _why_silent(address: str) -> str:
    """Why there is no answer; empty if there is one, even a refusal.

    Looking up a name has no time limit: a thread waits for it, and is left alone if it takes too long.
    """
    reasons = [f"no answer in {SECONDS:g} s"]

    def ask() -> None:
        try:
            with urlopen(Request(address, method="HEAD"), timeout=SECONDS):
                reasons.append("")
        except HTTPError:
            reasons.append("")
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            reasons.append(str(getattr(reason, "strerror", None) or type(reason).__name__))

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(SECONDS)
    return reasons[-1]


def broken(findings: list[Finding]) -> bool:
    """Whether something that is needed is not there."""
    return any(finding.state == "broken" for finding in findings)


def as_json(findings: list[Finding]) -> dict[str, Any]:
    """For programs."""
    return {"ok": not broken(findings), "findings": [asdict(finding) for finding in findings]}


def _gb(number: float) -> str:
    return f"{number / 1e9:,.1f} GB"
