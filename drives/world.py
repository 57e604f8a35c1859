"""A replay in the drive's world frame, as files for viewers show it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drives.drive import MAX_GAP, Drive
from drives.frames import to_world
from drives.replay import Replay

Floats = NDArray[np.float64]

_STEP = 0.05  # s between poses that are written; recordings have up to some hundred a second


@dataclass(frozen=True, eq=False)
class WorldFrame:
    """One frame of a replay.

    Attributes:
        number: of the frame.
        time: s on the drive's clock.
        origin: [3] m, the rear axle in the world.
        heading: rad.
    """

    number: int
    time: float
    origin: Floats
    heading: float

    def path(self, points: Floats) -> Floats:
        """Ego points [n, 2] in the world, from the vehicle on: [n + 1, 3] m, at its height."""
        whole = np.concatenate([np.zeros((1, 2)), points])
        flat = to_world(whole, self.origin[:2], self.heading)
        return np.column_stack([flat, np.full(len(flat), self.origin[2])])

    def headings(self, points: Floats) -> Floats:
        """[n + 1] rad in the world, along `path`; where it does not move on, as before."""
        whole = np.concatenate([np.zeros((1, 2)), points])
        course, heading = [], 0.0
        for x, y in np.gradient(whole, axis=0):
            heading = float(np.arctan2(y, x)) if np.hypot(x, y) > 0.05 else heading
            course.append(heading)
        return np.array(course) + self.heading


def world_frames(replay: Replay, drive: Drive) -> Iterator[WorldFrame]:
    """Every frame of the replay, in its order."""
    heights = positions(drive)[:, 2]
    for window in replay.windows:
        x, y, heading = (float(value) for value in window.pose)
        origin = np.array([x, y, heights[window.drive_index]])
        yield WorldFrame(window.observation.frame, window.observation.time, origin, heading)


def positions(drive: Drive) -> Floats:
    """[n, 3] m; z is 0 where the drive has none."""
    flat = np.zeros((len(drive.times), 1))
    return drive.positions if drive.positions.shape[1] == 3 else np.hstack([drive.positions, flat])


def thinned_rows(drive: Drive) -> Iterator[tuple[float, Floats, float]]:
    """Time (s), position [3] (m) and heading (rad) of known samples at least 50 ms apart."""
    place, last = positions(drive), -np.inf
    for row in np.flatnonzero(drive.valid):
        if drive.times[row] - last >= _STEP - 1e-6:
            last = float(drive.times[row])
            yield last, place[row], float(drive.headings[row])


def stretches(drive: Drive) -> list[Floats]:
    """The path in pieces [k, 3] m without gaps or unknown poses."""
    rows = list(thinned_rows(drive))
    times, place = np.array([row[0] for row in rows]), np.array([row[1] for row in rows])
    cuts = np.flatnonzero(np.diff(times) > MAX_GAP) + 1
    return [piece for piece in np.split(place, cuts) if len(piece) > 1]
