"""The road camera of comma devices, from what openpilot publishes and logs.

Focal lengths are those of openpilot's camera table, one for each kind of sensor, not of the single
device. Mounting angles and, in newer logs, the height are what the device calibrated while driving.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from drives.camera import Calibration
from drives.frames import EGO_FROM_CAMERA, EGO_FROM_DEVICE
from drives.images import video_size
from runtime.errors import SlipstreamError

Floats = NDArray[np.float64]

AHEAD = 1.7  # m from the rear axle, assumed: a device behind the windscreen of a compact car
HEIGHT = 1.22  # m above the road, openpilot's own assumption
CALIBRATED = 1  # calStatus
_FOCAL = {(1164, 874): 910.0, (1928, 1208): 2648.0, (1344, 760): 1141.5}  # px, by full size
_SMALL = {(480, 360): (1164, 874), (526, 330): (1928, 1208)}  # a qcamera's size -> the full one
_LARGEST_ANGLE = 0.5  # rad; openpilot itself takes at most 0.17


def road_camera(video: Path, rows: list[tuple[float, ...]]) -> Calibration | None:
    """The calibration of a road camera's video, or None where its size or angles are not known.

    Args:
        rows: of the log's calibration events: s, status, roll, pitch, yaw (rad, the device in the
            frame of travel: x forward, y right, z down), height (m, NaN if not logged).
    """
    table = np.array(rows, dtype=np.float64).reshape(-1, 6)
    table = table[(table[:, 1] == CALIBRATED) & np.isfinite(table[:, 2:5]).all(axis=1)]
    table = table[(np.abs(table[:, 2:5]) < _LARGEST_ANGLE).all(axis=1)]
    try:
        width, height = video_size(video)
    except SlipstreamError:  # a damaged video is told of where its pictures are wanted
        return None
    full = _SMALL.get((width, height), (width, height))
    if not len(table) or full not in _FOCAL:
        return None
    roll, pitch, yaw, above = np.median(table[:, 2:], axis=0)
    told = bool(0.5 < above < 3.0)
    return Calibration(
        width=width,
        height=height,
        fx=_FOCAL[full] * width / full[0],
        fy=_FOCAL[full] * height / full[1],
        cx=0.5 * width,
        cy=0.5 * height,
        rotation=EGO_FROM_DEVICE
        @ _device_in_travel(roll, pitch, yaw).T
        @ EGO_FROM_DEVICE.T
        @ EGO_FROM_CAMERA,
        position=np.array([AHEAD, 0.0, above if told else HEIGHT]),
        source=f"Angles{' and height' if told else ''} as openpilot calibrated them; nominal: "
        f"focal length of the {full[0]} x {full[1]} camera, {'' if told else f'{HEIGHT} m high, '}"
        f"{AHEAD} m ahead of the rear axle",
    )


def _device_in_travel(roll: float, pitch: float, yaw: float) -> Floats:
    """[3, 3] device from frame of travel: turns about z, y, x, as openpilot's rpyCalib says."""
    (cr, cp, cy), (sr, sp, sy) = np.cos([roll, pitch, yaw]), np.sin([roll, pitch, yaw])
    about_x = np.array([[1, 0, 0], [0, cr, -sr], [0, sr, cr]])
    about_y = np.array([[cp, 0, sp], [0, 1, 0], [-sp, 0, cp]])
    about_z = np.array([[cy, -sy, 0], [sy, cy, 0], [0, 0, 1]])
    return np.asarray(about_z @ about_y @ about_x)
