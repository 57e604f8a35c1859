"""Open-loop trajectory metrics on 20 points at 4 Hz, each figure under its own name.

ADE@T is the mean Euclidean distance over the first 4T points, FDE@T the distance at point 4T
(the convention of WOD-E2E). The truth is the logged future of the same drive.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from planners.observation import FUTURE_STATES, RATE_HZ
from planners.rollouts import medoid

Floats = NDArray[np.float64]

HORIZONS = (1, 2, 3, 4, 5)  # s


def distances(trajectory: Floats, truth: Floats) -> Floats:
    """Distance of each point from the truth, m.

    Args:
        trajectory, truth: [..., 20, 2] m in one frame; they broadcast.

    Returns:
        [..., 20]; NaN where the trajectory is NaN.
    """
    for points in (trajectory, truth):
        if points.shape[-2:] != (FUTURE_STATES, 2):
            raise ValueError(f"expected [..., {FUTURE_STATES}, 2] at 4 Hz, found {points.shape}")
    gap: Floats = np.linalg.norm(trajectory - truth, axis=-1)
    return gap


def ade(distance: Floats, horizon: float) -> Floats:
    """Average displacement error: [..., 20] -> [...], m, over the first 4 * horizon points."""
    return np.asarray(distance[..., : _points(horizon)].mean(axis=-1), np.float64)


def fde(distance: Floats, horizon: float) -> Floats:
    """Final displacement error: [..., 20] -> [...], m, at point 4 * horizon."""
    return np.asarray(distance[..., _points(horizon) - 1], np.float64)


def rollout_figures(rollouts: Floats, truth: Floats, horizon: float) -> dict[str, float]:
    """ADE at a horizon, m, of N rollouts read in four ways that must not be mixed up.

    mean: of the rollouts' mean trajectory. medoid: of the rollout with the lowest mean distance to
    the others (EMMA, arXiv 2410.23262). mean_of_ade: the average of the rollouts' own ADEs, what
    one sample costs. min_ade: the best rollout's, chosen with the truth in hand at this horizon; an
    oracle, no planner can reach it. The fifth, greedy, comes from a run at temperature 0.

    Args:
        rollouts: [N, 20, 2] m; NaN rows (unusable rollouts) are left out.
        truth: [20, 2] m.

    Returns:
        NaN for every name if no rollout is usable.
    """
    usable = rollouts[np.isfinite(rollouts).all(axis=(1, 2))]
    if not len(usable):
        return dict.fromkeys(FIGURES, float("nan"))
    own = ade(distances(usable, truth), horizon)
    center = ade(distances(usable.mean(axis=0), truth), horizon)
    return {
        "mean": float(center),
        "medoid": float(ade(distances(medoid(usable), truth), horizon)),
        "mean_of_ade": float(own.mean()),
        "min_ade": float(own.min()),
    }


FIGURES = ("mean", "medoid", "mean_of_ade", "min_ade")


def _points(horizon: float) -> int:
    points = round(horizon * RATE_HZ)
    if not 1 <= points <= FUTURE_STATES:
        raise ValueError(f"horizon {horizon} s is outside of 0.25..5 s")
    return points
