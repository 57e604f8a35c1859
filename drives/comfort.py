"""How a planned trajectory would feel: acceleration, jerk, turning, and driving backwards.

Everything is worked out from the points and the speed now, so that plans of any source are judged
alike. Missing data: a trajectory with a NaN has NaN everywhere and is not comfortable; count such
frames apart.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from planners.observation import FUTURE_STATES, RATE_HZ
from runtime.errors import SlipstreamError

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

# Bounds of nuPlan's comfort metric (and of NAVSIM's), from human driving.
MAX_ACCELERATION = 2.40  # m/s²
MIN_ACCELERATION = -4.05
MAX_LATERAL_ACCELERATION = 4.89
MAX_JERK = 4.13  # m/s³, along the path
MAX_JERK_MAGNITUDE = 8.37
MAX_YAW_RATE = 0.95  # rad/s
MAX_YAW_ACCELERATION = 1.93  # rad/s²

STANDING = 0.05  # m in a step (0.2 m/s); below it a direction is noise
_STEP = 1.0 / RATE_HZ


@dataclass(frozen=True, eq=False)
class Comfort:
    """Series along trajectories [..., 20, 2]; one entry a step unless it says otherwise.

    Attributes:
        speeds: [..., 20] m/s, mean over each step, negative backwards.
        accelerations: [..., 20] m/s² along the path, the first from the speed now to that of the
            first step.
        lateral_accelerations: [..., 20] m/s², left positive.
        jerks: [..., 18] m/s³ along the path.
        jerk_magnitudes: [..., 18] m/s³, of the jerk in the plane.
        yaw_rates: [..., 20] rad/s, left positive.
        yaw_accelerations: [..., 19] rad/s².
        curvatures: [..., 20] 1/m, left positive; 0 while standing.
        reverse: [...] m driven backwards.
    """

    speeds: Floats
    accelerations: Floats
    lateral_accelerations: Floats
    jerks: Floats
    jerk_magnitudes: Floats
    yaw_rates: Floats
    yaw_accelerations: Floats
    curvatures: Floats
    reverse: Floats

    @property
    def comfortable(self) -> Bools:
        """[...] every bound of nuPlan kept."""
        kept = (self.accelerations <= MAX_ACCELERATION) & (self.accelerations >= MIN_ACCELERATION)
        kept &= np.abs(self.lateral_accelerations) <= MAX_LATERAL_ACCELERATION
        kept &= np.abs(self.yaw_rates) <= MAX_YAW_RATE
        smooth = (np.abs(self.jerks) <= MAX_JERK).all(axis=-1)
        smooth &= (self.jerk_magnitudes <= MAX_JERK_MAGNITUDE).all(axis=-1)
        smooth &= (np.abs(self.yaw_accelerations) <= MAX_YAW_ACCELERATION).all(axis=-1)
        return np.asarray(kept.all(axis=-1) & smooth)

    def worst(self) -> dict[str, Floats]:
        """Largest magnitude of each series [...], with its unit in its name."""
        return {
            "acceleration m/s²": np.abs(self.accelerations).max(axis=-1),
            "lateral acceleration m/s²": np.abs(self.lateral_accelerations).max(axis=-1),
            "jerk m/s³": np.abs(self.jerks).max(axis=-1),
            "yaw rate rad/s": np.abs(self.yaw_rates).max(axis=-1),
            "curvature 1/m": np.abs(self.curvatures).max(axis=-1),
            "reverse m": self.reverse,
        }


def comfort(trajectories: Floats, v0: ArrayLike) -> Comfort:
    """Comfort series of trajectories that start at the origin with heading 0.

    A step that turns by more than 90° is driven backwards, not turned around. The chords of a
    circle give its curvature exactly, evenly spaced points a constant acceleration or jerk exactly.

    Args:
        trajectories: [..., 20, 2] m at 4 Hz from t+0.25 s, ego frame.
        v0: [...] m/s, the speed now, negative in reverse; broadcasts.

    Raises:
        SlipstreamError: another shape.
    """
    if trajectories.shape[-2:] != (FUTURE_STATES, 2):
        raise SlipstreamError(
            "trajectories can't be judged for comfort",
            expected=f"shape [..., {FUTURE_STATES}, 2] at 4 Hz",
            found=str(trajectories.shape),
            fix="resample them to 4 Hz",
        )
    unknown = np.asarray(~np.isfinite(trajectories).all(axis=(-1, -2)))
    points = np.where(unknown[..., None, None], 0.0, trajectories)
    steps = np.diff(points, axis=-2, prepend=np.zeros((*points.shape[:-2], 1, 2)))
    headings, lengths = _headings(steps)  # lengths negative backwards
    speeds = lengths / _STEP
    now = np.broadcast_to(np.asarray(v0, np.float64), speeds.shape[:-1])[..., None]
    gains = np.diff(speeds, axis=-1, prepend=now)
    accelerations = gains / np.r_[0.5 * _STEP, np.full(FUTURE_STATES - 1, _STEP)]
    turns = np.diff(headings, axis=-1, prepend=0.0)
    yaw_rates = turns / np.r_[0.5 * _STEP, np.full(FUTURE_STATES - 1, _STEP)]
    series = (
        speeds,
        accelerations,
        yaw_rates * speeds,
        np.diff(accelerations[..., 1:], axis=-1) / _STEP,
        np.linalg.norm(np.diff(steps, n=2, axis=-2), axis=-1) / _STEP**3,
        yaw_rates,
        np.diff(yaw_rates, axis=-1) / np.r_[0.75 * _STEP, np.full(FUTURE_STATES - 2, _STEP)],
        _curvatures(turns, lengths),
    )
    for values in series:
        values[unknown] = np.nan
    back = np.where(unknown, np.nan, np.maximum(-lengths, 0.0).sum(axis=-1))
    return Comfort(*series, reverse=back)


def _headings(steps: Floats) -> tuple[Floats, Floats]:
    """Unwrapped headings [..., 20] and signed lengths of steps [..., 20, 2]."""
    lengths = np.hypot(steps[..., 0], steps[..., 1])
    directions = np.arctan2(steps[..., 1], steps[..., 0])
    headings, signed = np.empty_like(lengths), lengths.copy()
    heading = np.zeros(lengths.shape[:-1])
    for i in range(lengths.shape[-1]):
        turn = _wrapped(directions[..., i] - heading)
        backwards = np.abs(turn) > 0.5 * np.pi
        turn = np.where(backwards, _wrapped(turn + np.pi), turn)
        heading = np.where(lengths[..., i] < STANDING, heading, heading + turn)
        signed[..., i] = np.where(backwards, -lengths[..., i], lengths[..., i])
        headings[..., i] = heading
    return headings, signed


def _curvatures(turns: Floats, lengths: Floats) -> Floats:
    """Of the circle through neighbouring chords; the first from the tangent at the origin."""
    length = np.abs(lengths)
    before = np.concatenate([length[..., :1], length[..., :-1]], axis=-1)
    chord = 0.5 * (length + before)
    half = np.concatenate([turns[..., :1], 0.5 * turns[..., 1:]], axis=-1)
    moving = np.minimum(length, before) >= STANDING
    return np.where(moving, 2.0 * np.sin(half) / np.where(moving, chord, 1.0), 0.0)


def _wrapped(angle: Floats) -> Floats:
    return np.asarray((angle + np.pi) % (2.0 * np.pi) - np.pi)
