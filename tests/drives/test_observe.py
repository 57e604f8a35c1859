"""Poses of a map frame become the observation that a replay would have made of them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import slipstream
from drives.drive import Drive
from drives.readers.synthetic import synthetic_drive
from drives.windows import windows
from planners.observation import Intent, Observation
from runtime.errors import SlipstreamError

DRIVE = synthetic_drive(4)
FIELDS = ("positions", "headings", "speeds", "accelerations", "yaw_rates")


def history(until: int, samples: int = 60, drive: Drive = DRIVE) -> dict[str, np.ndarray]:
    """The `samples` before a sample of the drive, and that one."""
    rows = slice(max(until - samples + 1, 0), until + 1)
    return {
        "times": drive.times[rows],
        "poses": np.column_stack([drive.positions[rows], drive.headings[rows]]),
        "speeds": drive.speeds[rows],
    }


def agree(found: Observation, expected: Observation, atol: float = 1e-9) -> None:
    for name in FIELDS:
        np.testing.assert_allclose(
            getattr(found, name), getattr(expected, name), atol=atol, err_msg=name
        )


def test_it_is_what_a_replay_sees() -> None:
    for window in windows(DRIVE).windows[5::97]:
        found = slipstream.observation(**history(window.drive_index))
        agree(found, window.observation)
        assert found.time == window.observation.time
        assert found.intent is Intent.UNKNOWN
        found.check_frame()


def test_the_map_frame_and_the_clock_do_not_matter() -> None:
    given = history(900)
    expected = slipstream.observation(**given)
    turn, shift = 2.5, np.array([4e5, 5e6])  # UTM-like
    rotation = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    x, y, heading = given["poses"].T
    moved = np.column_stack([np.column_stack([x, y]) @ rotation.T + shift, heading + turn])
    moved[:, 2] = (moved[:, 2] + np.pi) % (2 * np.pi) - np.pi  # headings wrap
    found = slipstream.observation(given["times"] + 1.7e9, moved, given["speeds"], "LEFT", 7)
    agree(found, expected, atol=2e-5)
    assert (found.intent, found.frame) == (Intent.LEFT, 7)
    assert found.time == pytest.approx(1.7e9 + given["times"][-1])


def test_speeds_come_from_the_poses_where_none_are_given() -> None:
    exact = synthetic_drive(4, noise=0.0)
    given = history(900, drive=exact)
    found = slipstream.observation(given["times"], given["poses"])
    expected = slipstream.observation(**given)
    np.testing.assert_allclose(found.speeds[2:], expected.speeds[2:], atol=0.1)
    backwards = given["poses"].copy()
    backwards[:, 2] += np.pi
    reversing = slipstream.observation(given["times"], backwards)
    np.testing.assert_allclose(reversing.speeds, -found.speeds, atol=1e-9)


def test_sixteen_states_at_4_hz_suffice() -> None:
    at = np.arange(16) * 0.25
    poses = np.column_stack([10.0 * at, np.zeros(16), np.zeros(16)])
    found = slipstream.observation(at, poses.tolist(), [10.0] * 16, Intent.STRAIGHT)
    np.testing.assert_allclose(found.positions[:, 0], 10.0 * (at - 3.75), atol=1e-9)
    np.testing.assert_allclose(found.accelerations, 0.0, atol=1e-9)
    assert found.intent is Intent.STRAIGHT


def without(rows: slice) -> dict[str, np.ndarray]:
    return {name: np.delete(values, rows, axis=0) for name, values in history(900).items()}


def changed(name: str, row: int, value: float) -> dict[str, np.ndarray]:
    given = {key: values.copy() for key, values in history(900).items()}
    given[name][row] = value
    return given


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (without(slice(40, 45)), r"gap over 0\.3 s, 2\.00 s before the last instant"),
        (without(slice(0, 30)), r"3\.75 s before.*found: 2\.90 s"),
        (changed("poses", 30, np.nan), "NaN pose"),
        (changed("poses", -1, np.inf), "at the last instant"),
        (changed("speeds", -1, np.nan), "at the last instant"),
        (changed("poses", 50, 999.0), "pose jump"),
        (changed("times", 10, 1e9), "another unit|bad time stamp"),
        (changed("times", 10, 0.0), "bad time stamp"),
        (history(900) | {"times": np.array([])}, "poses"),
        (history(900) | {"times": "now"}, "times"),
        (history(900) | {"poses": np.zeros((60, 2))}, r"shape \[60, 3\]"),
        (history(900) | {"poses": np.zeros(60)}, "2 dimensions"),
        (history(900) | {"speeds": np.zeros(59)}, "speeds"),
        (history(900) | {"command": "back"}, "command"),
        (history(900) | {"command": 9}, "command"),
        (history(900) | {"frame": -1}, "frame"),
    ],
)
def test_what_no_observation_can_be_made_of_is_named(given: dict[str, Any], says: str) -> None:
    with pytest.raises(SlipstreamError) as caught:
        slipstream.observation(**given)
    assert re.search(says, str(caught.value), re.DOTALL)
    assert caught.value.fix


def test_trouble_before_the_history_does_not_matter() -> None:
    long = history(900, samples=200)
    expected = slipstream.observation(**history(900))
    for name in ("poses", "speeds"):
        spoilt = {key: values.copy() for key, values in long.items()}
        spoilt[name][100] = np.nan
        agree(slipstream.observation(**spoilt), expected)
