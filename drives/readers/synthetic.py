"""A computed drive: a kinematic bicycle that starts, stops, turns and changes its speed."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from drives.drive import Drive

Floats = NDArray[np.float64]

LICENCE = "Apache-2.0 (computed by slipstream)"
WHEELBASE = 2.8  # m
RATE_HZ = 10.0

_SUBSTEPS = 10
_POSITION_NOISE = 0.02  # m, one standard deviation of each measured value
_HEADING_NOISE = 0.001  # rad
_SPEED_NOISE = 0.05  # m/s
_LATERAL_LIMIT = 2.5  # m/s²
_JERK_TIME = 0.6  # s in which the acceleration follows its wish
_STEER_TIME = 0.5  # s in which the steering follows its wish


def synthetic_drive(seed: int = 0, *, duration: float = 240.0, noise: float = 1.0) -> Drive:
    """Compute a drive.

    A seeded list of manoeuvres (cruise, bend, turn left or right, stop and wait) sets wishes for
    speed and curvature; a driver follows them with limited acceleration and steering; the pose
    follows the kinematic bicycle referred to the rear axle (Rajamani, "Vehicle Dynamics and
    Control", 2.2). Position, heading and speed are then measured with Gaussian noise.

    Args:
        seed: of manoeuvres and noise.
        duration: s.
        noise: factor on the measurement noise; 0 gives the exact motion.
    """
    rng = np.random.default_rng(seed)
    count = round(duration * RATE_HZ) + 1
    wishes = _wishes(rng, duration)
    step = 1.0 / (RATE_HZ * _SUBSTEPS)
    x = y = heading = curvature = acceleration = 0.0
    speed = wishes[0][1]
    rows = np.empty((count, 4))
    current = 0
    for tick in range((count - 1) * _SUBSTEPS + 1):
        if tick % _SUBSTEPS == 0:
            rows[tick // _SUBSTEPS] = x, y, heading, speed
        while current + 1 < len(wishes) and wishes[current + 1][0] <= tick * step:
            current += 1
        _, wished_speed, wished_curvature = wishes[current]
        limit = math.sqrt(_LATERAL_LIMIT / max(abs(wished_curvature), 1e-6))
        target = min(max(0.5 * (min(wished_speed, limit) - speed), -3.0), 1.8)
        acceleration += (target - acceleration) * step / _JERK_TIME
        bound = _LATERAL_LIMIT / max(speed, 1.0) ** 2
        wanted = min(max(wished_curvature, -bound), bound)
        curvature += (wanted - curvature) * step / _STEER_TIME
        # The middle of the step, so that position and heading agree to second order.
        advance = max(speed + 0.5 * acceleration * step, 0.0) * step
        middle = heading + 0.5 * advance * curvature
        x, y = x + advance * math.cos(middle), y + advance * math.sin(middle)
        heading += advance * curvature
        speed = max(speed + acceleration * step, 0.0)
        if speed < 0.05 and wished_speed == 0.0:
            speed = acceleration = 0.0
    spread = noise * np.array([_POSITION_NOISE, _POSITION_NOISE, _HEADING_NOISE, _SPEED_NOISE])
    rows += rng.normal(size=rows.shape) * spread
    return Drive(
        name=f"synthetic-{seed}",
        source=f"synthetic: kinematic bicycle, seed {seed}, {noise:g} x measurement noise; no "
        "vehicle was driven",
        licence=LICENCE,
        synthetic=True,
        times=np.arange(count) / RATE_HZ,
        positions=rows[:, :2].copy(),
        headings=rows[:, 2].copy(),
        speeds=rows[:, 3].copy(),
        dataset="synthetic",
        recording=str(seed),
    )


def _wishes(rng: np.random.Generator, duration: float) -> list[tuple[float, float, float]]:
    """(from s, speed m/s, curvature 1/m), one for each part of a manoeuvre."""
    wishes = [(0.0, float(rng.uniform(6.0, 14.0)), 0.0)]
    time = float(rng.uniform(4.0, 8.0))
    while time < duration:
        manoeuvre = rng.choice(
            ["cruise", "bend", "left", "right", "stop"], p=[0.3, 0.2, 0.2, 0.15, 0.15]
        )
        cruise = float(rng.uniform(6.0, 18.0))
        if manoeuvre == "cruise":
            parts = [(float(rng.uniform(6.0, 14.0)), cruise, 0.0)]
        elif manoeuvre == "bend":
            parts = [(float(rng.uniform(4.0, 8.0)), cruise, float(rng.uniform(-0.012, 0.012)))]
        elif manoeuvre == "stop":
            parts = [(float(rng.uniform(8.0, 14.0)), 0.0, 0.0), (6.0, cruise, 0.0)]
        else:
            curvature = float(rng.uniform(1 / 18.0, 1 / 9.0)) * (
                1.0 if manoeuvre == "left" else -1.0
            )
            entry = float(np.sqrt(_LATERAL_LIMIT / abs(curvature))) * 0.8
            quarter = 0.5 * np.pi / abs(curvature) / entry
            parts = [(5.0, entry, 0.0), (quarter, entry, curvature), (5.0, cruise, 0.0)]
        for length, speed, bend in parts:
            wishes.append((time, speed, bend))
            time += length
    return wishes
