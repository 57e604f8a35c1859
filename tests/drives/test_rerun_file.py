"""A Rerun recording, read back with the library's own reader."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drives.frames import to_world
from drives.open import open_drive
from drives.replay import Replay, replay
from drives.rerun_file import check_rerun, write_rerun
from drives.selection import Selection
from drives.windows import windows
from runtime.errors import SlipstreamError
from runtime.settings import DecodeSettings, Sampling
from tests.drives.kinematic_planner import KinematicPlanner
from tests.drives.test_scenes import KNOWN, with_camera

DRIVE = open_drive("synthetic")
LOST = 5  # a frame of the drive that gets no plan
SETTINGS = {
    "ar": DecodeSettings(method="ar"),
    "dflash ×4": DecodeSettings(rollouts=4, sampling=Sampling(0.5)),
}


def replayed(drive: Any = DRIVE, frames: str = "0:12") -> Replay:
    cut = windows(drive)
    picked = Selection.parse(frames).of(cut.windows, drive.name)
    return replay(KinematicPlanner(lose_frame=LOST), picked, SETTINGS, skipped=cut.skipped)


def rows(path: Path) -> dict[str, list[Any]]:
    """Entity -> record batches of its chunks, static ones too."""
    chunk = pytest.importorskip("rerun.chunk")
    found: dict[str, list[Any]] = {}
    for each in chunk.RrdReader(path).stream().to_chunks():
        found.setdefault(each.entity_path, []).append(each.to_record_batch())
    return found


def column(batches: list[Any], ending: str) -> list[Any]:
    """Values of the component column whose name ends so, over time."""
    timed = []
    for batch in batches:
        names = batch.schema.names
        name = next((each for each in names if each.endswith(ending)), None)
        if name is not None and "drive" in names:
            timed += zip(batch["drive"].to_pylist(), batch[name].to_pylist(), strict=True)
    return [value for _, value in sorted(timed, key=lambda row: row[0]) if value is not None]


def test_everything_is_in_the_recording(tmp_path: Path) -> None:
    pytest.importorskip("rerun")
    result = replayed()
    count = len(result.windows)
    out = tmp_path / "new" / "out.rrd"
    write_rerun(result, DRIVE, out)
    assert [each.name for each in out.parent.iterdir()] == ["out.rrd"]
    found = rows(out)
    fast = "/world/plans/dflash\\ \\u{00D7}4"
    plans = column(found[fast], ":strips")
    assert len(plans) >= count - 1
    index = 3
    window = result.windows[index]
    trajectory = result.plans["dflash ×4"][index].trajectory
    assert trajectory is not None
    wanted = to_world(trajectory, window.pose[:2], float(window.pose[2]))
    strip = np.array([[*point] for point in column(found[fast], ":strips")[index][0]])
    np.testing.assert_allclose(strip[1:, :2], wanted, atol=2e-3)
    np.testing.assert_allclose(strip[0, :2], window.pose[:2], atol=2e-3)
    rollouts = column(found["/world/rollouts/dflash\\ \\u{00D7}4"], ":strips")
    assert [len(each) for each in rollouts] == [
        int(plan.valid.sum()) for plan in result.plans["dflash ×4"]
    ]
    for figure, values in {
        "latency_ms": [1e3 * plan.latency for plan in result.plans["ar"]],
        "acceptance_length": [plan.stats.acceptance_length for plan in result.plans["ar"]],
    }.items():
        scalars = np.ravel(column(found[f"/{figure}/ar"], ":scalars"))
        np.testing.assert_allclose(scalars, values)
    assert len(column(found["/ade_5s_m/ar"], ":scalars")) == count - 1  # one has no plan
    assert len(column(found["/world/truth"], ":strips")) == count
    poses = column(found["/world/vehicle"], ":translation")
    assert len(poses) == pytest.approx(DRIVE.duration / 0.05, rel=0.6)
    assert "/about" in found


def test_pictures_hang_on_the_vehicle(tmp_path: Path) -> None:
    pytest.importorskip("rerun")
    for name, known in (("calibrated", KNOWN), ("bare", None)):
        drive = with_camera(tmp_path, known)
        result = replayed(drive, "0:4")
        out = tmp_path / f"{name}.rrd"
        write_rerun(result, drive, out)
        found = rows(out)
        place = "/world/vehicle/camera/image" if known else "/camera/image"
        blobs = column(found[place], ":blob")
        assert len(blobs) == len(result.windows)
        assert bytes(blobs[0][0])[:2] == b"\xff\xd8"
        assert ("/world/vehicle/camera" in found) == bool(known)


def test_a_frame_without_a_plan_clears_the_one_before(tmp_path: Path) -> None:
    pytest.importorskip("rerun")
    write_rerun(replayed(), DRIVE, tmp_path / "out.rrd")
    (cleared,) = column(rows(tmp_path / "out.rrd")["/world/plans/ar"], ":is_recursive")
    assert cleared == [False]


def test_an_older_recording_stays_until_the_new_one_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("rerun")
    out = tmp_path / "out.rrd"
    out.write_text("old")

    def fail(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("drives.rerun_file._frames", fail)
    with pytest.raises(KeyboardInterrupt):
        write_rerun(replayed(frames="0:2"), DRIVE, out)
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("out.rrd", "old")]


def test_what_is_missing_is_said_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "rerun", None)
    with pytest.raises(SlipstreamError, match="Rerun recording can't be written") as caught:
        check_rerun(tmp_path / "out.rrd")
    assert "pip install '.[viz]'" in caught.value.fix
    monkeypatch.undo()
    pytest.importorskip("rerun")
    check_rerun(tmp_path / "out.rrd")
    (tmp_path / "folder.rrd").mkdir()
    with pytest.raises(SlipstreamError, match=r"can't write .*folder\.rrd") as caught:
        check_rerun(tmp_path / "folder.rrd")
    assert "--rerun" in caught.value.fix
    assert [each.name for each in tmp_path.iterdir()] == ["folder.rrd"]
