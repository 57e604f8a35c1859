"""What the planner sees at one instant: recent ego motion and where it is meant to go."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.errors import SlipstreamError

Floats = NDArray[np.float64]

RATE_HZ = 4.0
PAST_STATES = 16  # t - 3.75 s .. t
FUTURE_STATES = 20  # t + 0.25 s .. t + 5 s
_SERIES = ("positions", "headings", "speeds", "accelerations", "yaw_rates")
_MOST = 1e9  # of any unit; far beyond a vehicle, and no arithmetic overflows
_OFF_FRAME = 0.05  # m and rad; more means that the states are in another frame


class Intent(IntEnum):
    """Navigation command, numbered as in WOD-E2E."""

    UNKNOWN = 0
    STRAIGHT = 1
    LEFT = 2
    RIGHT = 3


@dataclass(frozen=True, eq=False)
class Observation:
    """Ego history at 4 Hz in the ego frame of the last state (x forward, y left, rear axle).

    Two observations are equal only if they are the same object; compare their arrays instead.
    Arrays of any integers or floats are taken; what is kept are read-only float64 copies.
    `slipstream.observation` makes one from poses in a map frame.

    Attributes:
        positions: [16, 2] m; the last row is (0, 0).
        headings: [16] rad, relative to the last state (whose heading is 0), left positive.
        speeds: [16] m/s, along the heading; negative when reversing.
        accelerations: [16] m/s², along the heading.
        yaw_rates: [16] rad/s, left positive.
        intent: the navigation command.
        time: s, the instant of the last state, on the drive's clock.
        frame: running number of the window within its drive.
        images: camera name -> its picture, uint8 [height, width, 3] (red, green, blue), or as many
            frames as the bundle takes, oldest first; None without cameras. A planner looks only at
            the cameras of its bundle, so that a mapping may decode them when they are asked for.

    Raises:
        SlipstreamError: another shape, a NaN, an infinity or a number beyond 1e9, or a field of
            another type.
    """

    positions: Floats
    headings: Floats
    speeds: Floats
    accelerations: Floats
    yaw_rates: Floats
    intent: Intent = Intent.UNKNOWN
    time: float = 0.0
    frame: int = 0
    images: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        for name in _SERIES:
            object.__setattr__(self, name, _kept(name, getattr(self, name)))
        given: dict[str, Any] = {"intent": self.intent, "frame": self.frame, "time": self.time}
        intent, frame, time = given.values()  # Python's callers may give anything
        if not _is_a(intent, Integral) or intent not in tuple(Intent):
            raise _bad("intent", "an Intent", repr(intent)[:80])
        if not _is_a(frame, Integral) or not 0 <= frame < 1 << 32:
            raise _bad("frame", "a whole number of at least 0, below 2^32", repr(frame)[:80])
        if not _is_a(time, Real) or not abs(time) <= sys.float_info.max:
            raise _bad("time", "a finite number of seconds", repr(time)[:80])
        settled = {"intent": Intent(intent), "frame": int(frame), "time": float(time)}
        for name, value in settled.items():  # 2 is Intent.LEFT; numbers of numpy become plain ones
            object.__setattr__(self, name, value)
        if self.images is not None and not isinstance(self.images, Mapping):
            raise _bad("images", "a mapping: camera name -> picture", _described(self.images))

    def check_frame(self) -> None:
        """Refuse a history that is in another frame than that of its last state.

        Raises:
            SlipstreamError: the last state is not at (0, 0) with heading 0.
        """
        (x, y), heading = self.positions[-1], self.headings[-1]
        if max(abs(x), abs(y), abs(heading)) > _OFF_FRAME:
            raise SlipstreamError(
                "the observation is not in the ego frame of its last state",
                expected="the last state at (0, 0) m with heading 0, the newest state last",
                found=f"({x:.2f}, {y:.2f}) m, heading {heading:.2f} rad",
                fix="move and turn all states into the frame of the last one",
            )


def _kept(name: str, values: object) -> Floats:
    """A copy that no one writes to: what was checked is what is planned from."""
    shape = (PAST_STATES, 2) if name == "positions" else (PAST_STATES,)
    if not isinstance(values, np.ndarray) or values.shape != shape:
        raise _bad(name, f"a numpy array of shape {list(shape)}", _described(values))
    if values.dtype.kind in "fiu" and not np.any(getattr(values, "mask", False)):
        with np.errstate(over="ignore"):  # a wider float may become infinite
            kept = np.array(values, np.float64)
        if (np.abs(kept) <= _MOST).all():  # NaN is not
            kept.flags.writeable = False
            return kept
    found = np.array2string(values, precision=2, separator=",", threshold=8)
    raise _bad(name, f"finite numbers up to {_MOST:g}", " ".join(found.split())[:200])


def _is_a(value: object, kind: type) -> bool:
    """True is a number to Python, and a mistake here."""
    return isinstance(value, kind) and not isinstance(value, bool)


def _described(values: object) -> str:
    if isinstance(values, np.ndarray):
        return f"shape {list(values.shape)}"
    return f"a {type(values).__name__}"


def _bad(name: str, expected: str, found: str) -> SlipstreamError:
    return SlipstreamError(
        f"{name} of the observation can't be planned from",
        expected=expected,
        found=found,
        fix="mend or skip the frame; `slipstream drives info DRIVE` lists a drive's gaps",
    )
