import importlib
import subprocess
import sys

import pytest

import sparselabel

HOMES = {
    "NEGATIVE": "sparselabel.data.labels",
    "POSITIVE": "sparselabel.data.labels",
    "UNKNOWN": "sparselabel.data.labels",
    "Callback": "sparselabel.training.callbacks",
    "Comparison": "sparselabel.comparison.compare",
    "Dataset": "sparselabel.data.dataset",
    "LabelTable": "sparselabel.data.label_table",
    "Output": "sparselabel.models.classifier",
    "RandomView": "sparselabel.data.transforms",
    "Run": "sparselabel.run",
    "ShardedSampler": "sparselabel.losses.sparse_loss",
    "SparseLabelClassifier": "sparselabel.estimator",
    "SparseLoss": "sparselabel.losses.sparse_loss",
    "TrackedTransform": "sparselabel.data.transforms",
    "ViewGeometry": "sparselabel.data.view_geometry",
    "average_precision": "sparselabel.metrics.average_precision",
    "compare": "sparselabel.comparison.compare",
    "estimate_expected_positives": "sparselabel.expected_positives.estimate",
    "load_predictor": "sparselabel.inference.predictor",
    "register": "sparselabel.losses.registry",
    "train": "sparselabel.training.train",
}


def test_the_public_names() -> None:
    assert sparselabel.__all__ == list(HOMES)
    assert dir(sparselabel) == sorted([*HOMES, "__version__"])


@pytest.mark.parametrize("name", HOMES)
def test_each_is_the_one_at_home(name: str) -> None:
    assert getattr(sparselabel, name) is getattr(importlib.import_module(HOMES[name]), name)


def test_all_of_them_at_once() -> None:
    names: dict[str, object] = {}
    exec("from sparselabel import *", names)
    assert set(HOMES) <= set(names)
    assert names["ViewGeometry"] is sparselabel.ViewGeometry


@pytest.mark.parametrize("name", ["errors.DataError", "losses.TargetLoss", "testing.check_loss"])
def test_packages_are_found_by_the_first_import(name: str) -> None:
    code = f"import sparselabel; print(sparselabel.{name}.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == name.rpartition(".")[2]


def test_the_version_is_the_packages() -> None:
    import tomllib
    from pathlib import Path

    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    assert sparselabel.__version__ == project["version"]


def test_an_unknown_name() -> None:
    with pytest.raises(AttributeError, match="module 'sparselabel' has no attribute 'Frames'"):
        sparselabel.Frames  # noqa: B018
    assert not hasattr(sparselabel, "torch")


def test_importing_the_package_is_cheap() -> None:
    heavy = ("torch", "timm", "numpy", "PIL", "torchvision", "sklearn", "scipy")
    code = f"import sys, sparselabel; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
