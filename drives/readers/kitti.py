"""KITTI odometry ground truth: a file of 3x4 camera poses, with times.txt where there is one.

Geiger, Lenz, Urtasun, "Are we ready for autonomous driving?", CVPR 2012. Licence CC BY-NC-SA 3.0.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from drives.drive import MAX_GAP, Drive, check_times
from drives.frames import CAMERA_FORWARD, EGO_FROM_CAMERA, headings_of, rear_axle
from drives.motion import causal_derivative, segment_starts
from drives.readers.table import read_table
from runtime.errors import SlipstreamError

Floats = NDArray[np.float64]

FRAME_PERIOD = 0.1037  # s, where no times are stored
# Camera 0 ahead of the rear axle: 0.76 m to the lidar and 0.27 m on, from the benchmark's drawing
# of the vehicle. Side slip in the recorded turns agrees (1.03 to 1.05 m).
LEVER_ARM = 1.03
LICENCE = "CC BY-NC-SA 3.0 (non-commercial; not redistributed with slipstream)"
_NO_ROTATION = 0.01  # from the identity, of a matrix times its transpose
_SPEED_SPAN = 0.5  # s of poses behind a speed


def read_kitti(
    path: Path, *, name: str | None = None, times: Path | None = None, lever_arm: float = LEVER_ARM
) -> Drive:
    """Read one sequence.

    Speeds are not recorded: each comes from a parabola through the poses of the last 0.5 s, so it
    knows nothing of later ones.

    Args:
        path: poses, twelve numbers a line: the upper 3x4 of world-from-camera.
        name: name of the drive, by default kitti-<file name>.
        times: seconds, one a line; by default times.txt beside the poses or ../times/<file name>,
            else 0.1037 s a frame.
        lever_arm: m from the rear axle to camera 0.

    Raises:
        SlipstreamError: an unreadable file, a bad row, or times that don't fit.
    """
    poses = read_table(path, 12).reshape(-1, 3, 4)
    poses[~np.isfinite(poses).all(axis=(1, 2))] = np.nan
    stamps, clock = _times(path, times, len(poses))
    _check_rotations(path, poses[:, :, :3])
    forward = poses[:, :, :3] @ CAMERA_FORWARD @ EGO_FROM_CAMERA.T
    positions = poses[:, :, 3] @ EGO_FROM_CAMERA.T
    headings = headings_of(forward)
    positions = rear_axle(positions, headings, lever_arm)
    known = np.isfinite(positions).all(axis=1) & np.isfinite(headings)
    broken = (np.diff(stamps) > MAX_GAP) | ~known[1:] | ~known[:-1]
    starts = segment_starts(broken)
    velocity = [causal_derivative(stamps, positions[:, i], starts, _SPEED_SPAN, 2) for i in (0, 1)]
    speeds = velocity[0] * np.cos(headings) + velocity[1] * np.sin(headings)
    return Drive(
        name=name or f"kitti-{path.stem}",
        source=f"KITTI odometry ground-truth poses, {clock}; camera 0 taken {lever_arm:g} m ahead "
        "of the rear axle; speeds from the poses",
        licence=LICENCE,
        synthetic=False,
        times=stamps - stamps[0],
        positions=positions,
        headings=headings,
        speeds=np.where(known, speeds, np.nan),
        clock_start=float(stamps[0]),
        dataset="KITTI",
        recording=path.stem,
    )


def _check_rotations(path: Path, rotations: Floats) -> None:
    """A file of other numbers must not be taken for poses."""
    with np.errstate(over="ignore", invalid="ignore"):
        error = np.abs(rotations @ rotations.transpose(0, 2, 1) - np.eye(3)).max(axis=(1, 2))
    bad = ~(error < _NO_ROTATION) & np.isfinite(rotations).all(axis=(1, 2))
    if bad.any():
        row = int(np.argmax(bad))
        raise SlipstreamError(
            f"{path} row {row + 1} is not a pose",
            expected="the upper 3x4 of world-from-camera, whose first 3x3 is a rotation",
            found=f"axes {np.array2string(rotations[row], precision=3).replace(chr(10), '')}",
            fix="convert the poses to KITTI's odometry format, or remove the row",
        )


def _times(path: Path, given: Path | None, count: int) -> tuple[Floats, str]:
    candidates = [path.parent / "times.txt", path.parent.parent / "times" / path.name]
    file = given or next((item for item in candidates if item.is_file()), None)
    if file is None:
        stamps: Floats = FRAME_PERIOD * np.arange(count, dtype=np.float64)
        check_times(stamps, str(path))
        return stamps, f"without recorded times, {FRAME_PERIOD} s a frame"
    stamps = read_table(file, 1)[:, 0]
    if len(stamps) != count:
        raise SlipstreamError(
            f"{file} does not belong to {path}",
            expected=f"{count} times, one for each pose",
            found=f"{len(stamps)} times",
            fix="put the sequence's own times.txt there, or remove the file",
        )
    check_times(stamps, str(file))
    return stamps, f"times from {file.name}"
