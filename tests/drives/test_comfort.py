"""Comfort series against motions whose derivatives are known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drives.baselines import roll_out
from drives.comfort import comfort
from runtime.errors import SlipstreamError

TIMES = np.arange(1, 21) / 4.0


def straight(distance: np.ndarray) -> np.ndarray:
    return np.stack([distance, np.zeros(20)], axis=1)


def test_constant_acceleration_is_exact_and_has_no_jerk() -> None:
    found = comfort(straight(8 * TIMES - 0.5 * TIMES**2), 8.0)
    assert found.accelerations == pytest.approx(np.full(20, -1.0))
    assert found.jerks == pytest.approx(np.zeros(18), abs=1e-9)
    assert found.reverse == 0
    assert bool(found.comfortable)


def test_constant_jerk_is_exact() -> None:
    found = comfort(straight(10 * TIMES + 0.5 * TIMES**3 / 6), 10.0)
    assert found.jerks == pytest.approx(np.full(18, 0.5))
    assert found.jerk_magnitudes == pytest.approx(np.full(18, 0.5))


def test_a_wrong_speed_at_the_start_is_an_acceleration() -> None:
    found = comfort(straight(10 * TIMES), 8.0)  # 2 m/s gained in the first eighth of a second
    assert found.accelerations[0] == pytest.approx(16.0)
    assert found.accelerations[1:] == pytest.approx(np.zeros(19), abs=1e-9)
    assert not bool(found.comfortable)


def test_a_circle_has_its_curvature_to_either_side() -> None:
    for turn in (0.2, -0.2):
        (path,) = roll_out(np.array([10.0]), np.zeros(1), np.array([turn]))
        found = comfort(path, 10.0)
        assert found.curvatures == pytest.approx(np.full(20, turn / 10), rel=1e-6)
        assert found.yaw_rates == pytest.approx(np.full(20, turn), rel=1e-6)
        assert found.lateral_accelerations == pytest.approx(np.full(20, 10 * turn), rel=1e-3)
        assert found.yaw_accelerations == pytest.approx(np.zeros(19), abs=1e-6)


def test_hard_turns_and_hard_braking_are_not_comfortable() -> None:
    (turn,) = roll_out(np.array([15.0]), np.zeros(1), np.array([0.4]))  # 6 m/s² sideways
    assert not bool(comfort(turn, 15.0).comfortable)
    (brake,) = roll_out(np.array([25.0]), np.array([-4.5]), np.zeros(1))
    assert not bool(comfort(brake, 25.0).comfortable)
    (gentle,) = roll_out(np.array([25.0]), np.array([-2.0]), np.zeros(1))
    assert bool(comfort(gentle, 25.0).comfortable)


def test_backing_up_is_reverse_not_a_turn_on_the_spot() -> None:
    there = np.r_[np.arange(1, 11) * 0.5, 5.0 - np.arange(1, 11) * 0.25]
    found = comfort(straight(there), 2.0)
    assert found.reverse == pytest.approx(2.5)
    assert found.speeds[-1] == pytest.approx(-1.0)
    assert np.abs(found.yaw_rates).max() == 0
    reversing = comfort(straight(-0.5 * np.arange(1, 21)), -2.0)
    assert reversing.reverse == pytest.approx(10.0)
    assert np.abs(reversing.accelerations).max() < 1e-9


def test_standing_with_noise_does_not_turn() -> None:
    noise = np.random.default_rng(0).normal(0, 0.003, size=(20, 2))
    found = comfort(noise, 0.0)
    assert np.abs(found.yaw_rates).max() == 0
    assert np.abs(found.curvatures).max() == 0


def test_a_missing_plan_is_nan_and_not_comfortable() -> None:
    paths = np.stack([straight(10 * TIMES), straight(10 * TIMES)])
    paths[1, 4, 0] = np.nan
    found = comfort(paths, np.array([10.0, 10.0]))
    assert found.comfortable.tolist() == [True, False]
    for name, values in found.worst().items():
        assert np.isfinite(values[0]), name
        assert np.isnan(values[1]), name
    assert np.isnan(comfort(np.full((20, 2), np.nan), 1.0).reverse)


def test_other_rates_are_refused() -> None:
    with pytest.raises(SlipstreamError, match="4 Hz"):
        comfort(straight(10 * TIMES)[:10], 10.0)


@given(st.integers(0, 2**32 - 1))
def test_a_mirrored_path_feels_the_same(seed: int) -> None:
    rng = np.random.default_rng(seed)
    speed, accel, turn = rng.uniform(1, 25, 3), rng.uniform(-3, 3, 3), rng.uniform(-0.5, 0.5, 3)
    paths = roll_out(speed, accel, turn) + rng.normal(0, 0.02, size=(3, 20, 2))
    left, right = comfort(paths, speed), comfort(paths * [1, -1], speed)
    for name, values in left.worst().items():
        assert right.worst()[name] == pytest.approx(values), name
    assert left.yaw_rates == pytest.approx(-right.yaw_rates)
    each = comfort(paths[1], speed[1])
    assert each.jerks == pytest.approx(left.jerks[1])
