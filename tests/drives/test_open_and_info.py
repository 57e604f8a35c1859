"""Opening by name or path, and the figures of a drive."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace

import numpy as np
import pytest

from drives.drive import Drive
from drives.identity import drive_key
from drives.info import describe
from drives.open import list_drives, open_drive
from drives.readers.boreas import read_boreas
from drives.readers.plain import write_plain
from drives.readers.synthetic import synthetic_drive
from runtime.errors import SlipstreamError


def test_synthetic_by_name():
    assert open_drive("synthetic").name == "synthetic-0"
    np.testing.assert_array_equal(open_drive("synthetic:3").positions, synthetic_drive(3).positions)


@pytest.mark.parametrize(
    "name", ["synthetic:", "synthetic:x", "synthetic:-1", "synthetic:1.5", "synthetic:\uff11"]
)
def test_a_seed_is_a_whole_number(name):
    if name == "synthetic:":
        assert open_drive(name).name == "synthetic-0"
        return
    with pytest.raises(SlipstreamError, match="synthetic:SEED"):
        open_drive(name)


def test_a_boreas_folder(boreas_excerpt):
    drive = open_drive(boreas_excerpt)
    assert drive.name == "boreas-excerpt"
    np.testing.assert_array_equal(drive.positions, read_boreas(boreas_excerpt).positions)


def test_a_drive_is_called_by_what_opened_it(tmp_path):
    assert open_drive("synthetic").place == "synthetic"  # and its name is synthetic-0
    drive = synthetic_drive(3, duration=20.0)
    unknown = replace(drive, positions=np.full_like(drive.positions, np.nan))
    assert unknown.place == drive.name
    path = tmp_path / "all unknown.csv"
    write_plain(replace(unknown, name="other"), path)
    opened = open_drive(path)
    assert (opened.name, opened.place) == ("other", str(path))
    assert drive_key(opened) == drive_key(replace(opened, opened_by="elsewhere"))
    with pytest.raises(SlipstreamError, match="resampled") as caught:
        opened.resample(10.0)
    assert caught.value.fix.endswith(f"slipstream drives info {shlex.quote(str(path))}")


def test_what_is_not_a_drive(tmp_path):
    with pytest.raises(SlipstreamError, match="folder of another kind"):
        open_drive(tmp_path)
    with pytest.raises(SlipstreamError, match="folder of another kind") as caught:
        open_drive(tmp_path)
    assert "kitti-odometry" in caught.value.expected
    (tmp_path / "notes.txt").write_text("hello\nworld\n")
    with pytest.raises(SlipstreamError, match=r"notes\.txt row 1"):
        open_drive(tmp_path / "notes.txt")


def test_what_is_not_there_names_the_nearest_parent(tmp_path):
    with pytest.raises(SlipstreamError, match="no such file") as caught:
        open_drive(tmp_path / "none" / "deeper")
    assert caught.value.found.endswith(f"the nearest that exists is {tmp_path}")
    assert caught.value.expected == "a file or folder that exists"  # not every format
    with pytest.raises(SlipstreamError, match="no such file") as caught:
        open_drive("kitti-0")
    assert "kitti-00" in caught.value.expected
    assert caught.value.fix == "slipstream drives list"


@pytest.mark.parametrize("there", ["a.tfrecord-00000-of-00001", "scene.json"])
@pytest.mark.parametrize("missing", ["typo.csv", "typo.parquet", "qlog.zst"])
def test_a_missing_file_is_no_clip_or_scene_of_its_folder(there, missing, tmp_path):
    (tmp_path / there).write_text("[]")
    with pytest.raises(SlipstreamError, match="no such file") as caught:
        open_drive(tmp_path / missing)
    assert caught.value.what == f"{tmp_path / missing} is not a drive"
    with pytest.raises(SlipstreamError, match=r"tfrecord|no scene-01 in"):
        open_drive(tmp_path / "scene-01")


def test_the_list(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    known = {item.name: item for item in list_drives()}
    assert known["synthetic"].available
    assert not known["kitti-00"].available
    assert known["kitti-00"].licence == "CC BY-NC-SA 3.0"


def _line(times, speed=10.0) -> Drive:
    times = np.asarray(times, float)
    positions = np.stack([speed * times, np.zeros(len(times))], axis=1)
    return Drive(
        "line", "a test", "none", True, times, positions, 0 * times, np.full(len(times), speed)
    )


def test_figures_of_a_plain_drive():
    info = describe(_line(np.arange(201) * 0.1))
    assert (info.samples, info.gaps, info.unknown, info.jumps) == (201, (), 0, 0)
    assert info.rate_hz == pytest.approx(10.0)
    assert info.duration == pytest.approx(20.0)
    assert info.distance == pytest.approx(200.0)
    assert (info.speed_min, info.speed_max, info.speed_mean) == (10.0, 10.0, 10.0)
    assert info.stationary_share == 0.0
    assert info.warnings == ()


def test_figures_of_a_bad_drive():
    times = np.r_[np.arange(100) * 0.1, 12.0 + np.arange(100) * 0.1]
    drive = _line(times, 8.0)
    positions, speeds = drive.positions.copy(), drive.speeds.copy()
    positions[10] = np.nan
    positions[50:] += [0.0, 40.0]
    speeds[:25] = 0.0
    info = describe(replace(drive, positions=positions, speeds=speeds))
    assert info.gaps == ((pytest.approx(9.9), pytest.approx(2.1)),)
    assert info.unknown == 1
    assert info.jumps == 1
    assert info.stationary_share == pytest.approx(24 / 199)
    assert "gaps over 0.3 s: 1, the longest 2.1 s" in info.warnings
    assert "samples without a known pose: 1" in info.warnings
    assert "steps that no vehicle makes: 1" in info.warnings


def test_warnings_about_rate_length_and_speeds():
    assert "0.2 s" not in " ".join(describe(_line(np.arange(101) * 0.2)).warnings)
    short = describe(_line(np.arange(41) * 0.1)).warnings
    assert short == ("lasts 4.0 s; a window needs 9 s",)
    slow = describe(_line(np.arange(30) * 0.5)).warnings
    assert "sampled at 2.0 Hz, below the planner's 4 Hz" in slow
    drive = _line(np.arange(201) * 0.1)
    fast = describe(replace(drive, speeds=drive.speeds * 1.1)).warnings
    assert fast == ("speeds lead +10.0 % further than the positions",)


def test_a_drive_without_any_pose_can_be_described():
    drive = _line(np.arange(201) * 0.1)
    info = describe(replace(drive, headings=np.full(201, np.nan)))
    assert info.unknown == 201
    assert np.isnan(info.speed_max)


def test_figures_are_plain_values(boreas_excerpt):
    info = describe(open_drive(boreas_excerpt))
    again = json.loads(json.dumps(info.as_dict()))
    assert again["samples"] == 640
    assert again["warnings"] == []
    assert 0.05 < info.stationary_share < 0.5
