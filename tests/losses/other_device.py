"""A device that is not there: tensors on the CPU that say they are on MPS.

As there, tensors of two devices do not go together in an operation, NumPy gets none, and float64 is refused.
"""

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

KIND = "mps"
CPU = torch.device("cpu")


class OnDevice(Tensor):
    """A tensor that says it is on the device; ``held`` is the one on the CPU."""

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor, requires_grad: bool = False) -> "OnDevice":
        made: OnDevice = torch.Tensor._make_wrapper_subclass(
            cls,
            held.size(),
            strides=held.stride(),
            dtype=held.dtype,
            device=torch.device("meta"),
            requires_grad=requires_grad,
        )
        made.held = held
        return made

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return torch.device(KIND, 0)

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return run(func, args, kwargs or {})


class Device(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Within this context, ``.to(tensor.device)`` and ``torch.zeros(..., device=tensor.device)`` work."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(func, args, kwargs or {})


def run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    given = [one for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor)]
    there = [one for one in given if isinstance(one, OnDevice)]
    here = [one for one in given if not isinstance(one, OnDevice) and one.ndim]
    copies = func in (torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default)
    indexes = func is torch.ops.aten.index.Tensor and there and args[0] is there[0]
    if there and here and not copies and not indexes:
        raise RuntimeError(f"{func} has tensors on {KIND} and on the CPU")
    wanted = kwargs.get("device")
    plain = {**kwargs, "device": CPU} if wanted is not None else kwargs
    result = func(*tree_map(_held, args), **tree_map(_held, plain))
    if there and result is there[0].held:  # in place
        return there[0]
    # torch takes the device of `.to(tensor)` from what the wrapper is made of, which is meta.
    moves = bool(there) if wanted is None else wanted.type in (KIND, "meta")
    return tree_map(_on_device, result) if moves else result


def _held(value: Any) -> Any:
    return value.held if isinstance(value, OnDevice) else value


def _on_device(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    if value.dtype == torch.float64:
        raise RuntimeError("MPS has no float64")
    return OnDevice(value)
