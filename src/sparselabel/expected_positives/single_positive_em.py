"""Single-positive labels: the classes beside the annotated one, by a mixture over label sets, fitted by EM.

Every image with one annotated class i has a vector of scores v (L,), from models that never saw the image;
hidden is the set y of its classes, with i among them. The model is

    v = b + ρ_|y| Σ_{j in y} s_j (m_j − b) + noise,   s_j ~ N(1, τ²),   noise ~ N(0, C_i)

m_j is the mean of images of class j alone, b the mean of all m. An image of several classes lies between
their means: averaged features add up, each class's part diluted by ρ. s_j is how strongly a class shows
(mostly its size). C_i is the noise covariance of images annotated i, shrunk to that of all: dogs that look
like cats widen it and so are not taken for images of both. Classes have independent odds, and the annotator
takes any class of the image with the same chance. Confused classes and classes that occur together differ in
where images lie, not only in how unsure the scores are: probabilities alone cannot tell them apart.
"""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

LARGEST_SET = 4
BLOCK = 2048
NEAREST = 12
"""Sets of three and more are formed of the annotated class and so many others, those with the best scores."""
NOISE_ROWS = 600.0
"""Rows that the shared noise weighs beside a class's own."""
IMPOSSIBLE = -30.0
"""Log probability of a set with a class that is known to be absent."""
EMPTY_SET = 0.02
"""Sets that explain fewer observations than this are dropped after the first steps."""


@dataclass
class Observations:
    """Images with one annotated class: scores (M, L), it (M,), known negatives (M, L), weights (M,)."""

    scores: Tensor
    annotated: Tensor
    absent: Tensor | None
    weight: Tensor


@dataclass
class Parameters:
    """What the mixture learns: m, b, C (of all, and by class), odds, ρ by set size, τ, and the sets."""

    means: Tensor
    center: Tensor
    shared: Tensor
    noise: dict[int, Tensor]
    odds: Tensor
    dilution: Tensor
    spread: float
    sets: dict[int, list[Tensor]]


@dataclass
class Posterior:
    """(M, L) probability of each class given the scores, and how many images each size of set explains."""

    present: Tensor
    sizes: Tensor


@dataclass
class _Statistics:
    """What the M step needs: sums over all observations, and over those of one class."""

    design: Tensor
    response: Tensor
    strength: Tensor
    members: Tensor
    along: Tensor
    length: Tensor
    sizes: Tensor
    explained: dict[tuple[int, int], Tensor] = field(default_factory=dict)
    of_class: dict[int, list[tuple[Tensor, Tensor, Tensor, Tensor]]] = field(default_factory=dict)

    @classmethod
    def none(cls, classes: int, kind: torch.dtype) -> "_Statistics":
        design = torch.zeros(classes + 1, classes + 1, dtype=kind)
        strength, members, along, length, sizes = torch.zeros(5, LARGEST_SET, dtype=kind)
        response = torch.zeros(classes + 1, classes, dtype=kind)
        return cls(design, response, strength, members, along, length, sizes)


def initial_parameters(data: Observations) -> Parameters:
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
    dilution = torch.tensor([1.0, 0.7, 0.57, 0.5][:LARGEST_SET], dtype=means.dtype)
    shared = torch.stack(list(noise.values())).sum(0) / count
    odds = (rate / (1 - rate)).to(means.dtype)
    return Parameters(means, means.mean(0), shared, noise, odds, dilution, 0.4, sets)


def _sets(label: int, promising: Tensor) -> list[Tensor]:
    """Sets with ``label`` first, by size: (sets, size) class numbers."""
    others = [int(other) for other in promising.argsort(descending=True) if other != label]
    found = []
    for size in range(1, LARGEST_SET + 1):
        pool = others if size <= 2 else others[:NEAREST]
        members = [(label, *rest) for rest in itertools.combinations(pool, size - 1)]
        found.append(torch.tensor(members, dtype=torch.long).reshape(-1, size))
    return found


