"""KITTI raw recordings: one oxts file of the GPS/IMU a frame, with time stamps beside them.

Geiger, Lenz, Stiller, Urtasun, "Vision meets Robotics: The KITTI Dataset", IJRR 2013. Licence CC
BY-NC-SA 3.0.
"""

from __future__ import annotations

import re
from datetime import datetime, timezone
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from drives.drive import Drive, ImageReferences, check_times
from drives.frames import ecef_from_geodetic, enu_from_ecef, rear_axle
from drives.readers.table import read_table
from drives.readers.text import read_text
from runtime.errors import SlipstreamError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LICENCE = "CC BY-NC-SA 3.0 (non-commercial; not redistributed with slipstream)"
# The GPS/IMU from the middle of the rear axle: the lidar stands 0.76 m ahead of it (the benchmark's
# drawing), the GPS/IMU at (-0.81, 0.32) m from the lidar (calib_imu_to_velo.txt).
AHEAD = -0.05  # m
LEFT = 0.32  # m

_COLUMNS = 30
_LATITUDE, _LONGITUDE, _HEIGHT, _YAW, _FORWARD, _YAW_RATE, _ACCURACY = 0, 1, 2, 5, 8, 22, 23
_USED = [_LATITUDE, _LONGITUDE, _HEIGHT, _YAW, _FORWARD, _YAW_RATE]
_COARSE = 1.0  # m; the GPS/IMU is some centimetres sure of its position with RTK
_NANOSECOND = 1e-9
_STAMP = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:\.(\d{1,9}))?\Z", re.ASCII)
_FIX = "fetch the recording again from cvlibs.net/datasets/kitti/raw_data.php"


def is_kitti_raw(folder: Path) -> bool:
    """Does this folder look like a KITTI raw recording, or like its oxts folder?"""
    return (_oxts(folder) / "data").is_dir() and (_oxts(folder) / "timestamps.txt").is_file()


def read_kitti_raw(folder: Path, *, name: str | None = None) -> Drive:
    """Read one recording.

    Positions are east-north-up on the WGS 84 ellipsoid around the first one (the development kit's
    spherical Mercator is some 0.2 % off). Heading is the recorded yaw (from east, left positive).
    Speed is the recorded forward velocity. Both are moved from the GPS/IMU to the rear axle.
    A frame without its file is an unknown pose.

    Args:
        folder: such as 2011_09_26_drive_0001_sync, with oxts/ in it, or that oxts/.
        name: by default kitti-raw-<date>-<number>.

    Raises:
        SlipstreamError: a missing file, a bad row, or bad time stamps.
    """
    oxts = _oxts(folder)
    if not is_kitti_raw(folder):
        raise SlipstreamError(
            f"{folder} is not a KITTI raw recording",
            expected="oxts/timestamps.txt and oxts/data/ in it",
            found="neither or only one of them" if folder.is_dir() else "no such folder",
            fix="name the folder of one recording, e.g. 2011_09_26_drive_0001_sync",
        )
    stamps = _stamps(oxts / "timestamps.txt")
    times = np.asarray((stamps - stamps[:1]) * _NANOSECOND, np.float64)
    check_times(times, str(oxts / "timestamps.txt"))
    table, missing = _rows(oxts / "data", len(times))
    known = np.asarray(np.isfinite(table[:, _USED]).all(axis=1))
    table[~known] = np.nan
    _check(oxts / "data", table)
    headings = table[:, _YAW].copy()
    headings[known] = np.unwrap(headings[known])
    recording = oxts.resolve().parent.name
    warnings = [f"frames without an oxts file: {missing}"] if missing else []
    if coarse := int(np.sum(table[:, _ACCURACY] > _COARSE)):
        warnings.append(f"samples with a position less sure than {_COARSE:g} m: {coarse}")
    return Drive(
        name=name or _short(recording),
        source=f"KITTI raw {recording}, oxts; GPS/IMU taken {-AHEAD:g} m behind the rear axle and "
        f"{LEFT:g} m left of its middle",
        licence=LICENCE,
        synthetic=False,
        times=times,
        positions=_positions(table, headings, known),
        headings=headings,
        speeds=table[:, _FORWARD] + LEFT * table[:, _YAW_RATE],
        clock_start=float(stamps[0]) * _NANOSECOND,
        images=_images(oxts.parent, int(stamps[0])),
        dataset="KITTI raw",
        recording=recording,
        warnings=tuple(warnings),
    )


def _oxts(folder: Path) -> Path:
    return folder if folder.name == "oxts" else folder / "oxts"


