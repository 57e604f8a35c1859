"""Several rollouts to one trajectory: which are impossible, and mean, medoid or guarded choice."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from planners.observation import FUTURE_STATES, RATE_HZ
from planners.plan import Aggregate
from runtime.errors import SlipstreamError

Floats = NDArray[np.float64]

# What no car does. All are judged over a second's travel, so that the 0.1 m steps of written
# waypoints never matter, and directions only where that travel is more than MOVING.
MAX_SPEED = 60.0  # m/s
MAX_ACCELERATION = 12.0  # m/s², along or across the path: beyond dry-road grip
MAX_CURVATURE = 0.5  # 1/m: a 2 m radius, half of a small car's turning circle
FOLD = 2.0 * math.pi / 3  # rad between one second's travel and the next
MOVING = 1.0  # m
REVERSING = -0.5  # m/s; a vehicle slower than this already drives backwards

# Rater feedback score of WOD-E2E at 5 s: allowed error beside and along the path, before scaling
LATERAL_AT_5S = 1.8  # m
LONGITUDINAL_AT_5S = 4 * LATERAL_AT_5S  # m


@dataclass(frozen=True, eq=False)
class Aggregated:
    """One trajectory from N rollouts.

    Attributes:
        trajectory: [20, 2] m, or None if no rollout was valid.
        rule: what made it; "guarded:mean" and "guarded:medoid" name what was chosen.
        spread: [20] m, root mean square distance of the valid rollouts from their mean; NaN if
            there is none.
        flags: "no valid rollout", "two modes", "mean impossible".
    """

    trajectory: Floats | None
    rule: str
    spread: Floats
    flags: tuple[str, ...] = ()


def impossible(trajectory: Floats, v0: float) -> str:
    """Why no car can drive this, or "".

    Args:
        trajectory: [20, 2] m at 4 Hz from t+0.25 s, in the ego frame.
        v0: m/s, the speed now, negative when reversing.
    """
    if not np.isfinite(trajectory).all():
        return "not finite"
    steps = np.arange(-int(RATE_HZ), 1) / RATE_HZ  # the last second, as if at constant velocity
    past = np.stack([v0 * steps, np.zeros_like(steps)], axis=-1)
    points = np.concatenate([past, trajectory])  # [25, 2], 4 Hz
    travel = points[4:] - points[:-4]  # [21, 2], m in one second
    speeds = np.hypot(travel[:, 0], travel[:, 1])
    if speeds.max() > MAX_SPEED:
        return f"speed {speeds.max():.0f} m/s is above {MAX_SPEED:.0f}"
    gains = speeds[4:] - speeds[:-4]  # [17], m/s in one second
    if abs(gains).max() > MAX_ACCELERATION:
        return (
            f"acceleration {gains[abs(gains).argmax()]:.0f} m/s² is beyond ±{MAX_ACCELERATION:.0f}"
        )
    if v0 >= REVERSING and _sets_off_backwards(trajectory):
        return "reverses"
    return _impossible_turn(travel, speeds)


def _sets_off_backwards(trajectory: Floats) -> bool:
    away = np.hypot(trajectory[:, 0], trajectory[:, 1]) > MOVING
    return bool(away.any() and trajectory[away.argmax(), 0] < -MOVING / 2)


def _impossible_turn(travel: Floats, speeds: Floats) -> str:
    first, second = travel[:-4], travel[4:]  # a second's travel and the next one's
    cross = first[:, 0] * second[:, 1] - first[:, 1] * second[:, 0]
    turns = abs(np.arctan2(cross, (first * second).sum(axis=-1)))  # [17] rad in one second
    moving = np.minimum(speeds[:-4], speeds[4:]) > MOVING
    if not moving.any():
        return ""
    turns, speed = turns[moving], (speeds[:-4] + speeds[4:])[moving] / 2
    if turns.max() > FOLD:
        return f"folds back by {math.degrees(turns.max()):.0f}° within a second"
    sideways = turns * speed
    if sideways.max() > MAX_ACCELERATION:
        return f"lateral acceleration {sideways.max():.0f} m/s² is above {MAX_ACCELERATION:.0f}"
    curvature = turns / speed
    if curvature.max() > MAX_CURVATURE:
        return f"curvature {curvature.max():.2f} 1/m is above {MAX_CURVATURE}"
    return ""


def aggregate(
    rollouts: Floats, valid: NDArray[np.bool_], v0: float, rule: Aggregate = "guarded"
) -> Aggregated:
    """One trajectory from the valid rollouts.

    mean: the mean path. medoid: the rollout with the lowest mean distance to the others (EMMA,
    arXiv 2410.23262). guarded: the mean, unless a rollout ends further from it than the rater
    feedback score of WOD-E2E tolerates; then averaging may run between two manoeuvres, and the
    medoid of the largest group of rollouts is returned. A mean that no car can drive gives way to
    the medoid.

    Args:
        rollouts: [N, 20, 2] m; invalid rows may hold anything.
        valid: [N], which to use.
        v0: m/s, the speed now.
        rule: mean, medoid or guarded.

    Raises:
        SlipstreamError: an unknown rule.
    """
    if rule not in get_args(Aggregate):
        raise SlipstreamError(
            "the aggregation rule is unknown",
            expected=" or ".join(get_args(Aggregate)),
            found=str(rule),
            fix="see `slipstream run --help`",
        )
    if not valid.any():
        return Aggregated(None, rule, np.full(FUTURE_STATES, np.nan), ("no valid rollout",))
    paths = rollouts[valid]
    mean = np.asarray(paths.mean(axis=0))
    spread = np.sqrt(((paths - mean) ** 2).sum(axis=-1).mean(axis=0))
    if rule == "medoid":
        return Aggregated(medoid(paths), rule, spread)
    prefix = "guarded:" if rule == "guarded" else ""
    if rule == "guarded":
        from_mean = tolerances(paths[:, -1] - mean[-1], mean, v0)
        if from_mean.max() > 1.0:
            group, groups = _largest_group(paths, mean, v0)
            flags = ("two modes",) if groups > 1 else ()
            return Aggregated(medoid(paths[group]), "guarded:medoid", spread, flags)
    if len(paths) > 1 and impossible(mean, v0):
        return Aggregated(medoid(paths), f"{prefix}medoid", spread, ("mean impossible",))
    return Aggregated(mean, f"{prefix}mean", spread)


def medoid(paths: Floats) -> Floats:
    """[20, 2]: of paths [N, 20, 2] the one with the lowest mean point distance to the others."""
    apart = np.linalg.norm(paths[:, None] - paths[None], axis=-1).mean(axis=-1)  # [N, N]
    return np.asarray(paths[apart.mean(axis=1).argmin()])


def tolerances(offsets: Floats, path: Floats, v0: float) -> Floats:
    """How many tolerances of the rater feedback score at 5 s an offset is, along or across.

    Args:
        offsets: [..., 2] m between end points.
        path: [20, 2] m, whose last direction says what is along.
        v0: m/s, the speed now; slow traffic is judged more strictly.
    """
    scale = min(max(0.5 + 0.5 * (v0 - 1.4) / 9.6, 0.5), 1.0)
    forward = path[-1] - path[-2]
    length = math.hypot(*forward)
    forward = forward / length if length > 1e-6 else np.array([1.0, 0.0])
    along = abs(offsets @ forward)
    across = abs(offsets @ np.array([-forward[1], forward[0]]))
    return np.asarray(
        np.maximum(along / (LONGITUDINAL_AT_5S * scale), across / (LATERAL_AT_5S * scale))
    )


def _largest_group(paths: Floats, mean: Floats, v0: float) -> tuple[NDArray[np.bool_], int]:
    """Groups of end points linked by steps within tolerance: the largest [N], and how many."""
    ends = paths[:, -1]
    linked = tolerances(ends[:, None] - ends[None], mean, v0) <= 1.0  # [N, N]
    for _ in range(max(1, math.ceil(math.log2(len(paths))))):  # reach twice as far each time
        linked = linked @ linked
    groups = np.unique(linked, axis=0)
    # of equally large groups the one of the first rollout, so that the choice is stable
    return np.asarray(linked[linked.sum(axis=1).argmax()]), len(groups)