def fit(
    data: Observations,
    parameters: Parameters,
    steps: int,
    settle: int = 0,
    report: Callable[[int], None] | None = None,
) -> Posterior:
    """EM: improve the parameters in place, step by step; returns the last posterior.

    The dilution stays as it is for ``settle`` steps; then sets that explain nothing are dropped. ``report``
    is told of every step.
    """
    posterior = Posterior(data.scores, data.weight)
    for step in range(steps):
        statistics, posterior = _e_step(data, parameters)
        _m_step(data, parameters, statistics, posterior, learn_dilution=step >= settle)
        if step == settle:
            _drop_empty_sets(parameters, statistics)
        if report is not None:
            report(1)
    return posterior


def _e_step(data: Observations, parameters: Parameters) -> tuple[_Statistics, Posterior]:
    classes, kind = data.scores.shape[1], data.scores.dtype
    statistics = _Statistics.none(classes, kind)
    posterior = Posterior(torch.zeros_like(data.scores), statistics.sizes)
    for label in parameters.sets:
        rows = torch.nonzero(data.annotated == label)[:, 0]
        for first in range(0, len(rows), BLOCK):
            _e_step_block(data, parameters, label, rows[first : first + BLOCK], statistics, posterior)
    return statistics, posterior


def _e_step_block(
    data: Observations,
    parameters: Parameters,
    label: int,
    rows: Tensor,
    statistics: _Statistics,
    posterior: Posterior,
) -> None:
    """Add the rows of one annotated class to the statistics and the posterior."""
    scores, classes = data.scores[rows], data.scores.shape[1]
    count, kind = len(rows), scores.dtype
    own = parameters.noise[label] + NOISE_ROWS * parameters.shared
    covariance = own / (data.weight[data.annotated == label].sum() + NOISE_ROWS)
    ridge = 1e-3 * torch.trace(parameters.shared) / classes
    root = torch.linalg.cholesky(covariance + ridge * torch.eye(classes, dtype=kind))
    both = torch.cat([scores, parameters.means]) - parameters.center
    whitened = torch.linalg.solve_triangular(root, both.T, upper=False).T
    apart, arms = whitened[:count], whitened[count:]
    along, far = apart @ arms.T, (apart**2).sum(1, keepdim=True)
    parts = []
    for size, members in enumerate(parameters.sets[label], 1):
        diluted = float(parameters.dilution[size - 1])
        of_set = arms[members]  # products of the few classes of a set, not of all
        gram = diluted**2 * of_set @ of_set.mT
        seen = diluted * along[:, members]
        residual = seen - gram.sum(2)
        eye = torch.eye(size, dtype=kind)
        cover = torch.linalg.inv(eye / parameters.spread**2 + gram)
        change = torch.einsum("nsk,skj->nsj", residual, cover)
        distance = far - 2 * seen.sum(2) + gram.sum((1, 2)) - (change * residual).sum(2)
        volume = torch.logdet(eye + parameters.spread**2 * gram)
        prior = _prior(data, parameters, rows, members)
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
        posterior.present[rows] = posterior.present[rows].index_add(
            1, flat, belief.repeat_interleave(size, 1)
        )
        arm.index_add_(1, flat, diluted * weighted.reshape(count, -1))
        second = torch.einsum("nsk,nsj->skj", weighted, strength) + in_set[:, None, None] * cover
        place = (members[:, :, None] * classes + members[:, None, :]).reshape(-1)
        pairs.index_add_(0, place, diluted**2 * second.reshape(-1))
        variance = (in_set[:, None] * torch.diagonal(cover, dim1=1, dim2=2)).sum()
        statistics.strength[size - 1] += (mass[:, :, None] * change**2).sum() + variance
        statistics.members[size - 1] += size * in_set.sum()
        statistics.along[size - 1] += (weighted * seen).sum() / diluted
        statistics.length[size - 1] += (second * gram).sum() / diluted**2
        statistics.sizes[size - 1] += in_set.sum()
        statistics.explained[label, size] = statistics.explained.get((label, size), 0) + in_set
    _add_regression(statistics, label, scores, weight, arm, pairs.view(classes, classes))


