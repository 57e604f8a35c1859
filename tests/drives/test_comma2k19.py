"""The comma2k19 reader, on small files written here."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from drives.frames import enu_from_ecef
from drives.readers.comma2k19 import read_comma2k19
from runtime.errors import SlipstreamError


def _segment(folder: Path, speed: float = 20.0, mounting: float = 0.02, count: int = 400) -> Path:
    """Straight to the north-east at 0.7 rad latitude; the device looks a little to the right."""
    pose, log = folder / "global_pose", folder / "processed_log" / "CAN" / "speed"
    pose.mkdir(parents=True)
    log.mkdir(parents=True)
    latitude, longitude = 0.7, -1.2
    times = 500.0 + np.arange(count) * 0.05
    enu = enu_from_ecef(latitude, longitude)
    course = 0.5 * np.pi / 2
    direction = np.array([np.cos(course), np.sin(course), 0.0])
    normal = 6378137.0 / np.sqrt(1 - 0.00669437999014 * np.sin(latitude) ** 2)
    start = normal * np.array(
        [
            np.cos(latitude) * np.cos(longitude),
            np.cos(latitude) * np.sin(longitude),
            (1 - 0.00669437999014) * np.sin(latitude),
        ]
    )
    looks = course - mounting
    forward = np.array([np.cos(looks), np.sin(looks), 0.0])
    right = np.array([np.sin(looks), -np.cos(looks), 0.0])
    rotation = enu.T @ np.stack([forward, right, [0.0, 0.0, -1.0]], axis=1)
    along = (speed * (times - times[0]))[:, None] * direction
    arrays = {
        pose / "frame_times": times,
        pose / "frame_positions": start + along @ enu,
        pose / "frame_velocities": np.tile(speed * direction @ enu, (count, 1)),
        pose / "frame_orientations": np.tile(_quaternion(rotation), (count, 1)),
        log / "t": np.arange(499.9, times[-1] + 0.1, 0.012),
        log / "value": np.full((len(np.arange(499.9, times[-1] + 0.1, 0.012)), 1), 0.99 * speed),
    }
    for path, array in arrays.items():
        with path.open("wb") as file:
            np.save(file, array)
    return folder


def _quaternion(rotation: np.ndarray) -> np.ndarray:
    """Unit quaternion (w, x, y, z) of a rotation: eigenvector of the matrix of Bar-Itzhack."""
    m = rotation
    k = np.array(
        [
            [m[0, 0] - m[1, 1] - m[2, 2], m[1, 0] + m[0, 1], m[2, 0] + m[0, 2], m[2, 1] - m[1, 2]],
            [m[1, 0] + m[0, 1], m[1, 1] - m[0, 0] - m[2, 2], m[2, 1] + m[1, 2], m[0, 2] - m[2, 0]],
            [m[2, 0] + m[0, 2], m[2, 1] + m[1, 2], m[2, 2] - m[0, 0] - m[1, 1], m[1, 0] - m[0, 1]],
            [m[2, 1] - m[1, 2], m[0, 2] - m[2, 0], m[1, 0] - m[0, 1], np.trace(m)],
        ]
    )
    x, y, z, w = np.linalg.eigh(k)[1][:, -1]
    return np.array([w, x, y, z])


def test_comma_segment(tmp_path):
    drive = read_comma2k19(_segment(tmp_path / "12"))
    assert drive.name == "comma2k19-12"
    assert drive.clock_start == 500.0
    # The mounting angle is found and taken out.
    np.testing.assert_allclose(drive.headings, np.pi / 4, atol=1e-9)
    np.testing.assert_allclose(drive.speeds, 20.0, atol=1e-9)
    assert drive.path_length == pytest.approx(20.0 * 399 * 0.05, rel=1e-9)
    moved = drive.positions[-1] - drive.positions[0]
    np.testing.assert_allclose(moved[:2], 399.0 * np.sqrt(0.5), rtol=1e-9)
    assert abs(moved[2]) < 1e-6


def test_comma_wheel_speeds(tmp_path):
    drive = read_comma2k19(_segment(tmp_path / "12"), speed_from="can")
    np.testing.assert_allclose(drive.speeds, 0.99 * 20.0)
    assert "can" in drive.source


def test_comma_refuses_pickles(tmp_path):
    folder = _segment(tmp_path / "12")
    with (folder / "global_pose" / "frame_velocities").open("wb") as file:
        np.save(file, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(SlipstreamError, match=r"frame_velocities can't be read(.|\n)*pickle"):
        read_comma2k19(folder)


@pytest.mark.parametrize("content", [b"", b"not an array", b"PK\x03\x04"])
def test_comma_broken_array(tmp_path, content):
    folder = _segment(tmp_path / "12")
    (folder / "global_pose" / "frame_positions").write_bytes(content)
    with pytest.raises(SlipstreamError, match="frame_positions can't be read"):
        read_comma2k19(folder)


def test_comma_archive_instead_of_array(tmp_path):
    folder = _segment(tmp_path / "12")
    with (folder / "global_pose" / "frame_positions").open("wb") as file:
        np.savez(file, a=np.zeros(3))
    with pytest.raises(SlipstreamError, match="frame_positions"):
        read_comma2k19(folder)


def test_comma_arrays_that_do_not_fit(tmp_path):
    folder = _segment(tmp_path / "12")
    for shape, message in (((399, 3), "400 rows"), ((400, 2), r"\[n, 3\]")):
        with (folder / "global_pose" / "frame_velocities").open("wb") as file:
            np.save(file, np.zeros(shape))
        with pytest.raises(SlipstreamError, match=message):
            read_comma2k19(folder)


def test_comma_repeated_stamps(tmp_path):
    folder = _segment(tmp_path / "12")
    times = 500.0 + np.arange(400) * 0.05
    times[7] = times[6]
    with (folder / "global_pose" / "frame_times").open("wb") as file:
        np.save(file, times)
    with pytest.raises(SlipstreamError, match="frame_times has a bad time stamp in row 8"):
        read_comma2k19(folder)
