"""Openpilot logs: what is read from written ones, from the public one, and from damaged ones."""

from __future__ import annotations

import bz2
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from drives.info import describe
from drives.open import open_drive
from drives.readers.comma_log import is_comma_log, read_comma_log
from drives.readers.synthetic import synthetic_drive
from planners.observation import Intent
from runtime.errors import SlipstreamError
from tests.drives.conftest import travelled
from tests.drives.readers.fuzz import LONG, SHORT, survives

capnp = pytest.importorskip("capnp")

from tests.drives.readers.comma_writer import START, event, log_bytes, write_log  # noqa: E402


@pytest.fixture(scope="module")
def truth():
    """20 Hz, so that every fifth sample carries a camera's yaw rate."""
    return synthetic_drive(3, duration=40.0, noise=0.0).resample(20.0)


def rates_of(drive):
    return np.gradient(drive.headings, drive.times)


def agrees(drive, truth, within):
    """Same relative motion over any 5 s, in the frame of its begin."""
    for begin in range(0, len(truth.times) - 100, 100):
        turned = truth.headings[begin] - drive.headings[begin]
        cos, sin = np.cos(turned), np.sin(turned)
        found = drive.positions[begin : begin + 100, :2] - drive.positions[begin, :2]
        found = found @ np.array([[cos, sin], [-sin, cos]])
        wanted = truth.positions[begin : begin + 100, :2] - truth.positions[begin, :2]
        assert np.abs(found - wanted).max() < within


@pytest.mark.parametrize("name", ["qlog", "qlog.bz2", "rlog.zst", "a--b--3--rlog.bz2"])
@pytest.mark.parametrize("yaw_from", ["carState", "cameraOdometry", "livePose"])
def test_gives_back_the_motion(tmp_path, truth, name, yaw_from):
    data = log_bytes(truth, yaw_rates=rates_of(truth), yaw_from=yaw_from)
    folder = write_log(tmp_path / "segment", data, name)
    drive = read_comma_log(folder)
    assert drive.name == "comma-segment"
    assert drive.clock_start == pytest.approx(START)
    np.testing.assert_allclose(drive.times, truth.times, atol=1e-6)
    np.testing.assert_allclose(drive.speeds, truth.speeds, atol=1e-5)
    agrees(drive, truth, 0.05 if yaw_from == "carState" else 0.3)
    assert bool(drive.warnings) == (yaw_from != "carState")
    assert yaw_from == "carState" or f"{yaw_from} is taken" in drive.warnings[0]
    np.testing.assert_array_equal(read_comma_log(folder / name).positions, drive.positions)


def test_a_folder_that_says_comma_is_not_called_so_twice(tmp_path, truth):
    data = log_bytes(truth, yaw_rates=rates_of(truth))
    assert read_comma_log(write_log(tmp_path / "comma_route", data)).name == "comma_route"


def test_positions_follow_the_speed_along_the_heading(tmp_path, truth):
    data = log_bytes(truth, yaw_rates=rates_of(truth))
    drive = read_comma_log(write_log(tmp_path, data))
    assert drive.path_length == pytest.approx(travelled(drive.times, drive.speeds), rel=1e-9)
    assert describe(drive).warnings == drive.warnings


def test_desires_become_intents_and_fade(tmp_path, truth):
    desires = np.zeros(len(truth.times), int)
    for number, at in enumerate(range(100, 700, 100)):
        desires[at : at + 50] = number + 1
    drive = read_comma_log(write_log(tmp_path, log_bytes(truth, desires=desires)))
    sides = [Intent.LEFT, Intent.RIGHT] * 3
    for number, at in enumerate(range(100, 700, 100)):
        assert set(drive.intents[at : at + 50]) == {sides[number]}
        assert set(drive.intents[at + 50 : at + 100]) == {Intent.UNKNOWN}


def test_an_intent_does_not_outlive_its_messages(tmp_path, truth):
    desires = np.full(len(truth.times), 1)
    desires[400:] = -1
    drive = read_comma_log(write_log(tmp_path, log_bytes(truth, desires=desires)))
    assert set(drive.intents[:419]) == {Intent.LEFT}
    assert set(drive.intents[421:]) == {Intent.UNKNOWN}


def test_pictures_are_named_and_not_loaded(tmp_path, truth):
    folder = write_log(tmp_path, log_bytes(truth, pictures=40))
    assert read_comma_log(folder).images is None
    (folder / "qcamera.ts").write_bytes(b"")
    (camera,) = read_comma_log(folder).images
    assert camera.paths[7] == f"{folder / 'qcamera.ts'}#frame=7"
    np.testing.assert_allclose(camera.times, 0.05 * np.arange(40) + 0.02, atol=1e-6)


def test_the_fuller_log_is_taken(tmp_path, truth):
    data = log_bytes(truth, yaw_rates=rates_of(truth), yaw_from="carState")
    write_log(tmp_path, log_bytes(truth))
    assert "rlog.zst" in read_comma_log(write_log(tmp_path, data, "rlog.zst")).source


def test_a_hole_in_the_yaw_rates_is_unknown(tmp_path, truth):
    data = log_bytes(truth, yaw_rates=rates_of(truth), silent=(10.0, 15.0))
    drive = read_comma_log(write_log(tmp_path, data))
    assert not drive.valid[(drive.times > 10.3) & (drive.times < 14.7)].any()
    assert drive.valid[(drive.times < 9.7) | (drive.times > 15.3)].all()


