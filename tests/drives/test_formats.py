"""Every format is told from every other, opened by path alone, and described."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from drives.formats import FORMATS, recognise
from drives.info import describe
from drives.open import format_of, open_drive, with_topics
from drives.readers.plain import write_plain
from drives.readers.synthetic import synthetic_drive
from runtime.errors import SlipstreamError
from slipstream.cli import app
from tests.drives.conftest import ROOT
from tests.drives.readers.wod_writer import CLIP, records, write_wod_e2e
from tests.drives.readers.writers import write_argoverse2, write_kitti_raw, write_nuscenes
from tests.drives.test_bad_drives import kitti, poses
from tests.drives.test_comma2k19 import _segment

for _library in ("capnp", "pyarrow", "rosbags"):
    pytest.importorskip(_library)

from tests.drives.readers import bag_writer  # noqa: E402
from tests.drives.readers.comma_writer import log_bytes, write_log  # noqa: E402


def _log(folder: Path) -> Path:
    drive = synthetic_drive(1, duration=20.0).resample(20.0)
    return write_log(folder / "seg", log_bytes(drive, yaw_rates=0.1 * drive.speeds))


def _bag(folder: Path) -> Path:
    bag = bag_writer.Bag()
    bag_writer.add_odometry(bag, synthetic_drive(1, duration=20.0))
    return bag.write(folder / "bag")


def _plain(folder: Path) -> Path:
    write_plain(synthetic_drive(1, duration=20.0), folder / "drive.parquet")
    return folder / "drive.parquet"


def _nuscenes(folder: Path) -> Path:
    drives = {"scene-0001": synthetic_drive(1, duration=20.0)}
    write_nuscenes(folder / "nu", drives)
    return folder / "nu" / "scene-0001"


def _wod(folder: Path) -> Path:
    drive = synthetic_drive(1, duration=20.0, noise=0.0)
    return write_wod_e2e(folder / "wod", records(drive, range(60, 100))) / CLIP


WRITTEN = {
    "boreas": lambda _: ROOT / "tests" / "data" / "boreas-excerpt",
    "comma2k19": _segment,
    "openpilot": _log,
    "argoverse2": lambda folder: write_argoverse2(folder / "av2log", synthetic_drive(1)),
    "kitti-raw": lambda folder: write_kitti_raw(folder / "raw", synthetic_drive(1, duration=20.0)),
    "rosbag2": _bag,
    "plain": _plain,
    "nuscenes": _nuscenes,
    "wod-e2e": _wod,
    "kitti-odometry": lambda folder: kitti(folder, poses()),
}
SAMPLES = {  # where they lie, and m that each leads
    "kitti_odometry/poses/04.txt": 393.6,
    "boreas/boreas-2021-08-05-13-34": 7940.7,
    "comma2k19/Example_1": None,
    "comma_route": 1511.0,
    "ros2_mcap/comma_demo_rosbag2_mcap": 1511.0,
    "av2/3b3570b4-7b0b-3268-a571-b0889dbf40b6": 50.3,
    "nuscenes/scene-0103": 118.3,
    "wod_e2e/1185c68524f28d99de123b2e8d269098": None,
}


def test_every_format_is_written_here():
    assert [each.name for each in FORMATS] == list(WRITTEN)


@pytest.mark.parametrize("name", WRITTEN)
def test_a_path_is_taken_for_one_format_and_opened(tmp_path, name):
    path = WRITTEN[name](tmp_path)
    claimed = [each.name for each in FORMATS if each.recognises(path)]
    assert claimed[0] == name
    assert set(claimed[1:]) <= {"wod-e2e", "nuscenes"}  # ask the folder above, so come last
    assert format_of(path) == name
    drive = open_drive(path)
    assert len(drive.times) > 10
    said = CliRunner().invoke(app, ["drives", "info", str(path)], env={"COLUMNS": "200"})
    assert said.exit_code == 0
    for word in (name, f"{describe(drive).rate_hz:.2f} Hz", "distance", "speed", "gaps", "windows"):
        assert word in said.stdout


@pytest.mark.parametrize("place", SAMPLES)
def test_every_sample_can_be_described(shared_drives, place):
    path = shared_drives / place
    if place == "comma2k19/Example_1":
        path = next(iter(sorted(path.glob("*/*/global_pose"))), path / "x").parent
    drive = open_drive(path)
    if SAMPLES[place]:
        assert drive.path_length == pytest.approx(SAMPLES[place], rel=5e-3)
    said = CliRunner().invoke(app, ["drives", "info", str(path)], env={"COLUMNS": "200"})
    assert said.exit_code == 0
    for warning in describe(drive).warnings:
        assert warning[:40] in said.stdout


def test_what_is_no_format(tmp_path):
    (tmp_path / "picture.png").write_bytes(b"\x89PNG")
    assert recognise(tmp_path) is None
    with pytest.raises(SlipstreamError, match="is not a drive") as caught:
        open_drive(tmp_path / "picture.png")
    assert "a file of another kind" in caught.value.found
    assert all(f"{each.name}: " in caught.value.expected for each in FORMATS)
    with pytest.raises(SlipstreamError, match="no topics to choose from"):
        open_drive(f"{tmp_path}#pose=/odom")


def test_topics_are_told_behind_a_hash():
    assert with_topics("a.mcap", []) == "a.mcap"
    told = with_topics("a.mcap", ["pose=/odom", "intent=/route"])
    assert told == "a.mcap#pose=/odom,intent=/route"
    for bad in ("pose", "pose=", "=/odom", "pose=/a,b"):
        with pytest.raises(SlipstreamError, match="does not name a topic"):
            with_topics("a.mcap", [bad])


def test_a_file_name_may_hold_a_hash(tmp_path):
    write_plain(synthetic_drive(1, duration=20.0), tmp_path / "take#a=1.csv")
    assert len(open_drive(tmp_path / "take#a=1.csv").times) == 201


@pytest.mark.parametrize(
    ("module", "name"),
    [("capnp", "openpilot"), ("rosbags.rosbag2", "rosbag2"), ("pyarrow.parquet", "plain")],
)
def test_a_library_that_is_missing_is_named(tmp_path, monkeypatch, module, name):
    from drives.readers import comma_events

    path = WRITTEN[name](tmp_path)
    comma_events._schema.cache_clear()
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(SlipstreamError, match=module.partition(".")[0]) as caught:
        open_drive(path)
    assert caught.value.fix == "pip install '.[drives]' in slipstream's folder"


def _line(**changes):
    times = np.arange(201) * 0.1
    bend = np.stack([np.sin(0.1 * times), 1.0 - np.cos(0.1 * times)], axis=1) * 100.0
    drive = replace(synthetic_drive(1, duration=20.0), times=times, positions=bend)
    return replace(drive, headings=0.1 * times, speeds=np.full(201, 10.0), **changes)


def test_quirks_are_told():
    assert describe(_line()).warnings == ()
    assert (
        "headings never change, while the path turns by 114°"
        in describe(replace(_line(), headings=np.zeros(201))).warnings
    )
    repeated = 10.0 + 0.01 * np.sin(np.arange(201.0))
    repeated[-1] = repeated[-2]
    last = describe(replace(_line(), speeds=repeated)).warnings
    assert last == ("the last speed repeats the one before it",)
    still = _line(positions=np.zeros((201, 2)))
    still = replace(still, speeds=np.zeros(201), headings=np.zeros(201))
    assert describe(still).warnings == ("stands still in 100 % of its samples",)
    told = describe(_line(warnings=("the clock was reset",))).warnings
    assert told == ("the clock was reset",)
