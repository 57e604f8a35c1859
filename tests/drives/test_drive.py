"""The drive itself: what it accepts, its figures, resampling."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from drives.drive import Drive, check_times
from drives.readers.synthetic import synthetic_drive
from runtime.errors import SlipstreamError


def _straight(times, speed=10.0) -> Drive:
    times = np.asarray(times, float)
    return Drive(
        name="straight",
        source="a test",
        licence="none",
        synthetic=True,
        times=times,
        positions=np.stack([speed * times, np.zeros(len(times))], axis=1),
        headings=np.zeros(len(times)),
        speeds=np.full(len(times), speed),
    )


def test_figures():
    drive = _straight(np.arange(11) * 0.1)
    assert drive.duration == pytest.approx(1.0)
    assert drive.path_length == pytest.approx(10.0)


def test_path_length_leaves_out_gaps_and_unknown_poses():
    times = np.r_[np.arange(11) * 0.1, 5.0 + np.arange(11) * 0.1]
    drive = _straight(times)
    assert drive.path_length == pytest.approx(20.0)
    positions = drive.positions.copy()
    positions[3] = np.nan
    assert replace(drive, positions=positions).path_length == pytest.approx(18.0)


@pytest.mark.parametrize(
    ("times", "row", "kind"),
    [
        ([0.0, 0.1, 0.1, 0.2], 3, "repeated"),
        ([0.0, 0.2, 0.1, 0.3], 3, "reversed"),
        ([0.0, np.nan, 0.1], 2, "nan"),
        ([np.inf, 1.0], 1, "inf"),
    ],
)
def test_bad_time_stamps_are_named(times, row, kind):
    with pytest.raises(SlipstreamError, match=f"row {row}") as caught:
        _straight(times)
    assert kind in str(caught.value)
    assert "drive straight" in str(caught.value)


def test_rows_of_a_file_are_named():
    with pytest.raises(SlipstreamError, match=r"poses\.csv has a bad time stamp in row 9"):
        check_times(np.array([1.0, 1.0]), "poses.csv", [8, 9])


def test_too_short():
    with pytest.raises(SlipstreamError, match="at least 2 samples"):
        _straight([0.0])


def test_misfits_are_named():
    drive = _straight(np.arange(5) * 0.1)
    for change in (
        {"headings": np.zeros(4)},
        {"speeds": np.zeros((5, 1))},
        {"positions": np.zeros((5, 4))},
        {"intents": np.zeros(6, int)},
    ):
        with pytest.raises(SlipstreamError, match=next(iter(change))):
            replace(drive, **change)


def test_small_integers_are_no_arithmetic_of_a_drive():
    whole = np.arange(200, dtype=np.uint8)
    drive = Drive(
        name="of bytes",
        source="a test",
        licence="none",
        synthetic=True,
        times=whole,
        positions=np.stack([whole[::-1], whole], axis=1),
        headings=whole,
        speeds=whole,
    )
    assert drive.positions.dtype == drive.speeds.dtype == np.float64
    assert np.diff(drive.positions[:, 0]).max() == -1.0
    with pytest.raises(SlipstreamError, match="speeds are no numbers"):
        replace(drive, speeds=np.array(["fast"] * 200))


def test_resampling_keeps_the_motion():
    drive = synthetic_drive(3, duration=60.0, noise=0.0)
    fine = drive.resample(40.0)
    assert len(fine.times) == 2401
    back = fine.resample(10.0)
    np.testing.assert_allclose(back.times, drive.times, atol=1e-9)
    np.testing.assert_allclose(back.positions, drive.positions, atol=1e-9)
    assert fine.path_length == pytest.approx(drive.path_length, rel=1e-4)


def test_resampling_leaves_gaps_alone():
    drive = _straight(np.r_[np.arange(11) * 0.1, 1.31 + np.arange(11) * 0.1])
    resampled = drive.resample(20.0)
    inside = (resampled.times > 1.0 + 1e-9) & (resampled.times < 1.31)
    assert not inside.any()
    close = _straight(np.r_[np.arange(11) * 0.1, 1.29 + np.arange(11) * 0.1]).resample(20.0)
    assert ((close.times > 1.0 + 1e-9) & (close.times < 1.29)).sum() == 5


def test_resampling_leaves_out_unknown_poses():
    drive = _straight(np.arange(11) * 0.1)
    headings = drive.headings.copy()
    headings[5] = np.nan
    resampled = replace(drive, headings=headings).resample(100.0)
    assert np.isfinite(resampled.headings).all()
    assert not ((resampled.times > 0.4 + 1e-9) & (resampled.times < 0.6 - 1e-9)).any()


def test_resampling_carries_intents():
    intents = np.array([0, 0, 1, 1, 2, 2, 2, 3, 3, 3, 3])
    drive = replace(_straight(np.arange(11) * 0.1), intents=intents)
    assert list(drive.resample(20.0).intents[:6]) == [0, 0, 0, 0, 1, 1]


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf")])
def test_resampling_needs_a_rate(rate):
    with pytest.raises(SlipstreamError, match="rate above 0"):
        _straight([0.0, 0.1]).resample(rate)


def test_resampling_a_drive_of_holes():
    with pytest.raises(SlipstreamError, match="slipstream drives info"):
        replace(_straight([0.0, 0.1, 0.2]), speeds=np.full(3, np.nan)).resample(10.0)
