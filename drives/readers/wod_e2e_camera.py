"""Cameras of WOD-E2E: Waymo's CameraCalibration, the part that tells where a point is seen.

Waymo's camera frame looks along x, y to the left, z up; `extrinsic` takes it to the vehicle frame,
whose origin lies on the road below the rear axle. Fields by number, as in waymo.open_dataset.
"""

from __future__ import annotations

import numpy as np

from drives.camera import Calibration, calibrated
from drives.frames import EGO_FROM_CAMERA
from drives.readers.protobuf import Field, Message

CALIBRATION = {
    1: Field("camera", "int"),
    2: Field("intrinsic", "double", repeated=True),  # f_u, f_v, c_u, c_v, k1, k2, p1, p2, k3
    3: Field("extrinsic", {1: Field("transform", "double", repeated=True)}),  # 4x4, row by row
    4: Field("width", "int"),
    5: Field("height", "int"),
}
_FIX = "fetch the shard again, or move it out of the folder"


def calibration_of(message: Message, where: object, camera: str) -> Calibration | None:
    """A decoded CameraCalibration, or None where it is not filled in.

    Raises:
        SlipstreamError: values that no camera has.
    """
    intrinsic, extrinsic = message["intrinsic"], message["extrinsic"]
    if len(intrinsic) < 4 or extrinsic is None or len(extrinsic["transform"]) != 16:
        return None
    lens = tuple(intrinsic[4:9].tolist())
    pose = np.asarray(extrinsic["transform"], np.float64).reshape(4, 4)
    return calibrated(
        f"{camera} of {where}",
        _FIX,
        width=message["width"],
        height=message["height"],
        fx=float(intrinsic[0]),
        fy=float(intrinsic[1]),
        cx=float(intrinsic[2]),
        cy=float(intrinsic[3]),
        rotation=pose[:3, :3] @ EGO_FROM_CAMERA,
        position=pose[:3, 3],
        source="Calibration as recorded",
        distortion=lens if len(lens) == 5 and any(lens) else (),
    )
