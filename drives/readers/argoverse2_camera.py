"""Cameras of Argoverse 2: intrinsics and poses from the log's calibration tables.

Released pictures are undistorted already; the k1, k2, k3 of the table describe the lens before that
and are not applied.
"""

from __future__ import annotations

from pathlib import Path

from drives.camera import Calibration, calibrated
from drives.frames import rotation_from_quaternion
from drives.readers.feather import read_feather
from drives.readers.poses import check_quaternions

ROAD = -0.33  # m: the ego frame lies in the rear axle, a wheel's radius above the road
_INTRINSICS = "intrinsics.feather"
_POSES = "egovehicle_SE3_sensor.feather"
_CAMERA = ("fx_px", "fy_px", "cx_px", "cy_px")
_SIZE = ("width_px", "height_px")
_QUATERNION = ("qw", "qx", "qy", "qz")
_TRANSLATION = ("tx_m", "ty_m", "tz_m")


def read_calibrations(folder: Path, fix: str) -> dict[str, Calibration]:
    """Camera -> its calibration; empty where the log has no calibration tables.

    Args:
        folder: of the log.
        fix: what mends it.

    Raises:
        SlipstreamError: a damaged table, or values that no camera has.
    """
    intrinsics, poses = (folder / "calibration" / name for name in (_INTRINSICS, _POSES))
    if not (intrinsics.is_file() and poses.is_file()):
        return {}
    numbers = dict.fromkeys(_CAMERA, "float") | dict.fromkeys(_SIZE, "int")
    cameras = read_feather(intrinsics, {"sensor_name": "text", **numbers}, fix)
    columns = dict.fromkeys((*_QUATERNION, *_TRANSLATION), "float")
    table = read_feather(poses, {"sensor_name": "text", **columns}, fix)
    quaternions = table.floats(*_QUATERNION)
    check_quaternions(poses, quaternions, fix)
    rotations = rotation_from_quaternion(quaternions)
    rows = {name: row for row, name in enumerate(table.texts("sensor_name"))}
    widths, heights = (cameras.ints(name) for name in _SIZE)
    return {
        name: calibrated(
            f"{name} of {intrinsics.parent}",
            fix,
            width=int(widths[row]),
            height=int(heights[row]),
            **dict(zip(("fx", "fy", "cx", "cy"), lens.tolist(), strict=True)),
            rotation=rotations[rows[name]],
            position=table.floats(*_TRANSLATION)[rows[name]],
            source=f"Calibration as recorded; nominal: the road {-ROAD} m below the axle",
            road=ROAD,
        )
        for row, (name, lens) in enumerate(
            zip(cameras.texts("sensor_name"), cameras.floats(*_CAMERA), strict=True)
        )
        if name in rows
    }