def test_car_states_without_a_speed_are_left_out_and_told(tmp_path, truth):
    speeds = truth.speeds.copy()
    speeds[200:210] = np.nan
    data = log_bytes(replace(truth, speeds=speeds), yaw_rates=rates_of(truth))
    drive = read_comma_log(write_log(tmp_path, data))
    assert len(drive.times) == len(truth.times) - 10
    assert drive.valid.all()
    assert "left out" in drive.warnings[1]
    assert len(describe(drive).gaps) == 1
    speeds[:] = 1e30
    with pytest.raises(SlipstreamError, match="row 1 is not a speed"):
        read_comma_log(write_log(tmp_path, log_bytes(replace(truth, speeds=speeds))))


def test_events_of_later_versions_are_passed_over(tmp_path, truth):
    newer = bytearray(event(1.0, "gap75", None))
    newer[24:26] = (900).to_bytes(2, "little")  # a member that the schema does not know
    data = log_bytes(truth, yaw_rates=rates_of(truth), yaw_from="carState")
    drive = read_comma_log(write_log(tmp_path, bytes(newer) + data))
    assert len(drive.times) == len(truth.times)


@pytest.mark.parametrize(
    ("name", "cut", "says"),
    [
        ("qlog", -5, "within an event"),
        ("qlog.bz2", -20, "within its compressed data"),
        ("rlog.zst", -20, "within its compressed data"),
    ],
)
def test_truncated_logs(tmp_path, truth, name, cut, says):
    folder = write_log(tmp_path, log_bytes(truth), name)
    (folder / name).write_bytes((folder / name).read_bytes()[:cut])
    with pytest.raises(SlipstreamError, match=says):
        read_comma_log(folder)


def test_a_wrong_checksum_is_found(tmp_path, truth):
    folder = write_log(tmp_path, log_bytes(truth))
    data = bytearray((folder / "qlog.bz2").read_bytes())
    data[10] ^= 1  # the CRC of the first block
    (folder / "qlog.bz2").write_bytes(data)
    with pytest.raises(SlipstreamError, match="not a whole openpilot log"):
        read_comma_log(folder)


def test_logs_that_can_not_become_a_drive(tmp_path, truth):
    with pytest.raises(SlipstreamError, match="holds no openpilot log"):
        read_comma_log(tmp_path)
    assert not is_comma_log(tmp_path)
    with pytest.raises(SlipstreamError, match="no event"):
        read_comma_log(write_log(tmp_path / "empty", b""))
    with pytest.raises(SlipstreamError, match="nothing of how the vehicle turns"):
        read_comma_log(write_log(tmp_path / "yaw", log_bytes(truth, yaw_from="")))
    only = event(1.0, "cameraOdometry", {"rot": [0.0, 0.0, 0.0]})
    with pytest.raises(SlipstreamError, match="has no carState"):
        read_comma_log(write_log(tmp_path / "car", only))
    twice = log_bytes(truth, yaw_rates=rates_of(truth), yaw_from="carState")
    with pytest.raises(SlipstreamError, match="bad time stamp") as caught:
        read_comma_log(write_log(tmp_path / "twice", twice + twice))
    assert "reversed" in caught.value.found


def test_a_bomb_does_not_fill_the_memory(tmp_path):
    """64 MiB of zeros in 50 bytes: unpacked in pieces, and no such piece is a drive."""
    packed = bz2.BZ2Compressor()
    zeros = bytes(1 << 20)
    with (tmp_path / "qlog.bz2").open("wb") as file:
        for _ in range(64):
            file.write(packed.compress(zeros))
        file.write(packed.flush())
    tracemalloc.start()
    with pytest.raises(SlipstreamError):
        read_comma_log(tmp_path)
    assert tracemalloc.get_traced_memory()[1] < 1 << 23
    tracemalloc.stop()


def test_the_public_route(shared_drives):
    drive = open_drive(shared_drives / "comma_route")
    assert len(drive.times) == 579
    assert drive.duration == pytest.approx(57.8, abs=0.05)
    assert drive.path_length == pytest.approx(1511.0, rel=5e-3)
    assert drive.speeds.min() == pytest.approx(21.4, abs=0.05)
    assert drive.speeds.max() == pytest.approx(29.2, abs=0.05)
    assert "cameraOdometry is taken" in drive.warnings[0]
    assert describe(drive).commands == {"unknown": 459, "left": 60, "right": 60}
    assert describe(drive).cameras == {"road (qcamera)": 1200}


def test_two_recordings_of_one_drive_agree(shared_drives):
    """The log and the ROS 2 bag made from it, read by two readers."""
    pytest.importorskip("rosbags")
    log = open_drive(shared_drives / "comma_route")
    bag = open_drive(shared_drives / "ros2_mcap" / "comma_demo_rosbag2_mcap")
    np.testing.assert_allclose(log.times, bag.times, atol=1e-9)
    np.testing.assert_allclose(log.headings, bag.headings, atol=1e-9)
    np.testing.assert_allclose(log.speeds, bag.speeds, atol=1e-6)
    assert np.abs(log.positions - bag.positions[:, :2]).max() < 0.35
    np.testing.assert_array_equal(log.intents, bag.intents)


@pytest.mark.parametrize("name", ["qlog", "qlog.bz2", "rlog.zst"])
def test_damage_is_refused(tmp_path, name):
    drive = synthetic_drive(1, duration=4.0)
    folder = write_log(tmp_path, log_bytes(drive, yaw_rates=rates_of(drive)), name)
    refused = survives(lambda: read_comma_log(folder), [folder / name], 5, SHORT // 3)
    assert refused > SHORT // 20


@pytest.mark.slow
@pytest.mark.parametrize("name", ["qlog", "qlog.bz2", "rlog.zst"])
def test_much_damage_is_refused(tmp_path, name):
    drive = synthetic_drive(1, duration=4.0)
    folder = write_log(tmp_path, log_bytes(drive, yaw_rates=rates_of(drive)), name)
    assert survives(lambda: read_comma_log(folder), [folder / name], 6, LONG // 3) > LONG // 20
