"""Segments of comma2k19: GNSS-fused ECEF poses at 20 Hz and the vehicle's own speed.

Schafer et al., "A Commute in Data: The comma2k19 Dataset", 2018. Licence MIT.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from drives.drive import Drive, check_times
from drives.frames import (
    DEVICE_FORWARD,
    enu_from_ecef,
    geodetic_from_ecef,
    headings_of,
    rear_axle,
    rotation_from_quaternion,
)
from drives.motion import linear
from drives.readers.poses import check_positions, check_quaternions, check_speeds
from drives.readers.table import read_array
from runtime.errors import SlipstreamError

Floats = NDArray[np.float64]

LICENCE = "MIT, comma2k19, comma.ai"
LEVER_ARM = 1.7  # m, assumed: a device behind the windscreen of a compact car
_MOVING = 5.0  # m/s above which course and heading are compared
_STRAIGHT = 0.05  # rad/s
_FIX = "fetch the segment again"


def is_comma2k19(folder: Path) -> bool:
    """Does this folder look like a comma2k19 segment?"""
    return (folder / "global_pose" / "frame_positions").is_file()


def read_comma2k19(
    folder: Path,
    *,
    name: str | None = None,
    lever_arm: float = LEVER_ARM,
    speed_from: Literal["pose", "can"] = "pose",
) -> Drive:
    """Read one segment folder.

    The device is not mounted exactly straight ahead: the median angle between heading and course,
    taken where the vehicle goes straight, is removed. The origin is the first known position.

    Args:
        folder: holds global_pose/ and, for `can`, processed_log/CAN/speed/.
        name: by default comma2k19-<segment number>.
        lever_arm: m from the rear axle to the device.
        speed_from: `pose` takes the fused velocity along the heading, `can` the wheels' speed
            (about 1 % lower on the example segment).

    Raises:
        SlipstreamError: a missing or malformed array, bad time stamps, or positions, speeds or
            orientations that are none.
    """
    pose = folder / "global_pose"
    stamps = read_array(pose / "frame_times")
    check_times(stamps, str(pose / "frame_times"))
    positions = _rows(read_array(pose / "frame_positions", 3), stamps, pose / "frame_positions")
    velocities = _rows(read_array(pose / "frame_velocities", 3), stamps, pose / "frame_velocities")
    turns = _rows(read_array(pose / "frame_orientations", 4), stamps, pose / "frame_orientations")
    check_positions(pose / "frame_positions", positions, _FIX)
    for column in velocities.T:
        check_speeds(pose / "frame_velocities", column, _FIX)
    check_quaternions(pose / "frame_orientations", turns, _FIX)
    known = np.isfinite(positions).all(axis=1)
    origin = positions[np.argmax(known)]
    latitude, longitude, _ = geodetic_from_ecef(origin)
    enu = enu_from_ecef(latitude, longitude)
    velocity = velocities @ enu.T
    headings = headings_of(rotation_from_quaternion(turns) @ DEVICE_FORWARD @ enu.T)
    headings = headings + _mounting_angle(stamps, velocity, headings)
    speeds = velocity[:, 0] * np.cos(headings) + velocity[:, 1] * np.sin(headings)
    if speed_from == "can":
        speeds = linear(*can_speed(folder), stamps)
    return Drive(
        name=name or f"comma2k19-{folder.name}",
        source=f"comma2k19 segment {folder.name}, fused ECEF poses, speeds from {speed_from}; "
        f"device assumed {lever_arm:g} m ahead of the rear axle",
        licence=LICENCE,
        synthetic=False,
        times=stamps - stamps[0],
        positions=rear_axle((positions - origin) @ enu.T, headings, lever_arm),
        headings=headings,
        speeds=speeds,
        clock_start=float(stamps[0]),
        dataset="comma2k19",
        recording="/".join(folder.resolve().parts[-2:]),
    )


def can_speed(folder: Path) -> tuple[Floats, Floats]:
    """The wheels' speed of a segment: [m] s on the recorder's clock and [m] m/s.

    Raises:
        SlipstreamError: a missing or malformed array, bad time stamps, or speeds that no
            vehicle has.
    """
    log = folder / "processed_log" / "CAN" / "speed"
    times = read_array(log / "t")
    check_times(times, str(log / "t"))
    speeds = _rows(read_array(log / "value"), times, log / "value")
    check_speeds(log / "value", speeds, _FIX)
    return times, speeds


def _rows(values: Floats, times: Floats, path: Path) -> Floats:
    if len(values) != len(times):
        raise SlipstreamError(
            f"{path} does not fit its time stamps",
            expected=f"{len(times)} rows",
            found=f"{len(values)} rows",
            fix=_FIX,
        )
    return values


def _mounting_angle(times: Floats, velocity: Floats, headings: Floats) -> float:
    course = np.arctan2(velocity[:, 1], velocity[:, 0])
    moving = np.hypot(velocity[:, 0], velocity[:, 1]) > _MOVING
    straight = np.abs(np.gradient(headings, times)) < _STRAIGHT
    angle = (course - headings + np.pi) % (2.0 * np.pi) - np.pi
    used = angle[moving & straight]
    return float(np.median(used)) if len(used) >= 20 else 0.0
