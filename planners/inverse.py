"""From a path back to the numbers that a model would say: least squares with smoothing."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

ROUNDS = 12
_NUDGE = 1e-6


def fit(path: Callable[[Floats], Floats], start: Floats, target: Floats, smooth: Floats) -> Floats:
    """The numbers whose path is nearest to a target: min |target - path(p)|² + |smooth p|².

    Gauss-Newton with halved steps (Nocedal & Wright, Numerical Optimization, section 10.3). Without
    smoothing a path hardly says what single accelerations were: errors of neighbours cancel.

    Args:
        path: of numbers [B, P] to paths [B, 20, 2] m.
        start: [P] to begin from.
        target: [20, 2] m.
        smooth: [R, P] what is to be small.

    Returns:
        [P]
    """

    def off(numbers: Floats) -> float:
        missed = target - path(numbers[None])[0]
        return float((missed**2).sum() + ((smooth @ numbers) ** 2).sum())

    numbers, error = start, off(start)
    for _ in range(ROUNDS):
        here = path(numbers[None])[0]
        nudged = path(numbers + _NUDGE * np.eye(len(numbers)))
        slopes = ((nudged - here) / _NUDGE).reshape(len(numbers), -1).T
        left = np.concatenate([slopes, smooth])
        right = np.concatenate([(target - here).ravel(), -(smooth @ numbers)])
        step = np.linalg.lstsq(left, right, rcond=None)[0]
        for share in (1.0, 0.5, 0.25, 0.1):
            if (found := off(numbers + share * step)) < error:
                numbers, gained, error = numbers + share * step, error - found, found
                break
        else:
            break
        if gained < 1e-9:
            break
    return np.asarray(numbers)


def second_differences(count: int) -> Floats:
    """[count - 2, count]"""
    return np.asarray(np.diff(np.eye(count), n=2, axis=0))


def first_differences(count: int) -> Floats:
    """[count - 1, count]"""
    return np.asarray(np.diff(np.eye(count), axis=0))
