"""Which rollouts are impossible, and how several become one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from planners.rollouts import aggregate, impossible, medoid, tolerances
from planners.trajectory import to_trajectory
from runtime.errors import SlipstreamError

from .conftest import FUTURE, arc

Floats = NDArray[np.float64]
ALL = np.ones


def beside(metres: float, speed: float = 11.0) -> Floats:
    """A path at constant speed that is `metres` to the left after 5 s."""
    return np.stack([speed * FUTURE, metres * (FUTURE / 5) ** 2], axis=-1)


@pytest.mark.parametrize(
    ("speed", "acceleration", "yaw_rate"),
    [
        (0.0, 0.0, 0.0),
        (0.0, 4.0, 0.0),
        (40.0, 0.0, 0.0),
        (30.0, -9.0, 0.0),  # emergency braking
        (5.0, 0.0, 1.0),  # 5 m radius
        (2.0, 0.0, 0.8),  # 2.5 m radius, a parking turn
        (15.0, -3.0, 0.5),
        (-2.0, 0.0, 0.2),  # already reversing
    ],
)
def test_what_cars_do_is_possible(speed: float, acceleration: float, yaw_rate: float) -> None:
    assert impossible(arc(FUTURE, speed, acceleration, yaw_rate), speed) == ""


@given(
    steps=arrays(np.int64, (5, 2), elements=st.integers(-1, 1)),
    v0=st.floats(-0.3, 0.3),
    a0=st.floats(-0.5, 0.5),
)
def test_written_waypoints_at_standstill_never_trigger(steps: Floats, v0: float, a0: float) -> None:
    assert impossible(to_trajectory(steps * 0.1, v0, a0), v0) == ""


@given(speed=st.floats(0, 45), acceleration=st.floats(-8, 3), share=st.floats(-1, 1))
def test_rounding_to_a_decimetre_never_triggers(
    speed: float, acceleration: float, share: float
) -> None:
    yaw_rate = share * min(0.4, 5.0 / max(speed, 1.0))  # up to 5 m/s² sideways
    waypoints = np.round(arc(FUTURE, speed, acceleration, yaw_rate)[3::4], 1)
    assert impossible(to_trajectory(waypoints, speed, acceleration), speed) == ""


def zigzag() -> Floats:
    return np.stack([10 * FUTURE, np.where(FUTURE.astype(int) % 2, 8.0, -8.0)], axis=-1)


@pytest.mark.parametrize(
    ("trajectory", "v0", "reason"),
    [
        (np.full((20, 2), np.nan), 5.0, "not finite"),
        (np.full((20, 2), np.inf), 5.0, "not finite"),
        (arc(FUTURE, 70.0, 0.0, 0.0), 70.0, "speed 70 m/s is above 60"),
        (arc(FUTURE, 0.0, 14.0, 0.0)[:20] * [0.9, 1], 0.0, "acceleration 13 m/s"),
        (arc(FUTURE, 0.0, 0.0, 0.0), 25.0, "acceleration -25 m/s"),
        (arc(FUTURE, 25.0, 0.0, 0.0), 5.0, "acceleration 20 m/s"),
        (arc(FUTURE, -3.0, 0.0, 0.0), 0.0, "reverses"),
        (arc(FUTURE, -3.0, 0.0, 0.0), 3.0, "reverses"),
        (np.concatenate([beside(0.0, 6.0)[:10], beside(0.0, 6.0)[9::-1]]), 6.0, "folds back"),
        (arc(FUTURE, 30.0, 0.0, 0.6), 30.0, "lateral acceleration 18 m/s"),
        (arc(FUTURE, 1.5, 0.0, 1.5), 1.5, "curvature"),
        (zigzag(), 10.0, "acceleration|folds"),
    ],
)
def test_what_no_car_does(trajectory: Floats, v0: float, reason: str) -> None:
    found = impossible(trajectory, v0)
    assert any(part in found for part in reason.split("|")), found


def test_mean() -> None:
    paths = np.stack([beside(0.2), beside(-0.2), beside(0.6)])
    chosen = aggregate(paths, ALL(3, bool), 11.0, "mean")
    assert (chosen.rule, chosen.flags) == ("mean", ())
    np.testing.assert_allclose(chosen.trajectory, paths.mean(axis=0))
    assert chosen.spread[-1] == pytest.approx(np.std([0.2, -0.2, 0.6]))


def test_medoid_is_one_of_the_rollouts() -> None:
    paths = np.stack([beside(y) for y in (-1.0, 0.0, 0.3, 0.5, 9.0)])
    np.testing.assert_array_equal(medoid(paths), paths[2])
    chosen = aggregate(paths, ALL(5, bool), 11.0, "medoid")
    assert chosen.rule == "medoid"
    np.testing.assert_array_equal(chosen.trajectory, paths[2])


@given(
    paths=arrays(np.float64, (6, 20, 2), elements=st.floats(-50, 50)),
    order=st.permutations(range(6)),
)
def test_medoid_by_its_definition(paths: Floats, order: list[int]) -> None:
    apart = [[np.hypot(*(p - q).T).mean() for q in paths] for p in paths]
    cost = np.mean(apart, axis=1)
    found = medoid(paths[order])
    picked = next(i for i in range(6) if (paths[i] == found).all())
    assert cost[picked] == pytest.approx(cost.min())


def test_guarded_takes_the_mean_of_one_mode() -> None:
    paths = np.stack([beside(y) for y in (-0.5, 0.0, 0.4)])
    chosen = aggregate(paths, ALL(3, bool), 11.0, "guarded")
    assert (chosen.rule, chosen.flags) == ("guarded:mean", ())
    np.testing.assert_allclose(chosen.trajectory, paths.mean(axis=0))


def test_guarded_never_drives_between_two_modes() -> None:
    paths = np.stack([beside(y) for y in (4.0, -4.1, -3.9, -4.0, 4.2)])
    chosen = aggregate(paths, ALL(5, bool), 11.0, "guarded")
    assert (chosen.rule, chosen.flags) == ("guarded:medoid", ("two modes",))
    np.testing.assert_array_equal(chosen.trajectory, paths[3])


def test_guarded_with_one_wide_mode_takes_its_medoid() -> None:
    paths = np.stack([beside(y) for y in np.arange(-3.0, 3.1, 1.0)])
    chosen = aggregate(paths, ALL(7, bool), 11.0, "guarded")
    assert (chosen.rule, chosen.flags) == ("guarded:medoid", ())
    np.testing.assert_array_equal(chosen.trajectory, paths[3])


@pytest.mark.parametrize(
    ("v0", "across", "along"),
    [(0.0, 0.9, 3.6), (1.4, 0.9, 3.6), (11.0, 1.8, 7.2), (30.0, 1.8, 7.2)],
)
def test_tolerances_of_the_rater_feedback_score(v0: float, across: float, along: float) -> None:
    path = beside(0.0)
    offsets = np.array([[0.0, across], [0.0, -across], [along, 0.0], [-along, across / 2]])
    np.testing.assert_allclose(tolerances(offsets, path, v0), 1.0)
    north = path[:, ::-1]
    np.testing.assert_allclose(tolerances(offsets[:, ::-1], north, v0), 1.0)


def test_standing_rollouts_have_a_direction() -> None:
    assert tolerances(np.array([3.6, 0.0]), np.zeros((20, 2)), 0.0) == pytest.approx(1.0)


def test_an_impossible_mean_gives_way_to_the_medoid() -> None:
    # three ways round a circle whose mean runs through its middle
    paths = np.stack([arc(FUTURE, 15.0, 0.0, rate) for rate in (0.75, 0.76, -0.75, -0.76)])
    paths[:, :4] = arc(FUTURE, 15.0, 0.0, 0.0)[:4]
    chosen = aggregate(paths, ALL(4, bool), 15.0, "mean")
    assert impossible(paths.mean(axis=0), 15.0) != ""
    assert (chosen.rule, chosen.flags) == ("medoid", ("mean impossible",))


@pytest.mark.parametrize("rule", ["mean", "medoid", "guarded"])
def test_unusable_rollouts_take_no_part(rule: str) -> None:
    paths = np.stack([beside(0.0), np.full((20, 2), np.nan), beside(90.0)])
    chosen = aggregate(paths, np.array([True, False, False]), 11.0, rule)  # type: ignore[arg-type]
    np.testing.assert_array_equal(chosen.trajectory, paths[0])
    assert (chosen.spread == 0.0).all()


@pytest.mark.parametrize("rule", ["mean", "medoid", "guarded"])
def test_nothing_valid(rule: str) -> None:
    chosen = aggregate(np.full((2, 20, 2), np.nan), np.zeros(2, bool), 5.0, rule)  # type: ignore[arg-type]
    assert chosen.trajectory is None
    assert chosen.flags == ("no valid rollout",)
    assert np.isnan(chosen.spread).all()


def test_unknown_rule() -> None:
    with pytest.raises(SlipstreamError, match="mean or medoid or guarded"):
        aggregate(beside(0.0)[None], ALL(1, bool), 5.0, "median")  # type: ignore[arg-type]
