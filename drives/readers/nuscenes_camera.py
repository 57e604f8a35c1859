"""Cameras of nuScenes: calibrated_sensor's intrinsics and pose; pictures are undistorted."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from drives.camera import Calibration, calibrated
from drives.frames import rotation_from_quaternion
from drives.readers.json_index import records_with
from drives.readers.json_records import Record
from drives.readers.nuscenes_labels import FIX
from drives.readers.poses import check_quaternions

Size = tuple[int, int]  # px


def read_calibrations(tables: Path, sizes: Mapping[str, Size]) -> dict[str, Calibration]:
    """Token of a calibrated sensor -> its calibration, for those that have one.

    The ego frame lies on the road below the rear axle, the camera frame is x right, y down, z
    forward.

    Args:
        tables: folder of the tables.
        sizes: token -> width and height of its pictures.

    Raises:
        SlipstreamError: a damaged table, or values that no camera has.
    """
    found = {}
    for record in records_with(tables / "calibrated_sensor.json", "token", sizes, FIX):
        if record.values.get("camera_intrinsic"):
            token = record.text("token")
            found[token] = _calibration(record, sizes[token])
    return found


def _calibration(record: Record, size: Size) -> Calibration:
    rows = record.values["camera_intrinsic"]
    if not isinstance(rows, list) or len(rows) != 3:
        raise record.bad("3 rows camera_intrinsic", rows)
    matrix = [
        Record(record.path, record.place, {"row": row}, FIX).numbers("row", 3) for row in rows
    ]
    quaternion = np.array([record.numbers("rotation", 4)])
    check_quaternions(record.path, quaternion, FIX)
    return calibrated(
        f"{record.path} record {record.place}",
        FIX,
        width=size[0],
        height=size[1],
        fx=matrix[0][0],
        fy=matrix[1][1],
        cx=matrix[0][2],
        cy=matrix[1][2],
        rotation=rotation_from_quaternion(quaternion)[0],
        position=np.array(record.numbers("translation", 3)),
        source="Calibration as recorded; its pictures are undistorted",
    )
