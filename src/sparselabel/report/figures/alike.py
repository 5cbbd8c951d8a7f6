"""Runs that may stand in one figure of budgets: of the same data, model and training, and judged alike.

What a budget bought (kind, size, draw) may differ, as may the seed. Settings of a method, and the learning
rate and batch that were chosen for it, must be the same for all runs of that method.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sparselabel.config import TrainConfig
from sparselabel.data.dataset import Prepared
from sparselabel.errors import RunError
from sparselabel.run import RunFolder

BOUGHT = ("sparsify", "annotate", "budget", "answers", "cost", "label_seed")
OF_THE_METHOD = ("learning_rate", "batch")
OF_A_FILE = ("prior", "expected_positives")
PLACES = ("pairs", "masks", "boxes")


@dataclass(frozen=True)
class Conditions:
    """What a run's number depends on beside its labels: of every run of a figure, and of its method's."""

    path: Path
    method: str
    everywhere: dict[str, Any]
    of_method: dict[str, Any]


def conditions_of(
    run: RunFolder, method: str, data: Prepared, split: str, judged: dict[str, Any] | None
) -> Conditions:
    """Those of a run; ``judged`` says by how many masks and boxes, for mAP-loc."""
    about, config = run.about(), run.config()
    everywhere: dict[str, Any] = {
        "classes": list(data.classes),
        "training pictures and their labels": _pictures(data),
        f"split {split!r}": "" if split == "train" else about["data_digest"].get(split, "missing"),
    }
    made = data.made["preparation"]
    everywhere |= {f"--{name.replace('_', '-')}": made[name] for name in made if name not in BOUGHT}
    everywhere["reviewers' answers"] = about.get("answers", 0)
    common, of_method = _settings(config)
    weights = about.get("weights_identity", config.weights)  # a file's content, wherever it is
    common["--weights"] = weights.removesuffix(f"-{config.seed}")
    if judged is not None:
        common["--places of `sparselabel evaluate`: " + ", ".join(PLACES)] = [judged.get(n) for n in PLACES]
    return Conditions(run.path, method, everywhere | common, of_method)


def refuse_unlike(everyone: Sequence[Conditions]) -> None:
    """Raise unless the runs belong together; names two of them and in what they differ."""
    first = everyone[0]
    of_method: dict[str, Conditions] = {}
    for one in everyone:
        like = of_method.setdefault(one.method, one)
        _refuse(first, one, first.everywhere, one.everywhere, "a figure")
        _refuse(like, one, like.of_method, one.of_method, f"a curve of {one.method}")


def _refuse(
    first: Conditions, second: Conditions, old: dict[str, Any], new: dict[str, Any], what: str
) -> None:
    names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    if names:
        differ = "; ".join(f"{name}: {_short(old.get(name))} and {_short(new.get(name))}" for name in names)
        raise RunError(
            f"{first.path} and {second.path} do not belong in {what}, for they differ in more than what was "
            f"bought and the seed ({differ}): draw them apart, or make them alike"
        )


def _pictures(data: Prepared) -> str:
    """Identifies the training pictures, and all that is known of their labels."""
    digest = hashlib.blake2b(digest_size=4)
    for array in (data.train.truth.ids, data.train.digests, data.train.truth.values):
        digest.update(np.ascontiguousarray(array).view(np.uint8).data)
    return f"{data.name} {digest.hexdigest()}"


def _settings(config: TrainConfig) -> tuple[dict[str, Any], dict[str, Any]]:
    """What all runs must share, and what those of a method must, by the names of their flags."""
    common: dict[str, Any] = {}
    of_method: dict[str, Any] = {}
    for name, value in asdict(config).items():
        if name in ("method", "seed", "watch", "weights"):
            continue
        for key, given in value.items() if isinstance(value, dict) else [("", value)]:
            # A file of these is made for the labels of a draw, so each run has its own.
            from_file = key in OF_A_FILE and isinstance(given, str) and given != "auto"
            own = "a file" if from_file else given
            flag = "--" + ".".join(part for part in (name, key) if part).replace("_", "-")
            (of_method if name == "settings" or key in OF_THE_METHOD else common)[flag] = own
    return common, of_method


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 100 else f"{text[:97]}..."
