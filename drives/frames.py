"""Every conversion between frames that recorded drives need, each with its matrix.

World: local and metric, x and y horizontal, z up, right-handed. Ego: x forward, y left, z up, at
the middle of the rear axle. Headings are measured from the world's x axis, left (counter-clockwise)
positive. A matrix named A_FROM_B takes the coordinates of a vector in B to those in A.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# Camera: x right, y down, z forward (KITTI and Boreas cameras).
EGO_FROM_CAMERA: Floats = np.array([[0.0, 0.0, 1.0], [-1.0, 0.0, 0.0], [0.0, -1.0, 0.0]])
CAMERA_FORWARD: Floats = np.array([0.0, 0.0, 1.0])

# Device of comma2k19: x forward, y right, z down.
EGO_FROM_DEVICE: Floats = np.diag([1.0, -1.0, -1.0])
DEVICE_FORWARD: Floats = np.array([1.0, 0.0, 0.0])

# Applanix of Boreas: x right, y forward, z up.
EGO_FROM_APPLANIX: Floats = np.array([[0.0, 1.0, 0.0], [-1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
APPLANIX_FORWARD: Floats = np.array([0.0, 1.0, 0.0])

# WGS 84.
EARTH_RADIUS = 6378137.0  # m, semi-major axis
EARTH_FLATTENING = 1.0 / 298.257223563


def enu_from_boreas_sensor(roll: Floats, pitch: Floats, heading: Floats) -> Floats:
    """Rotations from a Boreas sensor to east-north-up.

    The dataset's angles describe R_roll R_pitch R_heading of passive rotations, which is the matrix
    that takes sensor coordinates to ENU (Burnett et al., "Boreas", IJRR 2023, and its development
    kit). Checked here against the recorded velocities.

    Args:
        roll, pitch, heading: [n] rad.

    Returns:
        [n, 3, 3].
    """
    cr, sr = np.cos(roll), np.sin(roll)
    cp, sp = np.cos(pitch), np.sin(pitch)
    cy, sy = np.cos(heading), np.sin(heading)
    zero, one = np.zeros_like(cr), np.ones_like(cr)
    about_x = _matrices([[one, zero, zero], [zero, cr, sr], [zero, -sr, cr]])
    about_y = _matrices([[cp, zero, -sp], [zero, one, zero], [sp, zero, cp]])
    about_z = _matrices([[cy, sy, zero], [-sy, cy, zero], [zero, zero, one]])
    return np.asarray(about_x @ about_y @ about_z)


def rotation_from_quaternion(quaternions: Floats) -> Floats:
    """[n, 4] unit quaternions (w, x, y, z) -> [n, 3, 3] rotations."""
    w, x, y, z = quaternions.T
    return _matrices(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )


def geodetic_from_ecef(position: Floats) -> tuple[float, float, float]:
    """Latitude, longitude (rad) and ellipsoidal height (m) of one ECEF point [3], in m.

    Bowring's formula (Survey Review 23, 1976): below a micrometre near the ground.
    """
    x, y, z = (float(value) for value in position)
    semi_minor = EARTH_RADIUS * (1.0 - EARTH_FLATTENING)
    eccentricity = EARTH_FLATTENING * (2.0 - EARTH_FLATTENING)
    second = (EARTH_RADIUS / semi_minor) ** 2 - 1.0
    across = np.hypot(x, y)
    parametric = np.arctan2(z * EARTH_RADIUS, across * semi_minor)
    latitude = np.arctan2(
        z + second * semi_minor * np.sin(parametric) ** 3,
        across - eccentricity * EARTH_RADIUS * np.cos(parametric) ** 3,
    )
    normal = EARTH_RADIUS / np.sqrt(1.0 - eccentricity * np.sin(latitude) ** 2)
    # This form of the height holds at the poles too, where across / cos(latitude) does not.
    height = across * np.cos(latitude) + z * np.sin(latitude) - EARTH_RADIUS**2 / normal
    return float(latitude), float(np.arctan2(y, x)), float(height)


def ecef_from_geodetic(latitudes: Floats, longitudes: Floats, heights: Floats) -> Floats:
    """[n, 3] ECEF in m of points given by latitude, longitude (rad) and ellipsoidal height (m)."""
    eccentricity = EARTH_FLATTENING * (2.0 - EARTH_FLATTENING)
    normal = EARTH_RADIUS / np.sqrt(1.0 - eccentricity * np.sin(latitudes) ** 2)
    across = (normal + heights) * np.cos(latitudes)
    return np.stack(
        [
            across * np.cos(longitudes),
            across * np.sin(longitudes),
            (normal * (1.0 - eccentricity) + heights) * np.sin(latitudes),
        ],
        axis=-1,
    )


def enu_from_ecef(latitude: float, longitude: float) -> Floats:
    """[3, 3] rotation from ECEF to east-north-up at a point given in rad."""
    sin_lat, cos_lat = np.sin(latitude), np.cos(latitude)
    sin_lon, cos_lon = np.sin(longitude), np.cos(longitude)
    return np.array(
        [
            [-sin_lon, cos_lon, 0.0],
            [-sin_lat * cos_lon, -sin_lat * sin_lon, cos_lat],
            [cos_lat * cos_lon, cos_lat * sin_lon, sin_lat],
        ]
    )


def headings_of(forward: Floats) -> Floats:
    """Headings [n] rad of forward vectors [n, 3] in the world, unwrapped over the finite rows."""
    headings: Floats = np.arctan2(forward[:, 1], forward[:, 0])
    finite = np.isfinite(headings)
    headings[finite] = np.unwrap(headings[finite])
    return headings


def rear_axle(positions: Floats, headings: Floats, lever_arm: float) -> Floats:
    """Move [n, 2 or 3] positions of a sensor back to the rear axle.

    Args:
        lever_arm: m that the sensor is ahead of the rear axle, along the heading.
    """
    moved: Floats = positions.copy()
    moved[:, 0] -= lever_arm * np.cos(headings)
    moved[:, 1] -= lever_arm * np.sin(headings)
    return moved


def to_ego(points: Floats, origins: Floats, headings: Floats) -> Floats:
    """World points [w, k, 2] in the ego frames at `origins` [w, 2] with `headings` [w]."""
    offset = points - origins[:, None, :]
    cos, sin = np.cos(headings)[:, None], np.sin(headings)[:, None]
    forward = offset[..., 0] * cos + offset[..., 1] * sin
    left = offset[..., 1] * cos - offset[..., 0] * sin
    return np.stack([forward, left], axis=-1)


def to_world(points: Floats, origin: Floats, heading: float) -> Floats:
    """Ego points [..., 2] of one ego frame at `origin` [2] with `heading` in the world."""
    cos, sin = np.cos(heading), np.sin(heading)
    x = points[..., 0] * cos - points[..., 1] * sin + origin[0]
    y = points[..., 0] * sin + points[..., 1] * cos + origin[1]
    return np.stack([x, y], axis=-1)


def _matrices(rows: list[list[Floats]]) -> Floats:
    return np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)
