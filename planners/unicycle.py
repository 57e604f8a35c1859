"""The unicycle: a path from accelerations and curvatures, and poses from moves."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from planners.observation import FUTURE_STATES, RATE_HZ

Floats = NDArray[np.float64]

TIMES = np.arange(1, FUTURE_STATES + 1) / RATE_HZ
_MOVING = 0.3  # m/s; a slower vehicle keeps the heading that it had


def roll_out(acceleration: Floats, curvature: Floats, v0: float, step: float) -> Floats:
    """The path of a unicycle whose acceleration and curvature hold for a step (Alpamayo-R1, arXiv
    2511.00088, section 3.3).

        v' = v + a dt,  theta' = theta + k (v dt + a dt²/2),  x by the trapezoid rule of v cos theta

    Args:
        acceleration: [..., K] m/s²; curvature: [..., K] 1/m, left positive.
        v0: m/s, the speed now.
        step: s; K step is at least 5 s.

    Returns:
        [..., 20, 2] m at 4 Hz: between two steps the cubic with their positions and velocities.
    """
    speeds = _from(v0, v0 + np.cumsum(acceleration * step, axis=-1))
    travelled = speeds[..., :-1] * step + acceleration * step**2 / 2
    headings = _from(0.0, np.cumsum(curvature * travelled, axis=-1))
    velocities = speeds[..., None] * np.stack([np.cos(headings), np.sin(headings)], axis=-1)
    middle = (velocities[..., :-1, :] + velocities[..., 1:, :]) / 2
    points = np.cumsum(middle * step, axis=-2)
    points = np.concatenate([np.zeros_like(points[..., :1, :]), points], axis=-2)
    return at_plan_times(points, velocities, step)


def at_plan_times(points: Floats, velocities: Floats, step: float) -> Floats:
    """[..., 20, 2] m at 4 Hz, of positions and velocities [..., K+1, 2] at 0, step .. K step."""
    time = TIMES / step
    k = np.minimum(time.astype(np.int64), points.shape[-2] - 2)
    # a plan's time that falls on a step is that step, in spite of rounding
    u = np.where(np.isclose(time, np.round(time)), np.round(time) - k, time - k)[:, None]
    before, after = points[..., k, :], points[..., k + 1, :]
    leaving, arriving = velocities[..., k, :] * step, velocities[..., k + 1, :] * step
    return np.asarray(
        (2 * u**3 - 3 * u**2 + 1) * before
        + (u**3 - 2 * u**2 + u) * leaving
        + (3 * u**2 - 2 * u**3) * after
        + (u**3 - u**2) * arriving
    )


def chain(moves: Floats) -> Floats:
    """Poses [K, 3] (x, y in m, heading in rad) after moves [K, 3], each in the frame before it."""
    pose, poses = np.zeros(3), []
    for move in moves:
        pose = after(pose, move)
        poses.append(pose)
    return np.array(poses)


def after(pose: Floats, moves: Floats) -> Floats:
    """Poses [..., 3] after moves [..., 3] in the frame of a pose [3]."""
    cos, sin = np.cos(pose[2]), np.sin(pose[2])
    x = pose[0] + cos * moves[..., 0] - sin * moves[..., 1]
    y = pose[1] + sin * moves[..., 0] + cos * moves[..., 1]
    return np.stack([x, y, pose[2] + moves[..., 2]], axis=-1)


def headings_of(future: Floats) -> Floats:
    """[20] rad, unwrapped: which way a path [20, 2] leads; at a stand as before."""
    path = np.concatenate([np.zeros((1, 2)), future])
    along = np.gradient(path, 1 / RATE_HZ, axis=0)
    heading, found = 0.0, []
    for velocity in along[1:]:
        if np.hypot(*velocity) > _MOVING:
            turned = float(np.arctan2(velocity[1], velocity[0])) - heading
            heading += (turned + np.pi) % (2 * np.pi) - np.pi
        found.append(heading)
    return np.array(found)


def speeds_of(future: Floats, v0: float) -> Floats:
    """[21] m/s at 0, 0.25 .. 5 s of a path [20, 2], by distance alone; the first is v0."""
    path = np.concatenate([np.zeros((1, 2)), future])
    speeds = np.hypot(*np.gradient(path, 1 / RATE_HZ, axis=0).T)
    speeds[0] = v0
    return np.asarray(speeds)


def _from(first: float, rest: Floats) -> Floats:
    return np.concatenate([np.full((*rest.shape[:-1], 1), first), rest], axis=-1)
