"""Settings for preparing data."""

import math
from dataclasses import dataclass
from typing import Literal

from sparselabel.errors import ConfigError, param

ALL = -1
PAPER_SEED = 1200  # of the labels and the split that the single-positive papers share
SUBSET_SEED = 999  # of Cole 2021 figure 1's smaller training sets

Kind = Literal["none", "single-positive", "per-image", "positive-share", "uniform", "per-class", "budget"]
Preferred = Literal["any", "larger", "frequent"]
Annotation = Literal["I", "SP", "SB", "AP", "AB"]
Cost = Literal["flat", "flat-objects365", "per-positive"]

USED_BY: dict[str, tuple[float | str | None, tuple[Kind, ...]]] = {
    "positives": (1, ("per-image", "per-class")),
    "negatives": (0, ("per-image", "per-class")),
    "share": (0.5, ("positive-share", "uniform")),
    "annotate": ("I", ("budget",)),
    "budget": (None, ("budget",)),
    "answers": (None, ("budget",)),
    "cost": ("flat", ("budget",)),
}
"""Settings that only some kinds use: their defaults, and those kinds. Others would ignore them silently."""


@dataclass(frozen=True)
class Sparsify:
    """Which labels to hide, to simulate sparse annotation on fully labeled data.

    Parameters
    ----------
    sparsify
        none: hide nothing.
        single-positive: keep one positive per image, by default a random one (the setting of the papers).
        per-image: keep `positives` and `negatives` per image.
        positive-share: keep each positive with probability `share`, and no negatives.
        uniform: keep each label, positive or negative, with probability `share`.
        per-class: keep `positives` and `negatives` per class.
        budget: ask whether a random class is on a random image until `budget` is spent (PatchML).
    positives
        Positives kept by per-image and per-class (-1: all).
    negatives
        Negatives kept by per-image and per-class (-1: all).
    share
        Share kept by positive-share and uniform.
    label_seed
        Random seed of the choice; the default gives the published labels.
    prefer
        Which positive single-positive keeps, as an annotator with a preference would.
        any: a random one.
        larger: the class with the largest box in the image; a class without a box has size 0.
        frequent: the class that most training images have.
    annotate
        What a budget buys besides the answer yes.
        I: nothing. SP, SB: a point on, or a box around, one object of the class. AP, AB: a point on, or a
        box around, each of them.
    budget
        Budget as a share of the cost of asking for every class on every training image: 0.02 is 2 %.
        Points or boxes of everything cost more than 1.
    answers
        Number of questions to ask, whatever they cost; instead of `budget`.
    cost
        flat: every question takes 1 s, with SP 1.06 s, with SB 1.26 s (PatchML's values for COCO).
        flat-objects365: the same with PatchML's values for Objects365, 1.02 s and 1.08 s.
        per-positive: 1 s per question, 1.4 s per point, 6 s per box.
        AP and AB always pay for each point and box.
    """

    sparsify: Kind = "none"
    positives: int = 1
    negatives: int = 0
    share: float = 0.5
    label_seed: int = PAPER_SEED
    prefer: Preferred = "any"
    annotate: Annotation = "I"
    budget: float | None = None
    answers: int | None = None
    cost: Cost = "flat"

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise ConfigError(f"{param('share')} must be in (0, 1], not {self.share}")
        if not 0 <= self.label_seed < 2**32:
            raise ConfigError(
                f"{param('label_seed')} must be 0 or more and less than 2^32, not {self.label_seed}"
            )
        for name in ("positives", "negatives"):
            if (count := getattr(self, name)) < ALL:
                raise ConfigError(f"{param(name)} must be a count, or -1 for all, not {count}")
        for name, (default, kinds) in USED_BY.items():
            if getattr(self, name) != default and self.sparsify not in kinds:
                raise ConfigError(
                    f"{param(name, getattr(self, name))} is for {' and '.join(kinds)}, not for "
                    f"{param('sparsify', self.sparsify)}",
                    f"give {' or '.join(param('sparsify', kind) for kind in kinds)}",
                    f"leave {param(name)} out",
                )
        if self.prefer != "any" and self.sparsify != "single-positive":
            raise ConfigError(
                f"{param('prefer', self.prefer)} is for single positives, not for "
                f"{param('sparsify', self.sparsify)}",
                f"give {param('sparsify', 'single-positive')}",
                f"leave {param('prefer')} out",
            )
        if self.sparsify == "budget":
            self._check_budget()

    def _check_budget(self) -> None:
        if (self.budget is None) == (self.answers is None):
            both = "not both" if self.budget is not None else "and neither is given"
            raise ConfigError(
                f"{param('sparsify', 'budget')} needs its size, as {param('budget', 0.02)} (a share) or "
                f"{param('answers', 1000)}, {both}"
            )
        # Points or boxes of everything cost more than 1: how much more only the data knows.
        most, rule = (1.0, "in (0, 1]") if self.annotate == "I" else (math.inf, "above 0")
        if self.budget is not None and not 0 < self.budget <= most:
            raise ConfigError(
                f"{param('budget')} must be a share {rule}, where 1 is to ask for every class on every "
                f"image, not {self.budget}",
                f"2 % is {param('budget', 0.02)}",
            )
        if self.answers is not None and self.answers < 1:
            raise ConfigError(f"{param('answers')} must be 1 or more, not {self.answers}")


@dataclass(frozen=True)
class Preparation(Sparsify):
    """How to prepare data: which labels to hide (see Sparsify), and which images to validate on.

    Parameters
    ----------
    validation
        Share of the training images held out for validation if the data has no validation split. Your own
        labels are stratified by class; on published data, and where labels are hidden (`sparsify`), the
        papers' random images are taken.
    validation_labels
        full: validation sees all known labels; observed: it is as sparse as training.
    keep_train
        Share of the training images to keep, chosen at random after validation is held out.
    keep_validation
        Share of the validation images to keep.
    keep_test
        Share of the test images to keep.
    skip_broken
        Leave out images that cannot be decoded, instead of stopping.
    scores
        File with another model's scores of images and classes (CSV, Parquet or .npz). They set unknown
        training labels; observed labels and other splits stay as they are.
    score_positive
        An unknown label with a score of at least this becomes positive.
    score_negative
        An unknown label with a score of at most this becomes negative.
    """

    validation: float = 0.2
    validation_labels: Literal["full", "observed"] = "full"
    keep_train: float = 1.0
    keep_validation: float = 1.0
    keep_test: float = 1.0
    skip_broken: bool = False
    scores: str | None = None
    score_positive: float | None = None
    score_negative: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.validation < 1:
            raise ConfigError(f"{param('validation')} must be a share in [0, 1), not {self.validation}")
        for name in ("keep_train", "keep_validation", "keep_test"):
            if not 0 < (share := getattr(self, name)) <= 1:
                raise ConfigError(f"{param(name)} must be a share in (0, 1], not {share}")
        self._check_scores()

    def _check_scores(self) -> None:
        high, low = self.score_positive, self.score_negative
        if self.scores is None and (high is not None or low is not None):
            raise ConfigError(
                f"{param('score_positive')} and {param('score_negative')} are thresholds of scores",
                f"give the file of the scores as {param('scores')}",
            )
        if self.scores is not None and high is None and low is None:
            raise ConfigError(
                f"{param('scores', self.scores)} needs a threshold",
                f"give {param('score_positive')}, {param('score_negative')} or both",
            )
        if high is not None and low is not None and not low < high:
            raise ConfigError(
                f"{param('score_negative')} must be below {param('score_positive')}, not {low} and {high}"
            )
