"""The computed drive keeps to the bicycle model and says that it is computed."""

from __future__ import annotations

import numpy as np
import pytest

from drives.info import describe
from drives.readers.synthetic import synthetic_drive


def test_it_says_so():
    drive = synthetic_drive(4, duration=20.0)
    assert drive.synthetic
    assert drive.name.startswith("synthetic")
    assert "synthetic" in drive.source


def test_a_seed_gives_the_same_drive():
    one, same, other = synthetic_drive(1), synthetic_drive(1), synthetic_drive(2)
    np.testing.assert_array_equal(one.positions, same.positions)
    assert np.abs(one.positions[-1] - other.positions[-1]).max() > 1.0


@pytest.mark.parametrize("seed", range(6))
def test_its_motion_is_that_of_a_vehicle(seed):
    drive = synthetic_drive(seed, noise=0.0)
    middle = 0.5 * (drive.headings[1:] + drive.headings[:-1])
    steps = np.diff(drive.positions, axis=0)
    across = -steps[:, 0] * np.sin(middle) + steps[:, 1] * np.cos(middle)
    along = steps[:, 0] * np.cos(middle) + steps[:, 1] * np.sin(middle)
    # No side slip at the rear axle, and positions that are the integral of the speeds.
    assert np.abs(across).max() < 2e-3
    np.testing.assert_allclose(along, 0.05 * (drive.speeds[1:] + drive.speeds[:-1]), atol=5e-3)
    lateral = drive.speeds[1:] * np.diff(drive.headings) / 0.1
    assert np.abs(lateral).max() < 5.0
    assert drive.speeds.min() >= 0.0
    assert np.abs(np.diff(drive.speeds)).max() < 0.4


def test_it_stops_and_turns():
    drives = [synthetic_drive(seed) for seed in range(6)]
    assert sum(describe(drive).stationary_share > 0.02 for drive in drives) >= 3
    assert all(np.ptp(drive.headings) > 1.0 for drive in drives)
    assert all(describe(drive).warnings == () for drive in drives)
