"""The configuration's method, and what it and the classifier want of a frozen backbone."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal

from sparselabel.config import TrainConfig
from sparselabel.expected_positives.class_counts import ClassCounts
from sparselabel.losses.base import Method, Needs
from sparselabel.losses.catalog import make_method, parsed, presets_of, settings_of

AUTO = "auto"
DEFAULT, DEFAULT_WITH_MAPS = "pu", "pu+scl"
"""What somebody who knows nothing should take (docs/results.md). On features that stay: the best on average
over the kinds of labels that we measured; where everything is trained: the best with one positive label."""
PER_CLASS = ("en", "ep", "pu")  # methods that take a number for each class; the others take K
BOOSTED: Literal["boostlu"] = (
    "boostlu"  # what a paper's settings are under --boost: those of BoostLU's, whatever the data set
)


def method_of(
    config: TrainConfig, counts: ClassCounts | None = None, prior: Sequence[float] | None = None
) -> Method:
    """The configuration's method; without counts and prior that it will have, with something like them."""
    settings = config.settings.given()
    has = settings_of(config.method)
    if isinstance(settings.get("expected_positives"), str) and "expected_positives" in has:
        per_class = parsed(config.method).base in PER_CLASS
        if counts is None:
            settings["expected_positives"] = 1.0
        else:
            settings["expected_positives"] = (
                tuple(counts.expected.tolist()) if per_class else counts.per_picture
            )
    if "prior" in settings and "prior" in has:
        settings["prior"] = prior
    return make_method(config.method, **settings)


def with_chosen_method(config: TrainConfig) -> TrainConfig:
    """The configuration with the method that auto stands for: with heat maps where they can be had and help.

    They need crops that change, so that everything is trained on pictures, and logits of cells.
    """
    if config.method != AUTO:
        return config
    middle_alone = config.frozen and config.views.geometry == "imagenet"  # all that stored features show
    maps = config.full.epochs > 0 and config.classifier in ("linear", "tscam") and not middle_alone
    return replace(config, method=DEFAULT_WITH_MAPS if maps else DEFAULT)


def with_boosted_preset(config: TrainConfig) -> TrainConfig:
    """The configuration with the preset of BoostLU's paper in place of another, where that is the head."""
    wanted = config.boost is not None and config.settings.preset is not None
    if not wanted or BOOSTED not in presets_of(config.method):
        return config
    return replace(config, settings=replace(config.settings, preset=BOOSTED))


def chosen(asked: TrainConfig, config: TrainConfig) -> Iterator[str]:
    """What was chosen in place of what was asked for, in words."""
    if config.method != asked.method:
        yield f"method {config.method}: what {asked.method} is for these phases and this classifier"
    if config.settings.preset != asked.settings.preset:
        instead = f"preset {config.settings.preset} instead of {asked.settings.preset}"
        yield f"{instead}: --boost has settings of its own"


def stores_cells(config: TrainConfig) -> bool:
    """Whether a frozen backbone's features are kept for every cell: if method or head look at them."""
    if not config.frozen or not pools_first(config):
        return config.frozen
    return needs_of(config).maps


def needs_of(config: TrainConfig) -> Needs:
    """What the configuration's method needs, also where its K has still to be found out."""
    if "expected_positives" in settings_of(config.method):
        config = replace(config, settings=replace(config.settings, expected_positives=1.0))
    return method_of(config).needs


def pools_first(config: TrainConfig) -> bool:
    """Whether pooled features give the same logits as those of cells."""
    return config.classifier == "linear" and config.boost is None
