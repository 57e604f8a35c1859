"""KITTI odometry, Boreas and comma2k19: whole files give the drive back, damaged ones an error."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from drives.drive import Drive
from drives.readers.boreas import read_boreas
from drives.readers.comma2k19 import read_comma2k19
from drives.readers.kitti import read_kitti
from drives.readers.synthetic import synthetic_drive
from runtime.errors import SlipstreamError
from tests.drives.readers.fuzz import LONG, SHORT, survives
from tests.drives.readers.writers import write_boreas, write_comma2k19, write_kitti

Reader = Callable[[], Drive]


def _kitti(folder: Path, drive: Drive) -> Reader:
    path = write_kitti(folder / "05.txt", drive)
    return lambda: read_kitti(path)


def _boreas(folder: Path, drive: Drive) -> Reader:
    write_boreas(folder, drive)
    return lambda: read_boreas(folder)


def _comma(folder: Path, drive: Drive) -> Reader:
    write_comma2k19(folder, drive)
    return lambda: read_comma2k19(folder)


def _comma_wheels(folder: Path, drive: Drive) -> Reader:
    write_comma2k19(folder, drive)
    return lambda: read_comma2k19(folder, speed_from="can")


FORMATS = [_kitti, _boreas, _comma, _comma_wheels]


@pytest.mark.parametrize("prepare", FORMATS)
def test_gives_back_what_was_written(tmp_path, prepare):
    truth = synthetic_drive(2, duration=60.0, noise=0.0)
    drive = prepare(tmp_path, truth)()
    np.testing.assert_allclose(drive.times, truth.times, atol=1e-6)
    moved = drive.positions[:, :2] - drive.positions[0, :2]
    np.testing.assert_allclose(moved, truth.positions - truth.positions[0], atol=0.02)
    turned = np.unwrap(drive.headings) - np.unwrap(truth.headings)
    np.testing.assert_allclose(turned, 0.0, atol=0.01)
    assert np.sqrt(np.mean((drive.speeds - truth.speeds) ** 2)) < 0.05


@pytest.mark.parametrize(
    "inputs", [SHORT, pytest.param(LONG, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])]
)
@pytest.mark.parametrize("prepare", FORMATS)
def test_damage_is_refused_or_read(tmp_path, prepare, inputs):
    read = prepare(tmp_path, synthetic_drive(2, duration=6.0, noise=0.0))
    files = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    assert survives(read, files, 11, inputs) > inputs // 10


def test_boreas_angles_that_are_infinite_are_not_known(tmp_path):
    write_boreas(tmp_path, synthetic_drive(2, duration=6.0, noise=0.0))
    path = tmp_path / "applanix" / "lidar_poses.csv"
    lines = path.read_text().splitlines()
    fields = lines[9].split(",")
    lines[9] = ",".join([*fields[:9], "1e999", *fields[10:]])
    path.write_text("\n".join(lines))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert list(np.flatnonzero(~read_boreas(tmp_path).valid)) == [8]


@pytest.mark.parametrize("size", ["nan", "inf", "1e999", "-1e5"])
def test_boreas_labels_of_no_road_user(tmp_path, size):
    write_boreas(tmp_path, synthetic_drive(2, duration=6.0, noise=0.0))
    label = min((tmp_path / "labels_detection").iterdir())
    label.write_text(label.read_text().replace("4.5", size))
    with pytest.raises(SlipstreamError, match=rf"{label.name} row 1"):
        read_boreas(tmp_path)


@pytest.mark.parametrize("line", ["", "0 0 0 0\n", "1e300 0 0 0\n0 nan 0 0\n0 0 1 0\n0 0 0 1\n"])
def test_boreas_mountings_that_are_none(tmp_path, line):
    write_boreas(tmp_path, synthetic_drive(2, duration=6.0, noise=0.0))
    (tmp_path / "calib" / "T_applanix_lidar.txt").write_text(line)
    with pytest.raises(SlipstreamError, match="mounting"):
        read_boreas(tmp_path)


@pytest.mark.parametrize("descr", ["'<f8", "'<f8' 3", "__import__('os')"])
def test_comma_arrays_with_broken_headers(tmp_path, descr):
    write_comma2k19(tmp_path, synthetic_drive(2, duration=6.0, noise=0.0))
    path = tmp_path / "global_pose" / "frame_times"
    path.write_bytes(path.read_bytes().replace(b"'<f8'", descr.encode(), 1))
    with pytest.raises(SlipstreamError, match="frame_times can't be read"):
        read_comma2k19(tmp_path)
