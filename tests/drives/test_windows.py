"""Windows: the ego frame, what is skipped and why, and that nothing of the future leaks."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drives.breaks import GAP, JUMP, UNKNOWN
from drives.drive import Drive
from drives.frames import to_world
from drives.motion import interpolate
from drives.readers.boreas import read_boreas
from drives.readers.synthetic import synthetic_drive
from drives.windows import NO_FUTURE, NO_HISTORY, windows
from planners.observation import Intent
from runtime.errors import SlipstreamError

FIELDS = ("positions", "headings", "speeds", "accelerations", "yaw_rates", "intent", "time")


def _circle(radius=25.0, speed=10.0, duration=12.0, rate=10.0) -> Drive:
    times = np.arange(int(duration * rate) + 1) / rate
    headings = 1.1 + speed / radius * times
    positions = radius * np.stack([np.sin(headings), -np.cos(headings)], axis=1) + [400.0, -30.0]
    return Drive(
        "circle", "a test", "none", True, times, positions, headings, np.full(len(times), speed)
    )


def _cut(drive: Drive, count: int) -> Drive:
    """The drive as it was known after `count` samples."""
    return replace(
        drive,
        times=drive.times[:count],
        positions=drive.positions[:count],
        headings=drive.headings[:count],
        speeds=drive.speeds[:count],
    )


def _same(left, right) -> None:
    for field in FIELDS:
        np.testing.assert_array_equal(getattr(left, field), getattr(right, field), err_msg=field)


@pytest.mark.parametrize("radius", [25.0, -25.0])
def test_a_circle_in_its_ego_frame(radius):
    """A left (right) circle bends towards +y (-y), ahead and behind, with v/r as yaw rate."""
    found = windows(_circle(radius)).windows
    past, ahead = np.arange(-15, 1) / 4.0, np.arange(1, 21) / 4.0
    assert len(found) == 13
    for window in found:
        seen = window.observation
        for points, at in ((seen.positions, past), (window.future, ahead)):
            turned = 10.0 / radius * at
            expected = radius * np.stack([np.sin(turned), 1.0 - np.cos(turned)], axis=1)
            np.testing.assert_allclose(points, expected, atol=2e-6)
        np.testing.assert_allclose(seen.headings, 10.0 / radius * past, atol=1e-9)
        np.testing.assert_allclose(seen.yaw_rates, 10.0 / radius, atol=1e-9)
        np.testing.assert_allclose(seen.speeds, 10.0)
        np.testing.assert_allclose(seen.accelerations, 0.0, atol=1e-9)
        np.testing.assert_array_equal(seen.positions[-1], [0.0, 0.0])
        assert seen.headings[-1] == 0.0


def test_constant_acceleration():
    times = np.arange(101) * 0.1
    positions = np.stack([2.0 * times + 0.75 * times**2, 0 * times], axis=1)
    drive = Drive("a", "a test", "none", True, times, positions, 0 * times, 2.0 + 1.5 * times)
    first = windows(drive).windows[0]
    np.testing.assert_allclose(first.observation.accelerations, 1.5, atol=1e-9)
    np.testing.assert_allclose(first.observation.speeds[-1], 8.0)
    np.testing.assert_allclose(first.future[-1], [5 * 8.0 + 0.75 * 25, 0.0], atol=1e-9)


def test_which_instants():
    found = windows(_circle(duration=12.0), step_s=0.5)
    assert [w.observation.time for w in found] == pytest.approx([4.0, 4.5, 5.0, 5.5, 6.0, 6.5, 7.0])
    assert [w.observation.frame for w in found] == list(range(7))
    assert [w.drive_index for w in found] == [40, 45, 50, 55, 60, 65, 70]
    assert found.skipped == Counter({NO_HISTORY: 8, NO_FUTURE: 10})
    # Nine seconds are just enough; 0.1 s less are not.
    assert len(windows(_circle(duration=9.0))) == 1
    assert len(windows(_circle(duration=8.9))) == 0


def test_the_instant_is_the_nearest_sample():
    drive = _circle(duration=12.0)
    late = replace(drive, times=drive.times + np.where(np.arange(121) % 2 == 0, 0.02, 0.0))
    found = windows(late, 0.5)
    assert [w.drive_index for w in found] == [40, 45, 50, 55, 60, 65, 70]
    early = replace(drive, times=drive.times + np.where(np.arange(121) % 10 == 5, -0.02, 0.0))
    assert [w.drive_index for w in windows(early, 0.5)] == [40, 45, 50, 55, 60, 65, 70]


def test_a_step_below_the_sampling_interval_gives_each_sample_once():
    found = windows(_circle(duration=12.0), step_s=0.01)
    assert [w.drive_index for w in found] == list(range(40, 71))


def test_live_windows_have_no_future():
    live = windows(_circle(duration=6.0), without_future=True)
    assert len(live) == 9
    assert all(window.future is None for window in live)
    both = windows(_circle(duration=10.0), without_future=True)
    assert [w.future is None for w in both] == [w.observation.time > 5.0 for w in both]
    assert both.skipped == Counter({NO_HISTORY: 16})


def test_intents_come_from_the_instant():
    drive = _circle()
    intents = np.where(drive.times < 6.0, 2, 1)
    found = windows(replace(drive, intents=intents))
    expected = [Intent.LEFT if w.observation.time < 6.0 else Intent.STRAIGHT for w in found]
    assert [w.observation.intent for w in found] == expected
    assert windows(drive)[0].observation.intent is Intent.UNKNOWN


@pytest.mark.parametrize("step", [0.0, -1.0, float("nan"), float("inf")])
def test_a_step_must_be_positive(step):
    with pytest.raises(SlipstreamError, match="step_s"):
        windows(_circle(), step)


# What is skipped.


def _bad_times(drive: Drive, reason: str, at: int) -> tuple[Drive, float, float]:
    """The drive with one defect, and the span that no window may overlap."""
    positions, headings = drive.positions.copy(), drive.headings.copy()
    if reason == UNKNOWN:
        positions[at] = np.nan
        span = drive.times[at - 1], drive.times[at + 1]
    elif reason == JUMP:
        positions[at:] += [3.0, 0.0]
        span = drive.times[at - 1], drive.times[at]
    else:
        keep = np.r_[0:at, at + 3 : len(drive.times)]
        span = drive.times[at - 1], drive.times[at + 3]
        speeds = drive.speeds[keep]
        times, positions, headings = drive.times[keep], positions[keep], headings[keep]
        return replace(
            drive, times=times, positions=positions, headings=headings, speeds=speeds
        ), *span
    return replace(drive, positions=positions, headings=headings), *span


@pytest.mark.parametrize("reason", [GAP, UNKNOWN, JUMP])
@given(at=st.integers(2, 295), step=st.sampled_from([0.1, 0.25, 0.4]))
@settings(max_examples=25, deadline=None)
def test_no_window_overlaps_a_defect(reason, at, step):
    whole = _circle(duration=30.0)
    drive, begin, end = _bad_times(whole, reason, at)
    found = windows(drive, step)
    assert set(found.skipped) <= {reason, UNKNOWN, NO_HISTORY, NO_FUTURE}
    for window in found:
        now = window.observation.time
        assert now + 5.0 <= begin + 1e-6 or now - 4.0 >= end - 1e-6
    # Every window that does not touch the defect is there, and is what it was.
    free = {
        round(w.observation.time, 6): w
        for w in windows(whole, step)
        if w.observation.time + 5.0 <= begin + 1e-6 or w.observation.time - 4.0 >= end - 1e-6
    }
    assert {round(w.observation.time, 6) for w in found} == set(free)
    for window in found:
        before = free[round(window.observation.time, 6)].observation
        np.testing.assert_allclose(window.observation.positions, before.positions, atol=1e-6)
        np.testing.assert_allclose(window.observation.yaw_rates, before.yaw_rates, atol=1e-9)


@given(at=st.integers(2, 295), reason=st.sampled_from([GAP, UNKNOWN, JUMP]))
@settings(max_examples=25, deadline=None)
def test_every_instant_is_a_window_or_has_a_reason(at, reason):
    drive, *_ = _bad_times(_circle(duration=30.0), reason, at)
    found = windows(drive, 0.5)
    assert len(found) + found.skipped.total() in (60, 61)  # two multiples may share a sample
    assert all(np.isfinite(w.future).all() for w in found)
    assert all(np.isfinite(getattr(w.observation, f)).all() for w in found for f in FIELDS[:5])


def test_instants_within_a_hole_are_counted():
    whole = _circle(duration=40.0)
    keep = (whole.times < 15.0) | (whole.times > 25.0)
    drive = replace(
        whole,
        times=whole.times[keep],
        positions=whole.positions[keep],
        headings=whole.headings[keep],
        speeds=whole.speeds[keep],
    )
    found = windows(drive, 0.5)
    assert found.skipped == Counter({NO_HISTORY: 8, NO_FUTURE: 10, GAP: 81 - 18 - len(found)})
    assert len(found) == 24


def test_a_turn_that_no_vehicle_makes_is_a_jump():
    drive = _circle(duration=30.0)
    headings = drive.headings.copy()
    headings[150:] += 1.0
    assert windows(replace(drive, headings=headings)).skipped[JUMP] > 30


def test_a_drive_without_any_pose():
    drive = _circle(duration=30.0)
    found = windows(replace(drive, positions=np.full((301, 2), np.nan)))
    assert len(found) == 0
    assert found.skipped == Counter({UNKNOWN: 121})


# Causality.


def _drives():
    return {
        "synthetic": synthetic_drive(5, duration=40.0),
        "uneven": _uneven(synthetic_drive(6, duration=40.0)),
    }


def _uneven(drive: Drive) -> Drive:
    """Every sample with probability 0.7, so that intervals are 0.1 to 0.3 s."""
    keep = np.random.default_rng(4).random(len(drive.times)) < 0.7
    keep[::3] = True
    return replace(
        drive,
        times=drive.times[keep],
        positions=drive.positions[keep],
        headings=drive.headings[keep],
        speeds=drive.speeds[keep],
    )


@pytest.mark.parametrize("name", ["synthetic", "uneven"])
def test_observations_know_nothing_of_what_follows(name):
    """Cutting the drive at the instant changes no bit of the observation."""
    drive = _drives()[name]
    found = windows(drive)
    assert len(found) > 60
    for window in found:
        cut = windows(_cut(drive, window.drive_index + 1), 0.01, without_future=True)
        assert cut[-1].drive_index == window.drive_index
        _same(cut[-1].observation, window.observation)


def test_boreas_observations_know_nothing_of_what_follows(boreas_excerpt):
    drive = read_boreas(boreas_excerpt)
    for window in windows(drive, 0.7):
        cut = windows(_cut(drive, window.drive_index + 1), 0.01, without_future=True)
        assert cut[-1].drive_index == window.drive_index
        _same(cut[-1].observation, window.observation)


def test_a_changed_future_does_not_change_an_observation():
    drive = synthetic_drive(7, duration=30.0)
    before = windows(drive)
    middle = before[len(before) // 2]
    later = np.arange(len(drive.times)) > middle.drive_index
    swerve = np.where(later, drive.times - middle.observation.time, 0.0)
    changed = replace(
        drive,
        positions=drive.positions + 0.5 * swerve[:, None],
        headings=drive.headings + 0.1 * swerve,
        speeds=drive.speeds + 0.3 * swerve,
    )
    after = {w.drive_index: w for w in windows(changed)}[middle.drive_index]
    _same(after.observation, middle.observation)
    assert np.abs(after.future - middle.future).max() > 1.0


# Properties.


@given(st.floats(-3.0, 3.0), st.floats(-500.0, 500.0), st.floats(-500.0, 500.0))
@settings(max_examples=20, deadline=None)
def test_where_the_world_lies_does_not_matter(turn, x, y):
    drive = synthetic_drive(8, duration=20.0)
    moved = replace(
        drive,
        positions=to_world(drive.positions, np.array([x, y]), turn),
        headings=drive.headings + turn,
    )
    for left, right in zip(windows(drive), windows(moved), strict=True):
        np.testing.assert_allclose(left.future, right.future, atol=1e-8)
        for field in FIELDS[:5]:
            np.testing.assert_allclose(
                getattr(left.observation, field), getattr(right.observation, field), atol=1e-8
            )


def test_a_mirrored_world_gives_mirrored_windows():
    drive = synthetic_drive(9, duration=30.0)
    mirrored = replace(drive, positions=drive.positions * [1.0, -1.0], headings=-drive.headings)
    for left, right in zip(windows(drive), windows(mirrored), strict=True):
        np.testing.assert_allclose(left.future * [1.0, -1.0], right.future, atol=1e-9)
        np.testing.assert_allclose(left.observation.yaw_rates, -right.observation.yaw_rates)
        np.testing.assert_array_equal(left.observation.speeds, right.observation.speeds)


def test_the_future_lies_on_the_drive():
    drive = synthetic_drive(10, duration=30.0)
    for window in windows(drive):
        world = to_world(window.future, window.pose[:2], window.pose[2])
        at = window.observation.time + np.arange(1, 21) / 4.0
        state = interpolate(drive.times, drive.positions, drive.headings, drive.speeds, at)
        np.testing.assert_allclose(world, state.positions, atol=1e-9)


def test_a_third_dimension_changes_nothing():
    drive = synthetic_drive(11, duration=20.0)
    height = np.linspace(0.0, 5.0, len(drive.times))[:, None]
    raised = replace(drive, positions=np.hstack([drive.positions, height]))
    for left, right in zip(windows(drive), windows(raised), strict=True):
        np.testing.assert_array_equal(left.future, right.future)
        _same(left.observation, right.observation)
