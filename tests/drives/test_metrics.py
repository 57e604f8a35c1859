"""ADE, FDE and the readings of rollouts against values worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from drives.metrics import FIGURES, HORIZONS, ade, distances, fde, rollout_figures

AHEAD = np.stack([np.arange(1, 21) / 4.0 * 10.0, np.zeros(20)], axis=1)  # 10 m/s, straight


def beside(metres: float) -> np.ndarray:
    return AHEAD + np.array([0.0, metres])


def test_ade_means_the_first_4t_points_and_fde_is_point_4t() -> None:
    drift = AHEAD + np.stack([np.zeros(20), np.arange(1.0, 21.0)], axis=1)  # 1, 2, .. 20 m off
    distance = distances(drift, AHEAD)
    assert [float(ade(distance, t)) for t in HORIZONS] == [2.5, 4.5, 6.5, 8.5, 10.5]
    assert [float(fde(distance, t)) for t in HORIZONS] == [4.0, 8.0, 12.0, 16.0, 20.0]


def test_distances_are_euclidean_and_broadcast() -> None:
    off = np.stack([AHEAD + np.array([3.0, 4.0]), AHEAD])
    assert np.allclose(distances(off, AHEAD), [[5.0] * 20, [0.0] * 20])


def test_other_rates_are_refused() -> None:
    with pytest.raises(ValueError, match="4 Hz"):
        distances(AHEAD[:5], AHEAD[:5])  # five points at 1 Hz would silently score as 1.25 s
    with pytest.raises(ValueError, match="horizon"):
        ade(distances(AHEAD, AHEAD), 6)


def test_five_readings_differ_as_they_should() -> None:
    rollouts = np.stack([beside(-2.0), beside(1.0), beside(4.0)])
    found = rollout_figures(rollouts, AHEAD, 5)
    assert found == pytest.approx(
        {"mean": 1.0, "medoid": 1.0, "mean_of_ade": 7.0 / 3.0, "min_ade": 1.0}
    )
    found = rollout_figures(np.stack([beside(-4.0), beside(4.0), beside(5.0)]), AHEAD, 3)
    assert found == pytest.approx(
        {"mean": 5.0 / 3.0, "medoid": 4.0, "mean_of_ade": 13.0 / 3.0, "min_ade": 4.0}
    )


def test_min_ade_is_chosen_anew_at_each_horizon() -> None:
    early, late = AHEAD.copy(), AHEAD.copy()
    early[12:, 1] += 9.0  # right at first, then far off
    late[:12, 1] += 1.0
    rollouts = np.stack([early, late])
    assert rollout_figures(rollouts, AHEAD, 3)["min_ade"] == 0.0
    assert rollout_figures(rollouts, AHEAD, 5)["min_ade"] == pytest.approx(12 / 20)


def test_unusable_rollouts_are_left_out_not_zeroed() -> None:
    rollouts = np.stack([beside(2.0), np.full((20, 2), np.nan)])
    assert rollout_figures(rollouts, AHEAD, 5) == pytest.approx(dict.fromkeys(FIGURES, 2.0))
    none = rollout_figures(np.full((2, 20, 2), np.nan), AHEAD, 5)
    assert all(np.isnan(value) for value in none.values())
