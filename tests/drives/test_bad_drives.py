"""Recordings that look like a drive and are none."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

from drives.readers.comma2k19 import read_comma2k19
from drives.readers.kitti import read_kitti
from drives.readers.synthetic import synthetic_drive
from drives.windows import windows
from runtime.errors import SlipstreamError
from tests.drives.test_comma2k19 import _segment

ROWS = 120


def poses() -> np.ndarray:
    rows = np.tile(np.eye(3, 4), (ROWS, 1, 1))
    rows[:, 2, 3] = 0.8 * np.arange(ROWS)
    return rows.reshape(ROWS, 12)


def kitti(folder: Path, rows: np.ndarray, times: np.ndarray | None = None) -> Path:
    np.savetxt(folder / "00.txt", rows)
    if times is not None:
        np.savetxt(folder / "times.txt", times)
    return folder / "00.txt"


@pytest.mark.parametrize("value", [0.0, 2.0, 1e300])
def test_numbers_that_are_no_rotations_are_no_poses(value: float, tmp_path: Path) -> None:
    rows = poses()
    rows[7, :3] = value
    with pytest.raises(SlipstreamError, match="row 8 is not a pose"):
        read_kitti(kitti(tmp_path, rows))


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("unknown", [slice(60, None), slice(0, 60), slice(58, 62)])
def test_unknown_poses_are_skipped_and_counted(
    value: float, unknown: slice, tmp_path: Path
) -> None:
    rows = poses()
    rows[unknown, 2] = value
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cut = windows(read_kitti(kitti(tmp_path, rows)))
    assert len(cut) == 0
    assert cut.skipped["NaN pose"] > 0


@pytest.mark.parametrize("unit", [1e9, 1e300])
def test_times_in_another_unit_are_refused(unit: float, tmp_path: Path) -> None:
    times = 0.1 * unit * np.arange(ROWS)
    with pytest.raises(SlipstreamError, match="another unit"):
        read_kitti(kitti(tmp_path, poses(), times))


def test_a_step_that_would_fill_the_memory_is_refused() -> None:
    with pytest.raises(SlipstreamError, match="step_s"):
        windows(synthetic_drive(duration=20.0), 1e-9)


@pytest.mark.parametrize("value", [0.0, 3.0])
def test_orientations_that_are_no_unit_quaternions_are_refused(
    value: float, tmp_path: Path
) -> None:
    path = _segment(tmp_path) / "global_pose" / "frame_orientations"
    turns = np.load(path)
    turns[4] = value
    with path.open("wb") as file:
        np.save(file, turns)
    with pytest.raises(SlipstreamError, match="row 5 is not an orientation"):
        read_comma2k19(tmp_path)


@pytest.mark.parametrize("kind", ["pickle", "empty", "cut"])
def test_arrays_that_are_not_whole_numbers_are_refused(kind: str, tmp_path: Path) -> None:
    path = _segment(tmp_path) / "global_pose" / "frame_velocities"
    whole = path.read_bytes()
    with path.open("wb") as file:
        if kind == "pickle":
            np.save(file, np.array([{"a": 1}], object), allow_pickle=True)
        elif kind == "cut":
            file.write(whole[:-100])
    with pytest.raises(SlipstreamError, match="frame_velocities can't be read"):
        read_comma2k19(tmp_path)


@pytest.mark.parametrize("value", [1e300, -1e308, 1e160, np.inf])
@pytest.mark.parametrize(
    "name", ["frame_times", "frame_positions", "frame_velocities", "frame_orientations", "value"]
)
@pytest.mark.parametrize("rows", [slice(None), slice(-1, None), slice(13, 60)])
def test_numbers_that_overflow_are_refused_without_a_warning(
    name: str, value: float, rows: slice, tmp_path: Path
) -> None:
    (path,) = _segment(tmp_path).rglob(name)
    numbers = np.load(path)
    numbers[rows] = value
    if name == "frame_times":
        numbers[0] = -value
    with path.open("wb") as file:
        np.save(file, numbers)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(SlipstreamError, match=rf"{name}( row \d+)? (is not|has)"):
            read_comma2k19(tmp_path, speed_from="can")


@pytest.mark.parametrize("kind", ["complex", "wide"])
def test_arrays_of_other_numbers_give_no_warning(kind: str, tmp_path: Path) -> None:
    path = _segment(tmp_path) / "global_pose" / "frame_velocities"
    numbers = np.load(path)
    wide = numbers.astype(np.longdouble) * np.longdouble("1e1000")
    if kind == "wide" and not np.isfinite(wide).all():
        pytest.skip("long double is no wider than double on this machine")
    with path.open("wb") as file:
        np.save(file, wide if kind == "wide" else numbers.astype(complex))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(SlipstreamError, match="frame_velocities"):
            read_comma2k19(tmp_path)
