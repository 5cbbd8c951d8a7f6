"""Which classes are in an image beside the annotated one: a mixture over label sets.

Of every image with one annotated class i there is a vector of scores v (L,), from models that never saw the
image; hidden is the set y of its classes, with i among them. The model is

    v = b + ρ_|y| Σ_{j in y} s_j (m_j − b) + noise,   s_j ~ N(1, τ²),   noise ~ N(0, C_i)

m_j is where images of class j alone lie, b the mean of all m. An image of several classes lies between
theirs: averaged features add up, each class's part weakened by ρ. s_j is how strongly a class shows (mostly
its size). C_i is the noise of images annotated i, shrunk to that of all: dogs that look like cats widen it
and so are not taken for images of both. Classes have independent odds, and the annotator takes any class of
the image with the same chance. All is found by expectation and maximization. Confusion and company differ
in where images lie, not only in how unsure the scores are: probabilities alone cannot tell them apart.
"""

import itertools
import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

LARGEST = 4
BLOCK = 2048
NEAREST = 12
"""Sets of three and more are formed of the annotated class and so many others, those with the best scores."""
NOISE_ROWS = 600.0
"""How many rows the shared noise weighs in a class's own."""
IMPOSSIBLE = -30.0
"""Log probability of a set with a class that is known to be absent."""
EMPTY_SET = 0.02
"""Sets that explain fewer observations than this are dropped after the first steps."""


@dataclass
class Observations:
    """Images with one annotated class: scores (M, L), the class (M,), absent ones (M, L), weights (M,)."""

    scores: Tensor
    annotated: Tensor
    absent: Tensor | None
    weight: Tensor


@dataclass
class Parameters:
    """What the mixture learns."""

    means: Tensor
    center: Tensor
    shared: Tensor
    noise: dict[int, Tensor]
    odds: Tensor
    dilution: Tensor
    spread: float
    sets: dict[int, list[Tensor]]


@dataclass
class Beliefs:
    """(M, L) chance of each class, given all observed, and how many images each size of set explains."""

    present: Tensor
    sizes: Tensor


@dataclass
class _Sums:
    """What the maximization needs of all observations, and of those of one class."""

    design: Tensor
    response: Tensor
    strength: Tensor
    members: Tensor
    along: Tensor
    length: Tensor
    sizes: Tensor
    explained: dict[tuple[int, int], Tensor] = field(default_factory=dict)
    of_class: dict[int, tuple[Tensor, Tensor, Tensor]] = field(default_factory=dict)

    @classmethod
    def none(cls, classes: int, kind: torch.dtype) -> "_Sums":
        design = torch.zeros(classes + 1, classes + 1, dtype=kind)
        strength, members, along, length, sizes = torch.zeros(5, LARGEST, dtype=kind)
        response = torch.zeros(classes + 1, classes, dtype=kind)
        return cls(design, response, strength, members, along, length, sizes)


def start(data: Observations) -> Parameters:
    """A first guess: half as many hidden positives as annotated ones, pairs diluted by .7."""
    count, classes = data.scores.shape
    everything = data.scores.mean(0)
    means = everything.repeat(classes, 1)
    noise, sets = {}, {}
    excess = (data.scores - everything) / data.scores.std(0).clamp(min=1e-12)
    for label in sorted({*data.annotated.tolist()}):
        rows = data.annotated == label
        means[label] = data.scores[rows].mean(0)
        apart = data.scores[rows] - means[label]
        noise[label] = apart.T @ apart
        sets[label] = _sets(label, excess[rows].clamp(min=0).mean(0))
    rate = (1.5 * torch.bincount(data.annotated, minlength=classes) / count).clamp(1e-4, 0.9)
    dilution = torch.tensor([1.0, 0.7, 0.57, 0.5][:LARGEST], dtype=means.dtype)
    shared = torch.stack(list(noise.values())).sum(0) / count
    odds = (rate / (1 - rate)).to(means.dtype)
    return Parameters(means, means.mean(0), shared, noise, odds, dilution, 0.4, sets)


