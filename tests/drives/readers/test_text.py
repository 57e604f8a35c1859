"""Text files that are too large, endless or no text are refused before they fill the memory."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from drives.open import open_drive
from drives.readers.text import read_text
from runtime.errors import SlipstreamError

HUGE = 20 << 30
SIDECAR = (
    '{"format":"slipstream-drive","version":1,"name":"b","licence":"x","rate_hz":10,"frame":"enu"}'
)


def _sparse(path: Path, head: bytes = b"") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(head)
    os.truncate(path, HUGE)
    return path


def _kitti(folder: Path) -> tuple[Path, Path]:
    file = _sparse(folder / "sparse.txt")
    return file, file


def _boreas(folder: Path) -> tuple[Path, Path]:
    return folder, _sparse(folder / "applanix" / "camera_poses.csv")


def _kitti_raw(folder: Path) -> tuple[Path, Path]:
    (folder / "oxts" / "data").mkdir(parents=True)
    return folder, _sparse(folder / "oxts" / "timestamps.txt")


def _table(folder: Path) -> tuple[Path, Path]:
    (folder / "b.json").write_text(SIDECAR)
    file = _sparse(folder / "b.csv")
    return file, file


def _sidecar(folder: Path) -> tuple[Path, Path]:
    (folder / "b.csv").write_text("time,x,y,heading\n")
    return folder / "b.csv", _sparse(folder / "b.json")


def _array(folder: Path) -> tuple[Path, Path]:
    _sparse(folder / "global_pose" / "frame_positions")
    header = b"\x93NUMPY\x01\x00\x76\x00"
    shape = b"{'descr': '<f8', 'fortran_order': False, 'shape': (2500000000,), }".ljust(117)
    return folder, _sparse(folder / "global_pose" / "frame_times", header + shape + b"\n")


@pytest.mark.parametrize("make", [_kitti, _boreas, _kitti_raw, _table, _sidecar, _array])
def test_huge_files_are_refused_by_name_and_size_and_not_read(
    make: Callable[[Path], tuple[Path, Path]], tmp_path: Path
) -> None:
    drive, file = make(tmp_path)
    tracemalloc.start()
    try:
        with pytest.raises(SlipstreamError) as caught:
            open_drive(drive)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert caught.value.what == f"{file} can't be read"
    assert f"{HUGE} bytes" in caught.value.found
    assert peak < 64 << 20


def test_text_over_the_cap_names_the_cap(tmp_path: Path) -> None:
    file = tmp_path / "long.txt"
    file.write_text("1 2 3\n" * 100)
    with pytest.raises(SlipstreamError) as caught:
        read_text(file, largest=599)
    assert "at most 599 bytes" in caught.value.expected
    assert caught.value.found == "600 bytes"
    assert read_text(file, largest=600) == "1 2 3\n" * 100


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"1 2\n\x00", "NUL"),
        (b"1 2\n" * (1 << 18) + b"\x00", "NUL"),
        (b"1" * ((1 << 20) + 1), "no line end"),
        (b"\xff\xfe1\n", "not UTF-8"),
    ],
)
def test_what_is_no_text_is_refused(data: bytes, found: str, tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_bytes(data)
    with pytest.raises(SlipstreamError, match="can't be read") as caught:
        read_text(file)
    assert found in caught.value.found


def test_line_ends_of_every_system_are_one(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_bytes(b"1\r\n2\r3\n")
    assert read_text(file) == "1\n2\n3\n"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes with names")
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.txt")
    with pytest.raises(SlipstreamError, match=r"pipe\.txt can't be read"):
        read_text(tmp_path / "pipe.txt")
    with pytest.raises(SlipstreamError, match="can't be read"):
        read_text(tmp_path)
