"""Which drives a run names, and where their reports go."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from drives.open import check_drive
from drives.readers.synthetic import synthetic_drive
from runtime.errors import SlipstreamError
from slipstream.fleet.drives import folder_of, named, place_of
from tests.drives.readers.wod_writer import CLIP, records, write_wod_e2e
from tests.slipstream.fleet.small import EXCERPT


def test_a_list_stands_for_its_drives(tmp_path: Path) -> None:
    listed = tmp_path / "drives.txt"
    listed.write_text("# night\nsynthetic:1\t# rain\n\n  bag.mcap#pose=/odom  # turn # two\n  #\n")
    assert named([f"@{listed}", "synthetic"]) == ["synthetic:1", "bag.mcap#pose=/odom", "synthetic"]


@pytest.mark.parametrize(
    ("content", "says"),
    [(None, "no such file"), (b"", "no drive"), (b"# none\n", "no drive"), (b"\xff\xfe", "utf-8")],
)
def test_a_list_that_is_none(content: bytes | None, says: str, tmp_path: Path) -> None:
    listed = tmp_path / "drives.txt"
    if content is not None:
        listed.write_bytes(content)
    with pytest.raises(SlipstreamError, match="is no list of drives") as error:
        named([f"@{listed}"])
    assert says in str(error.value)


def test_a_drive_is_named_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SlipstreamError, match="twice"):
        named(["a/../drive", str(tmp_path / "drive")])
    assert named(["drive", "drive#pose=/odom"]) == ["drive", "drive#pose=/odom"]


def test_folders_tell_drives_of_one_name_apart(tmp_path: Path) -> None:
    one, other = folder_of(str(tmp_path / "a" / "seg 3")), folder_of(str(tmp_path / "b" / "seg 3"))
    assert one != other
    assert one.startswith("seg-3-")
    assert one == folder_of(str(tmp_path / "a" / "." / "seg 3"))
    (tmp_path / "loop").symlink_to("loop")  # told when it is opened
    assert folder_of(str(tmp_path / "loop")).startswith("loop-")
    assert folder_of("kitti-00") == "kitti-00"
    assert folder_of("synthetic:7") == "synthetic-7"
    assert len(folder_of("x" * 5000)) < 80
    for odd in ("/", "..", "#pose=/odom", "\x1b[31m", "../../etc/passwd"):
        assert "/" not in folder_of(odd)
        assert folder_of(odd).strip(".") == folder_of(odd)


def test_what_is_not_there_is_said_at_once() -> None:
    check_drive(EXCERPT)
    check_drive("synthetic:3")
    for name in ("no-drive", "synthetic:x"):
        with pytest.raises(SlipstreamError, match="is not a"):
            check_drive(name)


def test_a_clip_or_scene_that_is_not_there_is_said_at_once(tmp_path: Path) -> None:
    wod, nuscenes = shards_and_scenes(tmp_path)
    check_drive(wod / CLIP)
    check_drive(nuscenes / "scene-0002")
    for place in (wod, nuscenes):
        with pytest.raises(SlipstreamError, match=r"holds no|no scene-9"):
            check_drive(place / "scene-9")
        with pytest.raises(SlipstreamError, match=r"several clips|holds 2 scenes"):
            check_drive(place)
    for file in (*wod.iterdir(), nuscenes / "scene.json"):  # damage is the worker's to tell
        file.write_bytes(file.read_bytes()[:40])
    check_drive(wod / CLIP)
    check_drive(nuscenes / "scene-9")


def test_all_drives_of_a_folder(tmp_path: Path) -> None:
    wod, nuscenes = shards_and_scenes(tmp_path)
    scenes = [str(nuscenes / "scene-0001"), str(nuscenes / "scene-0002")]
    clips = [str(wod / CLIP), str(wod / "other")]
    assert named([f"{nuscenes}/*"]) == scenes
    (tmp_path / "drives.txt").write_text(f"{wod}/*  # validation\nsynthetic\n")
    assert named([f"@{tmp_path}/drives.txt"]) == [*clips, "synthetic"]
    shutil.copytree(EXCERPT, tmp_path / "run")
    assert named([f"{tmp_path}/*"]) == [*scenes, str(tmp_path / "run"), *clips]
    for nothing in (tmp_path / "run", tmp_path / "no"):
        with pytest.raises(SlipstreamError, match="no drive lies in"):
            named([f"{nothing}/*"])
    shutil.copytree(EXCERPT, os.fsdecode(bytes(tmp_path) + b"/run-\xff"))
    with pytest.raises(SlipstreamError, match="has a name that is no text"):
        named([f"{tmp_path}/*"])


def shards_and_scenes(folder: Path) -> tuple[Path, Path]:
    drive = synthetic_drive(2, duration=40.0, noise=0.0)
    both = [*records(drive, (0, 30)), *records(drive, (0,), clip="other")]
    nuscenes = folder / "nuscenes"
    nuscenes.mkdir()
    scenes = [
        {"name": f"scene-000{i}", "token": f"{i}", "log_token": "log", "description": "town"}
        for i in (1, 2)
    ]
    (nuscenes / "scene.json").write_text(json.dumps(scenes))
    return write_wod_e2e(folder / "wod", both), nuscenes


def test_workers_in_other_folders_find_the_drive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert place_of("a/bag.mcap#pose=/odom") == f"{tmp_path}/a/bag.mcap#pose=/odom"
    assert place_of("synthetic:3") == "synthetic:3"
    assert place_of("kitti-00") == "kitti-00"
