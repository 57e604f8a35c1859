"""`--rerun` and `--mcap`: of one drive where they are named, of several beside each report."""

from __future__ import annotations

from pathlib import Path

import pytest

from drives.report import PAGE
from drives.results import REPORT
from slipstream.fleet.drives import folder_of
from tests.slipstream.command import command
from tests.slipstream.fleet.small import BUNDLE, EXCERPT, HAS_BUNDLE

pytest.importorskip("rerun", reason="rerun-sdk is not installed (extra viz)")
pytest.importorskip("rosbags", reason="rosbags is not installed (extra drives)")
pytestmark = pytest.mark.skipif(not HAS_BUNDLE, reason="no shipped bundle")

RUN = ("run", str(BUNDLE), "--decoder", "dflash", "--block", "8", "--frames", "2", "-o", "out")


def test_of_one_drive_where_they_are_named(tmp_path: Path) -> None:
    named = ("--rerun", "one.rrd", "--mcap", "one.mcap")
    done = command(*RUN, "--drive", EXCERPT, *named, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "one.rrd").read_bytes()[:3] == b"RRF"
    assert (tmp_path / "one.mcap").read_bytes().startswith(b"\x89MCAP")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [PAGE, REPORT]


def test_of_several_drives_beside_each_report(tmp_path: Path) -> None:
    drives = ("--drive", EXCERPT, "--drive", "synthetic")
    first = command(*RUN, *drives, "--mcap", "plans.mcap", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    for folder in (folder_of(EXCERPT), "synthetic"):
        found = sorted(path.name for path in (tmp_path / "out" / folder).iterdir())
        assert found == [PAGE, "plans.mcap", REPORT]
    kept = command(*RUN, *drives, "--mcap", "plans.mcap", cwd=tmp_path)
    assert kept.stdout.count("kept") == 2
    more = command(*RUN, *drives, "--rerun", "plans.rrd", cwd=tmp_path)  # asked for now: run again
    assert more.returncode == 0, more.stderr
    assert "kept" not in more.stdout
    assert "2 drives run again: no plans.rrd" in more.stdout
    for folder in (folder_of(EXCERPT), "synthetic"):  # what was there before stays
        found = sorted(path.name for path in (tmp_path / "out" / folder).iterdir())
        assert found == [PAGE, "plans.mcap", "plans.rrd", REPORT]
        assert (tmp_path / "out" / folder / "plans.mcap").read_bytes().startswith(b"\x89MCAP")
    (tmp_path / "out" / "synthetic" / "plans.rrd").unlink()
    one = command(*RUN, *drives, "--rerun", "plans.rrd", cwd=tmp_path)
    assert "synthetic runs again: no plans.rrd" in one.stdout
    assert one.stdout.count("kept") == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--drive", "synthetic:1", "--rerun", "plans.txt"), "--rerun names no file"),
        (("--drive", "synthetic:1", "--mcap", "plans"), "--mcap names no file"),
        (("--rerun", "plans.rrd", "--mcap", "plans.rrd"), "--mcap names no file"),
        (("--mcap", "out/report.json"), "--mcap names no file"),
        (("--rerun", "mine.txt/plans.rrd"), "mine.txt"),
        (("--mcap", "mine.txt/plans.mcap"), "mine.txt"),
    ],
)
def test_a_place_that_can_not_be_is_refused(
    arguments: tuple[str, ...], says: str, tmp_path: Path
) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    done = command(*RUN, "--drive", "synthetic", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert says in done.stderr
    assert "to mend it:" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
