"""The budget of a plan: hours for the real images, seconds for the sample, and checks of both."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sparselabel.data.annotation_budget import KINDS, Kind, Prices, share_of_all
from sparselabel.data.dataset import Dataset
from sparselabel.errors import ConfigError, DataError, command, counted, listing, param
from sparselabel.file_formats import read_json
from sparselabel.files import write_json
from sparselabel.schema import Finite

FRACTIONS = (0.125, 0.25, 0.5, 1.0)
HOUR = 3600.0
BOXED = ("SB", "AB")


@dataclass(frozen=True)
class Budget:
    """Hours of annotation for ``images``, tried on a sample with as many seconds per image.

    ``sample`` is how many images are trained on, ``classes`` how many questions each has. ``complete`` is
    what it costs to have everything of a kind, as a share of what all answers cost.
    """

    hours: float
    images: int
    sample: int
    classes: int
    prices: Prices
    fractions: tuple[float, ...] = FRACTIONS
    complete: Mapping[Kind, float] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """The seconds for the sample."""
        return self.hours * HOUR * self.sample / self.images

    @property
    def seconds_per_image(self) -> float:
        """The seconds per image, the same in the sample and in the whole data."""
        return self.hours * HOUR / self.images

    @property
    def everything(self) -> float:
        """Hours that it takes to answer every question about all images, without points and boxes."""
        return self.images * self.classes * self.prices.answer / HOUR

    def share(self, fraction: float) -> float:
        """A fraction of the budget as a share of what all answers cost."""
        return fraction * self.hours / self.everything

    def spent(self, fraction: float, kind: Kind) -> float:
        """The seconds spent on a kind, at most the cost of annotating everything."""
        return min(self.share(fraction), self.complete.get(kind, math.inf))

    def hours_of_all(self, kind: Kind) -> float:
        """Hours for everything of a kind."""
        return self.complete[kind] * self.everything


def budget_of(
    data: Dataset,
    hours: float,
    images: int | None,
    prices: Prices,
    fractions: Sequence[float],
    kinds: Sequence[Kind] = KINDS,
) -> Budget:
    """The budget of a sample; refuses one that buys nothing, or more than there is of any kind."""
    sample, classes = len(data.train), len(data.classes)
    if not 0 < hours < math.inf:
        problem = f"{param('budget')} is hours of annotation above 0, not {hours:g}"
        raise ConfigError(problem, f"give hours, such as {param('budget', 10)}", what="budget")
    if images is not None and images < sample:
        raise ConfigError(
            f"{param('images', f'{images:,}')} are fewer than the {sample:,} training images of "
            f"{data.folder}, which are a sample of them",
            "give the size of the whole data",
            f"leave {param('images')} out",
            what="images",
            allowed=sample,
        )
    _refuse_fractions(fractions)
    train = data.train
    complete = {kind: share_of_all(train.truth.values, train.spatial_labels, kind, prices) for kind in kinds}
    budget = Budget(hours, images or sample, sample, classes, prices, tuple(sorted(fractions)), complete)
    dearest = max(kinds, key=lambda kind: complete[kind])
    most = budget.hours_of_all(dearest)
    if hours > most * (1 + 1e-9):
        raise ConfigError(
            f"{param('budget', f'{hours:g}')} hours are more than everything: {most:.4g} hours answer every "
            f"question about {counted(budget.images, 'image')} with annotation {dearest}, the dearest "
            f"({classes} classes, {prices.answer:g} s an answer, {prices.point:g} s a point, "
            f"{prices.box:g} s a box)",
            f"give at most {param('budget', f'{_below(most):g}')}",
            f"more {param('images')}",
            what="budget",
            allowed=_below(most),
        )
    least = budget.fractions[0]
    if budget.seconds * least < prices.answer:
        needed = prices.answer / (budget.seconds * least) * hours
        raise ConfigError(
            f"{param('budget', f'{hours:g}')} hours are too few: {least:g} of it are "
            f"{budget.seconds * least:.3g} s for the sample of {counted(sample, 'image')}, less than an "
            f"answer ({prices.answer:g} s)",
            f"give at least {param('budget', f'{_above(needed):g}')}; a useful one is much more",
            what="budget",
            allowed=_above(needed),
        )
    return budget


def _below(value: float) -> float:
    return math.floor(value * 1e4) / 1e4


def _above(value: float) -> float:
    return math.ceil(value * 1e4) / 1e4


def _refuse_fractions(fractions: Sequence[float]) -> None:
    wrong = [value for value in fractions if not 0 < value <= 1]
    if wrong:
        values = listing(f"{value:g}" for value in wrong)
        problem = f"{param('fractions')} are shares of the budget in (0, 1], not {values}"
        raise ConfigError(problem, what="fractions")
    if len({*fractions}) < len(fractions):
        raise ConfigError(
            f"{param('fractions')} names one more than once", "name each once", what="fractions"
        )
    if 1 not in fractions:
        raise ConfigError(f"{param('fractions')} must have 1, the budget itself", "add it", what="fractions")


def refuse_data(data: Dataset, kinds: Sequence[Kind]) -> str:
    """Raise if annotation cannot be simulated on the data; returns the split that measures candidates."""
    if not kinds or len({*kinds}) < len(kinds):
        raise ConfigError(f"{param('kinds')} must name some of {', '.join(KINDS)}, each once")
    measured = next((name for name in ("test", "val") if name in data.splits), None)
    if measured is None:
        raise DataError(
            f"{data.folder} has neither a test nor a validation split, so nothing would be measured",
            f"prepare it with one of validation ({command('prepare', validation=0.2)})",
            "with a test split",
        )
    for prepared_split in (data.train, data.split(measured)):
        table = prepared_split.truth if prepared_split is data.train else prepared_split.observed
        hidden = table.matrix.size - table.known
        if hidden:
            raise DataError(
                f"{data.folder}, split {prepared_split.name!r}: {hidden:,} of {table.matrix.size:,} labels "
                "are unknown, and annotation is simulated on a sample in which every label is known",
                "take one that is fully labeled (a small one will do)",
            )
    spatial_labels = data.train.spatial_labels
    boxes = int((~spatial_labels.is_point).sum())
    for kind in kinds:
        wanted = boxes if kind in BOXED else len(spatial_labels)
        if kind != "I" and not wanted:
            points = len(spatial_labels) > 0
            others = [other for other in kinds if other == "I" or (points and other not in BOXED)]
            fewer = [f"give {param('kinds', ' '.join(others))}"] if len(others) > 1 else []
            raise DataError(
                f"kind {kind} needs {'boxes' if kind in BOXED else 'points or boxes'}, and {data.folder} has "
                "none in training",
                "prepare data that says where things are (voc, coco, scenes, a table with x, y, w, h)",
                *fewer,
            )
    return measured


def validation_of(data: Dataset) -> tuple[int, int]:
    """Images and known labels of validation, which no budget of a plan pays for; 0 where there is none."""
    if "val" not in data.splits:
        return 0, 0
    prepared_split = data.split("val")
    return len(prepared_split), prepared_split.observed.known


def refuse_other_budget(budget: Budget, out: Path) -> None:
    """Raise if runs that are there were bought with another budget or at other prices."""
    file = out / "plan.json"
    if not file.is_file() or not any((out / "runs").glob("*")):
        return
    before, now = read_json(file, dict[str, Finite]), _bought_with(budget)
    differ = [
        f"{param(name, f'{before[name]:g}' if name in before else None)}, not {now[name]:g}"
        for name in now
        if before.get(name) != now[name]
    ]
    if differ:
        raise ConfigError(
            f"the runs in {out} were bought with {'; '.join(differ)}",
            "give what they were begun with, to go on with them",
            f"choose another {param('out')}",
        )


def keep_budget(budget: Budget, out: Path) -> None:
    """Write plan.json, before the first run."""
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / "plan.json", _bought_with(budget))


def _bought_with(budget: Budget) -> dict[str, Any]:
    """What decides what every fraction buys, by the names of the flags."""
    prices = {f"{name}-seconds": getattr(budget.prices, name) for name in ("answer", "point", "box")}
    return {"budget": budget.hours, "images": budget.images} | prices