def _sets(label: int, promising: Tensor) -> list[Tensor]:
    """Sets with ``label`` first, by size: (sets, size) class numbers."""
    others = [int(other) for other in promising.argsort(descending=True) if other != label]
    found = []
    for size in range(1, LARGEST + 1):
        pool = others if size <= 2 else others[:NEAREST]
        members = [(label, *rest) for rest in itertools.combinations(pool, size - 1)]
        found.append(torch.tensor(members, dtype=torch.long).reshape(-1, size))
    return found


def fit(data: Observations, now: Parameters, steps: int, settle: int = 0) -> Beliefs:
    """Improve the parameters in place, step by step; returns the last beliefs.

    The dilution stays as it is for ``settle`` steps; then sets that explain nothing are dropped.
    """
    beliefs = Beliefs(data.scores, data.weight)
    for step in range(steps):
        sums, beliefs = _expect(data, now)
        _maximize(data, now, sums, beliefs, learn_dilution=step >= settle)
        if step == settle:
            _drop_empty_sets(now, sums)
    return beliefs


def _expect(data: Observations, now: Parameters) -> tuple[_Sums, Beliefs]:
    classes, kind = data.scores.shape[1], data.scores.dtype
    sums = _Sums.none(classes, kind)
    beliefs = Beliefs(torch.zeros_like(data.scores), sums.sizes)
    for label in now.sets:
        rows = torch.nonzero(data.annotated == label)[:, 0]
        for first in range(0, len(rows), BLOCK):
            _expect_block(data, now, label, rows[first : first + BLOCK], sums, beliefs)
    return sums, beliefs


def _expect_block(
    data: Observations, now: Parameters, label: int, rows: Tensor, sums: _Sums, beliefs: Beliefs
) -> None:
    """Add what the rows of one annotated class say."""
    scores, classes = data.scores[rows], data.scores.shape[1]
    count, kind = len(rows), scores.dtype
    own = now.noise[label] + NOISE_ROWS * now.shared
    covariance = own / (data.weight[data.annotated == label].sum() + NOISE_ROWS)
    ridge = 1e-3 * torch.trace(now.shared) / classes
    root = torch.linalg.cholesky(torch.linalg.inv(covariance + ridge * torch.eye(classes, dtype=kind)))
    apart, arms = (scores - now.center) @ root, (now.means - now.center) @ root
    along, inner, far = apart @ arms.T, arms @ arms.T, (apart**2).sum(1, keepdim=True)
    parts = []
    for size, members in enumerate(now.sets[label], 1):
        diluted = float(now.dilution[size - 1])
        gram = diluted**2 * inner[members[:, :, None], members[:, None, :]]
        seen = diluted * along[:, members]
        residual = seen - gram.sum(2)
        eye = torch.eye(size, dtype=kind)
        cover = torch.linalg.inv(eye / now.spread**2 + gram)
        change = torch.einsum("nsk,skj->nsj", residual, cover)
        distance = far - 2 * seen.sum(2) + gram.sum((1, 2)) - (change * residual).sum(2)
        volume = torch.logdet(eye + now.spread**2 * gram)
        prior = _prior(data, now, rows, members)
        parts.append((size, members, diluted, gram, cover, change, seen, prior - (distance + volume) / 2))
    total = torch.logsumexp(torch.cat([part[-1] for part in parts], 1), 1, keepdim=True)
    weight = data.weight[rows, None]
    arm = torch.zeros(count, classes, dtype=kind)
    pairs = torch.zeros(classes * classes, dtype=kind)
    for size, members, diluted, gram, cover, change, seen, chance in parts:
        belief = torch.exp(chance - total)
        mass = weight * belief
        strength = 1 + change
        weighted = mass[:, :, None] * strength
        flat, in_set = members.reshape(-1), mass.sum(0)
        beliefs.present[rows] = beliefs.present[rows].index_add(1, flat, belief.repeat_interleave(size, 1))
        arm.index_add_(1, flat, diluted * weighted.reshape(count, -1))
        second = torch.einsum("nsk,nsj->skj", weighted, strength) + in_set[:, None, None] * cover
        place = (members[:, :, None] * classes + members[:, None, :]).reshape(-1)
        pairs.index_add_(0, place, diluted**2 * second.reshape(-1))
        variance = (in_set[:, None] * torch.diagonal(cover, dim1=1, dim2=2)).sum()
        sums.strength[size - 1] += (mass[:, :, None] * change**2).sum() + variance
        sums.members[size - 1] += size * in_set.sum()
        sums.along[size - 1] += (weighted * seen).sum() / diluted
        sums.length[size - 1] += (second * gram).sum() / diluted**2
        sums.sizes[size - 1] += in_set.sum()
        sums.explained[label, size] = sums.explained.get((label, size), 0) + in_set
    _add_regression(sums, label, scores, weight, arm, pairs.view(classes, classes))


