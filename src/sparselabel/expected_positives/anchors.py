"""How many positives have no label, read at the images that most surely show a class: its anchors.

Let c_j be the chance that an image of class j is annotated j. Then class j is in annotated_j / c_j images.
With one label per image, any of its classes as likely, c_j = E[1 / |y| | j in y]: the propensity 1 / |y| of
single positives is part of c_j and needs no correction of its own.

c_j is seen where class j is certain. Among the images that cross-fitted scores rank highest for j, the share
that is annotated j is c_j, as Elkan & Noto 2008 (their e3) and the best-bin estimator of Garg et al. 2021
have it. What differs:

- One number for all classes: the mean of the classes' shares, weighted by their labels. Few classes have
  enough labels for a share of their own, and single shares err both ways.
- Two errors remain, and oppose each other. Anchors show fewer classes than other images, which makes the
  share high and K low; features that do not tell classes apart make it low and K high. How far they cancel
  was measured on label sets whose K is known (``benchmarks/expected_suite.py``, fitted on one half):
  K / m − 1 = factor · (1 / share − 1)^power for m labels per image, where 1 and 1 would be a perfect model
  (``Link``).
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

ANCHORS = 0.4
"""Share of a class's annotated images down to which its ranking is read."""
FEWEST_ANCHORS = 5


@dataclass(frozen=True)
class Link:
    """From the labeled share of anchors to positives without a label, and how far off that was.

    Errors are ranges of log(true / said) on the fitted half of the suite: over all annotators, for single
    classes, and for labels that were chosen at random.
    """

    factor: float
    power: float
    chosen: tuple[float, float]
    of_class: tuple[float, float]
    at_random: tuple[float, float] | None = None

    def hidden(self, share: float) -> float:
        """Positives without a label, per labeled one."""
        return float(self.factor * max(1 / share - 1, 0.01) ** self.power)

    def interval(self, chance: float, error: tuple[float, float]) -> tuple[float, float]:
        """Ends of the 95 % interval of log(true / said): an error of the form, and chance."""
        return -math.hypot(error[0], chance), math.hypot(error[1], chance)


SINGLE = Link(1.45, 0.60, chosen=(-1.11, 0.93), of_class=(-2.9, 1.6), at_random=(-1.11, 0.04))
"""One label per image."""
SEVERAL = Link(0.89, 0.54, chosen=(-0.89, 0.55), of_class=(-4.0, 1.6))
"""Some images have several labels, and (nearly) none has none."""


class Anchors:
    """Scores (N, L) sorted once, to be read with different weights of the images."""

    def __init__(self, scores: npt.NDArray[np.floating], positives: npt.NDArray[np.bool_]) -> None:
        self.order = np.argsort(-scores, axis=0, kind="stable")
        self.positives = np.take_along_axis(positives, self.order, axis=0)

    def labeled_share(self, weight: Floats, anchors: float = ANCHORS) -> float:
        """Mean over the annotated labels of the share of their class's anchors that is annotated with it."""
        weights = weight[self.order]
        above = np.cumsum(weights, axis=0)
        annotated = np.cumsum(weights * self.positives, axis=0)
        total = annotated[-1]
        wanted = np.maximum(anchors * total, np.minimum(FEWEST_ANCHORS, total))
        last = (annotated >= wanted - 1e-9).argmax(axis=0), np.arange(len(total))
        share = annotated[last] / np.maximum(above[last], 1e-12)
        return float((share * total).sum() / total.sum())
