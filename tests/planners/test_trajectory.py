"""Waypoints to trajectory: exactness, least jerk, and the finite-difference variant beside it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from planners.trajectory import to_trajectory

Floats = NDArray[np.float64]
T = np.arange(1, 21) / 4.0
K = np.arange(1, 6)
paths = arrays(np.float64, (5, 2), elements=st.floats(-300, 300))


def finite_difference_quintics(waypoints: Floats) -> Floats:
    """[20, 2]: a quintic a second between knots whose velocity and acceleration are differences.

    What Fast-dDrive (arXiv 2605.23163) does: nothing is known of the motion now.
    """
    knots = np.concatenate([np.zeros((1, 2)), waypoints])
    velocity = np.gradient(knots, axis=0)
    second = np.diff(knots, 2, axis=0)
    acceleration = np.concatenate([second[:1], second, second[-1:]])
    powers = np.arange(6)

    def row(order: int, t: float) -> Floats:
        factor = np.array([np.prod(np.arange(p - order + 1, p + 1)) for p in powers], float)
        return np.where(powers >= order, factor * t ** np.maximum(powers - order, 0), 0.0)

    system = np.array([row(order, t) for t in (0.0, 1.0) for order in range(3)])
    path = []
    for k in range(5):
        ends = [s[i] for i in (k, k + 1) for s in (knots, velocity, acceleration)]
        coefficients = np.linalg.solve(system, np.array(ends))
        path += [row(0, t) @ coefficients for t in (0.25, 0.5, 0.75, 1.0)]
    return np.array(path)


def test_constant_acceleration_is_exact_and_finite_differences_are_not() -> None:
    v0, a0 = 12.0, -2.0
    truth = np.stack([v0 * T + a0 * T**2 / 2, 0 * T], axis=-1)
    ours = to_trajectory(truth[3::4], v0, a0)
    theirs = finite_difference_quintics(truth[3::4])
    assert abs(ours - truth).max() < 1e-10
    error = np.linalg.norm(theirs - truth, axis=-1)
    assert error.max() == pytest.approx(0.18, abs=0.01)
    assert error[:12].mean() > 0.02


@given(waypoints=paths, v0=st.floats(-5, 50), a0=st.floats(-8, 8))
def test_it_passes_through_the_waypoints(waypoints: Floats, v0: float, a0: float) -> None:
    np.testing.assert_allclose(to_trajectory(waypoints, v0, a0)[3::4], waypoints, atol=1e-9)


STEPS = 400  # of constant jerk, 80 a second


def least_jerk(waypoints: Floats, v0: float, a0: float) -> Floats:
    """[20, 2]: the same problem solved by brute force, as the smallest piecewise constant jerk."""
    ends = np.arange(1, STEPS + 1) * 5.0 / STEPS

    def reach(t: Floats) -> Floats:
        """[.., STEPS]: displacement at t for 1 m/s³ during one step."""
        since = np.maximum(t[:, None] - ends + 5.0 / STEPS, 0.0)
        return np.asarray((since**3 - np.maximum(t[:, None] - ends, 0.0) ** 3) / 6)

    def free(t: Floats) -> Floats:
        return np.stack([v0 * t + a0 * t**2 / 2, 0 * t], axis=-1)

    # lstsq of an underdetermined system returns the solution of least norm
    jerk = np.linalg.lstsq(reach(K * 1.0), waypoints - free(K * 1.0), rcond=None)[0]
    return free(T) + reach(T) @ jerk


@pytest.mark.parametrize("seed", range(5))
def test_no_curve_through_the_waypoints_has_less_jerk(seed: int) -> None:
    rng = np.random.default_rng(seed)
    waypoints = np.cumsum(rng.normal(8, 3, (5, 2)), axis=0)
    v0, a0 = rng.uniform(0, 20), rng.normal(0, 2)
    brute = least_jerk(waypoints, v0, a0)
    np.testing.assert_allclose(to_trajectory(waypoints, v0, a0), brute, atol=2e-3)


@given(a=paths, b=paths, share=st.floats(0, 1))
def test_averaging_before_or_after_is_the_same(a: Floats, b: Floats, share: float) -> None:
    before = to_trajectory(share * a + (1 - share) * b, 9.0, 1.0)
    after = share * to_trajectory(a, 9.0, 1.0) + (1 - share) * to_trajectory(b, 9.0, 1.0)
    np.testing.assert_allclose(before, after, atol=1e-9)


def test_batches_and_their_own_speeds() -> None:
    waypoints = np.random.default_rng(0).normal(0, 20, (2, 3, 5, 2))
    v0, a0 = np.arange(6.0).reshape(2, 3), -np.arange(6.0).reshape(2, 3)
    batch = to_trajectory(waypoints, v0, a0)
    assert batch.shape == (2, 3, 20, 2)
    np.testing.assert_allclose(batch[1, 2], to_trajectory(waypoints[1, 2], 5.0, -5.0))
    shared = to_trajectory(waypoints, 4.0, 0.0)
    np.testing.assert_allclose(shared[0, 1], to_trajectory(waypoints[0, 1], 4.0, 0.0))


def test_an_unusable_rollout_stays_nan_and_spoils_no_other() -> None:
    waypoints = np.stack([np.full((5, 2), np.nan), np.stack([5.0 * K, 0.0 * K], axis=-1)])
    trajectory = to_trajectory(waypoints, 5.0, 0.0)
    assert np.isnan(trajectory[0]).all()
    np.testing.assert_allclose(trajectory[1, :, 0], 5.0 * T)
