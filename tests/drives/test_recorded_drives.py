"""Readers against published figures of whole recordings, where those are at hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from drives.info import describe
from drives.open import open_drive
from drives.readers.comma2k19 import can_speed, read_comma2k19
from drives.windows import windows
from tests.drives.conftest import travelled

KITTI = {
    "00": 3724.2,
    "01": 2453.2,
    "02": 5067.2,
    "03": 560.9,
    "04": 393.6,
    "05": 2205.6,
    "06": 1232.9,
    "07": 694.7,
    "09": 1705.1,
}


def _there(path: Path) -> Path:
    if not path.exists():
        pytest.skip(f"no recording at {path}")
    return path


@pytest.mark.parametrize("sequence", KITTI)
def test_kitti(shared_drives, sequence):
    drive = open_drive(_there(shared_drives / "kitti_odometry" / "poses" / f"{sequence}.txt"))
    assert drive.path_length == pytest.approx(KITTI[sequence], rel=5e-3)
    assert describe(drive).rate_hz == pytest.approx(9.65, abs=0.05)
    assert describe(drive).warnings == ()
    assert drive.speeds.min() > -0.5
    assert drive.speeds.max() < 26.5
    # Speeds come from the positions, causally; they must lead as far as the positions.
    assert travelled(drive.times, drive.speeds) == pytest.approx(drive.path_length, rel=5e-3)


def test_boreas_loop(shared_drives):
    drive = open_drive(_there(shared_drives / "boreas" / "boreas-2021-08-05-13-34"))
    assert len(drive.times) == 11192
    assert drive.path_length == pytest.approx(7940.7, rel=5e-3)
    assert travelled(drive.times, drive.speeds) == pytest.approx(7940.1, rel=5e-3)
    assert drive.speeds.max() == pytest.approx(19.9, abs=0.1)
    assert len(windows(drive)) == 4441


def test_boreas_objects(shared_drives):
    drive = open_drive(_there(shared_drives / "boreas" / "boreas-objects-v1"))
    assert len(drive.times) == 200
    assert drive.speeds.min() == pytest.approx(14.2, abs=0.2)
    assert drive.speeds.max() == pytest.approx(16.2, abs=0.2)
    info = describe(drive)
    assert [round(length) for _, length in info.gaps] == [25]
    assert drive.agents is not None
    assert len(drive.agents) == 100
    assert np.mean([len(frame.ids) for frame in drive.agents]) == pytest.approx(21.6, abs=0.05)
    assert windows(drive).skipped["gap over 0.3 s"] > 0


def test_parked_boreas_cars_stand_still(shared_drives):
    """Most labelled tracks that do not move from frame to frame stay put in the world frame."""
    drive = open_drive(_there(shared_drives / "boreas" / "boreas-objects-v1"))
    assert drive.agents is not None
    tracks: dict[str, list[np.ndarray]] = {}
    for frame in drive.agents[:40]:
        for name, position in zip(frame.ids, frame.positions, strict=True):
            tracks.setdefault(name, []).append(position)
    spans = [np.ptp(np.array(track)[:, :2], axis=0).max() for track in tracks.values()]
    ego = drive.positions[drive.times <= drive.agents[39].time]
    assert np.linalg.norm(ego[-1] - ego[0]) > 60.0
    assert np.quantile(spans, 0.25) < 1.0


def test_comma2k19(shared_drives):
    found = sorted(_there(shared_drives / "comma2k19").glob("Example_1/*/40"))
    drive = open_drive(found[0])
    assert len(drive.times) == 1200
    assert drive.path_length == pytest.approx(1011.8, rel=5e-3)
    times, speeds = can_speed(found[0])
    assert travelled(times, speeds) == pytest.approx(1003.8, rel=1e-3)
    wheels = read_comma2k19(found[0], speed_from="can").speeds
    assert np.sqrt(np.mean((wheels - drive.speeds) ** 2)) < 0.16
    assert len(windows(drive)) == 203
    # The heading, freed of the mounting angle, is the course.
    steps = np.diff(drive.positions, axis=0)
    course = np.arctan2(steps[:, 1], steps[:, 0])
    off = (course - drive.headings[1:] + np.pi) % (2 * np.pi) - np.pi
    assert np.abs(np.median(off)) < 0.002
    assert np.quantile(np.abs(off), 0.95) < 0.02
