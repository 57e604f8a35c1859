"""Runs of the Boreas data set: the Applanix poses of a camera or of the lidar, and labelled boxes.

Burnett et al., "Boreas: A multi-season autonomous driving dataset", IJRR 2023. Licence CC BY 4.0.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from drives.drive import Drive, ImageReferences, check_times
from drives.frames import (
    APPLANIX_FORWARD,
    CAMERA_FORWARD,
    enu_from_boreas_sensor,
    headings_of,
    rear_axle,
)
from drives.readers.boreas_labels import COLUMNS, read_labels
from drives.readers.poses import check_positions, check_speeds
from drives.readers.table import read_table
from runtime.errors import SlipstreamError

Floats = NDArray[np.float64]

LICENCE = "CC BY 4.0, Boreas data set, Autonomous Space Robotics Lab, University of Toronto"
# Sensors ahead of the rear axle. Not documented: fitted to the side slip in the loop's turns
# (0.59 m for the lidar, 1.22 m for the camera; the two poses themselves are 0.63 m apart).
CAMERA_LEVER_ARM = 1.22
LIDAR_LEVER_ARM = 0.59
_MICROSECOND = 1e-6
_FIX = "fetch the run again, or remove the row"
_SKEW = 0.1  # from the identity, of the mounting times its transpose


def is_boreas(folder: Path) -> bool:
    """Does this folder look like a Boreas run?"""
    return any((folder / "applanix" / file).is_file() for file in _POSE_FILES)


def read_boreas(folder: Path, *, name: str | None = None, lever_arm: float | None = None) -> Drive:
    """Read a run folder: camera poses where there are any, else lidar poses.

    Speed is the recorded horizontal velocity along the heading. The origin is the first known
    position.

    Args:
        folder: holds applanix/camera_poses.csv or applanix/lidar_poses.csv.
        name: by default the folder's name.
        lever_arm: m from the rear axle to the sensor of the poses; by default fitted values.

    Raises:
        SlipstreamError: no poses, a bad row, or bad time stamps.
    """
    sensor = next(
        (kind for file, kind in _POSE_FILES.items() if _poses(folder, file).is_file()), ""
    )
    if not sensor:
        raise SlipstreamError(
            f"{folder} is not a Boreas run",
            expected="applanix/camera_poses.csv or applanix/lidar_poses.csv in it",
            found="neither",
            fix="name the folder of one run, e.g. boreas-2021-08-05-13-34",
        )
    path = _poses(folder, f"{sensor}_poses.csv")
    table = read_table(path, COLUMNS, delimiter=",", header=True)
    table[np.isinf(table)] = np.nan  # not known
    check_positions(path, table[:, 1:4], _FIX)
    for column in table[:, 4:6].T:
        check_speeds(path, column, _FIX)
    stamps = table[:, 0] * _MICROSECOND
    check_times(stamps, str(path), range(2, len(table) + 2))
    times = (table[:, 0] - table[0, 0]) * _MICROSECOND
    headings = headings_of(enu_from_boreas_sensor(*table[:, 7:10].T) @ _forward(folder, sensor))
    arm = lever_arm if lever_arm is not None else _LEVER_ARMS[sensor]
    known = np.isfinite(table).all(axis=1)
    origin = table[np.argmax(known), 1:4]
    positions = rear_axle(table[:, 1:4] - origin, headings, arm)
    speeds = table[:, 4] * np.cos(headings) + table[:, 5] * np.sin(headings)
    return Drive(
        name=name or folder.name,
        source=f"Boreas {folder.name}, Applanix {sensor} poses; {sensor} taken {arm:g} m ahead of "
        "the rear axle (fitted to its turns)",
        licence=LICENCE,
        synthetic=False,
        times=times,
        positions=positions,
        headings=headings,
        speeds=speeds,
        clock_start=float(stamps[0]),
        images=_images(folder, table[0, 0]),
        agents=read_labels(folder, table[0, 0], origin),
        dataset="Boreas",
        recording=folder.resolve().name.removeprefix("boreas-"),
    )


_POSE_FILES = {"camera_poses.csv": "camera", "lidar_poses.csv": "lidar"}
_LEVER_ARMS = {"camera": CAMERA_LEVER_ARM, "lidar": LIDAR_LEVER_ARM}


def _poses(folder: Path, file: str) -> Path:
    return folder / "applanix" / file


def _images(folder: Path, start: float) -> tuple[ImageReferences, ...] | None:
    files = [
        file
        for file in (folder / "camera").glob("*.png")
        if file.stem.isascii() and file.stem.isdecimal()
    ]
    if not files:
        return None
    files.sort(key=lambda file: int(file.stem))
    times = (np.array([int(file.stem) for file in files]) - start) * _MICROSECOND
    return (ImageReferences("camera", times, tuple(str(file) for file in files)),)


def _forward(folder: Path, sensor: str) -> Floats:
    """The vehicle's forward direction in the sensor's frame; the lidar is mounted turned."""
    if sensor == "camera":
        return CAMERA_FORWARD
    path = folder / "calib" / "T_applanix_lidar.txt"
    applanix_from_lidar = read_table(path, 4)
    turn = applanix_from_lidar[:3, :3]
    # one run's file is not quite a rotation
    near = (np.abs(turn) < 2.0).all() and (np.abs(turn @ turn.T - np.eye(len(turn))) < _SKEW).all()
    if len(applanix_from_lidar) != 4 or not near:
        raise SlipstreamError(
            f"{path} is not the lidar's mounting",
            expected="a 4x4 transform whose first 3x3 is nearly a rotation",
            found=f"{len(applanix_from_lidar)} rows, {np.array2string(turn, precision=3)}".replace(
                "\n", ""
            )[:160],
            fix="fetch the run's calib folder again",
        )
    forward = turn.T @ APPLANIX_FORWARD
    forward[2] = 0.0  # the lidar stands upright
    return np.asarray(forward / np.linalg.norm(forward))
