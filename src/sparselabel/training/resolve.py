"""Resolve a configuration and data into what a run will use, before anything slow begins.

(config, data) ──▶ method, settings, K, preset ──▶ Resolved, or an error that says what does not go together
"""

import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sparselabel.config import AUTO, TEXT, HeadPhase, Setting, TrainConfig
from sparselabel.data.dataset import Dataset
from sparselabel.data.labels import NEGATIVE, POSITIVE
from sparselabel.errors import ConfigError, DataError, DataWarning, command, param, spell
from sparselabel.expected_positives.class_counts import ClassCounts, read_expected_for
from sparselabel.losses import registry
from sparselabel.losses.base import ComposedLoss, Needs
from sparselabel.losses.registry import presets_of, settings_of
from sparselabel.losses.setting_checks import COUNTS_ITSELF, PER_CLASS
from sparselabel.losses.soft_ridge import is_quickly_solved
from sparselabel.losses.target_rules import no_negatives
from sparselabel.models.backbone import NONE, OWN, PRETRAINED
from sparselabel.models.weights import require_weights_file
from sparselabel.models.zero_shot import require_text_model
from sparselabel.training.class_prior import read_prior

DEFAULT_SOLVED, DEFAULT_STANDARDIZED = "soft", "gr"
"""What ``auto`` is on standardized features: the best on average over the kinds of labels that we measured
(docs/results.md), and the best of those that are trained in steps."""
DEFAULT, DEFAULT_WITH_MAPS = "pu", "en+scl"
"""What ``auto`` is elsewhere, without and with logits of cells: the best with one positive label."""
AUTO_METHODS = (DEFAULT_SOLVED, DEFAULT_STANDARDIZED, DEFAULT, DEFAULT_WITH_MAPS)
LIKELIHOOD: dict[str, Setting] = {"unknown_weight": 1.0, "entropy_weight": 0.0, "margin": 0.3}
"""Settings of pu on standardized features if K is given and the head goes by steps; its defaults were found
on raw features."""
BOOSTED = "boostlu"  # the preset of a boosted head, whatever the data set


@dataclass(frozen=True)
class Resolved:
    """A resolved run: the configuration, with all that follows from the data, and the needs of its method.

    ``notes`` say which settings were chosen automatically.
    """

    config: TrainConfig
    needs: Needs
    notes: tuple[str, ...] = ()


def resolve(data: Dataset, config: TrainConfig) -> Resolved:
    """Set what depends on the data, and refuse what cannot work, before anything slow begins."""
    given = config
    config = with_chosen_method(config, len(data.train), len(data.classes))
    try:
        config = replace(config, settings=registry.typed_settings(config.method, config.settings))
    except ConfigError as error:
        raise (_misspelled(error, config.method) if given.method == AUTO else None) or error from None
    config = with_boosted_preset(with_expected_positives(config, data))
    refuse_prior(config, data)
    refuse_scores(config)
    needs = needs_of(config)
    refuse_early(config, data, needs)
    notes = [*chosen(given, config), *nothing_unknown(config.method, data)]
    if needs.solves:
        notes += without_effect(config.method, config.head)
        config = replace(config, head=replace(config.head, epochs=1))
    return Resolved(config, needs, tuple(notes))


def _misspelled(error: ConfigError, method: str) -> ConfigError | None:
    """An error for one about a setting of the chosen method, if a field of training has nearly that name."""
    import difflib

    name = str(error.value)
    names = [field.name for field in fields(TrainConfig)]
    if not (error.what == f"settings.{name}" and (near := difflib.get_close_matches(name, names, 1, 0.8))):
        return None
    problem = f"{name!r} is a setting neither of training nor of {method}"
    return ConfigError(problem, f"did you mean {param(near[0])}?", what=name, value=name, allowed=near)


def with_expected_positives(config: TrainConfig, data: Dataset) -> TrainConfig:
    """Set K if it is not given: counted in fully labeled validation data (Verelst 2023 §4.1), else estimated
    where it is needed.

    A file of expected positives is read here, so that its errors are found early.
    """
    if "expected_positives" not in settings_of(config.method):
        return config
    given = config.settings.get("expected_positives")
    if isinstance(given, int | float):
        _refuse_impossible(given, data)
    if given == "counted":
        count = command("expect", "DATA", how="counted", labels="TABLE", out="FILE")
        remedy = f"make a file with {count}, and give it as expected_positives"
        raise ConfigError("counting needs complete labels of some images", remedy)
    if isinstance(given, str) and given != AUTO:
        if not Path(given).is_file():
            hint = "; auto is written in small letters" if given.lower() == AUTO else ""
            raise ConfigError(
                f"{param('settings.expected_positives')} must be a number above 0, auto, or a file that "
                f"{command('expect')} wrote, and there is no file {given!r}{hint}"
            )
        read_expected_for(Path(given), data)
    if given is not None:
        return config
    expected: Setting = AUTO
    if "val" in data.splits and data.split("val").observed.complete:
        expected = round(float(data.split("val").observed.per_image(POSITIVE).mean()), 3)
    elif not registry.needs_expected_positives(config.method):
        return config
    return replace(config, settings=config.settings | {"expected_positives": expected})


