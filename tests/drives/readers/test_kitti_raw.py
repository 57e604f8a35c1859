"""The KITTI raw reader, on recordings written here."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from drives.info import describe
from drives.readers.kitti_raw import is_kitti_raw, read_kitti_raw
from drives.readers.synthetic import synthetic_drive
from drives.windows import windows
from runtime.errors import SlipstreamError
from tests.drives.readers.fuzz import LONG, SHORT, survives
from tests.drives.readers.writers import write_kitti_raw

NAME = "2011_09_26_drive_0001_sync"


@pytest.fixture
def truth():
    return synthetic_drive(2, duration=30.0, noise=0.0)


@pytest.fixture
def folder(tmp_path, truth):
    return write_kitti_raw(tmp_path / NAME, truth)


@pytest.mark.parametrize("latitude", [49.0, -33.0, 0.0, 68.0])
def test_gives_back_what_was_written(tmp_path, truth, latitude):
    """The rear axle's own motion, whatever the hemisphere, through left and right turns."""
    drive = read_kitti_raw(write_kitti_raw(tmp_path / NAME, truth, latitude))
    np.testing.assert_allclose(drive.times, truth.times, atol=1e-6)
    # The origin is where the GPS/IMU was.
    moved = truth.positions - truth.positions[0]
    moved -= moved[0] - drive.positions[0, :2]
    size = np.abs(truth.positions).max()
    np.testing.assert_allclose(drive.positions[:, :2], moved, atol=1e-4 * size)
    np.testing.assert_allclose(drive.headings, truth.headings, atol=1e-9)
    np.testing.assert_allclose(drive.speeds, truth.speeds, atol=1e-9)
    assert drive.path_length == pytest.approx(truth.path_length, rel=1e-4)
    assert drive.name == "kitti-raw-20110926-0001"
    assert drive.recording == NAME
    assert describe(drive).warnings == ()
    assert len(windows(drive)) == len(windows(truth))


def test_the_clock_is_utc(folder):
    assert read_kitti_raw(folder).clock_start == pytest.approx(1317042145.0)


def test_recognises_a_recording_and_its_oxts(folder):
    assert is_kitti_raw(folder)
    assert is_kitti_raw(folder / "oxts")
    assert read_kitti_raw(folder / "oxts").recording == NAME
    assert not is_kitti_raw(folder.parent)
    with pytest.raises(SlipstreamError, match="not a KITTI raw recording"):
        read_kitti_raw(folder.parent)


def test_images_are_named_with_their_own_times(folder):
    place = folder / "image_02"
    (place / "data").mkdir(parents=True)
    shutil.copy(folder / "oxts" / "timestamps.txt", place / "timestamps.txt")
    for number in (3, 1):
        (place / "data" / f"{number:010d}.png").touch()
    images = read_kitti_raw(folder).images
    assert images is not None
    assert images[0].camera == "image_02"
    assert images[0].times == pytest.approx([0.1, 0.3])
    (place / "data" / "0000009999.png").touch()
    with pytest.raises(SlipstreamError, match="does not belong to its images"):
        read_kitti_raw(folder)


def test_missing_files_are_unknown_poses(folder):
    for number in (50, 51):
        (folder / "oxts" / "data" / f"{number:010d}.txt").unlink()
    drive = read_kitti_raw(folder)
    assert list(np.flatnonzero(~drive.valid)) == [50, 51]
    assert drive.warnings == ("frames without an oxts file: 2",)


def _row(folder: Path, number: int, column: int, value: str) -> None:
    path = folder / "oxts" / "data" / f"{number:010d}.txt"
    fields = path.read_text().split()
    fields[column] = value
    path.write_text(" ".join(fields))


def test_coarse_positions_are_told(folder):
    _row(folder, 9, 23, "4.5")
    assert read_kitti_raw(folder).warnings == ("samples with a position less sure than 1 m: 1",)


def test_nan_spoils_only_its_row(folder):
    _row(folder, 9, 0, "nan")
    assert list(np.flatnonzero(~read_kitti_raw(folder).valid)) == [9]


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [(0, "4900.0", "number 1 within 90"), (5, "270", "number 6 within 7"), (8, "x", "30 numbers")],
)
def test_bad_files_are_named(folder, column, value, message):
    _row(folder, 9, column, value)
    with pytest.raises(SlipstreamError, match=message) as caught:
        read_kitti_raw(folder)
    assert "0000000009.txt" in str(caught.value)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("2011-09-26 13:02:25.0", "bad time stamp in row 2"),
        ("2011-13-26 13:02:25.0", "row 2 is not a time stamp"),
        ("1317042145.9", "row 2 is not a time stamp"),
        ("9999-09-26 13:02:25.0", "row 2 is out of range"),
    ],
)
def test_bad_time_stamps_are_named(folder, line, message):
    path = folder / "oxts" / "timestamps.txt"
    lines = path.read_text().splitlines()
    lines[1] = line
    path.write_text("\n".join(lines))
    with pytest.raises(SlipstreamError, match=message):
        read_kitti_raw(folder)


def test_more_files_than_time_stamps_are_refused(folder):
    path = folder / "oxts" / "timestamps.txt"
    path.write_text("\n".join(path.read_text().splitlines()[:-1]))
    with pytest.raises(SlipstreamError, match="does not belong to its time stamps"):
        read_kitti_raw(folder)
    for file in (folder / "oxts" / "data").iterdir():
        file.unlink()
    with pytest.raises(SlipstreamError, match="is empty"):
        read_kitti_raw(folder)


@pytest.mark.parametrize(
    "inputs", [SHORT, pytest.param(LONG, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])]
)
def test_damaged_recordings_are_refused_or_read(tmp_path, inputs):
    folder = write_kitti_raw(tmp_path / NAME, synthetic_drive(2, duration=1.5, noise=0.0))
    files = [folder / "oxts" / "timestamps.txt", *sorted((folder / "oxts" / "data").iterdir())[:9]]
    assert survives(lambda: read_kitti_raw(folder), files, 3, inputs) > inputs // 4
