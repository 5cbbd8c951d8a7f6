"""What this machine has for sparselabel, and what to do about what is missing.

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
from typing import Any, Literal
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from sparselabel.errors import command, listing

State = Literal["ok", "missing", "broken"]

OPTIONAL = {
    "onnx": "export as ONNX: pip install 'sparselabel[export]'",
    "onnxruntime": "running exported models: pip install 'sparselabel[export]'",
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
    """One finding, with a remedy unless it is ok: ``missing`` can be done without, ``broken`` cannot."""

    name: str
    state: State
    what: str
    remedy: str = ""

    def description(self) -> dict[str, str]:
        """For programs."""
        return asdict(self)


def examine(folder: Path) -> Iterator[Finding]:
    """All findings, one after the other; ``folder`` is where data and runs would be written."""
    yield _python()
    yield from _needed()
    yield from _torch()
    yield _cores()
    yield _memory()
    yield _disk(folder)
    yield from _optional()
    yield from _weights()
    yield _hub()


def _python() -> Finding:
    fine = sys.version_info >= (3, 11)
    remedy = "" if fine else "sparselabel needs Python 3.11 or newer: make an environment with one"
    return Finding(
        "Python", "ok" if fine else "broken", f"{platform.python_version()}, {platform.platform()}", remedy
    )


def _needed() -> Iterator[Finding]:
    """The packages that everything needs, by what sparselabel itself asks for."""
    try:
        wanted = requires("sparselabel") or []
    except PackageNotFoundError:
        yield Finding(
            "sparselabel", "broken", "it is not installed, only found", "pip install . in its folder"
        )
        return
    names = [_bare(line) for line in wanted if "extra ==" not in line]
    absent = [name for name in names if _version(name) is None]
    yield Finding(
        "packages",
        "broken" if absent else "ok",
        f"missing: {', '.join(absent)}" if absent else f"all {len(names)} that are needed",
        f"pip install {' '.join(absent)}" if absent else "",
    )


def _bare(requirement: str) -> str:
    """The name of a package in a requirement such as ``torch>=2.6``."""
    return re.split(r"[ ;<>=!~(\[]", requirement, maxsplit=1)[0]


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
        yield Finding(
            "torch", "broken", f"cannot be imported ({error})", "install torch anew: https://pytorch.org"
        )
        return
    built = torch.version.cuda or getattr(torch.version, "hip", None)
    yield Finding("torch", "ok", f"{torch.__version__}, built for {f'CUDA {built}' if built else 'CPUs'}")
    try:
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        for number in range(count):
            gpu = torch.cuda.get_device_properties(number)
            free, total = torch.cuda.mem_get_info(number)
            yield Finding(f"GPU {number}", "ok", f"{gpu.name}, {_gb(free)} of {_gb(total)} free")
    except RuntimeError as error:
        reason = str(error).partition("\n")[0]
        yield Finding("GPU", "missing", f"cannot be used ({reason})", "check the driver with nvidia-smi")
        return
    if count:
        return
    if torch.backends.mps.is_available():
        yield Finding("GPU", "ok", f"Apple's, by {command('train', 'DATA', accelerator='mps')}")
        return
    driver = Path("/proc/driver/nvidia/version").exists()
    remedy = (
        "there is a driver, but torch is built without CUDA or cannot reach it: install a CUDA build of torch"
        if driver
        else "on a CPU train the head on stored features, minutes instead of hours: "
        + command("train", "DATA", frozen=True)
    )
    yield Finding("GPU", "missing", "none that torch can use", remedy)


def _cores() -> Finding:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    installed = os.cpu_count() or usable
    return Finding("cores", "ok", f"{usable}" if usable == installed else f"{usable} of {installed}")


def _memory() -> Finding:
    from sparselabel.resources import available_memory

    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    free = available_memory()  # as the container's control group leaves it
    little = free < LITTLE_RAM
    remedy = (
        f"end other programs, or take small batches and {command('train', 'DATA', memories='file')}"
        if little
        else ""
    )
    return Finding("RAM", "missing" if little else "ok", f"{_gb(free)} free for us, of {_gb(total)}", remedy)


def _disk(folder: Path) -> Finding:
    existing = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    usage = shutil.disk_usage(existing)
    writable = os.access(existing, os.W_OK)
    little = usage.free < LITTLE_DISK
    what = f"{_gb(usage.free)} free, of {_gb(usage.total)}, in {existing}"
    if not writable:
        return Finding("disk", "missing", f"{what}, where you cannot write", "work in a folder of yours")
    remedy = "make room, or work on a larger disk: runs and features are kept there" if little else ""
    return Finding("disk", "missing" if little else "ok", what, remedy)


def _optional() -> Iterator[Finding]:
    for name, remedy in OPTIONAL.items():
        installed = _version(name)
        what = f"{name} {installed}" if installed else f"{name} is not installed"
        yield Finding(
            "extra", "ok" if installed else "missing", what, "" if installed else f"only for {remedy}"
        )


def _weights() -> Iterator[Finding]:
    """Weights that are on this machine: the hub's and torch's caches, and packages that carry some."""
    weights = {"hub cache": _hub_cache(), "torch cache": _torch_cache(), "packages": _in_packages()}
    for source, names in weights.items():
        if names:
            yield Finding("weights", "ok", f"{source}: {listing(names, 8)}")
    if not any(weights.values()):
        yield Finding(
            "weights",
            "missing",
            "none found on this machine",
            f"a backbone's are downloaded when it is first used; without a network: {WITHOUT_HUB}",
        )


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
        return Finding(
            "model hub", "missing", "switched off by HF_HUB_OFFLINE", f"unset it, or {WITHOUT_HUB}"
        )
    start = time.monotonic()
    reason = _why_silent(ENDPOINT)
    if reason:
        return Finding("model hub", "missing", f"{host} cannot be reached ({reason})", WITHOUT_HUB)
    return Finding("model hub", "ok", f"{host} answers in {time.monotonic() - start:.1f} s")


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
    return {"ok": not broken(findings), "findings": [finding.description() for finding in findings]}


def _gb(number: float) -> str:
    return f"{number / 1e9:,.1f} GB"
