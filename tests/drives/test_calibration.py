"""Oracles, spread and calibration of rollouts: by hand, by enumeration and by simulation."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drives.calibration import best_of, brier, calibration, energy_score, min_of_k, spread
from drives.metrics import ade, distances

AHEAD = np.stack([np.arange(1, 21) * 2.5, np.zeros(20)], axis=1)


def beside(metres: float) -> np.ndarray:
    return AHEAD + np.array([0.0, metres])


ROLLOUTS = np.stack([beside(-1), beside(3), beside(4), np.full((20, 2), np.nan)])


@given(st.lists(st.floats(0, 100), min_size=1, max_size=7), st.integers(1, 7))
def test_min_of_k_is_the_mean_over_all_choices(values: list[float], k: int) -> None:
    found = min_of_k(np.array([*values, np.nan]), k)
    if k > len(values):
        assert np.isnan(found)
        return
    every = [min(chosen) for chosen in combinations(values, k)]
    assert found == pytest.approx(np.mean(every), abs=1e-9)


def test_many_rollouts_do_not_overflow() -> None:
    values = np.arange(2000.0)
    assert min_of_k(values, 1) == pytest.approx(999.5)
    assert min_of_k(values, 2000) == 0
    assert min_of_k(values, 1000) == pytest.approx(2001 / 1001 - 1, rel=1e-6)


def test_best_of_k_by_hand() -> None:
    found = best_of(ROLLOUTS, AHEAD, 3, 5)
    assert (found.min_ade, found.min_fde, found.miss_rate) == pytest.approx((1, 1, 0))
    one = best_of(ROLLOUTS, AHEAD, 1, 5)
    assert (one.min_ade, one.miss_rate) == pytest.approx((8 / 3, 2 / 3))
    # of the three pairs two hold the near one
    two = best_of(ROLLOUTS, AHEAD, 2, 5)
    assert (two.min_ade, two.miss_rate) == pytest.approx(((1 + 1 + 3) / 3, 1 / 3))
    assert np.isnan(best_of(ROLLOUTS, AHEAD, 4, 5).min_ade)
    assert np.isnan(best_of(ROLLOUTS, AHEAD * np.nan, 1, 5).min_fde)
    with pytest.raises(ValueError, match="k is 0"):
        best_of(ROLLOUTS, AHEAD, 0, 5)


def test_min_ade_and_min_fde_may_choose_different_rollouts() -> None:
    early, late = AHEAD.copy(), AHEAD.copy()
    early[-1, 1] += 5.0  # perfect until its end
    late[:-1, 1] += 3.0  # ends perfectly
    both = np.stack([early, late])
    found, other = best_of(both, AHEAD, 2, 5), brier(both, AHEAD, 5)
    assert found.min_ade == pytest.approx(5 / 20)
    assert found.min_fde == 0
    assert other.ade_of_min_fde == pytest.approx(3 * 19 / 20)
    assert other.brier_min_fde == pytest.approx(0.25)
    assert other.brier_min_ade == pytest.approx(5 / 20 + 0.25)


def test_brier_rewards_a_sure_and_right_choice() -> None:
    sure = brier(ROLLOUTS[:3], AHEAD, 5, [0.8, 0.1, 0.1])
    assert sure.brier_min_fde == pytest.approx(1 + 0.2**2)
    # the unusable one's share is lost, so nothing is gained by being unusable
    assert brier(ROLLOUTS, AHEAD, 5, [0.4, 0.05, 0.05, 0.5]).brier_min_fde == pytest.approx(1.36)
    assert brier(ROLLOUTS, AHEAD, 5).brier_min_fde == pytest.approx(1 + (3 / 4) ** 2)
    lone = np.stack([ROLLOUTS[0], *[ROLLOUTS[3]] * 3])
    assert brier(lone, AHEAD, 5).brier_min_fde == pytest.approx(1 + (3 / 4) ** 2)
    assert np.isnan(brier(ROLLOUTS[3:], AHEAD, 5).brier_min_ade)
    for bad in ([1.0], [-1.0, 1, 1, 1], [0.0, 0, 0, 0]):
        with pytest.raises(ValueError, match="probabilities"):
            brier(ROLLOUTS, AHEAD, 5, bad)


def test_spread_by_hand() -> None:
    assert spread(ROLLOUTS) == pytest.approx(np.full(20, np.sqrt((9 + 1 + 4) / 3)))
    assert np.isnan(spread(ROLLOUTS[3:])).all()
    assert spread(ROLLOUTS[:1]).tolist() == [0.0] * 20


def test_energy_score_by_hand() -> None:
    # errors 1, 3, 4; pairs 4, 5, 1
    assert energy_score(ROLLOUTS, AHEAD, 5) == pytest.approx(8 / 3 - 0.5 * 10 / 3)
    assert energy_score(ROLLOUTS[:1], AHEAD, 5) == pytest.approx(1)
    assert np.isnan(energy_score(ROLLOUTS[3:], AHEAD, 5))


@given(st.integers(0, 2**32 - 1), st.integers(1, 9))
def test_order_and_rigid_motion_change_nothing(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    rollouts = AHEAD + rng.normal(0, 3, size=(n, 20, 2))
    angle, shift = rng.uniform(-3, 3), rng.normal(0, 50, 2)
    turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    others = (rollouts[rng.permutation(n)], AHEAD), (rollouts @ turn + shift, AHEAD @ turn + shift)
    for changed, truth in others:
        for k in (1, n):
            assert best_of(changed, truth, k, 5).min_ade == pytest.approx(
                best_of(rollouts, AHEAD, k, 5).min_ade
            )
        assert spread(changed) == pytest.approx(spread(rollouts))
        assert energy_score(changed, truth, 3) == pytest.approx(
            energy_score(rollouts, AHEAD, 3), abs=1e-9
        )
    own = ade(distances(rollouts, AHEAD), 5)
    assert best_of(rollouts, AHEAD, n, 5).min_ade == pytest.approx(own.min())
    assert best_of(rollouts, AHEAD, 1, 5).min_ade == pytest.approx(own.mean())
    curve = [best_of(rollouts, AHEAD, k, 5).min_ade for k in range(1, n + 1)]
    assert (np.diff(curve) <= 1e-9).all()


def simulated(scale: float, frames: int = 1500) -> tuple[list[np.ndarray], np.ndarray]:
    """Truths that are drawn like the rollouts, whose noise is then scaled; N differs by frame."""
    rng = np.random.default_rng(5)
    truth = AHEAD + rng.normal(0, 1, size=(frames, 1, 2)) * np.linspace(0.1, 4, 20)[:, None]
    rollouts = []
    for i in range(frames):
        noise = rng.normal(0, scale, size=(3 + i % 6, 1, 2)) * np.linspace(0.1, 4, 20)[:, None]
        rollouts.append(AHEAD + noise)
    return rollouts, truth


def test_honest_rollouts_are_found_honest() -> None:
    found = calibration(*simulated(1.0), horizon=5)
    assert found.frames == 1500
    assert found.spread_ratio == pytest.approx(1.0, abs=0.05)
    for level, share in (*found.along.items(), *found.across.items()):
        assert share == pytest.approx(level, abs=0.03)
    assert np.abs(np.array(found.ranks_along) - 0.1).max() < 0.025
    assert sum(found.ranks_across) == pytest.approx(1)


def test_rollouts_that_are_too_sure_or_too_wide_are_told_apart() -> None:
    sure, wide = calibration(*simulated(0.3), horizon=5), calibration(*simulated(3.0), horizon=5)
    assert sure.spread_ratio < 0.6 < 1.5 < wide.spread_ratio
    assert sure.along[0.8] < 0.7 < 0.85 < wide.along[0.8]
    assert sure.ranks_across[0] > 0.15 > wide.ranks_across[0]


def test_a_bias_is_a_slope_in_the_ranks() -> None:
    rollouts, truth = simulated(1.0)
    left = calibration([paths - [0.0, 4.0] for paths in rollouts], truth, 5)
    assert left.ranks_across[-1] > 0.2 > 0.05 > left.ranks_across[0]  # truths are further left


def test_frames_that_can_not_be_judged_are_left_out() -> None:
    missing = np.stack([AHEAD, AHEAD * np.nan, AHEAD])
    found = calibration([ROLLOUTS, ROLLOUTS, ROLLOUTS[2:]], missing, 5)
    assert found.frames == 1
    nothing = calibration([ROLLOUTS[:1]], AHEAD[None], 5)
    assert nothing.frames == 0
    assert np.isnan([nothing.spread_ratio, nothing.along[0.5]]).all()


def test_ties_share_their_ranks() -> None:
    found = calibration([np.stack([AHEAD, AHEAD])], AHEAD[None], 5)
    assert found.ranks_along == pytest.approx([0.1] * 10)
