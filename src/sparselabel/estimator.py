"""``SparseLabelClassifier``: an estimator in scikit-learn's style, for features and labels with unknowns.

    probe = SparseLabelClassifier().fit(X, Y)
    probe.predict_proba(X_new)

A linear layer on standardized features: by default computed whole (``soft``), with other methods
trained with ``SparseLoss`` in shuffled batches. Some rows are held out to calibrate scores and choose the
classes' thresholds, as for a run.
"""

import math
import numbers
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from sparselabel.data.label_conversion import labels_of
from sparselabel.data.labels import NEGATIVE, POSITIVE, UNKNOWN, Indices, Labels
from sparselabel.errors import ConfigError, DataError, DataWarning, counted, listing, param
from sparselabel.expected_positives.class_counts import ClassCounts, annotated_positives
from sparselabel.expected_positives.estimate import class_names, estimate_positives
from sparselabel.losses.base import Needs
from sparselabel.losses.registry import make_method, needs_expected_positives, needs_of, parse, settings_of
from sparselabel.losses.setting_checks import COUNTS_ITSELF, PER_CLASS, below_observed, within_label_bounds
from sparselabel.losses.soft_ridge import is_quickly_solved
from sparselabel.losses.sparse_loss import SparseLoss
from sparselabel.metrics.average_precision import mean_average_precision, precision_of_classes
from sparselabel.metrics.calibration import LIMIT, calibrate
from sparselabel.metrics.class_prevalence import PrevalenceSource, estimate_prevalence
from sparselabel.metrics.thresholds import f1_thresholds
from sparselabel.models.classifier import standard_deviation_and_mean

Features = npt.NDArray[np.floating[Any]]

STEPS = 300
"""Minimum number of training steps if ``epochs`` is None."""
FEWEST_EPOCHS, MOST_EPOCHS = 5, 100
LOGIT_STEP, HIGHEST_LR = 0.5, 0.01
"""A step of AdamW moves a logit of D standardized features by up to about D times the learning rate."""
FEWEST_HELD_OUT = 50
"""With fewer rows to hold out, all are used for training, and for calibration too."""
MOST_HELD_OUT = 2_000_000
"""Number of labels for calibration, known or not, which limits the held-out rows."""
WARM_UP = 0.1
"""The share of steps in which the learning rate rises; then it falls along half a cosine."""


class SparseLabelClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A linear multi-label classifier for features, trained with labels of which some are unknown.

    Labels ``Y`` are (N, L) with 1, 0, and -1 or NaN for unknown: an array, a tensor, a DataFrame, or a sparse
    matrix, in which stored entries are known and all others unknown. scikit-learn refuses NaN in ``Y`` when
    it makes folds for cross-validation: use -1, or give ``cv=KFold(5)``.

    Parameters
    ----------
    method
        A method that needs no images: all but those with heat maps, points or several views
        (`sparselabel methods` lists them). ``bce`` is for complete labels. "auto" is ``soft`` for up to
        100,000 rows and 10 million labels (rows × classes), and ``gr`` for more or with ``settings``; with
        scores of another model it is ``pu``.
    expected_positives
        K, the mean number of classes in an image. With None it is counted or estimated if the method needs
        it, and always with "auto", for calibration.
    epochs
        None for as many as make 300 steps, 5 at least and 100 at most. ``soft`` ignores ``epochs``, ``lr``,
        ``batch_size`` and ``weight_decay``.
    lr
        The highest learning rate of AdamW; None for 0.5 / D, at most 0.01. It rises for a tenth of the
        steps, then falls to 0.
    batch_size
        Rows per step.
    weight_decay
        Weight decay of AdamW, on the weights of standardized features.
    standardize
        Give every feature mean 0 and variance 1, by the rows of ``fit``. ``coef_`` is for unstandardized
        features.
    validation_fraction
        The share of rows that is held out for calibration and thresholds. 0 uses the rows of training, which
        makes scores too confident with many features and few rows.
    settings
        The method's own (`sparselabel methods NAME`).
    device
        Device to train on, such as "cuda"; None takes a GPU if there is one.
    random_state
        Random seed of the held-out rows, the order of batches and the method.

    Attributes
    ----------
    method_
        The method: what "auto" stands for.
    classes_
        (L,) Their names, from the columns of a DataFrame; else numbers.
    coef_, intercept_
        (L, D) and (L,): logits are ``X @ coef_.T + intercept_``.
    slope_, offset_
        (L,) A calibrated score is ``sigmoid(slope_ * logit + offset_)``.
    thresholds_
        (L,) The calibrated score from which on ``predict`` returns 1: that with the highest expected F1.
    expected_positives_
        K, if it was given, counted or estimated; else None.
    class_counts_
        The estimate with its bounds and whether to trust it, or None.
    n_iter_
        The number of epochs.
    n_features_in_, feature_names_in_
        Of ``X``, as scikit-learn has them.
    """

    def __init__(
        self,
        method: str = "auto",
        *,
        expected_positives: float | str | None = None,
        epochs: int | None = None,
        lr: float | None = None,
        batch_size: int = 512,
        weight_decay: float = 0.01,
        standardize: bool = True,
        validation_fraction: float = 0.1,
        settings: Mapping[str, Any] | None = None,
        device: str | None = None,
        random_state: "int | np.random.RandomState | None" = 0,
    ) -> None:
        self.method = method
        self.expected_positives = expected_positives
        self.epochs = epochs
        self.lr = lr
        self.batch_size = batch_size
        self.weight_decay = weight_decay
        self.standardize = standardize
        self.validation_fraction = validation_fraction
        self.settings = settings
        self.device = device
        self.random_state = random_state

    def fit(self, X: object, y: object, scores: object = None) -> Self:  # noqa: N803 - scikit-learn's names
        """Train on features (N, D) and labels (N, L).

        ``scores`` (N, L) are another model's, on any scale, NaN for none: evidence for pu and en.
        """
        features = self._features(X, reset=True)
        labels = _labels(y, len(features), type(self).__name__)
        self.method_ = self._chosen_method(labels.shape, scores)
        needs = self._checked()
        evidence = None if scores is None else self._evidence(scores, labels)
        annotated = annotated_positives(labels)
        self.classes_ = _classes(y, labels.shape[1])
        random = check_random_state(self.random_state)
        seed = int(random.randint(2**31 - 1))
        self.class_counts_ = self._counts(features, labels, seed)
        self.expected_positives_ = self._k(labels)
        _warn_of_empty_classes(labels, self.classes_)
        training, held_out = self._split(labels, random)
        self._train(features, labels, training, needs, seed, evidence)
        rows = held_out if len(held_out) else _some(training, labels.shape[1], random)
        self._calibrate(self._logits(features[rows]), labels[rows], annotated)
        return self

    def decision_function(self, X: object) -> Features:  # noqa: N803
        """(N, L) Logits."""
        check_is_fitted(self)
        return self._logits(self._features(X))

    def predict_proba(self, X: object) -> Features:  # noqa: N803
        """(N, L) Calibrated scores: the probability of each class."""
        scores = self.decision_function(X)
        scores *= self.slope_.astype(scores.dtype)
        scores += self.offset_.astype(scores.dtype)
        return np.asarray(expit(scores, out=scores))

    def predict(self, X: object) -> npt.NDArray[np.int64]:  # noqa: N803
        """(N, L) 1 where the calibrated score is at least the class's threshold, else 0."""
        scores = self.predict_proba(X)
        return np.asarray(scores >= self.thresholds_.astype(scores.dtype), dtype=np.int64)

    def score(self, X: object, y: object, sample_weight: None = None) -> float:  # noqa: N803
        """The mean average precision, 0..1, over the classes with positives.

        Unknown labels are left out, except in a class without known negatives, where they count as negative.
        """
        if sample_weight is not None:
            raise ConfigError("mAP has no weights of rows", f"leave {param('sample_weight')} out")
        logits = self.decision_function(X)
        labels = _labels(y, len(logits), type(self).__name__)
        if labels.shape[1] != len(self.classes_):
            raise DataError(
                f"labels must have the {counted(len(self.classes_), 'column')} that they had in fit, not "
                f"{labels.shape[1]:,}",
                what="y",
                value=labels.shape[1],
                allowed=len(self.classes_),
            )
        positives_only = ~(labels == NEGATIVE).any(axis=0)
        labels[:, positives_only] = np.where(labels[:, positives_only] == UNKNOWN, NEGATIVE, POSITIVE)
        ap = precision_of_classes(logits, labels, "sklearn", drop_unknown=True)
        value = mean_average_precision(ap, labels).mean_of_present
        if value is None:
            raise DataError("no label is positive: there is nothing to rank", what="y")
        return value

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.classifier_tags.multi_label = True
        tags.target_tags.single_output = False
        tags.target_tags.multi_output = True
        return tags

    def _chosen_method(self, shape: Sequence[int], scores: object) -> str:
        """The method, or what "auto" is for labels of this shape, as in training on stored features."""
        if not isinstance(self.method, str):
            raise ConfigError(f"a method is a name, not {self.method!r}", what="method", value=self.method)
        if self.method != "auto":
            return self.method
        if scores is not None:
            return "pu"
        return "soft" if is_quickly_solved(*shape) and not self.settings else "gr"

    def _checked(self) -> Needs:
        """The needs of the method; raises for methods and parameters that cannot work, before training."""
        settings = dict(self.settings or {})
        needs = needs_of(self.method_, settings)
        images = [
            what
            for needed, what in (
                (needs.maps, "logits of cells"),
                (needs.features, "features of cells"),
                (needs.spatial_labels, "points or boxes"),
                (needs.views > 1, f"{needs.views} views of every image"),
            )
            if needed
        ]
        if images:
            raise ConfigError(
                f"{self.method_} needs {' and '.join(images)}, which one vector per image does not have",
                f"take one that needs labels alone, as {param('method', 'pu')}",
                "train on the images",
                what="method",
                value=self.method_,
            )
        if "expected_positives" in settings:
            raise ConfigError(
                "expected_positives is a parameter of its own",
                f"give {param('expected_positives', settings['expected_positives'])}, not in settings",
                what="settings.expected_positives",
            )
        self._refuse_numbers()
        return needs

    def _refuse_numbers(self) -> None:
        for name, least, whole in (
            ("epochs", 1, True),
            ("batch_size", 1, True),
            ("lr", 0, False),
            ("weight_decay", 0, False),
        ):
            value: Any = getattr(self, name)
            kind: Any = numbers.Integral if whole else numbers.Real
            if value is None and name in ("epochs", "lr"):
                continue
            if isinstance(value, bool) or not isinstance(value, kind) or not least <= value < math.inf:
                allowed = f"a {'whole ' if whole else ''}number from {least} on"
                raise ConfigError(
                    f"{param(name)} must be {allowed}, not {value!r}", what=name, value=value, allowed=allowed
                )
        share, k = self.validation_fraction, self.expected_positives
        if isinstance(share, bool) or not isinstance(share, numbers.Real) or not 0 <= share < 1:
            raise ConfigError(
                f"{param('validation_fraction')} must be a share in [0, 1), not {share!r}",
                what="validation_fraction",
                value=share,
            )
        is_number = isinstance(k, numbers.Real) and not isinstance(k, bool) and 0 < k < math.inf
        if not (k is None or is_number or (isinstance(k, str) and k == "auto")):
            raise ConfigError(
                f"{param('expected_positives')} must be a number above 0, 'auto' or None, not {k!r}",
                what="expected_positives",
                value=k,
            )

    def _features(self, given: object, reset: bool = False) -> Features:
        """(N, D) floats, checked by scikit-learn's rules."""
        array = given.detach().float().cpu().numpy() if isinstance(given, Tensor) else given
        try:
            checked = validate_data(self, array, reset=reset, dtype=(np.float64, np.float32))
        except ValueError as error:
            first, *rest = str(error).splitlines()
            if "contains NaN" in first or "contains infinity" in first:  # scikit-learn's advice follows
                raise DataError(
                    first.rstrip("."), "fill in or leave out what is missing", what="X"
                ) from error
            raise DataError(" ".join([first, *rest]), what="X") from error
        return np.asarray(checked)

    def _logits(self, features: Features) -> Features:
        weight, bias = (part.astype(features.dtype, copy=False) for part in (self.coef_, self.intercept_))
        logits = features @ weight.T
        logits += bias
        return logits

    def _counts(self, features: Features, labels: Labels, seed: int) -> ClassCounts | None:
        """Estimated positives of every class, if the method needs them and no number was given."""
        needed = needs_expected_positives(self.method_) or self.expected_positives == "auto"
        if isinstance(self.expected_positives, numbers.Real) or not needed:
            return None
        names = tuple(str(name) for name in self.classes_)
        try:
            return estimate_positives(features, labels, names, seed)
        except DataError as error:
            raise DataError(
                f"expected positives cannot be estimated: {error.problem}",
                f"count them in a few dozen images and give, say, {param('expected_positives', 2.5)}",
                "take a method that does without, as an, em or gr",
                what="expected_positives",
            ) from error

    def _k(self, labels: Labels) -> float | None:
        if self.class_counts_ is not None:
            return self.class_counts_.per_image
        k = self.expected_positives
        if not isinstance(k, numbers.Real):
            return None
        if k > labels.shape[1]:
            raise ConfigError(
                f"{param('expected_positives')} is the mean number of classes in an image, so at most the "
                f"{labels.shape[1]} there are, not {k:g}",
                what="expected_positives",
                value=k,
                allowed=labels.shape[1],
            )
        return float(k)

    def _evidence(self, given: object, labels: Labels) -> npt.NDArray[np.float32]:
        scores = np.asarray(given, dtype=np.float32)
        if scores.shape != labels.shape:
            raise DataError(
                f"scores must be {labels.shape}, as the labels are, not {scores.shape}",
                what="scores",
                value=scores.shape,
                allowed=labels.shape,
            )
        if "scores" not in settings_of(self.method_):
            raise ConfigError(
                f"{self.method_} has no use for {param('scores')}",
                f"take {param('method', 'pu')}",
                f"leave {param('scores')} out",
                what="scores",
            )
        return scores

    def _split(self, labels: Labels, random: np.random.RandomState) -> tuple[Indices, Indices]:
        """Rows to train on and rows held out; every class that has positives keeps one to train on."""
        count, classes = labels.shape
        order = random.permutation(count)
        size = min(int(count * self.validation_fraction), max(FEWEST_HELD_OUT, MOST_HELD_OUT // classes))
        if size < FEWEST_HELD_OUT:
            return np.sort(order), order[:0]
        rows, columns = np.nonzero(labels == POSITIVE)
        first = np.full(classes, count)  # the place in the order of every class's first positive
        np.minimum.at(first, columns, order.argsort()[rows])
        free = np.delete(order, np.unique(first[first < count]))
        held_out = np.sort(free[len(free) - min(size, len(free)) :])
        if len(held_out) < FEWEST_HELD_OUT or not (labels[held_out] == POSITIVE).any():
            return np.sort(order), order[:0]
        return np.setdiff1d(order, held_out), held_out

    def _train(
        self,
        features: Features,
        labels: Labels,
        rows: Indices,
        needs: Needs,
        seed: int,
        scores: npt.NDArray[np.float32] | None,
    ) -> None:
        """Set ``coef_`` and ``intercept_``."""
        device = torch.device(self.device or ("cuda" if torch.cuda.is_available() else "cpu"))
        inputs = torch.from_numpy(np.array(features[rows], dtype=np.float32))
        scale, mean = (
            standard_deviation_and_mean(inputs) if self.standardize else (torch.ones(1), torch.zeros(1))
        )
        inputs.sub_(mean).div_(scale)
        observed = labels[rows]
        given = dict(self.settings or {})
        if "expected_positives" in settings_of(self.method_):
            given["expected_positives"] = self._expected(observed)
        if needs.solves:
            expected = given.get("expected_positives")
            if low := below_observed(expected, (observed == POSITIVE).sum(0), len(observed)):
                warnings.warn(low, stacklevel=3)
            label_loss = make_method(self.method_, **given).label_loss
            solved = label_loss.solve_head(inputs, torch.from_numpy(observed))
            self._set_weights(solved.weight, solved.bias, mean, scale)
            self.n_iter_ = 1
            return
        steps = -(-len(rows) // self.batch_size)
        epochs = self.epochs or min(max(-(-STEPS // steps), FEWEST_EPOCHS), MOST_EPOCHS)
        lr = min(LOGIT_STEP / inputs.shape[1], HIGHEST_LR) if self.lr is None else self.lr
        head = _head(inputs.shape[1], observed).to(device)
        groups: list[dict[str, Any]] = [
            {"params": [head.weight], "weight_decay": self.weight_decay},
            {"params": [head.bias]},
        ]
        optimizer = torch.optim.AdamW(
            groups,
            lr=lr,
            weight_decay=0.0,
            fused=device.type in ("cpu", "cuda"),
        )
        if scores is not None:
            given["scores"] = scores[rows]
        if needs.truth and (observed == UNKNOWN).any():
            raise ConfigError(
                f"{self.method_} is for complete labels, and some are unknown",
                f"take a method for unknown labels, as {param('method', 'pu')}",
                what="method",
                value=self.method_,
            )
        truth = observed if needs.truth else None
        with warnings.catch_warnings():
            # Complete labels are no mistake here: a search compares methods on whatever labels there are.
            warnings.filterwarnings("ignore", "nothing is unknown", DataWarning)
            criterion = SparseLoss(
                self.method_, observed, epochs=epochs, lr=optimizer, truth=truth, seed=seed, **given
            )
        generator = torch.Generator().manual_seed(seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            for epoch in range(epochs):
                criterion.set_epoch(epoch)
                if needs.scan:
                    criterion.scan(lambda index: head(inputs[index].to(device)))
                order = torch.randperm(len(rows), generator=generator)
                for step, index in enumerate(torch.split(order, self.batch_size), epoch * steps):
                    for group in optimizer.param_groups:
                        group["lr"] = lr * _share_of_lr(step, epochs * steps)
                    loss = criterion(head(inputs[index].to(device)), index)
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
        weight, bias = head.weight.detach().cpu(), head.bias.detach().cpu()
        if not bool(weight.isfinite().all() and bias.isfinite().all()):
            raise DataError(
                "training diverged: the weights are not finite",
                f"give a smaller {param('lr')} than {lr:g}",
            )
        self._set_weights(weight, bias, mean, scale)
        self.n_iter_ = epochs

    def _set_weights(self, weight: Tensor, bias: Tensor, mean: Tensor, scale: Tensor) -> None:
        """Set ``coef_`` and ``intercept_`` by a layer that sees features less ``mean``, over ``scale``."""
        weight = weight.double() / scale.double()
        self.coef_ = weight.numpy()
        self.intercept_ = (bias.double() - weight @ mean.double().expand(weight.shape[1])).numpy()

    def _expected(self, observed: Labels) -> "float | npt.NDArray[np.float64] | None":
        """The expected positives for the method: one number per class if known and supported, else K."""
        counts, base = self.class_counts_, parse(self.method_).base
        if counts is not None and base in COUNTS_ITSELF and not counts.trusted:
            return None
        if counts is None or base not in PER_CLASS:
            return self.expected_positives_
        positive, negative = ((observed == label).sum(0) for label in (POSITIVE, NEGATIVE))
        share = len(observed) / counts.images
        return within_label_bounds(counts.expected * share, positive, negative, len(observed))

    def _calibrate(self, logits: Features, labels: Labels, annotated: npt.NDArray[np.int64]) -> None:
        """Set slopes, offsets and thresholds."""
        values = np.clip(np.asarray(logits, np.float64), -LIMIT, LIMIT)
        expected = None
        if self.class_counts_ is not None:
            counts = self.class_counts_
            expected = PrevalenceSource("estimated", counts.trusted, shares=counts.expected / counts.images)
        elif self.expected_positives_ is not None:
            expected = PrevalenceSource("given", True, per_image=self.expected_positives_)
        prevalence = estimate_prevalence(values, labels, annotated, expected)
        line = calibrate(values, labels, prevalence.shares, prevalence.annotating)
        self.slope_, self.offset_ = line.slope, line.offset
        self.thresholds_ = f1_thresholds(line(values))


def _labels(given: object, count: int, estimator: str) -> Labels:
    """A copy of the labels (N, L) as int8, checked against the number of rows."""
    if given is None:
        raise DataError(f"{estimator} requires y to be passed, but the target y is None", what="y")
    labels = labels_of(given).copy()
    if len(labels) != count:
        raise DataError(
            f"features have {counted(count, 'row')}, and labels {len(labels):,}", what="y", value=len(labels)
        )
    return labels


def _classes(given: object, count: int) -> npt.NDArray[Any]:
    named = hasattr(given, "columns") or hasattr(given, "classes")
    return np.array(class_names(given, count), dtype=object) if named else np.arange(count)


def _warn_of_empty_classes(labels: Labels, classes: npt.NDArray[Any]) -> None:
    """Warn of classes without a positive label, as preparing data does."""
    never = classes[~(labels == POSITIVE).any(axis=0)]
    if len(never):
        problem = f"{len(never)} of {len(classes)} classes have no positive label in training and cannot be "
        warnings.warn(DataWarning(f"{problem}learned: {listing(never)}", what="y"), stacklevel=3)


def _some(rows: Indices, classes: int, random: np.random.RandomState) -> Indices:
    """At most as many rows as calibration looks at."""
    most = max(FEWEST_HELD_OUT, MOST_HELD_OUT // classes)
    return rows if len(rows) <= most else np.sort(random.permutation(rows)[:most])


def _head(width: int, observed: Labels) -> nn.Linear:
    """A layer whose biases start at the annotated share of each class."""
    # skip_init draws nothing at random.
    head: nn.Linear = nn.utils.skip_init(nn.Linear, width, observed.shape[1])  # type: ignore[no-untyped-call]
    share = ((observed == POSITIVE).sum(0) + 0.5) / (len(observed) + 1.0)
    with torch.no_grad():
        head.weight.zero_()
        head.bias.copy_(torch.from_numpy(np.log(share) - np.log1p(-share)))
    return head


def _share_of_lr(step: int, steps: int) -> float:
    rise = max(1.0, WARM_UP * steps)
    if step < rise:
        return (step + 1) / (rise + 1)
    return (1 + math.cos(math.pi * (step - rise) / max(steps - rise, 1.0))) / 2
