"""Motions that a model writes as numbers in text: waypoints, or speeds and curvatures."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from planners.inverse import fit, second_differences
from planners.observation import FUTURE_STATES, RATE_HZ
from planners.slots import Scale, Strict
from planners.trajectory import to_trajectory
from planners.unicycle import TIMES, headings_of, speeds_of
from runtime.errors import SlipstreamError

Floats = NDArray[np.float64]

HORIZON = FUTURE_STATES / RATE_HZ  # s
_FINE = 0.05  # s; divides a plan's step


Step = Annotated[float, Field(strict=True, ge=1e-3, le=60)]
StepCount = Annotated[int, Field(strict=True, gt=1, le=1 << 9)]


class Steps(Strict):
    """What is said for each of `count` steps, the first one `step` seconds ahead."""

    step: Step  # s
    count: StepCount

    @model_validator(mode="after")
    def _reaches_far_enough(self) -> Steps:
        if self.step * self.count < HORIZON - 1e-9:
            raise ValueError(
                f"{self.count} steps of {self.step} s end before the plan does, at {HORIZON:g} s"
            )
        return self

    @property
    def times(self) -> Floats:
        """[count] s"""
        return np.asarray(self.step * np.arange(1, self.count + 1), np.float64)


class Waypoints(Steps):
    """Slots x1, y1, x2, y2 ..: where the vehicle will be, in m (x forward, y left).

    The trajectory is the smoothest one through them (`planners.trajectory`). EMMA's plain text
    (arXiv 2410.23262), Poutine's and Fast-dDrive's are of this kind.
    """

    kind: Literal["waypoints"] = "waypoints"
    step: Step = 1.0
    count: StepCount = 5

    @property
    def slots(self) -> list[str]:
        return [f"{axis}{k}" for k in range(1, self.count + 1) for axis in "xy"]

    def trajectory(self, values: Floats, v0: float, a0: float) -> Floats:
        """[20, 2] m at 4 Hz, of the slots' values in their order."""
        return to_trajectory(values.reshape(-1, 2), v0, a0, self.step)

    def values(self, future: Floats, v0: float, a0: float) -> Floats:
        """The slots' values of a driven path [20, 2] m at 4 Hz.

        Raises:
            SlipstreamError: the waypoints reach further than the path.
        """
        if self.times[-1] > HORIZON + 1e-9:
            raise SlipstreamError(
                "the path is too short for this language's waypoints",
                expected=f"{self.times[-1]:g} s",
                found=f"{HORIZON:g} s",
                fix="train on waypoints within the plan's horizon",
            )
        path = np.concatenate([np.zeros((1, 2)), future])
        places = np.concatenate([[0.0], TIMES])
        return np.stack([np.interp(self.times, places, axis) for axis in path.T], -1).ravel()


class SpeedCurvature(Steps):
    """Slots v1, k1, v2, k2 ..: the speed and the curvature at the end of each step.

    OpenEMMA, arXiv 2412.15208. Between the ends both are linear; in front of the first one, the
    speed is from now's on, and the curvature the first one's.

    Attributes:
        curvature_scale: a slot holds the curvature in 1/m times this; OpenEMMA's is 100.
        speed_seconds: a slot holds the way in m for so many seconds; OpenEMMA's code has metres per
            step of 0.5 s where it says speed.
    """

    kind: Literal["speed_curvature"] = "speed_curvature"
    step: Step = 0.5
    count: StepCount = 10
    curvature_scale: Scale = 100.0
    speed_seconds: Scale = 1.0

    @property
    def slots(self) -> list[str]:
        return [f"{name}{k}" for k in range(1, self.count + 1) for name in "vk"]

    def trajectory(self, values: Floats, v0: float, a0: float) -> Floats:
        """[20, 2] m at 4 Hz, of the slots' values in their order; a0 is not asked for."""
        pairs = values.reshape(-1, 2)
        speeds, curvatures = pairs[:, 0] / self.speed_seconds, pairs[:, 1] / self.curvature_scale
        return np.asarray(self._path(np.concatenate([speeds, curvatures])[None], v0)[0])

    def values(self, future: Floats, v0: float, a0: float) -> Floats:
        """The slots' values whose path is nearest to a driven one [20, 2] m, and smooth."""
        n = self.count
        places = np.concatenate([[0.0], TIMES])
        speeds = np.interp(self.times, places, speeds_of(future, v0))
        headings = np.interp(self.times, TIMES, headings_of(future))
        turned = np.diff(headings, prepend=0.0)
        curvatures = turned / np.maximum(speeds * self.step, 0.5)
        smooth = np.zeros((2 * n - 4 + n, 2 * n))
        smooth[: n - 2, :n] = 0.01 * second_differences(n)
        smooth[n - 2 : 2 * n - 4, n:] = 0.3 * second_differences(n)
        smooth[2 * n - 4 :, n:] = 0.01 * np.eye(n)
        start = np.concatenate([speeds, curvatures])
        found = fit(lambda each: self._path(each, v0), start, future, smooth)
        pairs = np.stack([found[:n] * self.speed_seconds, found[n:] * self.curvature_scale], -1)
        return np.asarray(pairs.ravel())

    def _path(self, numbers: Floats, v0: float) -> Floats:
        """[B, 20, 2] m of speeds and curvatures [B, 2 count] at the steps' ends."""
        n, fine = self.count, np.arange(0.0, HORIZON + _FINE / 2, _FINE)
        at = np.concatenate([[0.0], self.times])
        weights = np.stack([np.interp(fine, at, row) for row in np.eye(n + 1)], -1)  # [F, n+1]
        now = np.full((len(numbers), 1), v0)
        speed = np.concatenate([now, numbers[:, :n]], -1) @ weights.T
        curvature = np.concatenate([numbers[:, n : n + 1], numbers[:, n:]], -1) @ weights.T
        heading = _integral(speed * curvature)
        x, y = _integral(speed * np.cos(heading)), _integral(speed * np.sin(heading))
        every = round(1 / RATE_HZ / _FINE)
        return np.stack([x, y], -1)[:, every::every]


def _integral(rows: Floats) -> Floats:
    """[B, F] the integral up to each fine step, by the trapezoid rule."""
    parts = (rows[:, 1:] + rows[:, :-1]) * (_FINE / 2)
    return np.concatenate([np.zeros((len(rows), 1)), np.cumsum(parts, axis=-1)], -1)
