"""The labelled road users of the Boreas objects runs, brought into the drive's world frame."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from drives.drive import AgentFrame
from drives.frames import enu_from_boreas_sensor
from drives.readers.table import read_table
from drives.readers.text import read_text
from runtime.errors import SlipstreamError

Floats = NDArray[np.float64]

# Poses: time, easting, northing, altitude, velocity (3), roll, pitch, heading, body rates (3).
COLUMNS = 13

_MICROSECOND = 1e-6
_FARTHEST = 1e4  # m, and far more than any angle
_FIELDS = 10  # id, class, length, width, height, x, y, z, yaw, lidar points


def read_labels(folder: Path, start: float, origin: Floats) -> tuple[AgentFrame, ...] | None:
    """Boxes of labels_detection/<microseconds>.txt, or None where a run has no labels.

    Boxes are given in the lidar frame of their instant, so only frames whose stamp is that of a
    known lidar pose are placed.

    Args:
        folder: of the run.
        start: microseconds, the clock at the drive's time 0.
        origin: [3] m, ENU position of the drive's origin.

    Raises:
        SlipstreamError: lidar poses or labels of another format, or labels without lidar poses.
    """
    files = sorted((folder / "labels_detection").glob("*.txt"))
    if not files:
        return None
    poses = read_table(folder / "applanix" / "lidar_poses.csv", COLUMNS, delimiter=",", header=True)
    poses = poses[np.isfinite(poses).all(axis=1)]
    rotations = enu_from_boreas_sensor(*poses[:, 7:10].T)
    rows = {int(stamp): row for row, stamp in enumerate(poses[:, 0])}
    frames = []
    for file in files:
        row = rows.get(int(file.stem)) if file.stem.isascii() and file.stem.isdecimal() else None
        if row is not None:
            time = float(poses[row, 0] - start) * _MICROSECOND
            frames.append(_frame(file, time, rotations[row], poses[row, 1:4] - origin))
    return tuple(frames)


def _frame(file: Path, time: float, rotation: Floats, position: Floats) -> AgentFrame:
    ids, kinds, numbers = [], [], []
    for number, line in enumerate(read_text(file).splitlines(), start=1):
        fields = line.split()
        try:
            if len(fields) != _FIELDS:
                raise ValueError
            numbers.append([float(field) for field in fields[2:9]])
            if not all(abs(value) < _FARTHEST for value in numbers[-1]):  # NaN too
                raise ValueError
        except ValueError:
            raise SlipstreamError(
                f"{file} row {number} is not a Boreas label",
                expected="id, class and 8 numbers, finite ones, of metres and radians",
                found=repr(line[:60]),
                fix="fetch the file again, or remove the row",
            ) from None
        ids.append(fields[0])
        kinds.append(fields[1])
    boxes = np.array(numbers).reshape(-1, 7)
    axes = np.stack([np.cos(boxes[:, 6]), np.sin(boxes[:, 6]), np.zeros(len(boxes))], axis=1)
    turned = axes @ rotation.T
    return AgentFrame(
        time=time,
        ids=tuple(ids),
        kinds=tuple(kinds),
        positions=boxes[:, 3:6] @ rotation.T + position,
        headings=np.arctan2(turned[:, 1], turned[:, 0]),
        sizes=boxes[:, :3],
    )
