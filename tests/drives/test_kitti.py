"""The KITTI reader, on small files written here."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from drives.readers.kitti import read_kitti
from drives.readers.synthetic import synthetic_drive
from drives.windows import windows
from runtime.errors import SlipstreamError


def _kitti_rows(drive, lever_arm: float) -> np.ndarray:
    """Camera poses of a planar drive: world axes are the first camera's (x right, z forward)."""
    cos, sin = np.cos(drive.headings), np.sin(drive.headings)
    zero, one = np.zeros_like(cos), np.ones_like(cos)
    x, y = (drive.positions + lever_arm * np.stack([cos, sin], axis=1)).T
    # Forward axis (cos, sin) in ego-like world is (-sin, 0, cos) in camera-like world.
    return np.stack([cos, zero, -sin, -y, zero, one, zero, zero, sin, zero, cos, x], axis=1)


def _write_kitti(path: Path, rows: np.ndarray) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savetxt(path, rows)
    return path


def test_kitti_gives_back_what_was_written(tmp_path):
    """Straight, left and right turns: positions, headings, and speeds from the positions alone."""
    truth = synthetic_drive(2, duration=60.0, noise=0.0)
    path = _write_kitti(tmp_path / "05.txt", _kitti_rows(truth, 1.03))
    np.savetxt(tmp_path / "times.txt", truth.times + 7.0)
    drive = read_kitti(path)
    np.testing.assert_allclose(drive.times, truth.times, atol=1e-9)
    np.testing.assert_allclose(drive.positions[:, :2], truth.positions, atol=1e-6)
    np.testing.assert_allclose(drive.headings, truth.headings, atol=1e-9)
    assert np.abs(drive.speeds - truth.speeds).max() < 0.25
    assert np.sqrt(np.mean((drive.speeds - truth.speeds) ** 2)) < 0.05
    assert drive.clock_start == 7.0
    assert drive.name == "kitti-05"
    assert "1.03 m" in drive.source


def test_kitti_times_beside_above_or_none(tmp_path):
    rows = _kitti_rows(synthetic_drive(2, duration=2.0), 1.03)
    path = _write_kitti(tmp_path / "poses" / "03.txt", rows)
    assert np.diff(read_kitti(path).times) == pytest.approx(0.1037)
    assert "0.1037 s a frame" in read_kitti(path).source
    (tmp_path / "times").mkdir()
    np.savetxt(tmp_path / "times" / "03.txt", np.arange(21) * 0.2)
    assert np.diff(read_kitti(path).times) == pytest.approx(0.2)
    np.savetxt(tmp_path / "poses" / "times.txt", np.arange(21) * 0.1)
    assert np.diff(read_kitti(path).times) == pytest.approx(0.1)


def test_kitti_reading_is_causal(tmp_path):
    """A file cut at an instant gives the same observation there, bit for bit."""
    rows = _kitti_rows(synthetic_drive(3, duration=20.0), 1.03)
    whole = windows(read_kitti(_write_kitti(tmp_path / "whole.txt", rows), name="k"), 0.7)
    assert len(whole) > 10
    for window in whole:
        cut = _write_kitti(tmp_path / "cut.txt", rows[: window.drive_index + 1])
        last = windows(read_kitti(cut, name="k"), 0.01, without_future=True)[-1]
        assert last.drive_index == window.drive_index
        for field in ("positions", "headings", "speeds", "accelerations", "yaw_rates", "time"):
            np.testing.assert_array_equal(
                getattr(last.observation, field), getattr(window.observation, field)
            )


def test_kitti_unknown_rows_spoil_only_themselves(tmp_path):
    rows = _kitti_rows(synthetic_drive(3, duration=20.0), 1.03)
    rows[100] = np.nan
    drive = read_kitti(_write_kitti(tmp_path / "00.txt", rows))
    assert list(np.flatnonzero(~drive.valid)) == [100]


@pytest.mark.parametrize(
    ("line", "found"), [("1 2 3", "3 fields"), ("1 " * 11 + "x", "x"), ("1 " * 13, "13 fields")]
)
def test_kitti_bad_rows_are_named(tmp_path, line, found):
    path = _write_kitti(tmp_path / "00.txt", np.zeros((5, 12)))
    lines = path.read_text().splitlines()
    lines[2] = line
    path.write_text("\n".join(lines))
    with pytest.raises(SlipstreamError, match="row 3") as caught:
        read_kitti(path)
    assert str(path) in str(caught.value)
    assert found in str(caught.value)


def test_kitti_times_that_do_not_fit(tmp_path):
    path = _write_kitti(tmp_path / "00.txt", np.zeros((5, 12)))
    np.savetxt(tmp_path / "times.txt", np.arange(4) * 0.1)
    with pytest.raises(SlipstreamError, match="5 times"):
        read_kitti(path)
    np.savetxt(tmp_path / "times.txt", [0.0, 0.1, 0.1, 0.2, 0.3])
    with pytest.raises(SlipstreamError, match=r"times.txt has a bad time stamp in row 3"):
        read_kitti(path)


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xff\xfe\x00"])
def test_kitti_empty_or_binary(tmp_path, content):
    path = tmp_path / "00.txt"
    path.write_bytes(content)
    with pytest.raises(SlipstreamError, match=r"00\.txt"):
        read_kitti(path)
