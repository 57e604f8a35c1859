"""Waypoints to a trajectory at 4 Hz: the smoothest one from the motion right now."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from planners.observation import FUTURE_STATES, RATE_HZ

Floats = NDArray[np.float64]

COEFFICIENTS = 6  # of a quintic


def to_trajectory(waypoints: ArrayLike, v0: ArrayLike, a0: ArrayLike, step: float = 1.0) -> Floats:
    """The path through the waypoints that minimises the integral of squared jerk.

    Of all curves that start at the origin with velocity (v0, 0) and acceleration (a0, 0), it is
    piecewise quintic, four times continuously differentiable at the waypoints, with jerk and snap
    zero at the end: the natural spline of degree five. (Between fully known states the minimum-jerk
    curve is a quintic, Takahashi et al. 1989; here velocity and acceleration at the waypoints are
    free.) It is linear in its arguments, so one matrix serves all rollouts. Constant acceleration
    comes out exactly.

    Args:
        waypoints: [..., K, 2] m, x forward and y left, at step, 2 step .. K step; K step is at
            least 5 s.
        v0: [...] m/s, the speed now, along x.
        a0: [...] m/s², the acceleration now, along x.
        step: s between waypoints.

    Returns:
        [..., 20, 2] m at 0.25 .. 5 s; NaN where a waypoint, v0 or a0 is NaN.
    """
    points = np.asarray(waypoints, np.float64)
    start = np.zeros((*points.shape[:-2], 2, 2))
    start[..., 0, 0] = v0
    start[..., 1, 0] = a0
    # [20, K+2] @ [..., K+2, 2]
    matrix = _matrix(points.shape[-2], step)
    return np.asarray(matrix @ np.concatenate([points, start], axis=-2))


@cache
def _matrix(pieces: int, step: float) -> Floats:
    """[20, K+2]: positions at 4 Hz from (K waypoints, velocity, acceleration).

    A piece's time runs from 0 to 1.
    """
    size = pieces * COEFFICIENTS
    conditions, given = np.zeros((size, size)), np.zeros((size, pieces + 2))
    rows = iter(range(size))

    def piece(k: int) -> slice:
        return slice(k * COEFFICIENTS, (k + 1) * COEFFICIENTS)

    for order, column in ((0, None), (1, pieces), (2, pieces + 1)):  # the start
        row = next(rows)
        conditions[row, piece(0)] = _derivative(order, 0.0)
        if column is not None:
            given[row, column] = step**order
    for k in range(pieces):  # each piece ends in its waypoint
        row = next(rows)
        conditions[row, piece(k)] = _derivative(0, 1.0)
        given[row, k] = 1.0
    for k in range(pieces - 1):  # neighbours agree up to the fourth derivative
        for order in range(5):
            row = next(rows)
            conditions[row, piece(k)] = _derivative(order, 1.0)
            conditions[row, piece(k + 1)] = -_derivative(order, 0.0)
    for order in (3, 4):  # natural end
        conditions[next(rows), piece(pieces - 1)] = _derivative(order, 1.0)

    coefficients = np.linalg.solve(conditions, given)  # [6 K, K+2]
    matrix = np.empty((FUTURE_STATES, pieces + 2))
    for point in range(FUTURE_STATES):
        time = (point + 1) / RATE_HZ / step
        k = min(int(time), pieces - 1)
        matrix[point] = _derivative(0, time - k) @ coefficients[piece(k)]
    matrix.setflags(write=False)
    return matrix


def _derivative(order: int, t: float) -> Floats:
    """[6]: the order-th derivative of 1, t, t², .., t⁵ at t."""
    row = np.zeros(COEFFICIENTS)
    for power in range(order, COEFFICIENTS):
        row[power] = float(np.prod(np.arange(power - order + 1, power + 1))) * t ** (power - order)
    return row
