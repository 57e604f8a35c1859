"""Kinematic baselines: where the vehicle goes if it keeps doing what it does now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planners.observation import FUTURE_STATES, RATE_HZ, Observation

Floats = NDArray[np.float64]


class Motion(NamedTuple):
    """Which of the current speed, acceleration and yaw rate a baseline keeps."""

    label: str
    speed: bool
    acceleration: bool
    yaw_rate: bool


BASELINES: dict[str, Motion] = {
    "cv": Motion("constant velocity", True, False, False),
    "ca": Motion("constant acceleration", True, True, False),
    "ctrv": Motion("constant turn rate and velocity", True, False, True),
    "ctra": Motion("constant turn rate and acceleration", True, True, True),
    "still": Motion("stand still", False, False, False),
}

STANDING = 0.2  # m/s; a slower vehicle counts as standing: its sign is noise

_TIMES: Floats = np.arange(1, FUTURE_STATES + 1) / RATE_HZ
# Gauss-Legendre on [0, 1]: with 16 nodes the integrals below are exact to 1e-12 m up to 1 rad/s.
_ROOTS, _GAUSS = np.polynomial.legendre.leggauss(16)
_NODES, _WEIGHTS = (_ROOTS + 1) / 2, _GAUSS / 2


def baseline(name: str, observations: Sequence[Observation]) -> Floats:
    """Trajectories of one baseline, from the last (causal) state of each observation.

    Args:
        name: a key of BASELINES.
        observations: W windows.

    Returns:
        [W, 20, 2] m in each observation's ego frame; x forward, y left; first point 0.25 s ahead.
    """
    keep = BASELINES[name]
    speed = np.array([o.speeds[-1] for o in observations], np.float64) * keep.speed
    accel = np.array([o.accelerations[-1] for o in observations], np.float64) * keep.acceleration
    yaw_rate = np.array([o.yaw_rates[-1] for o in observations], np.float64) * keep.yaw_rate
    return roll_out(speed, accel, yaw_rate)


def roll_out(speed: Floats, accel: Floats, yaw_rate: Floats) -> Floats:
    """Constant turn rate and acceleration (Schubert et al. 2008, section III), stopping at rest.

    No vehicle changes its direction of travel: a braking one stops and stays. Below STANDING it
    stands, and may start forward, never backward.

    Args:
        speed, accel, yaw_rate: [W] m/s, m/s², rad/s (left positive).

    Returns:
        [W, 20, 2] m.
    """
    v, a, w = (series[:, None, None] for series in (speed, accel, yaw_rate))
    v = np.where(np.abs(v) < STANDING, 0.0, v)
    # moving time up to each point: [W, 20, 1]
    braking = (v * a < 0) | ((v == 0) & (a < 0))
    stop = np.where(braking, np.abs(v) / np.maximum(np.abs(a), 1e-12), np.inf)
    moving = np.minimum(_TIMES[None, :, None], stop)
    t = moving * _NODES  # [W, 20, nodes]
    step = (v + a * t) * moving * _WEIGHTS
    points = [(step * np.cos(w * t)).sum(axis=-1), (step * np.sin(w * t)).sum(axis=-1)]
    return np.stack(points, axis=-1) + 0.0  # no -0.0
