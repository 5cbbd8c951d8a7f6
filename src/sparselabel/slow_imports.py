"""Import timm and Lightning Fabric without their slow imports that are hardly ever needed.

timm asks PyTorch's compiler for two functions, one by way of torchvision; Lightning Fabric asks for the
version of torchmetrics, which imports transformers and SciPy. While they are imported, something stands in
for the compiler and for torchmetrics.
"""

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType
from typing import Any


class _Later(ModuleType):
    """A module whose functions are imported when they are called."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):
            raise AttributeError(name)

        def function(*arguments: Any, **keywords: Any) -> Any:
            return getattr(importlib.import_module(self.__name__), name)(*arguments, **keywords)

        return function


@contextmanager
def _in_place_of(module: ModuleType) -> Iterator[None]:
    """Let imports find this module, unless the one of its name is there already."""
    if module.__name__ in sys.modules:
        yield
        return
    sys.modules[module.__name__] = module
    try:
        yield
    finally:
        if sys.modules.get(module.__name__) is module:
            del sys.modules[module.__name__]


@contextmanager
def _disabling_later() -> Iterator[None]:
    """Let ``torch.compiler.disable`` mark a function when that is called, as PyTorch's own modules do."""
    import torch

    now, later = torch.compiler.disable, getattr(torch, "_disable_dynamo", None)
    if later is None:
        yield
        return

    def disable(fn: Any = None, recursive: bool = True, **_: object) -> Any:
        return later(fn, recursive)

    torch.compiler.disable = disable
    try:
        yield
    finally:
        torch.compiler.disable = now


def import_timm() -> None:
    """Import timm, as ``import timm`` would; PyTorch's compiler comes when it is used."""
    if "timm.models" not in sys.modules:
        with _in_place_of(_Later("torch._dynamo.utils")), _disabling_later():
            importlib.import_module("timm")


def import_fabric() -> None:
    """Import lightning_fabric, as ``import lightning_fabric`` would."""
    stand_in = ModuleType("torchmetrics")
    try:
        stand_in.__version__ = version("torchmetrics")  # type: ignore[attr-defined]
    except PackageNotFoundError:
        importlib.import_module("lightning_fabric")
        return
    with _in_place_of(stand_in):
        importlib.import_module("lightning_fabric")
