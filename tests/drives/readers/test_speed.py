"""Reading and windowing keep up: at least 2,000 frames a second of one core's time."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from drives.drive import Drive
from drives.readers.argoverse2 import read_argoverse2
from drives.readers.boreas import read_boreas
from drives.readers.comma2k19 import read_comma2k19
from drives.readers.kitti import read_kitti
from drives.readers.kitti_raw import read_kitti_raw
from drives.readers.nuscenes import read_nuscenes
from drives.readers.synthetic import synthetic_drive
from drives.windows import windows
from tests.drives.readers.writers import (
    write_argoverse2,
    write_boreas,
    write_comma2k19,
    write_kitti,
    write_kitti_raw,
    write_nuscenes,
)

FRAMES = 2000


def _argoverse2(folder: Path, drive: Drive) -> Callable[[], Drive]:
    pytest.importorskip("pyarrow")
    write_argoverse2(folder, drive, twins=False)
    return lambda: read_argoverse2(folder)


def _nuscenes(folder: Path, drive: Drive) -> Callable[[], Drive]:
    write_nuscenes(folder, {"scene-0001": drive})
    return lambda: read_nuscenes(folder)


def _kitti_raw(folder: Path, drive: Drive) -> Callable[[], Drive]:
    write_kitti_raw(folder, drive)
    return lambda: read_kitti_raw(folder)


def _kitti(folder: Path, drive: Drive) -> Callable[[], Drive]:
    path = write_kitti(folder / "05.txt", drive)
    return lambda: read_kitti(path)


def _boreas(folder: Path, drive: Drive) -> Callable[[], Drive]:
    write_boreas(folder, drive)
    return lambda: read_boreas(folder)


def _comma2k19(folder: Path, drive: Drive) -> Callable[[], Drive]:
    write_comma2k19(folder, drive)
    return lambda: read_comma2k19(folder)


# by hand and with figures: python -m benchmarks.readers
@pytest.mark.slow
@pytest.mark.parametrize(
    "prepare", [_argoverse2, _nuscenes, _kitti_raw, _kitti, _boreas, _comma2k19]
)
def test_frames_a_second(tmp_path, prepare):
    read = prepare(tmp_path, synthetic_drive(2, duration=0.1 * FRAMES))
    read()  # what is imported at first use
    best = float("inf")
    for _ in range(3):
        start = time.process_time()
        cut = windows(read(), 0.1)
        best = min(best, time.process_time() - start)
    assert len(cut) > 0.9 * FRAMES
    assert FRAMES / best > 2000
