"""From poses in a map frame, as a vehicle has them, to an observation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from drives.drive import MAX_GAP, Drive
from drives.motion import causal_derivative, segment_starts
from drives.windows import last_window
from planners.observation import Intent, Observation
from runtime.errors import SlipstreamError

Floats = NDArray[np.float64]

NAME = "of the given poses"  # as errors call it
_SPEED_SPAN = 0.5  # s of poses behind a speed


def observation(
    times: ArrayLike,
    poses: ArrayLike,
    speeds: ArrayLike | None = None,
    command: Intent | str = Intent.UNKNOWN,
    frame: int = 0,
) -> Observation:
    """The observation at the last of some poses: moved into its ego frame, resampled to 4 Hz.

    It is made as in a replay: positions, headings and speeds interpolated between samples,
    accelerations and yaw rates as slopes of the 0.5 s before each state. Poses older than 3.75 s
    change little and may be left away; with half a second more, the oldest slopes are those of a
    replay.

    Args:
        times: [n] s, increasing, on any clock; samples at most 0.3 s apart.
        poses: [n, 3] x and y in m of the middle of the rear axle, and heading in rad, left
            positive, in any fixed, right-handed map frame; headings may wrap.
        speeds: [n] m/s along the heading, negative in reverse; None takes them from the poses.
        command: where to go: an Intent, or "straight", "left", "right", "unknown".
        frame: running number; with it the random draws of each plan are its own.

    Returns:
        `time` is the last of `times`.

    Raises:
        SlipstreamError: arrays that don't fit together, time stamps that don't increase, less than
            3.75 s of history, or a gap, a pose that is not finite or a jump in it.
    """
    stamps, given = _numbers("times", times, 1), _numbers("poses", poses, 2)
    if given.shape != (len(stamps), 3):
        raise _bad("poses", f"shape [{len(stamps)}, 3], a row for each time", list(given.shape))
    known = np.isfinite(given).all(axis=1)
    headings = given[:, 2].copy()
    headings[known] = np.unwrap(headings[known])
    along = _speeds(stamps, given, headings) if speeds is None else _numbers("speeds", speeds, 1)
    if len(along) != len(stamps):
        raise _bad("speeds", f"{len(stamps)} numbers, one for each time", len(along))
    drive = Drive(
        name=NAME,
        source="given poses",
        licence="",
        synthetic=False,
        times=stamps - stamps[:1],
        positions=given[:, :2],
        headings=headings,
        speeds=along,
        intents=np.full(len(stamps), int(_intent(command))),
    )
    return replace(last_window(drive).observation, time=float(stamps[-1]), frame=frame)


def _speeds(times: Floats, poses: Floats, headings: Floats) -> Floats:
    """[n] m/s along the heading, from a parabola through the poses of the last 0.5 s."""
    known = np.asarray(np.isfinite(poses).all(axis=1))
    broken = (np.diff(times) > MAX_GAP) | ~known[1:] | ~known[:-1]
    starts = segment_starts(broken)
    x, y = (causal_derivative(times, poses[:, axis], starts, _SPEED_SPAN, 2) for axis in (0, 1))
    return np.where(known, x * np.cos(headings) + y * np.sin(headings), np.nan)


def _numbers(name: str, values: Any, dimensions: int) -> Floats:
    try:
        array = np.asarray(values, np.float64)
    except (TypeError, ValueError) as error:
        raise _bad(name, "numbers", str(error)) from error
    if array.ndim != dimensions:
        raise _bad(name, f"an array of {dimensions} dimensions", f"shape {list(array.shape)}")
    return array


def _intent(command: Intent | str) -> Intent:
    names = {intent.name.lower(): intent for intent in Intent}
    if isinstance(command, str) and command.lower() in names:
        return names[command.lower()]
    if not isinstance(command, str) and command in tuple(Intent):
        return Intent(command)
    raise _bad("command", f"an Intent, or {', '.join(names)}", repr(command))


def _bad(name: str, expected: str, found: object) -> SlipstreamError:
    return SlipstreamError(
        f"{name} of an observation can't be used",
        expected=expected,
        found=str(found)[:200],
        fix="see the docstring of `slipstream.observation`",
    )