def _prior(data: Observations, parameters: Parameters, rows: Tensor, members: Tensor) -> Tensor:
    """(n, sets) Log probability of a set, and of the choice of the annotated class out of it."""
    prior = torch.log(parameters.odds)[members].sum(1) - math.log(members.shape[1])
    if data.absent is None:
        return prior
    return prior + data.absent[rows][:, members[:, 1:]].sum(2) * IMPOSSIBLE


def _add_regression(
    statistics: _Statistics, label: int, scores: Tensor, weight: Tensor, arm: Tensor, pairs: Tensor
) -> None:
    """Sums of the regression of scores on the expected strengths, the last column for the center."""
    classes = scores.shape[1]
    rest = weight[:, 0] - arm.sum(1)
    design = torch.zeros(classes + 1, classes + 1, dtype=scores.dtype)
    design[:classes, :classes] = pairs
    design[classes, :classes] = design[:classes, classes] = arm.sum(0) - pairs.sum(1)
    design[classes, classes] = weight.sum() - 2 * arm.sum() + pairs.sum()
    strengths = torch.cat([arm, rest[:, None]], 1)
    statistics.design += design
    statistics.response += strengths.T @ scores
    statistics.of_class.setdefault(label, []).append((design, strengths, scores, weight))


def _m_step(
    data: Observations,
    parameters: Parameters,
    statistics: _Statistics,
    posterior: Posterior,
    learn_dilution: bool,
) -> None:
    count, classes = data.weight.sum(), data.scores.shape[1]
    eye = torch.eye(classes, dtype=data.scores.dtype)
    # The center is the mean of the means.
    tie = torch.cat([eye, torch.full((1, classes), 1 / classes, dtype=eye.dtype)])
    design = tie.T @ statistics.design @ tie
    slack = 1e-6 * torch.trace(design) / classes
    both = tie @ torch.linalg.solve(design + slack * eye, tie.T @ statistics.response)
    parameters.means, parameters.center = both[:classes], both[classes]
    for label, blocks in statistics.of_class.items():
        noise = both.T @ sum(design for design, _, _, _ in blocks) @ both
        for _, strengths, scores, weight in blocks:  # few rows: cheaper than products of whole matrices
            cross = scores.T @ (strengths @ both)
            noise += (weight * scores).T @ scores - cross - cross.T
        parameters.noise[label] = noise
    parameters.shared = torch.stack(list(parameters.noise.values())).sum(0) / count
    parameters.spread = float(torch.sqrt(statistics.strength.sum() / statistics.members.sum()))
    if learn_dilution:
        for size in range(2, LARGEST_SET + 1):
            if statistics.sizes[size - 1] > 1:
                parameters.dilution[size - 1] = (
                    statistics.along[size - 1] / statistics.length[size - 1]
                ).clamp(1 / size, 1)
    _learn_odds(data, parameters, posterior)


def _learn_odds(data: Observations, parameters: Parameters, posterior: Posterior) -> None:
    share = (posterior.present * data.weight[:, None]).sum(0) / data.weight.sum()
    for _ in range(5):  # an image with no class at all is never annotated
        nothing = torch.exp(-torch.log1p(parameters.odds).sum())
        rate = (share * (1 - nothing)).clamp(1e-5, 0.97)
        parameters.odds = rate / (1 - rate)


def _drop_empty_sets(parameters: Parameters, statistics: _Statistics) -> None:
    for label, by_size in parameters.sets.items():
        parameters.sets[label] = [
            members if size <= 2 else members[statistics.explained[label, size] > EMPTY_SET]
            for size, members in enumerate(by_size, 1)
        ]
