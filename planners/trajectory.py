"""Waypoints at 1..5 s to a trajectory at 4 Hz: the smoothest one from the motion right now."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from planners.observation import FUTURE_STATES, RATE_HZ

Floats = NDArray[np.float64]

PIECES = 5  # one a second
COEFFICIENTS = 6  # of a quintic


def to_trajectory(waypoints: ArrayLike, v0: ArrayLike, a0: ArrayLike) -> Floats:
    """The path through the waypoints that minimises the integral of squared jerk over 0..5 s.

    Of all curves that start at the origin with velocity (v0, 0) and acceleration (a0, 0), it is
    piecewise quintic, four times continuously differentiable at the waypoints, with jerk and snap
    zero at the end: the natural spline of degree five. (Between fully known states the minimum-jerk
    curve is a quintic, Takahashi et al. 1989; here velocity and acceleration at the waypoints are
    free.) It is linear in its arguments, so one matrix serves all rollouts. Constant acceleration
    comes out exactly.

    Args:
        waypoints: [..., 5, 2] m, x forward and y left, at 1..5 s.
        v0: [...] m/s, the speed now, along x.
        a0: [...] m/s², the acceleration now, along x.

    Returns:
        [..., 20, 2] m at 0.25 .. 5 s; NaN where a waypoint, v0 or a0 is NaN.
    """
    points = np.asarray(waypoints, np.float64)
    start = np.zeros((*points.shape[:-2], 2, 2))
    start[..., 0, 0] = v0
    start[..., 1, 0] = a0
    # [20, 7] @ [..., 7, 2]
    return np.asarray(_matrix() @ np.concatenate([points, start], axis=-2))


@cache
def _matrix() -> Floats:
    """[20, 7]: positions at 4 Hz from (5 waypoints, velocity, acceleration)."""
    size = PIECES * COEFFICIENTS
    conditions, given = np.zeros((size, size)), np.zeros((size, PIECES + 2))
    rows = iter(range(size))

    def piece(k: int) -> slice:
        return slice(k * COEFFICIENTS, (k + 1) * COEFFICIENTS)

    for order, column in ((0, None), (1, PIECES), (2, PIECES + 1)):  # the start
        row = next(rows)
        conditions[row, piece(0)] = _derivative(order, 0.0)
        if column is not None:
            given[row, column] = 1.0
    for k in range(PIECES):  # each piece ends in its waypoint
        row = next(rows)
        conditions[row, piece(k)] = _derivative(0, 1.0)
        given[row, k] = 1.0
    for k in range(PIECES - 1):  # neighbours agree up to the fourth derivative
        for order in range(5):
            row = next(rows)
            conditions[row, piece(k)] = _derivative(order, 1.0)
            conditions[row, piece(k + 1)] = -_derivative(order, 0.0)
    for order in (3, 4):  # natural end
        conditions[next(rows), piece(PIECES - 1)] = _derivative(order, 1.0)

    coefficients = np.linalg.solve(conditions, given)  # [30, 7]
    matrix = np.empty((FUTURE_STATES, PIECES + 2))
    for step in range(FUTURE_STATES):
        seconds = (step + 1) / RATE_HZ
        k = min(int(seconds), PIECES - 1)
        matrix[step] = _derivative(0, seconds - k) @ coefficients[piece(k)]
    matrix.setflags(write=False)
    return matrix


def _derivative(order: int, t: float) -> Floats:
    """[6]: the order-th derivative of 1, t, t², .., t⁵ at t."""
    row = np.zeros(COEFFICIENTS)
    for power in range(order, COEFFICIENTS):
        row[power] = float(np.prod(np.arange(power - order + 1, power + 1))) * t ** (power - order)
    return row
