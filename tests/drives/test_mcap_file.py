"""Plans as ROS 2 messages in an MCAP file, read back with rosbags and as a drive."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drives.frames import to_world
from drives.mcap_file import check_mcap, topics_of, write_plans
from drives.open import open_drive
from drives.readers.ros_note import noted
from drives.replay import Replay, replay
from drives.selection import Selection
from drives.windows import windows
from planners.observation import Intent
from runtime.errors import SlipstreamError
from runtime.settings import DecodeSettings, Sampling
from tests.drives.kinematic_planner import KinematicPlanner
from tests.drives.test_scenes import KNOWN, with_camera

pytest.importorskip("rosbags")

START = 1_700_000_000.0
DRIVE = replace(open_drive("synthetic"), clock_start=START)
SETTINGS = {
    "ar": DecodeSettings(method="ar"),
    "dflash ×4": DecodeSettings(rollouts=4, sampling=Sampling(0.5)),
}


def replayed(drive: Any = DRIVE, frames: str = "0:8") -> Replay:
    cut = windows(drive)
    picked = Selection.parse(frames).of(cut.windows, drive.name)
    planner = KinematicPlanner(fail_every=3, lose_frame=5)
    return replay(planner, picked, SETTINGS, skipped=cut.skipped)


def messages(path: Path) -> dict[str, list[tuple[int, Any]]]:
    """Topic -> (ns, message), by the definitions that the file itself holds."""
    from rosbags.rosbag2 import Reader
    from rosbags.typesys import Stores, get_types_from_msg, get_typestore

    store = get_typestore(Stores.EMPTY)
    found: dict[str, list[tuple[int, Any]]] = {}
    with Reader(path) as reader:
        for connection in reader.connections:
            store.register(get_types_from_msg(connection.msgdef.data, connection.msgtype))
        for connection, stamp, raw in reader.messages():
            message = store.deserialize_cdr(raw, connection.msgtype)
            found.setdefault(connection.topic, []).append((stamp, message))
    return found


def ns(time: float) -> int:
    return int(START) * 10**9 + round(time * 1e9)


def points(poses: list[Any]) -> np.ndarray:
    return np.array([[p.pose.position.x, p.pose.position.y] for p in poses])


def test_plans_come_back_where_and_when_they_were(tmp_path: Path) -> None:
    result = replayed()
    write_plans(result, DRIVE, tmp_path / "out.mcap")
    assert [each.name for each in tmp_path.iterdir()] == ["out.mcap"]
    found = messages(tmp_path / "out.mcap")
    plans = result.plans["dflash ×4"]
    assert len(found["/dflash_x4/plan"]) == len(found["/truth"]) == len(result.windows)
    for window, plan, (stamp, path), (_, truth) in zip(
        result.windows, plans, found["/dflash_x4/plan"], found["/truth"], strict=True
    ):
        assert stamp == ns(window.observation.time)
        assert path.header.frame_id == "map"
        turned, heading = window.pose[:2], float(window.pose[2])
        np.testing.assert_allclose(
            points(truth.poses)[1:], to_world(window.future, turned, heading), atol=1e-9
        )
        if plan.trajectory is None:
            assert path.poses == []
            continue
        wanted = to_world(plan.trajectory, turned, heading)
        np.testing.assert_allclose(points(path.poses)[1:], wanted, atol=1e-9)
        np.testing.assert_allclose(points(path.poses)[0], turned, atol=1e-9)
        last = path.poses[-1].header.stamp
        assert last.sec * 10**9 + last.nanosec == ns(window.observation.time + 5.0)
    assert sum(plan.trajectory is None for plan in plans) == 1


def test_poses_point_along_the_path(tmp_path: Path) -> None:
    write_plans(replayed(), DRIVE, tmp_path / "out.mcap")
    _, path = messages(tmp_path / "out.mcap")["/truth"][0]
    turns = [pose.pose.orientation for pose in path.poses]
    headings = np.unwrap([2 * np.arctan2(turn.z, turn.w) for turn in turns])
    steps = np.diff(points(path.poses), axis=0)
    course = np.unwrap(np.arctan2(steps[:, 1], steps[:, 0]))
    away = np.angle(np.exp(1j * (headings[:-1] - course)))
    assert np.abs(away).max() < 0.05


def test_every_usable_rollout_is_a_line(tmp_path: Path) -> None:
    result = replayed()
    write_plans(result, DRIVE, tmp_path / "out.mcap")
    found = messages(tmp_path / "out.mcap")
    for plan, window, (_, array) in zip(
        result.plans["dflash ×4"], result.windows, found["/dflash_x4/rollouts"], strict=True
    ):
        gone, *lines = array.markers
        assert gone.action == 3  # DELETEALL
        assert len(lines) == plan.valid.sum()
        assert [line.id for line in lines] == list(range(len(lines)))
        for line, rollout in zip(lines, plan.rollouts[plan.valid], strict=True):
            assert (line.type, line.action, line.header.frame_id) == (4, 0, "map")
            drawn = np.array([[point.x, point.y] for point in line.points])
            wanted = to_world(rollout, window.pose[:2], float(window.pose[2]))
            np.testing.assert_allclose(drawn[1:], wanted, atol=1e-9)
    latencies = [message.data for _, message in found["/ar/latency_ms"]]
    assert latencies == [1e3 * plan.latency for plan in result.plans["ar"]]
    lengths = [message.data for _, message in found["/ar/acceptance_length"]]
    assert lengths == [plan.stats.acceptance_length for plan in result.plans["ar"]]


def test_the_file_is_a_drive_again(tmp_path: Path) -> None:
    drive = with_camera(tmp_path, KNOWN)
    drive = replace(drive, clock_start=START)
    result = replayed(drive, "0:4")
    write_plans(result, drive, tmp_path / "out.mcap")
    again = open_drive(tmp_path / "out.mcap")
    assert again.clock_start == pytest.approx(START)
    x, y = (np.interp(again.times, drive.times, drive.positions[:, k]) for k in (0, 1))
    np.testing.assert_allclose(again.positions[:, :2], np.stack([x, y], axis=1), atol=1e-3)
    np.testing.assert_allclose(
        again.speeds, np.interp(again.times, drive.times, drive.speeds), atol=1e-3
    )
    (camera,) = again.images or ()
    assert len(camera.paths) == len(result.windows)
    assert camera.calibration is not None
    ours = KNOWN.spots(np.array([[12.0, 1.0]])) / 2  # its copy is half as large
    np.testing.assert_allclose(camera.calibration.spots(np.array([[12.0, 1.0]])), ours, atol=1e-6)


def test_it_keeps_commands_and_says_what_the_recording_is(tmp_path: Path) -> None:
    commands = np.repeat(
        [Intent.STRAIGHT, Intent.LEFT, Intent.UNKNOWN, Intent.RIGHT],
        np.diff([0, 300, 420, 500, len(DRIVE.times)]),
    )
    drive = replace(
        DRIVE, intents=commands, licence="CC BY 4.0", dataset="Boreas", recording="2021-08-05"
    )
    write_plans(replayed(drive, "0:4"), drive, tmp_path / "out.mcap")
    again = open_drive(tmp_path / "out.mcap")
    assert again.intents is not None
    rows = np.searchsorted(drive.times, again.times + 1e-6) - 1
    np.testing.assert_array_equal(again.intents, commands[rows])
    for field in ("source", "licence", "synthetic", "dataset", "recording"):
        assert getattr(again, field) == getattr(drive, field)
    none = replace(DRIVE, intents=None)
    write_plans(replayed(none, "0:2"), none, tmp_path / "none.mcap")
    assert open_drive(tmp_path / "none.mcap").intents is None


@pytest.mark.parametrize("note", ["", "[]", "{}", '{"licence": 3}', "[" * 9000])
def test_a_note_that_says_nothing_is_a_warning(note: str) -> None:
    odd = noted(DRIVE, note)
    assert (odd.source, odd.licence, odd.synthetic) == (DRIVE.source, DRIVE.licence, True)
    assert "/slipstream/drive" in odd.warnings[-1]
    assert noted(DRIVE, None) is DRIVE


def test_transforms_are_those_of_the_drive(tmp_path: Path) -> None:
    write_plans(replayed(), DRIVE, tmp_path / "out.mcap")
    found = messages(tmp_path / "out.mcap")
    stamps = np.array([stamp for stamp, _ in found["/tf"]])
    assert (np.diff(stamps) > 0).all()
    times = (stamps - ns(0.0)) * 1e-9
    moves = [message.transforms[0].transform.translation for _, message in found["/tf"]]
    x = np.interp(times, DRIVE.times, DRIVE.positions[:, 0])
    np.testing.assert_allclose([move.x for move in moves], x, atol=1e-6)
    first = found["/tf"][0][1].transforms[0]
    assert (first.header.frame_id, first.child_frame_id) == ("map", "base_link")


def test_names_of_decoders_become_names_of_topics() -> None:
    names = ["ar", "dflash ×4", "dflash:block", "dflash/block", "8 rollouts", "×", "é"]
    found = topics_of(names)
    assert list(found.values()) == [
        *("ar", "dflash_x4", "dflash_block", "dflash_block_2", "_8_rollouts", "x", "decoder")
    ]


def test_the_schemas_are_in_the_file(tmp_path: Path) -> None:
    """Foxglove needs the definitions of all types that a message holds, as ros2msg."""
    write_plans(replayed(frames="0:2"), DRIVE, tmp_path / "out.mcap")
    data = (tmp_path / "out.mcap").read_bytes()
    assert data[:8] == data[-8:] == b"\x89MCAP0\r\n"
    assert b"ros2msg" in data
    for name in ("nav_msgs/Path", "geometry_msgs/PoseStamped", "std_msgs/Header"):
        package, _, kind = name.partition("/")
        assert f"MSG: {name}".encode() in data or f"{package}/msg/{kind}".encode() in data


def test_an_older_file_stays_until_the_new_one_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.mcap"
    out.write_text("old")

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("rosbags.rosbag2.Writer.write", fail)
    with pytest.raises(SlipstreamError, match="No space left") as caught:
        write_plans(replayed(frames="0:2"), DRIVE, out)
    assert "--mcap" in caught.value.fix
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("out.mcap", "old")]


def test_what_is_missing_is_said_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_mcap(tmp_path / "out.mcap")
    with pytest.raises(SlipstreamError, match="can't write") as caught:
        check_mcap(tmp_path)
    assert "--mcap" in caught.value.fix
    monkeypatch.setitem(sys.modules, "rosbags.rosbag2", None)
    with pytest.raises(SlipstreamError, match="MCAP file can't be written") as caught:
        check_mcap(tmp_path / "out.mcap")
    assert "pip install '.[drives]'" in caught.value.fix