def _refuse_impossible(given: float, data: Dataset) -> None:
    """K is above 0, and at most the number of classes; below what is annotated it contradicts the data."""
    classes, seen = len(data.classes), float(data.train.observed.per_image(POSITIVE).mean())
    if not 0 < given <= classes:
        raise ConfigError(
            f"{param('settings.expected_positives')} is the mean number of classes in an image: above 0 and "
            f"at most {classes}, the number of classes, not {given:g}"
        )
    if given < round(seen, 3):
        # No error: papers train with a wrong K on purpose (recipe spml/voc-wrong-k).
        problem = (
            f"{param('settings.expected_positives')} is {given:g}, but already {seen:.3f} labels per image "
            "are annotated as present: the true number cannot be smaller"
        )
        warning = DataWarning(
            problem,
            f"give a number of at least {seen:.3g}",
            f"leave {param('settings.expected_positives')} out, and it is counted or estimated",
            what="settings.expected_positives",
            value=given,
            allowed=seen,
        )
        warnings.warn(warning, stacklevel=4)


def method_of(
    config: TrainConfig, counts: ClassCounts | None = None, scores: npt.NDArray[np.float32] | None = None
) -> ComposedLoss:
    """The configuration's method; without ``counts``, K is a placeholder.

    ``scores`` (N, L) are those that its setting names. A prior is set later (``class_prior.take_prior``): a
    run may have to be trained for it.
    """
    later = "prior", "scores"
    settings: dict[str, Any] = {key: value for key, value in config.settings.items() if key not in later}
    if scores is not None:
        settings["scores"] = scores
    if isinstance(settings.get("expected_positives"), str):
        base = registry.parse(config.method).base
        settings["expected_positives"] = 1.0 if counts is None else counts.per_image
        if counts is not None and base in PER_CLASS:
            settings["expected_positives"] = tuple(counts.expected.tolist())
        if counts is not None and base in COUNTS_ITSELF and not counts.trusted:
            settings["expected_positives"] = None
    return registry.make_method(config.method, **settings)


def with_chosen_method(config: TrainConfig, images: int = 0, classes: int = 0) -> TrainConfig:
    """The configuration with the method that auto stands for.

    One with heat maps needs logits of cells and random crops, so the whole network must be trained.
    """
    if config.method != AUTO:
        return config
    its_own = config.settings.keys() <= settings_of(DEFAULT_SOLVED).keys()
    if its_own and config.head == HeadPhase() and is_quickly_solved(images, classes):
        standardized = replace(config, method=DEFAULT_SOLVED)
    elif config.settings.keys() <= settings_of(DEFAULT_STANDARDIZED).keys():
        standardized = replace(config, method=DEFAULT_STANDARDIZED)
    else:
        standardized = replace(config, method=DEFAULT, settings=LIKELIHOOD | config.settings)
    if standardizes(standardized):
        return standardized
    middle_alone = config.frozen and config.views.geometry == "imagenet"  # all that stored features show
    maps = config.finetune.epochs > 0 and config.classifier in ("linear", "tscam") and not middle_alone
    return replace(config, method=DEFAULT_WITH_MAPS if maps else DEFAULT)


def with_boosted_preset(config: TrainConfig) -> TrainConfig:
    """The configuration with the preset of BoostLU's paper in place of another, where that is the head."""
    wanted = config.boost is not None and "preset" in config.settings
    if not wanted or BOOSTED not in presets_of(config.method):
        return config
    return replace(config, settings=config.settings | {"preset": BOOSTED})


def chosen(given: TrainConfig, config: TrainConfig) -> Iterator[str]:
    """Notes on settings that were chosen automatically."""
    if config.method != given.method:
        yield f"method {config.method}, chosen by {given.method} for these epochs and this head"
    if config.settings.get("preset") != given.settings.get("preset"):
        instead = f"preset {config.settings['preset']} instead of {given.settings['preset']}"
        yield f"{instead}: a boosted head has settings of its own"


def nothing_unknown(method: str, data: Dataset) -> Iterator[str]:
    """A note on labels without an unknown one: somebody may have written 0 where nobody looked."""
    observed, all_known = data.train.observed, registry.METHODS[registry.parse(method).base].all_known
    if observed.complete and observed.counts(NEGATIVE).any() and not all_known:
        yield "all training labels are known: 0 is taken for absent (-1, NaN or an empty cell is unknown)"


