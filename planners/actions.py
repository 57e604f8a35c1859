"""Motions said in action tokens: accelerations and curvatures, or a codebook's moves."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from planners.inverse import first_differences, fit, second_differences
from planners.observation import RATE_HZ
from planners.slots import Bounded, Scale
from planners.text_waypoints import Step, StepCount, Steps
from planners.trajectory import to_trajectory
from planners.unicycle import TIMES, after, chain, headings_of, roll_out, speeds_of
from runtime.errors import SlipstreamError

Floats = NDArray[np.float64]
Move = tuple[Bounded, Bounded, Bounded]  # m forward, m left, rad to the left


class Unicycle(Steps):
    """Slots a1, k1, a2, k2 ..: acceleration and curvature of each step (Alpamayo-R1, arXiv
    2511.00088). The path starts with the speed that the vehicle has.

    Attributes:
        acceleration_mean, acceleration_std: a slot holds (a - mean) / std, a in m/s².
        curvature_mean, curvature_std: the same for the curvature in 1/m, left positive.
    """

    kind: Literal["unicycle"] = "unicycle"
    step: Step = 0.1
    count: StepCount = 64
    acceleration_mean: Bounded = 0.0
    acceleration_std: Scale = 1.0
    curvature_mean: Bounded = 0.0
    curvature_std: Scale = 1.0

    @property
    def slots(self) -> list[str]:
        return [f"{name}{k}" for k in range(1, self.count + 1) for name in "ak"]

    def trajectory(self, values: Floats, v0: float, a0: float) -> Floats:
        """[20, 2] m at 4 Hz, of the slots' values in their order, up to 5 s."""
        pairs = values.reshape(-1, 2)
        acceleration = pairs[:, 0] * self.acceleration_std + self.acceleration_mean
        curvature = pairs[:, 1] * self.curvature_std + self.curvature_mean
        return roll_out(acceleration, curvature, v0, self.step)

    def values(self, future: Floats, v0: float, a0: float) -> Floats:
        """The slots' values whose path is nearest to a driven one [20, 2] m, and smooth.

        Neighbours' second differences are kept small, as Alpamayo's labels are; beyond 5 s the last
        acceleration and curvature fade out.
        """
        n = self.count
        ends = self.step * np.arange(n + 1)
        speeds = np.interp(ends, np.concatenate([[0.0], TIMES]), speeds_of(future, v0))
        headings = np.interp(
            ends, np.concatenate([[0.0], TIMES]), np.append(0, headings_of(future))
        )
        travelled = np.maximum((speeds[:-1] + speeds[1:]) / 2 * self.step, 0.05)
        start = np.concatenate([np.diff(speeds) / self.step, np.diff(headings) / travelled])
        smooth = np.zeros((2 * (2 * n - 3) + n, 2 * n))
        rough = np.concatenate(
            [0.02 / self.step * second_differences(n), 0.02 * first_differences(n)]
        )
        smooth[: 2 * n - 3, :n] = rough
        smooth[2 * n - 3 : 4 * n - 6, n:] = 10.0 * rough
        smooth[4 * n - 6 :, n:] = 0.003 * np.eye(n)

        def path(numbers: Floats) -> Floats:
            return roll_out(numbers[:, :n], numbers[:, n:], v0, self.step)

        found = fit(path, start, future, smooth)
        acceleration = (found[:n] - self.acceleration_mean) / self.acceleration_std
        curvature = (found[n:] - self.curvature_mean) / self.curvature_std
        return np.asarray(np.stack([acceleration, curvature], -1).ravel())


class Codebook(Steps):
    """Slots t1, t2 ..: entries of a table of moves, one a step (AutoVLA, arXiv 2506.13757: K-disk
    clusters, 10 of 0.5 s). A move is in the frame that the move before it leads to.

    Attributes:
        moves: [M] of each entry: m forward, m left, rad to the left.
        length, width: m, of the box whose corners say how near a move is.
    """

    kind: Literal["codebook"] = "codebook"
    step: Step = 0.5
    count: StepCount = 10
    moves: tuple[Move, ...] = Field(min_length=2, max_length=1 << 16)
    length: Scale = 4.8
    width: Scale = 2.0

    @property
    def slots(self) -> list[str]:
        return [f"t{k}" for k in range(1, self.count + 1)]

    def trajectory(self, values: Floats, v0: float, a0: float) -> Floats:
        """[20, 2] m at 4 Hz: the smoothest path through the moves' ends.

        Raises:
            ValueError: a number that is no entry; the slots' bins let none through.
        """
        entries = np.round(values).astype(np.int64)
        if (entries != values).any() or (entries < 0).any() or (entries >= len(self.moves)).any():
            raise ValueError(f"entries {values} of a codebook of {len(self.moves)}")
        poses = chain(np.array(self.moves)[entries])
        return to_trajectory(poses[:, :2], v0, a0, self.step)

    def values(self, future: Floats, v0: float, a0: float) -> Floats:
        """The entries that follow a driven path [20, 2] m, each the best from where the ones before
        it led: errors don't add up.

        Raises:
            SlipstreamError: the steps don't fall on the path's points.
        """
        every = self.step * RATE_HZ
        if not math.isclose(every, round(every)) or round(every) * self.count > len(future):
            raise SlipstreamError(
                "the path does not have this codebook's steps",
                expected=f"steps that are multiples of {1 / RATE_HZ:g} s, 5 s in all",
                found=f"{self.count} of {self.step:g} s",
                fix="resample the codebook's moves",
            )
        moves, pose, entries = np.array(self.moves), np.zeros(3), []
        headings = headings_of(future)
        for k in range(1, self.count + 1):
            point = round(every) * k - 1
            target = np.array([*future[point], headings[point]])
            reached = after(pose, moves)
            apart = self._corners(reached) - self._corners(target)
            best = int(np.linalg.norm(apart, axis=-1).mean(-1).argmin())
            entries.append(best)
            pose = reached[best]
        return np.array(entries, np.float64)

    def _corners(self, poses: Floats) -> Floats:
        """[..., 4, 2] m, of the box around each pose [..., 3]."""
        signs = np.array([(1, 1), (1, -1), (-1, -1), (-1, 1)])
        x, y = (signs * [self.length / 2, self.width / 2]).T
        cos, sin = np.cos(poses[..., 2:]), np.sin(poses[..., 2:])
        corners = np.stack([cos * x - sin * y, sin * x + cos * y], -1)
        return np.asarray(poses[..., None, :2] + corners)
