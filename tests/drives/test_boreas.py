"""The Boreas reader, on small files written here and on the shipped excerpt."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from drives.readers.boreas import read_boreas
from drives.windows import windows
from runtime.errors import SlipstreamError
from tests.drives.conftest import travelled


def _copy(excerpt: Path, tmp_path: Path) -> tuple[Path, list[str]]:
    folder = tmp_path / "run"
    shutil.copytree(excerpt, folder)
    return folder, (folder / "applanix" / "camera_poses.csv").read_text().splitlines()


def _rewrite(folder: Path, lines: list[str]) -> None:
    (folder / "applanix" / "camera_poses.csv").write_text("\n".join(lines) + "\n")


def test_boreas_excerpt(boreas_excerpt):
    drive = read_boreas(boreas_excerpt)
    assert len(drive.times) == 640
    assert drive.duration == pytest.approx(63.9, abs=0.01)
    assert drive.speeds.max() == pytest.approx(19.9, abs=0.1)
    assert drive.path_length == pytest.approx(travelled(drive.times, drive.speeds), rel=5e-3)
    assert not drive.synthetic
    assert "CC BY 4.0" in drive.licence
    assert drive.agents is None
    found = windows(drive)
    assert len(found) > 210
    assert set(found.skipped) == {"less than 4 s of history", "less than 5 s of future"}


@pytest.mark.parametrize(("change", "kind"), [(0, "repeated"), (-1000, "reversed")])
def test_boreas_bad_time_stamps_name_file_and_row(boreas_excerpt, tmp_path, change, kind):
    folder, lines = _copy(boreas_excerpt, tmp_path)
    stamp = int(lines[99].split(",")[0]) + change
    lines[100] = ",".join([str(stamp), *lines[100].split(",")[1:]])
    _rewrite(folder, lines)
    with pytest.raises(SlipstreamError, match=r"camera_poses\.csv .* row 101") as caught:
        read_boreas(folder)
    assert kind in str(caught.value)


def test_boreas_unknown_pose_is_skipped_and_counted(boreas_excerpt, tmp_path):
    folder, lines = _copy(boreas_excerpt, tmp_path)
    fields = lines[301].split(",")
    lines[301] = ",".join([fields[0], "nan", *fields[2:]])
    _rewrite(folder, lines)
    drive = read_boreas(folder)
    assert list(np.flatnonzero(~drive.valid)) == [300]
    assert windows(drive).skipped["NaN pose"] == pytest.approx(4 * 9, abs=2)


def test_boreas_short_row(boreas_excerpt, tmp_path):
    folder, lines = _copy(boreas_excerpt, tmp_path)
    _rewrite(folder, [*lines[:-1], lines[-1][:40]])
    with pytest.raises(SlipstreamError, match=r"row 641 .*\n.*13 numbers"):
        read_boreas(folder)


def test_boreas_folder_without_poses(tmp_path):
    with pytest.raises(SlipstreamError, match=r"camera_poses\.csv or applanix/lidar_poses\.csv"):
        read_boreas(tmp_path)


LIDAR_ROWS = 8


def _lidar_run(folder: Path) -> Path:
    """Straight east at 10 m/s; the lidar looks to the vehicle's left (its x axis points north)."""
    (folder / "applanix").mkdir(parents=True)
    (folder / "calib").mkdir()
    (folder / "labels_detection").mkdir()
    header = "GPSTime,easting,northing,altitude,ve,vn,vu,roll,pitch,heading,wz,wy,wx\n"
    rows = [
        f"{1_000_000 + 100_000 * i},{500.0 + i},{800.0},{90.0},10,0,0,0,0,{-np.pi / 2},0,0,0"
        for i in range(LIDAR_ROWS)
    ]
    (folder / "applanix" / "lidar_poses.csv").write_text(header + "\n".join(rows))
    # Applanix x (right) is lidar -x, applanix y (forward) is lidar -y.
    np.savetxt(folder / "calib" / "T_applanix_lidar.txt", np.diag([-1.0, -1.0, 1.0, 1.0]))
    label = "abc Car 4.5 1.9 1.6 2.0 -7.0 -0.5 0.0 30\n"
    (folder / "labels_detection" / "1200000.txt").write_text(label)
    return folder