def without_effect(method: str, head: HeadPhase) -> Iterator[str]:
    """A note on settings of the optimizer, which do nothing where the head is computed."""
    default = asdict(replace(HeadPhase(), epochs=head.epochs) if head.epochs == 1 else HeadPhase())
    given = [param(f"head.{name}", value) for name, value in asdict(head).items() if value != default[name]]
    if given:
        yield spell(f"{method} computes the head, without steps: nothing comes of {', '.join(given)}")


def stores_cells(config: TrainConfig) -> bool:
    """Whether a frozen backbone's features are stored for every cell: if the method or head uses them."""
    if not config.frozen or not pools_first(config):
        return config.frozen
    return needs_of(config).maps


def needs_of(config: TrainConfig) -> Needs:
    """The needs of the configuration's method, even before K is known."""
    return registry.needs_of(config.method, config.settings)


def pools_first(config: TrainConfig) -> bool:
    """Whether pooled features give the same logits as those of cells."""
    return config.classifier == "linear" and config.boost is None


def standardizes(config: TrainConfig) -> bool:
    """Whether the head gets standardized features: those of a frozen backbone, pooled and stored."""
    alone = config.frozen and not config.finetune.epochs and not config.head.raw_features
    return alone and pools_first(config) and not stores_cells(config)


def refuse_early(config: TrainConfig, data: Dataset, needs: Needs) -> None:
    """Raise where the method, the data and the model do not go together."""
    name = config.method
    if needs.truth and not data.train.truth.complete:
        problem = f"{name} is an oracle and needs all labels of all training images; this data has not"
        raise ConfigError(problem, "use an, an-ls or role")
    if needs.negatives and not data.train.observed.has(NEGATIVE):
        raise no_negatives(name, data.train.truth.complete)
    if config.weights not in (PRETRAINED, NONE):
        require_weights_file(Path(config.weights))
    if needs.spatial_labels and not len(data.train.seen):
        raise _no_spatial_labels(name, data)
    if needs.solves and not standardizes(config):
        raise _not_solved(config)
    _refuse_frozen(config, needs)
    _refuse_classifier(config, needs)
    for phase_name, phase in config.phases.items():
        if phase.patience and "val" not in data.splits:
            raise ConfigError(
                f"{param(f'{phase_name}.patience', phase.patience)} waits for a better validation, but the "
                "data has no validation split",
                "take 0, which never stops early",
                f"prepare data with one ({command('prepare', '...', validation=0.2)})",
            )
    if not data.train.observed.has(POSITIVE):
        raise DataError(f"{data.folder} has no positive label in training: there is nothing to learn from")


def _not_solved(config: TrainConfig) -> ConfigError:
    """The error for a method that computes a linear head, if there is no such head or no stored features."""
    return ConfigError(
        f"{config.method} computes a linear head from stored pooled features, and here is none",
        f"train the head alone ({param('frozen', True)}, {param('finetune.epochs', 0)}, "
        f"{param('classifier', 'linear')}, without {param('boost')} and {param('head.raw_features')})",
        f"take a method that goes by steps ({param('method', DEFAULT)})",
        what="method",
        value=config.method,
    )


def _no_spatial_labels(name: str, data: Dataset) -> ConfigError:
    """The error for data without points and boxes that training may see."""
    problem = f"{name} needs points or boxes; this data has none"
    if len(data.train.spatial_labels):
        return ConfigError(
            f"{problem} that training may see: its {len(data.train.spatial_labels):,} are for evaluation, as "
            "labels were hidden",
            f"buy some ({command('prepare', '...', sparsify='budget')})",
            "hide none",
        )
    return ConfigError(
        problem,
        "prepare data whose annotations have them (VOC, COCO, a table with columns x and y)",
        "take a method for labels alone, as csl-i",
    )


def _refuse_frozen(config: TrainConfig, needs: Needs) -> None:
    if not config.frozen:
        return
    not_frozen = f"leave {param('frozen')} out"
    if needs.views > 1:
        raise ConfigError(
            f"{config.method} compares two fresh views of an image, and stored features are of one that "
            "never changes",
            not_frozen,
        )
    views = config.views
    changes = {"views.rand_augment": views.rand_augment, "views.cutout": views.cutout}
    changing = [param(name, f"{value:g}") for name, value in changes.items() if value]
    if changing and not config.finetune.epochs:
        raise ConfigError(
            f"{' and '.join(changing)} would change training views, but the head is trained on stored "
            "features, which never change",
            "take 0",
            f"train on images ({param('finetune.epochs')}, or without {param('frozen')})",
        )
    if config.classifier == "token":
        raise ConfigError(
            f"{param('frozen')} stores features of cells, but {param('classifier', 'token')} reads the class "
            "token",
            not_frozen,
            f"take {param('classifier', 'tscam')}",
        )
    if needs.maps and views.geometry == "imagenet":
        raise ConfigError(
            f"{config.method} needs to know where cells are in an image; stored features are of images "
            f"seen whole, and {param('views.geometry', 'imagenet')} shows their middle",
            f"take {param('views.geometry', 'squashed')}",
            not_frozen,
        )


