"""Windows that a data set stores ready cut, with their past, future and ratings (WOD-E2E)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drives.motion import causal_derivative, segment_starts
from drives.rater import Rated
from planners.observation import RATE_HZ, Intent, Observation

Floats = NDArray[np.float64]

SLOW = 0.5  # m/s below which a course says nothing about the heading
_YAW_SPAN = 0.5  # s of headings behind a yaw rate


@dataclass(frozen=True, eq=False)
class RecordedWindow:
    """One instant as the data set cut it, in the ego frame of that instant.

    Attributes:
        name: what the data set calls the instant.
        time: s on the drive's clock.
        sample: the drive's sample at the instant.
        positions: [16, 2] m, 3.75 s ago to now; the last is (0, 0).
        headings: [16] rad; the last is 0.
        speeds: [16] m/s along the heading.
        accelerations: [16] m/s² along the heading.
        future: [20, 2] m, 0.25 s to 5 s ahead, or None.
        intent: the navigation command.
        rated: what raters said, or None.
    """

    name: str
    time: float
    sample: int
    positions: Floats
    headings: Floats
    speeds: Floats
    accelerations: Floats
    future: Floats | None
    intent: Intent
    rated: Rated | None

    def observation(self, frame: int) -> Observation:
        """What a planner sees; yaw rates are slopes of the headings of the 0.5 s before."""
        times = np.arange(len(self.headings)) / RATE_HZ
        unbroken = segment_starts(np.zeros(len(times) - 1, bool))
        return Observation(
            positions=self.positions,
            headings=self.headings,
            speeds=self.speeds,
            accelerations=self.accelerations,
            yaw_rates=causal_derivative(times, self.headings, unbroken, _YAW_SPAN),
            intent=self.intent,
            time=self.time,
            frame=frame,
        )


def along_the_way(velocities: Floats, heading: float) -> tuple[Floats, Floats]:
    """Headings [m] rad and speeds [m] m/s along them of a vehicle that does not slip.

    Read from one end: each heading is the course or its opposite (reverse), whichever is nearer to
    the one before; below 0.5 m/s it stays.

    Args:
        velocities: [m, 2] m/s in a fixed frame.
        heading: rad, before the first row.
    """
    headings, speeds = np.empty(len(velocities)), np.empty(len(velocities))
    for row, (x, y) in enumerate(velocities):
        if np.hypot(x, y) >= SLOW:
            half = np.arctan2(y, x) - heading
            heading += half - np.pi * np.round(half / np.pi)
        headings[row] = heading
        speeds[row] = x * np.cos(heading) + y * np.sin(heading)
    return headings, speeds
