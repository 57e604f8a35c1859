"""`slipstream run` on many drives, as a user does it: summary, resume, stops, refusals."""

from __future__ import annotations

import os
import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

from drives.open import open_drive
from drives.readers.plain import write_plain
from drives.report import PAGE
from drives.results import REPORT
from runtime.errors import SlipstreamError
from runtime.settings import DecodeSettings, Sampling
from slipstream.commands.fleet import unrepeatable
from slipstream.fleet.drives import folder_of
from slipstream.fleet.finished import SUMMARY, with_finished
from slipstream.fleet.summary_results import Summary
from tests.slipstream.command import command, started
from tests.slipstream.fleet.small import BUNDLE, EXCERPT, HAS_BUNDLE, figures, items, job, leavings

pytestmark = pytest.mark.skipif(not HAS_BUNDLE, reason="no shipped bundle")

FAST = ("--decoder", "dflash", "--block", "8", "--frames", "2")
RUN = ("run", str(BUNDLE), "-o", "out", *FAST)
TWO = ("--drive", "synthetic", "--drive", "synthetic:7")


def summary_of(out: Path) -> Summary:
    return Summary.model_validate_json((out / SUMMARY).read_text())


def stamps(out: Path) -> dict[str, int]:
    """When each report was written."""
    reports = out.glob(f"[!.]*/{REPORT}")  # not one that is being written
    return {path.parent.name: path.stat().st_mtime_ns for path in reports}


def test_drives_of_a_list_resumed_extended_and_one_of_them_broken(tmp_path: Path) -> None:
    out = tmp_path / "out"
    broken = tmp_path / "broken.csv"
    write_table(broken, 300)
    whole = broken.read_text()
    broken.write_text(whole[:4000] + "nonsense\n")
    (tmp_path / "drives.txt").write_text(f"synthetic\n{broken}\n{EXCERPT}\n")

    first = command(*RUN, "--drive", "@drives.txt", "--workers", "2", cwd=tmp_path)
    assert first.returncode == 1, first.stderr
    assert "broken.csv" in first.stdout
    excerpt = folder_of(EXCERPT)
    assert sorted(stamps(out)) == sorted(["synthetic", excerpt])
    summary = summary_of(out)
    assert {drive.folder for drive in summary.drives} == {"synthetic", excerpt}
    assert [failed.given for failed in summary.failed] == [str(broken)]
    assert "broken.csv" in summary.failed[0].error
    assert (summary.frames, summary.compared) == (4, 4)
    html = (out / PAGE).read_text()
    assert f'href="{excerpt}/{PAGE}"' in html
    assert "broken.csv" in html
    assert leavings(out) == []

    # mended, and one more: only what has no report is run
    before = stamps(out)
    broken.write_text(whole)
    more = ("--drive", "@drives.txt", "--drive", "synthetic:7", "--workers", "1")
    second = command(*RUN, *more, cwd=tmp_path)
    assert second.returncode == 0, second.stderr
    assert second.stdout.count("kept") == 2
    after = stamps(out)
    assert len(after) == 4
    assert {name: after[name] for name in before} == before
    assert summary_of(out).failed == []

    # a recording that was changed is run again
    write_table(broken, 280)
    third = command(*RUN, *more, cwd=tmp_path)
    assert third.returncode == 0, third.stderr
    changed = {name for name, stamp in stamps(out).items() if stamp != after[name]}
    assert changed == {folder_of(str(broken))}


