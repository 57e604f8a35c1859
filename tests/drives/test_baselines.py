"""Kinematic baselines against closed forms and a fine numerical integration."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drives.baselines import BASELINES, STANDING, baseline, roll_out
from planners.observation import Observation

T = np.arange(1, 21) / 4.0


def observed(speed: float, accel: float = 0.0, yaw_rate: float = 0.0) -> Observation:
    """An observation whose earlier states are different, to see that only the last one counts."""
    series = [np.linspace(99.0, now, 16) for now in (speed, accel, yaw_rate)]
    return Observation(np.zeros((16, 2)), np.zeros(16), *series)


def rolled(speed: float, accel: float, yaw_rate: float) -> np.ndarray:
    return roll_out(np.array([speed]), np.array([accel]), np.array([yaw_rate]))[0]


def test_each_baseline_keeps_what_its_name_says() -> None:
    one = [observed(8.0, 1.0, 0.1)]
    assert np.allclose(baseline("cv", one)[0], np.stack([8 * T, 0 * T], axis=1))
    assert np.allclose(baseline("ca", one)[0], np.stack([8 * T + T**2 / 2, 0 * T], axis=1))
    circle = 80.0 * np.stack([np.sin(0.1 * T), 1 - np.cos(0.1 * T)], axis=1)
    assert np.allclose(baseline("ctrv", one)[0], circle, atol=1e-9)
    assert np.allclose(baseline("ctra", one)[0], rolled(8.0, 1.0, 0.1))
    assert not baseline("still", one).any()


def test_a_braking_vehicle_stops_and_stays() -> None:
    points = rolled(4.0, -2.0, 0.0)
    assert points[7, 0] == pytest.approx(4.0)  # at rest after 2 s and 4 m
    assert np.allclose(points[7:], points[7])


@pytest.mark.parametrize(("speed", "accel"), [(0.0, -1.0), (0.0, 0.0)])
def test_at_rest_nothing_reverses(speed: float, accel: float) -> None:
    assert not rolled(speed, accel, 0.3).any()


@pytest.mark.parametrize("speed", [-0.03, 0.03, -STANDING + 1e-9, STANDING - 1e-9])
def test_noise_around_rest_is_no_direction_of_travel(speed: float) -> None:
    assert not rolled(speed, -1.0, 0.3).any()
    started = rolled(speed, 1.0, 0.0)
    assert np.allclose(started[:, 0], T**2 / 2)
    creeping = [observed(speed, -1.0, 0.3)]
    for name in BASELINES:
        points = baseline(name, creeping)
        assert not points.any()
        assert not np.signbit(points).any()


@given(st.floats(-5, 40), st.floats(-6, 6))
def test_the_direction_of_travel_never_changes(v: float, a: float) -> None:
    steps = np.diff(rolled(v, a, 0.0)[:, 0], prepend=0.0)
    assert (steps >= -1e-12).all() if v > -STANDING else (steps <= 1e-12).all()


def test_a_reversing_vehicle_goes_back_and_stops() -> None:
    points = rolled(-2.0, 1.0, 0.0)
    assert points[-1, 0] == pytest.approx(-2.0)
    assert (np.diff(points[:, 0]) <= 1e-12).all()


@given(st.floats(0, 40), st.floats(-6, 4), st.floats(-0.8, 0.8))
def test_turning_and_accelerating_agrees_with_small_steps(v: float, a: float, w: float) -> None:
    fine = 5.0 * (np.arange(20000) + 0.5) / 20000  # midpoints
    speed = np.maximum((v if v >= STANDING else 0.0) + a * fine, 0.0)
    x = np.cumsum(speed * np.cos(w * fine)) * 5.0 / 20000
    y = np.cumsum(speed * np.sin(w * fine)) * 5.0 / 20000
    expected = np.stack([x, y], axis=1)[999::1000]
    assert np.allclose(rolled(v, a, w), expected, atol=1e-4)


def test_windows_are_independent_of_each_other() -> None:
    many = [observed(3.0, -1.0, 0.2), observed(20.0), observed(0.0, 2.0, -0.1)]
    for name in BASELINES:
        together = baseline(name, many)
        assert together.shape == (3, 20, 2)
        alone = np.concatenate([baseline(name, [one]) for one in many])
        assert np.array_equal(together, alone)
