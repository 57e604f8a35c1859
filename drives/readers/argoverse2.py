"""Argoverse 2 sensor logs: ego poses and labelled boxes in Feather tables, camera frames by name.

Wilson et al., "Argoverse 2", NeurIPS 2021 (arXiv 2301.00493). The ego frame is already ours: origin
in the middle of the rear axle, x forward, y left, z up. Licence CC BY-NC-SA 4.0.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from drives.drive import AgentFrame, Drive, ImageReferences, check_times
from drives.frames import headings_of, rotation_from_quaternion
from drives.readers.argoverse2_camera import read_calibrations
from drives.readers.feather import read_feather
from drives.readers.poses import check_positions, check_quaternions, speeds_of_poses, thinned
from runtime.errors import SlipstreamError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LICENCE = (
    "CC BY-NC-SA 4.0 (non-commercial; not redistributed with slipstream), (c) 2022 Argo AI, LLC"
)

_POSES = "city_SE3_egovehicle.feather"
_LABELS = ("annotations.feather", "annotations_with_ego.feather")
_EGO = "EGO_VEHICLE"  # some copies label the recording vehicle itself
_QUATERNION = ("qw", "qx", "qy", "qz")
_TRANSLATION = ("tx_m", "ty_m", "tz_m")
_SIZE = ("length_m", "width_m", "height_m")
_STAMP = "timestamp_ns"
_NANOSECOND = 1e-9
_FIX = "fetch the log again: s5cmd cp 's3://argoverse/datasets/av2/sensor/<split>/<log>/*' <log>"
_FORWARD = np.array([1.0, 0.0, 0.0])


def is_argoverse2(folder: Path) -> bool:
    """Does this folder look like an Argoverse 2 log?"""
    return (folder / _POSES).is_file()


def read_argoverse2(folder: Path, *, name: str | None = None) -> Drive:
    """Read one log.

    Poses stand at the stamps of every sensor, some a nanosecond apart; those closer than 5 ms are
    left out. Speeds come from the poses of the last 0.5 s. The origin is the first known position.

    Args:
        folder: of one log; annotations are read where there are any.
        name: by default av2-<first eight characters of the log's name>.

    Raises:
        SlipstreamError: pyarrow is not installed, a table is missing or damaged, lacks a column, or
            its stamps do not increase.
    """
    path = folder / _POSES
    table = read_feather(path, {_STAMP: "int", **_numbers(*_QUATERNION, *_TRANSLATION)}, _FIX)
    stamps = table.ints(_STAMP)
    if not len(stamps):
        raise _bad(path, "at least 2 poses", "none")
    times = _seconds(stamps, stamps[0])
    check_times(times, str(path))
    quaternions, positions = table.floats(*_QUATERNION), table.floats(*_TRANSLATION)
    check_quaternions(path, quaternions, _FIX)
    check_positions(path, positions, _FIX)
    known = np.isfinite(np.column_stack([quaternions, positions])).all(axis=1, keepdims=True)
    rotations = rotation_from_quaternion(np.where(known, quaternions, np.nan))
    positions = np.where(known, positions - positions[np.argmax(known)], np.nan)
    agents = _agents(folder, stamps, rotations, positions)
    taken = thinned(times)
    times, positions = times[taken], positions[taken]
    headings = headings_of(rotations[taken] @ _FORWARD)
    log = folder.resolve().name
    return Drive(
        name=name or f"av2-{log[:8]}",
        source=f"Argoverse 2 sensor log {log}, ego poses; {len(taken)} of {len(stamps)} are 5 ms "
        "apart and kept; speeds from the poses",
        licence=LICENCE,
        synthetic=False,
        times=times,
        positions=positions,
        headings=headings,
        speeds=speeds_of_poses(times, positions, headings),
        clock_start=float(stamps[0]) * _NANOSECOND,
        images=_images(folder, int(stamps[0])),
        agents=agents,
        dataset="Argoverse 2",
        recording=log,
    )


def _agents(
    folder: Path, stamps: Ints, rotations: Floats, positions: Floats
) -> tuple[AgentFrame, ...] | None:
    """Boxes are given in the ego frame of their instant, which is the stamp of a pose."""
    path = next((folder / file for file in _LABELS if (folder / file).is_file()), None)
    if path is None:
        return None
    numbers = _numbers(*_SIZE, *_QUATERNION, *_TRANSLATION)
    columns = {_STAMP: "int", "track_uuid": "text", "category": "text", **numbers}
    table = read_feather(path, columns, _FIX)
    boxes = table.floats(*_TRANSLATION, *_SIZE)
    turns = table.floats(*_QUATERNION)
    check_quaternions(path, turns, _FIX)
    check_positions(path, boxes, _FIX)
    if not (np.isfinite(boxes).all() and np.isfinite(turns).all()):
        row = int(np.argmin(np.isfinite(np.column_stack([boxes, turns])).all(axis=1)))
        raise _bad(path, "finite numbers", f"row {row + 1}: {boxes[row]}, {turns[row]}")
    forward = rotation_from_quaternion(turns) @ _FORWARD
    ids, kinds = table.texts("track_uuid"), table.texts("category")
    others = np.array([kind != _EGO for kind in kinds], dtype=bool)
    frames = []
    for stamp, rows in _by_stamp(table.ints(_STAMP)[others], np.flatnonzero(others)):
        pose = int(np.searchsorted(stamps, stamp))
        if pose == len(stamps) or stamps[pose] != stamp:
            raise _bad(path, f"labels at stamps of {_POSES}", f"labels at {stamp} ns")
        turned = forward[rows] @ rotations[pose].T
        frames.append(
            AgentFrame(
                time=float(_seconds(stamps[pose : pose + 1], stamps[0])[0]),
                ids=tuple(ids[row] for row in rows),
                kinds=tuple(kinds[row] for row in rows),
                positions=boxes[rows, :3] @ rotations[pose].T + positions[pose],
                headings=np.arctan2(turned[:, 1], turned[:, 0]),
                sizes=boxes[rows, 3:],
            )
        )
    return tuple(frame for frame in frames if np.isfinite(frame.positions).all())


def _by_stamp(stamps: Ints, rows: Ints) -> list[tuple[int, Ints]]:
    order = np.argsort(stamps, kind="stable")
    values, starts = np.unique(stamps[order], return_index=True)
    groups = np.split(rows[order], starts[1:]) if len(values) else []
    return list(zip(values.tolist(), groups, strict=True))


def _images(folder: Path, start: int) -> tuple[ImageReferences, ...] | None:
    """Frames lie in sensors/cameras/<camera>/<nanoseconds>.jpg."""
    cameras = []
    calibrations = read_calibrations(folder, _FIX)
    for place in sorted((folder / "sensors" / "cameras").glob("*")):
        files = [file for file in place.glob("*.jpg") if _is_stamp(file.stem)]
        files.sort(key=lambda file: int(file.stem))
        if files:
            stamps = np.array([int(file.stem) for file in files], dtype=np.int64)
            paths = tuple(str(file) for file in files)
            times, calibration = _seconds(stamps, start), calibrations.get(place.name)
            cameras.append(ImageReferences(place.name, times, paths, calibration))
    return tuple(cameras) or None


def _is_stamp(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 18


def _seconds(stamps: Ints, start: int | np.int64) -> Floats:
    """Differences before conversion: a float's seconds of the clock would lose nanoseconds."""
    with np.errstate(over="ignore"):
        return np.asarray((stamps - start) * _NANOSECOND, np.float64)


def _numbers(*names: str) -> dict[str, str]:
    return dict.fromkeys(names, "float")


def _bad(path: Path, expected: str, found: str) -> SlipstreamError:
    return SlipstreamError(f"{path} can't be used", expected=expected, found=found, fix=_FIX)