def test_settings_are_never_mixed(tmp_path: Path) -> None:
    done = command(*RUN, *TWO, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    out = tmp_path / "out"
    before = stamps(out)
    refused = command(*RUN, *TWO, "--block", "6", cwd=tmp_path)
    assert refused.returncode == 2
    assert "out holds drives of another run" in refused.stderr
    assert "block of dflash 8" in refused.stderr
    assert "rm -r out" in refused.stderr
    assert stamps(out) == before

    drives, one = items("synthetic", "synthetic:7"), DecodeSettings(block=8)
    same = job(settings={"dflash": one})
    assert all(item.finished for item in with_finished(drives, out, same))
    for changes, says in (
        ({"frames": "4"}, "--frames 2"),
        ({"threads": 2}, "--threads 1"),
        ({"provider": "cuda"}, "--provider cpu"),
        ({"rule": "mean"}, "rule guarded"),
        ({"key": "0" * 16}, "bundle"),
        ({"version": "0.0.0"}, "slipstream"),
        ({"settings": {"ar": DecodeSettings(method="ar")}}, "decoders dflash"),
        ({"settings": {"dflash": replace(one, seed=1)}}, "seed of dflash 0"),
    ):
        with pytest.raises(SlipstreamError, match="another run") as error:
            with_finished(drives, out, replace(same, **changes))
        assert f"synthetic: {says}" in str(error.value)


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGKILL,
        pytest.param(signal.SIGINT, marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, marks=pytest.mark.slow),
    ],
)
def test_stopped_in_the_middle_and_resumed(number: signal.Signals, tmp_path: Path) -> None:
    """The drive at work leaves nothing, its worker ends, and the next run takes it up."""
    out = tmp_path / "out"
    drives = [part for n in range(4) for part in ("--drive", f"synthetic:{n}")]
    process = started(*RUN, *drives, "--workers", "2", cwd=tmp_path)
    until = time.monotonic() + 200
    while not stamps(out) and time.monotonic() < until:
        time.sleep(0.02)
    workers = children(process.pid)
    assert len(workers) >= 2
    process.send_signal(number)
    process.communicate(timeout=30)
    assert process.returncode in (128 + number, -number)
    while any(alive(pid) for pid in workers) and time.monotonic() < until:
        time.sleep(0.05)  # those of a killed run end when they next speak
    assert not any(alive(pid) for pid in workers)
    before = stamps(out)
    assert 1 <= len(before) < 4
    assert leavings(out) == []
    assert not (out / SUMMARY).exists()

    again = command(*RUN, *drives, "--workers", "2", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    after = stamps(out)
    assert len(after) == 4
    assert {name: after[name] for name in before} == before
    if number == signal.SIGKILL:  # the same as a run that was never stopped
        whole = command(*RUN[:3], "whole", *FAST, *drives, cwd=tmp_path)
        assert whole.returncode == 0, whole.stderr
        assert figures(tmp_path / "whole") == figures(out)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((*TWO, "--workers", "0"), "--workers is out of range"),
        (("--drive", "synthetic", "--drive", "synthetic"), "--drive names a drive twice"),
        (("--drive", "synthetic", "--drive", "no-drive"), "no-drive is not a drive"),
        (("--drive", "@none.txt"), "none.txt is no list of drives"),
        ((*TWO, "--rollouts", "999"), "at most 16"),
        ((*TWO, "--frames", "none"), "--frames can't be used"),
        ((*TWO, "-o", "mine"), "mine can't take the reports of many drives"),
        ((*TWO, "-o", "one"), "the report of one drive"),
        ((*TWO, "--block", "99"), "block is wider than the drafter's"),
        ((*TWO, "--threads", "0"), "threads is out of range"),
        ((*TWO, "--provider", "warp"), "warp"),
    ],
)
def test_bad_input_is_one_message_and_exit_code_2(
    arguments: tuple[str, ...], says: str, tmp_path: Path
) -> None:
    for name in ("mine/mine.txt", f"one/{REPORT}"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("mine")
    done = command(*RUN, *arguments, cwd=tmp_path)
    assert done.returncode == 2, done.stdout
    assert done.stderr.startswith("slipstream: ")
    assert says in done.stderr
    assert "to mend it:" in done.stderr
    assert "Traceback" not in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "one"]


def test_a_recording_counts_once(tmp_path: Path) -> None:
    shutil.copytree(EXCERPT, tmp_path / "boreas-excerpt")
    drives = ("--drive", EXCERPT, "--drive", "boreas-excerpt")
    done = command(*RUN, *drives, cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "the same recording as" in done.stdout
    assert len(summary_of(tmp_path / "out").drives) == 1


@pytest.mark.slow
def test_sampled_plans_repeat_under_the_gate(tmp_path: Path) -> None:
    """With several drives the rule is one whose draws depend on no times."""
    gated = ("run", str(BUNDLE), "--decoder", "dflash", "--frames", "2", "--rollouts", "2")
    for out in ("one", "two"):
        done = command(*gated, *TWO, "-o", out, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "dflash:coupled ×2" in done.stdout
        assert "make them repeat" not in done.stdout
    assert figures(tmp_path / "one") == figures(tmp_path / "two")


def test_rules_that_do_not_repeat_are_said() -> None:
    hot = Sampling(0.5)
    settings = {
        "block": DecodeSettings(accept="block", sampling=hot),
        "block, given width": DecodeSettings(accept="block", sampling=hot, block=8),
        "block, greedy": DecodeSettings(accept="block"),
        "coupled": DecodeSettings(accept="coupled", sampling=hot),
        "ar": DecodeSettings(method="ar", sampling=hot),
        "tree": DecodeSettings(method="ddtree", accept="rrs-wor", sampling=hot, block=8),
        "given tree": DecodeSettings("ddtree", "rrs-wor", sampling=hot, block=8, nodes=8),
    }
    assert unrepeatable(job(settings=settings)) == ["block", "tree"]


@pytest.mark.slow
def test_a_report_is_that_of_the_drive_alone(tmp_path: Path) -> None:
    """One drive goes as it always went, and gives what it gives among others."""
    one = ("run", str(BUNDLE), "--drive", "synthetic:7", "-o", "alone", *FAST)
    alone = command(*one, cwd=tmp_path)
    assert alone.returncode == 0, alone.stderr
    assert sorted(path.name for path in (tmp_path / "alone").iterdir()) == [PAGE, REPORT]
    among = command(*RUN, *TWO, cwd=tmp_path)
    assert among.returncode == 0, among.stderr
    assert figures(tmp_path)["alone"] == figures(tmp_path / "out")["synthetic-7"]
    mixed = command("run", str(BUNDLE), "--drive", "synthetic", "-o", "out", *FAST, cwd=tmp_path)
    assert mixed.returncode == 2
    assert "out is not replaced by a report" in mixed.stderr


def children(pid: int) -> list[int]:
    """The processes that a process started."""
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(each) for each in listed.split()]


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


def write_table(path: Path, rows: int) -> None:
    """A drive in the plain format, the first rows of a computed one."""
    drive = open_drive("synthetic:9")
    cut = {name: getattr(drive, name)[:rows] for name in ("times", "positions", "headings")}
    write_plain(replace(drive, **cut, speeds=drive.speeds[:rows], intents=None), path)
