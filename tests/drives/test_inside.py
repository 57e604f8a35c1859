"""A folder that is no drive but holds some: the error names them."""

from __future__ import annotations

from pathlib import Path

import pytest

from drives import inside
from drives.inside import drives_inside, listed
from drives.open import open_drive
from drives.readers.plain import write_plain
from drives.readers.synthetic import synthetic_drive
from runtime.errors import SlipstreamError
from tests.drives.readers.writers import write_boreas, write_kitti, write_nuscenes

DRIVE = synthetic_drive(1, duration=3.0)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_boreas(tmp_path / "boreas" / "run 1", DRIVE)
    write_boreas(tmp_path / "boreas" / "run2", DRIVE)
    write_kitti(tmp_path / "kitti" / "poses" / "05.txt", DRIVE)
    write_nuscenes(tmp_path / "nu", {"scene-0001": DRIVE, "scene-0002": DRIVE})
    write_plain(DRIVE, tmp_path / "yard.csv")
    (tmp_path / "notes.txt").write_text("read me\n")
    (tmp_path / ".cache").mkdir()
    write_plain(DRIVE, tmp_path / ".cache" / "hidden.csv")
    return tmp_path


def test_drives_are_found_whatever_their_format(root):
    found = {str(each.path.relative_to(root)): each.format.name for each in drives_inside(root)}
    assert found == {
        "boreas/run 1": "boreas",
        "boreas/run2": "boreas",
        "kitti/poses/05.txt": "kitti-odometry",
        "nu": "nuscenes",
        "yard.csv": "plain",
    }
    for each in drives_inside(root):
        if each.format.name != "nuscenes":  # its reader lists the scenes
            assert len(open_drive(each.path).times) == len(DRIVE.times)


def test_the_error_names_them_and_a_command(root):
    with pytest.raises(SlipstreamError, match="holds drives") as caught:
        open_drive(root / "boreas")
    assert f"{root / 'boreas' / 'run 1'} (boreas), " in caught.value.found
    one = f"'{root / 'boreas' / 'run 1'}'"
    assert f"--drive {one} where drives are run" in caught.value.fix
    assert caught.value.fix.endswith(f"slipstream drives info {one}")
    with pytest.raises(SlipstreamError, match="2 scenes"):
        open_drive(root / "nu")


def test_many_are_counted(tmp_path):
    for number in range(9):
        write_plain(DRIVE, tmp_path / f"{number}.csv")
    assert listed(drives_inside(tmp_path)).endswith("5.csv (plain) and 3 more")


def test_the_search_is_bounded(root, tmp_path, monkeypatch):
    deep = tmp_path / "a" / "b" / "c"
    write_plain(DRIVE, deep / "far.csv")
    assert deep / "far.csv" not in [each.path for each in drives_inside(root)]
    monkeypatch.setattr(inside, "_MOST_ENTRIES", 2)
    assert len(drives_inside(root)) <= 2
    assert drives_inside(tmp_path / "nothing") == []
    with pytest.raises(SlipstreamError, match="is not a drive"):
        open_drive(tmp_path / "nothing")
