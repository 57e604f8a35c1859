"""What the planner sees at one instant: recent ego motion and where it is meant to go."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from runtime.errors import SlipstreamError

Floats = NDArray[np.float64]

RATE_HZ = 4.0
PAST_STATES = 16  # t - 3.75 s .. t
FUTURE_STATES = 20  # t + 0.25 s .. t + 5 s


class Intent(IntEnum):
    """Navigation command, numbered as in WOD-E2E."""

    UNKNOWN = 0
    STRAIGHT = 1
    LEFT = 2
    RIGHT = 3


@dataclass(frozen=True)
class Observation:
    """Ego history at 4 Hz in the ego frame of the last state (x forward, y left, rear axle).

    Attributes:
        positions: [16, 2] m; the last row is (0, 0).
        headings: [16] rad, relative to the last state (whose heading is 0), left positive.
        speeds: [16] m/s, along the heading; negative when reversing.
        accelerations: [16] m/s², along the heading.
        yaw_rates: [16] rad/s, left positive.
        intent: the navigation command.
        time: s, the instant of the last state, on the drive's clock.
        frame: running number of the window within its drive.

    Raises:
        SlipstreamError: another shape, or a NaN or infinity.
    """

    positions: Floats
    headings: Floats
    speeds: Floats
    accelerations: Floats
    yaw_rates: Floats
    intent: Intent = Intent.UNKNOWN
    time: float = 0.0
    frame: int = 0

    def __post_init__(self) -> None:
        for name in ("positions", "headings", "speeds", "accelerations", "yaw_rates"):
            shape = (PAST_STATES, 2) if name == "positions" else (PAST_STATES,)
            values = getattr(self, name)
            if not isinstance(values, np.ndarray) or values.shape != shape:
                raise _bad(name, f"an array of shape {list(shape)}", str(np.shape(values)))
            if values.dtype.kind not in "fiu" or not np.isfinite(values).all():
                raise _bad(name, "finite numbers", np.array2string(values, precision=2))
        if self.intent not in tuple(Intent):
            raise _bad("intent", "an Intent", repr(self.intent))
        if not isinstance(self.frame, int | np.integer) or self.frame < 0:
            raise _bad("frame", "a whole number of at least 0", repr(self.frame))


def _bad(name: str, expected: str, found: str) -> SlipstreamError:
    return SlipstreamError(
        f"{name} of the observation can't be planned from",
        expected=expected,
        found=found,
        fix="mend or skip the frame; `slipstream drives info DRIVE` lists a drive's gaps",
    )
