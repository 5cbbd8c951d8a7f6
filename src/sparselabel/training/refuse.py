"""What cannot work, found before anything slow begins."""

from pathlib import Path

from sparselabel.config import TrainConfig
from sparselabel.data.dataset import Prepared
from sparselabel.data.labels import NEGATIVE, POSITIVE
from sparselabel.errors import ConfigError, DataError
from sparselabel.losses.base import Needs
from sparselabel.losses.target_rules import no_negatives
from sparselabel.models.backbone import NONE, PRETRAINED
from sparselabel.models.weights import require_weights_file


def refuse_early(config: TrainConfig, data: Prepared, needs: Needs) -> None:
    """Raise where the method, the data and the model do not go together."""
    name = config.method
    if needs.truth and not data.train.truth.complete:
        raise ConfigError(
            f"{name} is an oracle and needs all labels of all training pictures; this data has not: "
            "use an, an-ls or role"
        )
    if needs.negatives and not (data.train.observed.values == NEGATIVE).any():
        raise no_negatives(name)
    if config.weights not in (PRETRAINED, NONE):
        require_weights_file(Path(config.weights))
    if needs.marks and not len(data.train.seen):
        raise ConfigError(f"{name} needs points or boxes; this data has none{_why_no_marks(data)}")
    _refuse_frozen(config, needs)
    _refuse_classifier(config, needs)
    for phase_name, phase in config.phases.items():
        if phase.patience and "val" not in data.splits:
            raise ConfigError(
                f"--{phase_name}.patience {phase.patience} waits for a better validation, but the data has "
                "no validation split: take 0, which never stops early, or prepare data with one "
                "(`sparselabel prepare ... --validation 0.2`)"
            )
    if not (data.train.observed.values == POSITIVE).any():
        raise DataError(f"{data.folder} has no positive label in training: there is nothing to learn from")


def _why_no_marks(data: Prepared) -> str:
    """Where they are, or could come from."""
    if len(data.train.marks):
        return (
            f" that training may see: its {len(data.train.marks):,} are for judging, as labels were hidden. "
            "Buy some (`sparselabel prepare ... --sparsify budget`), or hide none"
        )
    return (
        ": prepare data whose annotations have them (VOC, COCO, a table with columns x and y), or take a "
        "method for labels alone, as csl-i"
    )


def _refuse_frozen(config: TrainConfig, needs: Needs) -> None:
    if not config.frozen:
        return
    if needs.views > 1:
        raise ConfigError(
            f"{config.method} compares two fresh views of a picture, and stored features are of one that "
            "never changes: leave --frozen out"
        )
    views = config.views
    asked = [
        f"--views.{name} {value:g}"
        for name, value in (("rand-augment", views.rand_augment), ("cutout", views.cutout))
        if value
    ]
    if asked and not config.full.epochs:
        raise ConfigError(
            f"{' and '.join(asked)} would change training views, but the head is trained on stored features, "
            "which never change: take 0, or train on pictures (--full.epochs, or without --frozen)"
        )
    if config.classifier == "token":
        raise ConfigError(
            "--frozen stores features of cells, but --classifier token reads the class token: leave --frozen "
            "out, or take --classifier tscam"
        )
    if needs.maps and config.views.geometry == "imagenet":
        raise ConfigError(
            f"{config.method} needs to know where cells are in a picture; stored features are of pictures "
            "seen whole, and --views.geometry imagenet shows their middle: take squashed, or leave --frozen "
            "out"
        )


def _refuse_classifier(config: TrainConfig, needs: Needs) -> None:
    if needs.maps and config.classifier == "query2label":
        raise ConfigError(
            f"{config.method} needs logits of cells, and query2label has none: its attention says where a "
            "class was looked for, not how likely it is there. Take a method without maps, or another "
            "--classifier"
        )
    if config.boost is not None and config.classifier in ("token", "query2label"):
        raise ConfigError(
            f"--boost multiplies logits of cells, and --classifier {config.classifier} adds none up: leave "
            "one out"
        )
