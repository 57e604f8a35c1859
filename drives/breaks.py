"""Where a drive can't be trusted from one sample to the next, and why."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drives.drive import MAX_GAP, Drive

Floats = NDArray[np.float64]

GAP = f"gap over {MAX_GAP} s"
UNKNOWN = "NaN pose"
JUMP = "pose jump"

_ROUNDING = 1e-6  # s
_FASTEST = 70.0  # m/s
_SURPRISE = 1.0  # m between where the speeds lead and where the next sample is
_FASTEST_TURN = 2.5  # rad/s


@dataclass(frozen=True, eq=False)
class Steps:
    """The usable samples of a drive and the steps between them.

    Attributes:
        samples: [m] indices of the samples whose pose is known.
        reasons: [m - 1] why a step is broken, "" where it is sound.
    """

    samples: NDArray[np.int64]
    reasons: NDArray[np.str_]

    @property
    def broken(self) -> NDArray[np.bool_]:
        """[m - 1] True where a step is broken."""
        return np.asarray(self.reasons != "")


def steps(drive: Drive) -> Steps:
    """Judge every step of a drive, each from its two samples alone.

    A step is a jump if it is faster than 70 m/s, ends over 1 m from where the mean of the two
    speeds leads, or turns faster than 2.5 rad/s.
    """
    samples = np.flatnonzero(drive.valid)
    times = drive.times[samples]
    across = np.diff(times)
    moved = np.hypot(*np.diff(drive.positions[samples, :2], axis=0).T)
    speeds = np.abs(drive.speeds[samples])
    expected = 0.5 * (speeds[1:] + speeds[:-1]) * across
    turned = np.abs(np.diff(drive.headings[samples]))
    jump = (moved > _FASTEST * across) | (np.abs(moved - expected) > _SURPRISE)
    jump |= turned > _FASTEST_TURN * across
    reasons = np.where(jump, JUMP, "")
    reasons = np.where(across > MAX_GAP + _ROUNDING, GAP, reasons)
    reasons = np.where(np.diff(samples) > 1, UNKNOWN, reasons)
    return Steps(samples, reasons)
