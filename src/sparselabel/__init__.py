"""Train multi-label image classifiers from sparse annotations.

The names below are the public ones. They are imported when first used, so that the command starts fast.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparselabel.data.frame import Frame
    from sparselabel.data.labels import NEGATIVE, POSITIVE, UNKNOWN, LabelTable
    from sparselabel.evaluate.ranking import average_precision
    from sparselabel.method.base import Progress, Step, Targets
    from sparselabel.method.catalog import build_method
    from sparselabel.model.output import Output
    from sparselabel.predict.predictor import load_predictor

__version__ = "0.1.0"
__all__ = [
    "NEGATIVE",
    "POSITIVE",
    "UNKNOWN",
    "Frame",
    "LabelTable",
    "Output",
    "Progress",
    "Step",
    "Targets",
    "average_precision",
    "build_method",
    "load_predictor",
]

_HOMES = {
    "sparselabel.data.frame": ("Frame",),
    "sparselabel.data.labels": ("NEGATIVE", "POSITIVE", "UNKNOWN", "LabelTable"),
    "sparselabel.evaluate.ranking": ("average_precision",),
    "sparselabel.method.base": ("Progress", "Step", "Targets"),
    "sparselabel.method.catalog": ("build_method",),
    "sparselabel.model.output": ("Output",),
    "sparselabel.predict.predictor": ("load_predictor",),
}


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(module), name)
    raise AttributeError(f"module 'sparselabel' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
