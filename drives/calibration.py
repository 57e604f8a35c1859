"""N rollouts against what happened: the best of k, their spread, and whether it is honest.

Every minimum is an oracle, chosen with the truth in hand. minADE-k chooses by ADE, minFDE-k by FDE
at the same horizon; the ADE of the rollout with the least FDE (Argoverse's minADE) has a name of
its own. Figures for k of N are expectations over all choices of k rollouts, so that they depend
neither on the order of the rollouts nor on luck.

Missing data: NaN rollouts (unusable ones) are left out; with fewer than k left a figure for k is
NaN, and a NaN truth makes everything NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from drives.metrics import ade, distances, fde

Floats = NDArray[np.float64]

MISS = 2.0  # m of final displacement; more is a miss (Argoverse 2, at its last step)
LEVELS = (0.5, 0.8, 0.9)  # central shares that calibration is read at


def min_of_k(values: Floats, k: int) -> float:
    """Expected minimum of k of N values [N], drawn without replacement; NaN values are left out.

    sum_i C(N-1-i, k-1) / C(N, k) * (i-th smallest): k = N gives the minimum, k = 1 the mean.

    Returns:
        NaN with fewer than k values.

    Raises:
        ValueError: k below 1.
    """
    if k < 1:
        raise ValueError(f"k is {k}, expected at least 1")
    known = np.sort(values[np.isfinite(values)])
    n = len(known)
    if n < k:
        return float("nan")
    weight, total = k / n, 0.0  # C(N-1, k-1) / C(N, k)
    for i, value in enumerate(known[: n - k + 1]):
        total += weight * float(value)
        weight *= (n - k - i) / max(n - 1 - i, 1)
    return total


@dataclass(frozen=True)
class BestOf:
    """The best of k rollouts of one frame at one horizon; see the names.

    Attributes:
        min_ade, min_fde: m, each chosen by itself.
        miss_rate: probability that all of the k end over 2 m away.
    """

    min_ade: float
    min_fde: float
    miss_rate: float


def best_of(rollouts: Floats, truth: Floats, k: int, horizon: float, miss: float = MISS) -> BestOf:
    """minADE-k, minFDE-k and miss rate of [N, 20, 2] rollouts against [20, 2], m."""
    distance = distances(rollouts, truth)
    ends = fde(distance, horizon)
    missed = np.where(np.isfinite(ends), ends > miss, np.nan)
    return BestOf(
        min_ade=min_of_k(ade(distance, horizon), k),
        min_fde=min_of_k(ends, k),
        miss_rate=min_of_k(missed, k),
    )


@dataclass(frozen=True)
class Brier:
    """Figures of weighted rollouts that also ask for a good weight of the best (Argoverse 2).

    Attributes:
        brier_min_fde: m, minFDE + (1 - p)² of the rollout with the least FDE.
        brier_min_ade: m, minADE + (1 - p)² of the rollout with the least ADE.
        ade_of_min_fde: m, ADE of the rollout with the least FDE: what Argoverse calls minADE.
    """

    brier_min_fde: float
    brier_min_ade: float
    ade_of_min_fde: float


def brier(
    rollouts: Floats, truth: Floats, horizon: float, probabilities: ArrayLike | None = None
) -> Brier:
    """Brier figures of all N rollouts.

    Args:
        rollouts: [N, 20, 2] m.
        truth: [20, 2] m.
        probabilities: [N] of the rollouts, at least 0, scaled to sum to 1 over all of them:
            what an unusable one was given is lost. None: samples, all alike, so (1 - 1/N)² is
            added, however many are usable.

    Raises:
        ValueError: probabilities that are negative, don't fit, or are all 0.
    """
    usable = np.isfinite(rollouts).all(axis=(1, 2))
    given = np.ones(len(rollouts)) if probabilities is None else np.asarray(probabilities, float)
    if given.shape != (len(rollouts),) or not (given >= 0).all():
        raise ValueError(f"expected {len(rollouts)} probabilities of at least 0, found {given}")
    if not usable.any() or not np.isfinite(truth).all():
        return Brier(float("nan"), float("nan"), float("nan"))
    if not given.sum() > 0:
        raise ValueError("the rollouts' probabilities sum to 0")
    weights = given[usable] / given.sum()
    distance = distances(rollouts[usable], truth)
    own, ends = ade(distance, horizon), fde(distance, horizon)
    by_ade, by_fde = int(own.argmin()), int(ends.argmin())
    return Brier(
        brier_min_fde=float(ends[by_fde] + (1.0 - weights[by_fde]) ** 2),
        brier_min_ade=float(own[by_ade] + (1.0 - weights[by_ade]) ** 2),
        ade_of_min_fde=float(own[by_fde]),
    )


def spread(rollouts: Floats) -> Floats:
    """[20] m, root mean square distance of the usable of [N, 20, 2] from their mean; else NaN."""
    usable = rollouts[np.isfinite(rollouts).all(axis=(1, 2))]
    if not len(usable):
        return np.full(rollouts.shape[1], np.nan)
    apart = usable - usable.mean(axis=0)
    return np.asarray(np.sqrt((apart**2).sum(axis=-1).mean(axis=0)))


def energy_score(rollouts: Floats, truth: Floats, horizon: float) -> float:
    """Energy score in m at a horizon; lower is better, and only the true distribution is best.

    mean |x_i - y| - 1/2 mean_{i != j} |x_i - x_j| (Gneiting and Raftery 2007, section 4.3; the fair
    form of Ferro 2014, which does not reward many rollouts for being many). With one rollout it is
    the distance.
    """
    step = round(horizon * 4) - 1
    points = rollouts[np.isfinite(rollouts).all(axis=(1, 2)), step]
    n = len(points)
    if not n:
        return float("nan")
    error = np.linalg.norm(points - truth[step], axis=1).mean()
    pairs = np.linalg.norm(points[:, None] - points[None], axis=-1).sum() / max(n * (n - 1), 1)
    return float(error - 0.5 * pairs)


@dataclass(frozen=True)
class Calibration:
    """Whether the truth looks like one more rollout, over many frames at one horizon.

    Attributes:
        frames: with at least two usable rollouts and a known future.
        spread_ratio: root of (mean squared spread, unbiased and with the mean's own error) / (mean
            squared error of the mean). 1 is honest, below it the rollouts are too sure of
            themselves.
        along, across: level -> share of the truths inside the central share of that size, along
            and beside the mean's direction. Honest rollouts have the level itself.
        ranks_along, ranks_across: share of the truths in ten equal bins of rank; flat is honest,
            a U too sure, a slope biased (along: high is further ahead; across: high is further
            left).
    """

    frames: int
    spread_ratio: float
    along: dict[float, float]
    across: dict[float, float]
    ranks_along: tuple[float, ...]
    ranks_across: tuple[float, ...]


BINS = 10


def calibration(rollouts: Sequence[Floats], truth: Floats, horizon: float) -> Calibration:
    """Read W frames' rollouts as forecasts.

    Among n rollouts the truth has one of n + 1 ranks, each equally likely if it is one of them, so
    it stands for an interval of width 1 / (n + 1); frames with different n add up. Ties share their
    ranks.

    Args:
        rollouts: W arrays [N, 20, 2] m; NaN rows are unusable.
        truth: [W, 20, 2] m; NaN where it is not known.
        horizon: s, the step that is judged.
    """
    step = round(horizon * 4) - 1
    ranges: list[tuple[Floats, Floats]] = []
    error = expected = 0.0
    for paths, log in zip(rollouts, truth, strict=True):
        usable = paths[np.isfinite(paths).all(axis=(1, 2))]
        n = len(usable)
        if n < 2 or not np.isfinite(log[step]).all():
            continue
        mean = usable.mean(axis=0)
        direction = mean[step] - mean[step - 1]
        length = float(np.hypot(*direction))
        forward = direction / length if length > 1e-6 else np.array([1.0, 0.0])
        axes = np.stack([forward, [-forward[1], forward[0]]], axis=1)  # along, across
        places, at = usable[:, step] @ axes, log[step] @ axes
        below, upto = (places < at).sum(axis=0), (places <= at).sum(axis=0)
        ranges.append((below / (n + 1), (upto + 1) / (n + 1)))
        error += float(((mean[step] - log[step]) ** 2).sum())
        variance = ((usable[:, step] - mean[step]) ** 2).sum() / (n - 1)
        expected += float(variance) * (n + 1) / n
    bounds = np.array(ranges).reshape(-1, 2, 2)  # [frames, low and high, along and across]
    columns = [(bounds[:, 0, axis], bounds[:, 1, axis]) for axis in (0, 1)]
    edges = np.linspace(0.0, 1.0, BINS + 1)
    covered = [
        {level: _mass(low, high, 0.5 - level / 2, 0.5 + level / 2) for level in LEVELS}
        for low, high in columns
    ]
    bins = [
        tuple(_mass(low, high, edges[i], edges[i + 1]) for i in range(BINS))
        for low, high in columns
    ]
    ratio = float(np.sqrt(expected / error)) if error > 0 else float("nan")
    return Calibration(len(ranges), ratio, covered[0], covered[1], bins[0], bins[1])


def _mass(low: Floats, high: Floats, begin: float, end: float) -> float:
    """Mean share of the intervals that lies in begin..end."""
    if not len(low):
        return float("nan")
    inside = np.clip(np.minimum(high, end) - np.maximum(low, begin), 0.0, None)
    return float((inside / (high - low)).mean())
