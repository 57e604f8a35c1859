"""Interpolation and causal derivatives against closed forms."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from drives.motion import causal_derivative, interpolate, linear, segment_starts


def _circle(times, radius=20.0, speed=8.0):
    headings = speed / radius * times
    positions = radius * np.stack([np.sin(headings), 1.0 - np.cos(headings)], axis=1)
    return positions, headings, np.full_like(times, speed)


def test_hermite_follows_a_circle():
    times = np.arange(0.0, 5.0, 0.1)
    at = np.linspace(0.0, 4.9, 333)
    state = interpolate(times, *_circle(times), at)
    positions, headings, speeds = _circle(at)
    assert np.abs(state.positions - positions).max() < 1e-6  # linear would be 4 mm off
    np.testing.assert_allclose(state.headings, headings, atol=1e-12)
    np.testing.assert_allclose(state.speeds, speeds)


def test_samples_come_back_bit_for_bit():
    rng = np.random.default_rng(1)
    times = np.cumsum(rng.uniform(0.01, 0.2, 50))
    positions, headings, speeds = rng.normal(size=(50, 3)), rng.normal(size=50), rng.normal(size=50)
    state = interpolate(times, positions, headings, speeds, times)
    np.testing.assert_array_equal(state.positions, positions)
    np.testing.assert_array_equal(state.headings, headings)
    np.testing.assert_array_equal(state.speeds, speeds)
    np.testing.assert_array_equal(linear(times, speeds, times), speeds)


def _irregular(seed, count=60):
    return np.cumsum(np.random.default_rng(seed).uniform(0.02, 0.15, count))


@given(st.integers(0, 1000), st.floats(-3.0, 3.0), st.floats(-20.0, 20.0))
@settings(max_examples=30, deadline=None)
def test_a_line_has_its_slope_everywhere(seed, slope, offset):
    times = _irregular(seed)
    starts = np.zeros(len(times), int)
    for degree in (1, 2):
        found = causal_derivative(times, offset + slope * times, starts, 0.5, degree)
        np.testing.assert_allclose(found, slope, atol=1e-7)


@given(st.integers(0, 1000), st.floats(-2.0, 2.0))
@settings(max_examples=30, deadline=None)
def test_a_parabola_has_no_lag_with_degree_two(seed, bend):
    times = _irregular(seed)
    found = causal_derivative(times, bend * times**2, np.zeros(len(times), int), 0.5, 2)
    np.testing.assert_allclose(found[2:], 2.0 * bend * times[2:], atol=1e-6)


def test_the_derivative_is_the_least_squares_fit():
    rng = np.random.default_rng(2)
    times, values = _irregular(3), rng.normal(size=60)
    starts = np.zeros(60, int)
    for degree in (1, 2):
        found = causal_derivative(times, values, starts, 0.5, degree)
        for i in range(10, 60):
            used = (times >= times[i] - 0.5) & (times <= times[i])
            fit = np.polyfit(times[used] - times[i], values[used], degree)
            np.testing.assert_allclose(found[i], fit[-2], rtol=1e-6)


def test_derivatives_stay_within_their_stretch():
    times = np.arange(10) * 0.1
    values = np.where(times < 0.45, 0.0, 100.0 + times)
    broken = np.zeros(9, bool)
    broken[4] = True
    starts = segment_starts(broken)
    np.testing.assert_array_equal(starts, [0] * 5 + [5] * 5)
    found = causal_derivative(times, values, starts, 0.5)
    np.testing.assert_allclose(found, [0.0] * 5 + [1.0] * 5, atol=1e-9)


def test_a_single_sample_has_no_derivative():
    starts = segment_starts(np.array([True]))
    np.testing.assert_array_equal(
        causal_derivative(np.array([0.0, 1.0]), np.array([0.0, 5.0]), starts, 0.5), [0.0, 0.0]
    )