def _refuse_classifier(config: TrainConfig, needs: Needs) -> None:
    if config.classifier == "none":
        _refuse_logits(config, needs)
    if needs.maps and config.classifier == "query2label":
        raise ConfigError(
            f"{config.method} needs logits of cells, and query2label has none: its attention says where a "
            "class was looked for, not how likely it is there",
            "take a method without maps",
            f"take another {param('classifier')}",
        )
    if config.boost is not None and config.classifier in ("token", "query2label"):
        raise ConfigError(
            f"{param('boost')} multiplies logits of cells, and {param('classifier', config.classifier)} adds "
            "none up",
            "leave one out",
        )


def _refuse_logits(config: TrainConfig, needs: Needs) -> None:
    """Raise if a model that returns logits would need a head or cells, which it has not."""
    if not config.backbone.startswith(f"{OWN}:"):
        raise ConfigError(
            f"{param('classifier', 'none')} is for a module of your own that returns logits, not for "
            f"{config.backbone}",
            f"take another {param('classifier')}",
            what="classifier",
            value="none",
        )
    feature_maps = "let the model return feature maps (B, D, h, w): leave its pooling and last layer out"
    if needs.maps or needs.features:
        base = registry.parse(config.method).base
        alone = registry.needs_of(base, {})
        instead = DEFAULT if alone.maps or alone.features else base
        raise ConfigError(
            f"{config.method} needs {'logits' if needs.maps else 'features'} of cells, and the model returns "
            "the logits of an image alone",
            f"take a method that needs no more ({param('method', instead)})",
            feature_maps,
            what="method",
            value=config.method,
        )
    if config.frozen or config.head.epochs:
        setting = "frozen" if config.frozen else "head.epochs"
        raise ConfigError(
            f"{param(setting)} is about a head, and a model that returns logits has none of its own",
            f"train all of it ({param('finetune.epochs')})",
            feature_maps,
            what=setting,
            value=getattr(config, setting) if config.frozen else config.head.epochs,
        )


def _setting(config: TrainConfig, name: str) -> Setting | None:
    """The value of a setting, if the configuration's method has it."""
    return config.settings.get(name) if name in settings_of(config.method) else None


def expected_file(config: TrainConfig) -> Path | None:
    """The file of expected positives that the configuration names, if its method uses one."""
    given = _setting(config, "expected_positives")
    return Path(given) if isinstance(given, str) and given != AUTO else None


def is_estimated(config: TrainConfig) -> bool:
    """Whether expected positives are to be estimated before training."""
    return _setting(config, "expected_positives") == AUTO


def prior_file(config: TrainConfig) -> Path | None:
    """The file of a prior that the configuration names, if its method uses one."""
    given = _setting(config, "prior")
    return None if given in (None, AUTO) else Path(str(given))


def refuse_prior(config: TrainConfig, data: Dataset) -> None:
    """Raise if the prior cannot be used."""
    given = _setting(config, "prior")
    if given is None:
        return
    mode = config.settings.get("unknown") or settings_of(config.method)["unknown"]
    if mode != "selective":
        raise ConfigError(
            f"a prior says which unknown labels to leave out in selective mode, but the mode is {mode}",
            f"give {param('settings.unknown', 'selective')}",
            f"leave {param('settings.prior')} out",
        )
    if given == AUTO:
        if not data.train.observed.has(NEGATIVE):
            raise no_negatives("the run that finds the prior", data.train.truth.complete)
    else:
        read_prior(Path(str(given)), data.classes)


def text_model(config: TrainConfig) -> str | None:
    """The text model of ``scores=text:MODEL``, if the configuration has that."""
    given = _setting(config, "scores")
    return str(given).removeprefix(TEXT) if given is not None and str(given).startswith(TEXT) else None


def scores_file(config: TrainConfig) -> Path | None:
    """The file of another model's scores that the configuration names, if its method uses one."""
    given = _setting(config, "scores")
    return None if given is None or text_model(config) is not None else Path(str(given))


def refuse_scores(config: TrainConfig) -> None:
    """Raise if there is no such file of scores, or no such model."""
    file, model = scores_file(config), text_model(config)
    if model is not None:
        require_text_model(model)
    if file is not None and not file.is_file():
        raise ConfigError(
            f"{param('settings.scores')} must be a file of scores, or text:MODEL, and there is no file "
            f"{str(file)!r}",
            what="settings.scores",
            value=str(file),
        )


def trains_for_prior(config: TrainConfig) -> bool:
    """Whether another run comes first, to find the prior."""
    return _setting(config, "prior") == AUTO