def _short(recording: str) -> str:
    parts = recording.removesuffix("_sync").removesuffix("_extract").split("_drive_")
    return "kitti-raw-" + "-".join(part.replace("_", "") for part in parts)


def _stamps(path: Path) -> Ints:
    """Nanoseconds since 1970 of each line such as 2011-09-26 13:02:25.964389445."""
    stamps = []
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        text = line.strip()
        if not text:
            continue
        found = _STAMP.match(text)
        try:
            if found is None:
                raise ValueError
            moment = datetime.strptime(found[1], "%Y-%m-%d %H:%M:%S")
        except ValueError:
            raise SlipstreamError(
                f"{path} row {number} is not a time stamp",
                expected="a line such as 2011-09-26 13:02:25.964389445",
                found=repr(text[:60]),
                fix=_FIX,
            ) from None
        seconds = int(moment.replace(tzinfo=timezone.utc).timestamp())
        if abs(seconds) >= 1 << 33:  # what 64 bits of nanoseconds hold
            raise SlipstreamError(
                f"{path} row {number} is out of range",
                expected="a time stamp between 1970 and 2200",
                found=text[:60],
                fix=_FIX,
            )
        stamps.append(seconds * 10**9 + int((found[2] or "0").ljust(9, "0")))
    return np.array(stamps, dtype=np.int64)


def _rows(folder: Path, count: int) -> tuple[Floats, int]:
    """[count, 30] with NaN where a frame has no file, and how many have none."""
    files = {int(file.stem): file for file in folder.glob("*.txt") if _is_number(file.stem)}
    if files and max(files) >= count:
        raise SlipstreamError(
            f"{folder} does not belong to its time stamps",
            expected=f"files 0 to {count - 1}, one for each time stamp",
            found=f"{files[max(files)].name}",
            fix=_FIX,
        )
    if not files:
        raise SlipstreamError(
            f"{folder} is empty", expected="files 0000000000.txt and on", found="none", fix=_FIX
        )
    table = np.full((count, _COLUMNS), np.nan)
    for number, file in files.items():
        row = read_table(file, _COLUMNS)
        if len(row) != 1:
            raise SlipstreamError(
                f"{file} is not an oxts file",
                expected=f"one line of {_COLUMNS} numbers",
                found=f"{len(row)} lines",
                fix=_FIX,
            )
        table[number] = row[0]
    return table, count - len(files)


def _check(folder: Path, table: Floats) -> None:
    """A file of other numbers must not be taken for a position on earth."""
    limits = {_LATITUDE: 90.0, _LONGITUDE: 180.0, _HEIGHT: 2e4, _YAW: 7.0, _FORWARD: 200.0}
    for column, limit in limits.items():
        bad = np.abs(table[:, column]) > limit
        if bad.any():
            row = int(np.argmax(bad))
            raise SlipstreamError(
                f"{folder / f'{row:010d}.txt'} is not an oxts file",
                expected=f"number {column + 1} within {limit:g} of 0",
                found=f"{table[row, column]:g}",
                fix=_FIX,
            )


def _positions(table: Floats, headings: Floats, known: NDArray[np.bool_]) -> Floats:
    latitudes, longitudes = np.radians(table[:, _LATITUDE]), np.radians(table[:, _LONGITUDE])
    first = int(np.argmax(known))
    points = ecef_from_geodetic(latitudes, longitudes, table[:, _HEIGHT])
    enu = enu_from_ecef(float(latitudes[first]), float(longitudes[first]))
    positions = rear_axle((points - points[first]) @ enu.T, headings, AHEAD)
    return rear_axle(positions, headings + np.pi / 2, LEFT)


def _images(folder: Path, start: int) -> tuple[ImageReferences, ...] | None:
    """Frames of image_00 to image_03, where both they and their stamps are there."""
    cameras = []
    for place in sorted(folder.glob("image_0?")):
        files = [file for file in (place / "data").glob("*.[pj][np]g") if _is_number(file.stem)]
        if not files or not (place / "timestamps.txt").is_file():
            continue
        files.sort(key=lambda file: int(file.stem))
        stamps = _stamps(place / "timestamps.txt")
        numbers = np.array([int(file.stem) for file in files])
        if numbers[-1] >= len(stamps):
            raise SlipstreamError(
                f"{place / 'timestamps.txt'} does not belong to its images",
                expected=f"a time stamp for {files[-1].name}",
                found=f"{len(stamps)} time stamps",
                fix=_FIX,
            )
        times = np.asarray((stamps[numbers] - start) * _NANOSECOND)
        cameras.append(ImageReferences(place.name, times, tuple(str(file) for file in files)))
    return tuple(cameras) or None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 10