def _prior(data: Observations, now: Parameters, rows: Tensor, members: Tensor) -> Tensor:
    """(n, sets) Log probability of a set, and of the choice of the annotated class out of it."""
    prior = torch.log(now.odds)[members].sum(1) - math.log(members.shape[1])
    if data.absent is None:
        return prior
    return prior + data.absent[rows][:, members[:, 1:]].sum(2) * IMPOSSIBLE


def _add_regression(
    sums: _Sums, label: int, scores: Tensor, weight: Tensor, arm: Tensor, pairs: Tensor
) -> None:
    """Sums of the regression of scores on the expected strengths, the last column for the center."""
    classes = scores.shape[1]
    rest = weight[:, 0] - arm.sum(1)
    design = torch.zeros(classes + 1, classes + 1, dtype=scores.dtype)
    design[:classes, :classes] = pairs
    design[classes, :classes] = design[:classes, classes] = arm.sum(0) - pairs.sum(1)
    design[classes, classes] = weight.sum() - 2 * arm.sum() + pairs.sum()
    response = torch.cat([arm, rest[:, None]], 1).T @ scores
    square = (weight * scores).T @ scores
    sums.design += design
    sums.response += response
    if label in sums.of_class:
        before = sums.of_class[label]
        sums.of_class[label] = (before[0] + design, before[1] + response, before[2] + square)
    else:
        sums.of_class[label] = (design, response, square)


def _maximize(
    data: Observations, now: Parameters, sums: _Sums, beliefs: Beliefs, learn_dilution: bool
) -> None:
    count, classes = data.weight.sum(), data.scores.shape[1]
    eye = torch.eye(classes, dtype=data.scores.dtype)
    # The center is the mean of the means.
    tie = torch.cat([eye, torch.full((1, classes), 1 / classes, dtype=eye.dtype)])
    design = tie.T @ sums.design @ tie
    slack = 1e-6 * torch.trace(design) / classes
    both = tie @ torch.linalg.solve(design + slack * eye, tie.T @ sums.response)
    now.means, now.center = both[:classes], both[classes]
    for label, (inside, response, square) in sums.of_class.items():
        now.noise[label] = square - response.T @ both - both.T @ response + both.T @ inside @ both
    now.shared = torch.stack(list(now.noise.values())).sum(0) / count
    now.spread = float(torch.sqrt(sums.strength.sum() / sums.members.sum()))
    if learn_dilution:
        for size in range(2, LARGEST + 1):
            if sums.sizes[size - 1] > 1:
                now.dilution[size - 1] = (sums.along[size - 1] / sums.length[size - 1]).clamp(1 / size, 1)
    _learn_odds(data, now, beliefs)


def _learn_odds(data: Observations, now: Parameters, beliefs: Beliefs) -> None:
    share = (beliefs.present * data.weight[:, None]).sum(0) / data.weight.sum()
    for _ in range(5):  # an image with no class at all is never annotated
        nothing = torch.exp(-torch.log1p(now.odds).sum())
        rate = (share * (1 - nothing)).clamp(1e-5, 0.97)
        now.odds = rate / (1 - rate)


def _drop_empty_sets(now: Parameters, sums: _Sums) -> None:
    for label, by_size in now.sets.items():
        now.sets[label] = [
            members if size <= 2 else members[sums.explained[label, size] > EMPTY_SET]
            for size, members in enumerate(by_size, 1)
        ]
