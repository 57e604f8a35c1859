"""nuScenes L2 in both conventions and WOD-E2E ADE against both references, worked by hand."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drives.conventions import at_two_hertz, nuscenes_l2, wod_ade
from drives.rater import Rated
from runtime.errors import SlipstreamError

TRUTH = np.stack([np.arange(1, 7) * 5.0, np.zeros(6)], axis=1)  # 10 m/s, 2 Hz
DRIFT = TRUTH + np.stack([np.zeros(6), np.arange(1.0, 7.0)], axis=1)  # 1 .. 6 m off


def test_at_and_up_to_are_different_figures() -> None:
    found = nuscenes_l2(DRIFT[None], TRUTH[None])
    assert found.means_at == pytest.approx((2, 4, 6, 4))
    # means of 1..2, 1..4, 1..6, and of the three
    assert found.means_up_to == pytest.approx((1.5, 2.5, 3.5, 2.5))
    assert (found.frames, found.cut_off, found.without_plan) == ((1, 1, 1), 0, 0)


def test_three_policies_for_a_future_that_ends_early() -> None:
    cut = TRUTH.copy()
    cut[3:] = np.nan  # known to 1.5 s
    plans, truth = np.stack([DRIFT, DRIFT]), np.stack([TRUTH, cut])
    drop = nuscenes_l2(plans, truth, "drop-frame")
    assert drop.means_at == pytest.approx((2, 4, 6, 4))
    assert drop.frames == (1, 1, 1)
    zero = nuscenes_l2(plans, truth, "zero-error")
    assert zero.means_at == pytest.approx((2, 2, 3, 7 / 3))  # the unknown ones halve it
    # second frame up to 1, 2, 3 s: 1.5, (1 + 2 + 3) / 4, (1 + 2 + 3) / 6
    assert zero.means_up_to[:3] == pytest.approx((1.5, (2.5 + 1.5) / 2, (3.5 + 1) / 2))
    assert zero.frames == (2, 2, 2)
    known = nuscenes_l2(plans, truth, "known-steps")
    assert known.means_at == pytest.approx((2, 4, 6, 4))
    assert known.frames == (2, 1, 1)
    assert known.means_up_to[:3] == pytest.approx((1.5, (2.5 + 2) / 2, (3.5 + 2) / 2))
    assert {each.cut_off for each in (drop, zero, known)} == {1}


def test_a_missing_plan_is_counted_and_never_zero() -> None:
    plans = np.stack([DRIFT, np.full((6, 2), np.nan)])
    for policy in ("drop-frame", "zero-error", "known-steps"):
        found = nuscenes_l2(plans, np.stack([TRUTH, TRUTH]), policy)  # type: ignore[arg-type]
        assert found.means_at == pytest.approx((2, 4, 6, 4))
        assert (found.frames, found.without_plan) == ((1, 1, 1), 1)
    nothing = nuscenes_l2(plans[1:], TRUTH[None])
    assert np.isnan(nothing.means_at).all()


def test_two_hertz_takes_every_second_point_of_the_first_three_seconds() -> None:
    points = np.stack([np.arange(1, 21) / 4.0, np.zeros(20)], axis=1)  # x is the time
    assert at_two_hertz(points)[:, 0].tolist() == [0.5, 1.0, 1.5, 2.0, 2.5, 3.0]


AHEAD = np.stack([np.arange(1, 21) * 2.5, np.zeros(20)], axis=1)


def beside(metres: float) -> np.ndarray:
    return AHEAD + np.array([0.0, metres])


def test_log_and_top_rater_are_separate_columns_on_separate_frames() -> None:
    rated = Rated((beside(5), beside(2)), (6.0, 9.0))
    tie = Rated((beside(3), beside(7)), (8.0, 8.0))
    plans = np.stack([beside(1)] * 4)
    plans[3] = np.nan
    log = np.stack([AHEAD, beside(4), AHEAD, AHEAD])
    found = wod_ade(plans, log, [None, rated, tie, rated])
    assert found.log[5] == pytest.approx([1, 3, 1, np.nan], nan_ok=True)
    assert found.top_rater[5] == pytest.approx([np.nan, 1, 2, np.nan], nan_ok=True)
    assert found.log_of_rated[3] == pytest.approx([np.nan, 3, 1, np.nan], nan_ok=True)
    assert found.frames() == {
        "log ADE@3s": 3,
        "log ADE@5s": 3,
        "top-rater ADE@3s": 2,
        "top-rater ADE@5s": 2,
        "log of rated ADE@3s": 2,
        "log of rated ADE@5s": 2,
    }


def test_short_and_missing_references_have_no_figure() -> None:
    short = Rated((beside(2)[:14],), (9.0,))  # 3.5 s
    long = Rated((np.concatenate([beside(2), beside(99)]),), (9.0,))
    log = np.stack([AHEAD, np.full((20, 2), np.nan)])
    found = wod_ade(np.stack([AHEAD, AHEAD]), log, [short, long])
    assert found.top_rater[3] == pytest.approx([2, 2])
    assert found.top_rater[5] == pytest.approx([np.nan, 2], nan_ok=True)
    assert found.log[3] == pytest.approx([0, np.nan], nan_ok=True)


@given(st.integers(0, 2**32 - 1))
def test_moving_everything_changes_nothing(seed: int) -> None:
    rng = np.random.default_rng(seed)
    plans, truth = rng.normal(0, 20, size=(2, 5, 6, 2))
    truth[rng.random((5, 6)) < 0.2] = np.nan
    angle, shift = rng.uniform(-3, 3), rng.normal(0, 100, size=2)
    turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    for policy in ("drop-frame", "zero-error", "known-steps"):
        plain = nuscenes_l2(plans, truth, policy)  # type: ignore[arg-type]
        moved = nuscenes_l2(plans @ turn + shift, truth @ turn + shift, policy)  # type: ignore[arg-type]
        assert moved.means_at == pytest.approx(plain.means_at, nan_ok=True)
        assert moved.means_up_to == pytest.approx(plain.means_up_to, nan_ok=True)
        order = rng.permutation(5)
        mixed = nuscenes_l2(plans[order], truth[order], policy)  # type: ignore[arg-type]
        assert mixed.means_up_to == pytest.approx(plain.means_up_to, nan_ok=True)


@pytest.mark.parametrize(
    "bad",
    [
        lambda: nuscenes_l2(AHEAD[None], AHEAD[None]),
        lambda: nuscenes_l2(TRUTH[None], np.stack([TRUTH, TRUTH])),
        lambda: nuscenes_l2(TRUTH[None], TRUTH[None], "none"),  # type: ignore[arg-type]
        lambda: at_two_hertz(TRUTH),
        lambda: wod_ade(TRUTH[None], TRUTH[None], [None]),
        lambda: wod_ade(AHEAD[None], AHEAD[None], []),
    ],
)
def test_bad_input_is_refused(bad: Callable[[], object]) -> None:
    with pytest.raises(SlipstreamError, match="to mend it"):
        bad()