def test_boreas_lidar_poses_and_labels(tmp_path):
    drive = read_boreas(_lidar_run(tmp_path / "objects"), lever_arm=0.5)
    np.testing.assert_allclose(drive.headings, 0.0, atol=1e-9)
    np.testing.assert_allclose(drive.speeds, 10.0)
    np.testing.assert_allclose(drive.positions[:, 0], np.arange(LIDAR_ROWS) - 0.5, atol=1e-9)
    assert drive.agents is not None
    (frame,) = drive.agents
    assert frame.time == pytest.approx(0.2)
    assert (frame.ids, frame.kinds) == (("abc",), ("Car",))
    # 2 m along the lidar's x (north), 7 m against its y, which points west: 7 m east.
    np.testing.assert_allclose(frame.positions, [[2.0 + 7.0, 2.0, -0.5]], atol=1e-9)
    np.testing.assert_allclose(frame.headings, [np.pi / 2], atol=1e-9)
    np.testing.assert_allclose(frame.sizes, [[4.5, 1.9, 1.6]])


def test_boreas_lidar_that_looks_ahead(tmp_path):
    """Its x axis is Applanix y; the inverse rotation would have the vehicle go backwards."""
    folder = _lidar_run(tmp_path / "objects")
    ahead = np.array([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    turn = np.eye(4)
    turn[:3, :3] = ahead
    np.savetxt(folder / "calib" / "T_applanix_lidar.txt", turn)
    poses = folder / "applanix" / "lidar_poses.csv"
    poses.write_text(poses.read_text().replace(f"{-np.pi / 2}", "0"))
    drive = read_boreas(folder)
    np.testing.assert_allclose(drive.headings, 0.0, atol=1e-9)
    np.testing.assert_allclose(drive.speeds, 10.0)


def test_boreas_bad_label(tmp_path):
    folder = _lidar_run(tmp_path / "objects")
    (folder / "labels_detection" / "1200000.txt").write_text("abc Car 4.5\n")
    with pytest.raises(SlipstreamError, match=r"1200000\.txt row 1"):
        read_boreas(folder)


def test_boreas_labels_beside_camera_poses(boreas_excerpt, tmp_path):
    """Boxes are placed with the lidar's poses even where the drive follows the camera's."""
    folder, lines = _copy(boreas_excerpt, tmp_path)
    lidar = read_boreas(_lidar_run(tmp_path / "objects"))
    for kind in ("applanix/lidar_poses.csv", "labels_detection/1200000.txt"):
        (folder / kind).parent.mkdir(exist_ok=True)
        shutil.copy(tmp_path / "objects" / kind, folder / kind)
    drive = read_boreas(folder)
    assert "camera poses" in drive.source
    assert drive.agents is not None
    assert lidar.agents is not None
    stamp, *origin = [float(field) for field in lines[1].split(",")[:4]]
    apart = np.array([500.0, 800.0, 90.0]) - origin
    np.testing.assert_allclose(
        drive.agents[0].positions, lidar.agents[0].positions + apart, atol=1e-6
    )
    assert drive.agents[0].time == pytest.approx((1_200_000 - stamp) * 1e-6)


def test_boreas_images_are_named(boreas_excerpt, tmp_path):
    folder, lines = _copy(boreas_excerpt, tmp_path)
    (folder / "camera").mkdir()
    stamps = [int(line.split(",")[0]) for line in lines[1:4]]
    for stamp in stamps:
        (folder / "camera" / f"{stamp}.png").touch()
    drive = read_boreas(folder)
    assert drive.images is not None
    np.testing.assert_allclose(drive.images[0].times, drive.times[:3], atol=1e-6)
    assert drive.images[0].paths[2].endswith(f"{stamps[2]}.png")
