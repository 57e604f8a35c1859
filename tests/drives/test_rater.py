"""Rater Feedback Score: worked by hand, official check vectors, and what must not change it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drives.rater import Rated, cluster_average, rater_feedback_score, trust_scale
from runtime.errors import SlipstreamError

ROOT = Path(__file__).resolve().parents[2]
STRAIGHT = np.stack([2.75 * np.arange(1, 21), np.zeros(20)], axis=1)  # 11 m/s


def score(path: np.ndarray, *raters: tuple[float, np.ndarray], v0: float = 11.0) -> float:
    rated = Rated(tuple(points for _, points in raters), tuple(mark for mark, _ in raters))
    return rater_feedback_score(path, rated, v0).score


def beside(metres: float) -> np.ndarray:
    return STRAIGHT + np.array([0.0, metres])


def ahead(metres: float) -> np.ndarray:
    return STRAIGHT + np.array([metres, 0.0])


def test_by_hand() -> None:
    assert score(STRAIGHT, (9, STRAIGHT)) == 9
    # 2 m off: e = 2 at 3 s gives 1; e = 2 / 1.8 at 5 s gives 10 * 0.1^(1/9)
    assert score(beside(2), (10, STRAIGHT)) == pytest.approx((1 + 10 * 0.1 ** (1 / 9)) / 2)
    # 5 m ahead: e = 5 / 4 at 3 s, inside at 5 s
    assert score(ahead(5), (10, STRAIGHT)) == pytest.approx((10 * 0.1**0.25 + 10) / 2)
    assert score(beside(50), (10, STRAIGHT)) == 4


def test_the_floor_is_for_predictions_outside_alone() -> None:
    assert score(STRAIGHT, (2, STRAIGHT)) == 2
    assert score(beside(3), (2, STRAIGHT)) == 4


def test_between_two_accepted_ways_is_neither() -> None:
    sides = ((9.0, beside(4)), (8.0, beside(-4)))
    assert score(beside(4), *sides) == 9
    assert score(STRAIGHT, *sides) == 4


def test_another_rater_may_win_at_each_time() -> None:
    late, early = STRAIGHT.copy(), STRAIGHT.copy()
    late[:15, 1] += 30  # right only at 5 s
    early[15:, 1] += 30  # right only at 3 s
    assert score(STRAIGHT, (10, early), (6, late)) == pytest.approx(8)
    assert score(STRAIGHT, (5, early), (2, late)) == 4  # 3.5, but in nobody's region at both times


def test_slow_traffic_is_judged_more_strictly() -> None:
    assert [trust_scale(v) for v in (0, 1.4, 6.2, 11, 30)] == [0.5, 0.5, 0.75, 1, 1]
    assert score(beside(0.9), (8, STRAIGHT)) == 8
    assert score(beside(0.9), (8, STRAIGHT), v0=0.0) < 8


def test_only_the_first_three_raters_count() -> None:
    wrong = (7.0, beside(40))
    assert score(STRAIGHT, wrong, wrong, (9.0, STRAIGHT)) == 9
    assert score(STRAIGHT, wrong, wrong, wrong, (9.0, STRAIGHT)) == 4


def test_several_predictions_are_weighted_as_given() -> None:
    rated = Rated((STRAIGHT,), (10.0,))
    both = np.stack([STRAIGHT, beside(50)])
    found = rater_feedback_score(both, rated, 11.0, [0.5, 0.25])
    assert found.score == pytest.approx(0.5 * 10 + 0.25 * 4)
    assert found.inside.tolist() == [True, False]


def test_a_missing_plan_has_no_score_and_is_counted() -> None:
    lost = STRAIGHT.copy()
    lost[7] = np.nan  # a point that the score does not even look at
    assert np.isnan(score(lost, (9, STRAIGHT)))
    average = cluster_average([8.0, 6.0, 4.0, np.nan, np.nan], ["a", "a", "b", "b", "c"])
    assert average.value == pytest.approx((7 + 4) / 2)
    assert average.frame_mean == pytest.approx(6)
    assert average.clusters == {"a": (7.0, 2), "b": (4.0, 1)}
    assert (average.frames, average.missing) == (3, 2)
    nothing = cluster_average([np.nan], ["a"])
    assert np.isnan([nothing.value, nothing.frame_mean]).all()


@pytest.mark.parametrize(
    "bad",
    [
        lambda: Rated((), ()),
        lambda: Rated((STRAIGHT,), (8.0, 9.0)),
        lambda: Rated((STRAIGHT,), (-1.0,)),
        lambda: Rated((STRAIGHT,), (float("nan"),)),
        lambda: Rated((np.empty((0, 2)),), (8.0,)),
        lambda: Rated((STRAIGHT * np.nan,), (8.0,)),
        lambda: score(STRAIGHT[:19], (9, STRAIGHT)),
        lambda: score(STRAIGHT, (9, STRAIGHT), v0=-1.0),
        lambda: score(STRAIGHT, (9, STRAIGHT), v0=float("nan")),
        lambda: score(np.stack([STRAIGHT] * 2), (9, STRAIGHT)),
        lambda: rater_feedback_score(STRAIGHT, Rated((STRAIGHT,), (9.0,)), 1.0, [-0.5]),
        lambda: cluster_average([1.0, 2.0], ["a"]),
    ],
)
def test_bad_input_is_refused(bad: Callable[[], object]) -> None:
    with pytest.raises(SlipstreamError, match="to mend it"):
        bad()


@given(st.integers(0, 2**32 - 1), st.floats(0, 30), st.floats(-3.1, 3.1))
def test_turning_everything_changes_nothing(seed: int, v0: float, angle: float) -> None:
    rng = np.random.default_rng(seed)
    raters = [np.cumsum(rng.normal([2, 0], 1, size=(20, 2)), axis=0) for _ in range(3)]
    path = raters[0] + rng.normal(0, 0.5, size=(20, 2))
    turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    marks = rng.uniform(0, 10, 3)
    plain = score(path, *zip(marks, raters, strict=True), v0=v0)
    turned = score(path @ turn, *zip(marks, [r @ turn for r in raters], strict=True), v0=v0)
    assert turned == pytest.approx(plain, abs=1e-6)
    order = rng.permutation(3)
    mixed = score(path, *((marks[i], raters[i]) for i in order), v0=v0)
    assert mixed == pytest.approx(plain, abs=1e-12)
    assert 0 <= plain <= 10


def check(cases: list[dict[str, Any]]) -> None:
    for case in cases:
        rated = Rated(
            tuple(np.array(rater["trajectory"]) for rater in case["raters"]),
            tuple(rater["score"] for rater in case["raters"]),
        )
        arguments = (case["predictions"], rated, case["v0"], case["probabilities"])
        found, expected = rater_feedback_score(*arguments), case["expected"]
        assert found.score == pytest.approx(expected["score"], abs=2e-6), case["id"]
        assert found.each == pytest.approx(expected["score_per_prediction"], abs=2e-6), case["id"]
        assert found.inside.tolist() == expected["inside_trust_region"], case["id"]
        bare = rater_feedback_score(*arguments, floor=0.0)
        assert bare.score == pytest.approx(expected["score_no_floor"], abs=2e-6), case["id"]


def test_the_official_code_agrees() -> None:
    cases = json.loads((ROOT / "tests" / "data" / "rfs-vectors.json").read_text())["cases"]
    assert len(cases) == 26
    check(cases)


def test_the_official_code_agrees_on_vectors_that_may_not_be_shipped(shared_drives: Path) -> None:
    found = sorted(shared_drives.parent.glob("*/rfs_vectors.json"))
    if not found:
        pytest.skip(f"no rfs_vectors.json beside {shared_drives}")
    cases = json.loads(found[0].read_text())["cases"]
    assert len(cases) == 30
    check(cases)
