"""Train multi-label image classifiers from sparse annotations.

The names below are the public ones. They are imported when first used, so that the command starts fast.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparselabel.comparison.compare import Comparison, compare
    from sparselabel.data.dataset import Dataset
    from sparselabel.data.label_table import LabelTable
    from sparselabel.data.labels import NEGATIVE, POSITIVE, UNKNOWN
    from sparselabel.data.transforms import RandomView, TrackedTransform
    from sparselabel.data.view_geometry import ViewGeometry
    from sparselabel.estimator import SparseLabelClassifier
    from sparselabel.expected_positives.estimate import estimate_expected_positives
    from sparselabel.inference.predictor import load_predictor
    from sparselabel.losses.registry import register
    from sparselabel.losses.sparse_loss import ShardedSampler, SparseLoss
    from sparselabel.metrics.average_precision import average_precision
    from sparselabel.models.classifier import Output
    from sparselabel.run import Run
    from sparselabel.training.callbacks import Callback
    from sparselabel.training.train import train

__version__ = "0.1.0"
__all__ = [
    "NEGATIVE",
    "POSITIVE",
    "UNKNOWN",
    "Callback",
    "Comparison",
    "Dataset",
    "LabelTable",
    "Output",
    "RandomView",
    "Run",
    "ShardedSampler",
    "SparseLabelClassifier",
    "SparseLoss",
    "TrackedTransform",
    "ViewGeometry",
    "average_precision",
    "compare",
    "estimate_expected_positives",
    "load_predictor",
    "register",
    "train",
]

_HOMES = {
    "sparselabel.comparison.compare": ("Comparison", "compare"),
    "sparselabel.data.dataset": ("Dataset",),
    "sparselabel.data.transforms": ("RandomView", "TrackedTransform"),
    "sparselabel.data.view_geometry": ("ViewGeometry",),
    "sparselabel.data.label_table": ("LabelTable",),
    "sparselabel.data.labels": ("NEGATIVE", "POSITIVE", "UNKNOWN"),
    "sparselabel.metrics.average_precision": ("average_precision",),
    "sparselabel.losses.registry": ("register",),
    "sparselabel.losses.sparse_loss": ("ShardedSampler", "SparseLoss"),
    "sparselabel.models.classifier": ("Output",),
    "sparselabel.inference.predictor": ("load_predictor",),
    "sparselabel.run": ("Run",),
    "sparselabel.training.callbacks": ("Callback",),
    "sparselabel.training.train": ("train",),
    "sparselabel.expected_positives.estimate": ("estimate_expected_positives",),
    "sparselabel.estimator": ("SparseLabelClassifier",),
}


_PACKAGES = ("errors", "losses", "testing")  # found without an import of their own, as `torch.nn` is


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return importlib.import_module(f"sparselabel.{name}")
    for module, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(module), name)
    raise AttributeError(f"module 'sparselabel' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
