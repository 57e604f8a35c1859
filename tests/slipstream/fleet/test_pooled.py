"""The summary of many drives: its figures against numpy, its tables and its page."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from drives.bootstrap import LEAST_SEGMENTS
from drives.identity import drive_key
from drives.open import open_drive
from drives.replay import replay
from drives.report import build_report
from drives.results import Asked, BundleInfo, Report
from drives.selection import Selection
from drives.summary import OutputLength
from drives.windows import windows
from runtime.settings import DecodeSettings
from slipstream.commands.terminal import rich_table
from slipstream.fleet.comparable import comparable
from slipstream.fleet.job import Finished, Item, Job
from slipstream.fleet.pooled import distinct, pooled, same_everywhere
from slipstream.fleet.summary_page import summary_page
from slipstream.fleet.summary_results import Summary
from slipstream.fleet.tables import drives_table, pooled_table
from slipstream.fleet.terminal import show_summary
from tests.drives.kinematic_planner import KinematicPlanner

BUNDLE = BundleInfo(name="kinematic", key="0" * 16, target="none", drafter=None, precision={})
SETTINGS = {"ar": DecodeSettings(method="ar"), "dflash": DecodeSettings(block=8)}
JOB = Job(Path("b"), "0" * 16, "source", SETTINGS, "mean", "9", "cpu", 1, "slipstream run")
FRAMES = (4, 9, 6, 5, 7, 3)


def reported(seed: int, frames: int, lost: int | None = None) -> Report:
    """A drive's report; on frame number `lost` there is no plan."""
    drive = open_drive(f"synthetic:{seed}")
    cut = windows(drive)
    chosen = Selection.parse(str(frames)).of(cut.windows, drive.name)
    planner = KinematicPlanner(lose_frame=None if lost is None else chosen[lost].observation.frame)
    return build_report(
        replay(planner, chosen, SETTINGS, skipped=cut.skipped),
        drive=drive,
        bundle=BUNDLE,
        output=OutputLength(20, 4),
        text=planner.text,
        wall_s=1.0,
        asked=Asked(frames=str(frames), provider="cpu"),
    )


@pytest.fixture(scope="module")
def reports() -> list[Report]:
    return [reported(seed, frames, 2 if seed == 1 else None) for seed, frames in enumerate(FRAMES)]


@pytest.fixture(scope="module")
def summary(reports: list[Report]) -> Summary:
    return summarised(reports)


def summarised(reports: Sequence[Report]) -> Summary:
    done = [Finished.of(Item(f"d/{i}", f"f{i}", f"d/{i}"), each) for i, each in enumerate(reports)]
    return pooled([*done, Finished(Item("d/broken", "b", "d/broken"), None, "no <drive>")], JOB)


def test_every_frame_counts_alike(reports: list[Report], summary: Summary) -> None:
    rows = [row for report in reports for row in report.rows if row.decoder == "dflash"]
    others = [row for report in reports for row in report.rows if row.decoder == "ar"]
    planned = [row.ade_5s for row in rows if row.ade_5s is not None]
    assert len(planned) == sum(FRAMES) - 1
    decoder = summary.decoders[1]
    assert (summary.frames, summary.compared) == (sum(FRAMES), len(planned))
    assert decoder.ade_5s.value == pytest.approx(np.mean(planned))
    assert decoder.frames_without_plan == 1
    ratios = [a.latency_ms / b.latency_ms for a, b in zip(others, rows, strict=True)]
    assert decoder.speedup.value == pytest.approx(sorted(ratios)[(len(ratios) - 1) // 2])
    assert decoder.latency_ms.value == pytest.approx(np.mean([row.latency_ms for row in rows]))
    sections = [s for report in reports for s in report.decoders[1].by_section.values()]
    length = sum(s.committed for s in sections) / sum(s.rounds for s in sections)
    assert decoder.acceptance_length.value == pytest.approx(length)
    assert length > 1


def test_baselines_are_compared_on_the_same_frames(reports: list[Report], summary: Summary) -> None:
    lost = {(r.drive.key, row.frame) for r in reports for row in r.rows if row.ade_5s is None}
    assert len(lost) == 1
    kept = {
        name: [
            row.ade_5s
            for report in reports
            for row in report.baseline_rows
            if row.baseline == name and (report.drive.key, row.frame) not in lost
        ]
        for name in ("cv", "ctra", "still")
    }
    found = {each.name: each.ade_5s.value for each in summary.kinematic}
    for name, errors in kept.items():
        assert found[name] == pytest.approx(np.mean(errors))
    assert list(found.values()) == sorted(found.values())
    own = summary.decoders[1]
    gap = own.ade_5s.value - summary.kinematic[0].ade_5s.value
    assert own.ade_5s_to_kinematic.value == pytest.approx(gap)
    l2 = {row.name: row.at[3].value for row in summary.leaderboards.nuscenes.rows}
    mine = [row for report in reports for row in report.rows if row.decoder == "dflash"]
    assert l2["dflash"] == pytest.approx(
        np.mean([r.l2_at[2] for r in mine if r.ade_5s is not None])
    )
    best = {row.name: row for row in summary.leaderboards.best_of}
    assert best["cv"].miss_rate_5s.value == pytest.approx(
        np.mean(
            [
                row.fde_5s > 2
                for report in reports
                for row in report.baseline_rows
                if row.baseline == "cv" and (report.drive.key, row.frame) not in lost
            ]
        )
    )


def test_intervals_draw_whole_drives(reports: list[Report], summary: Summary) -> None:
    """Drives that are all alike leave no doubt; a drive counts by its frames."""
    same = summarised([reports[3]] * LEAST_SEGMENTS)
    ade = same.decoders[1].ade_5s
    assert ade.low == pytest.approx(ade.value)
    assert ade.high == pytest.approx(ade.value)
    assert same.intervals.drives == LEAST_SEGMENTS
    apart = summary.decoders[1].ade_5s
    means = [report.decoders[1].accuracy.ade[5].value for report in reports]
    assert min(means) < apart.low < apart.value < apart.high < max(means)
    few = summarised(reports[: LEAST_SEGMENTS - 1])
    assert few.decoders[1].ade_5s.low is None


def test_worst_drives_come_first(reports: list[Report], summary: Summary) -> None:
    errors = [drive.figures[-1].ade_5s for drive in summary.drives]
    assert errors == sorted(errors, reverse=True)
    assert len(errors) == len(FRAMES)
    by_folder = {drive.folder: drive for drive in summary.drives}
    for i, report in enumerate(reports):
        assert by_folder[f"f{i}"].figures[1].ade_5s == report.decoders[1].accuracy.ade[5].value
        assert by_folder[f"f{i}"].frames == FRAMES[i]
    assert [failed.given for failed in summary.failed] == ["d/broken"]
    rows = drives_table(summary).rows
    assert [row[0].text for row in rows] == [drive.name for drive in summary.drives]
    twins = [drive.model_copy(update={"name": "seg"}) for drive in summary.drives]
    rows = drives_table(summary.model_copy(update={"drives": twins})).rows
    for row, drive in zip(rows, twins, strict=True):  # the folder tells drives of one name apart
        assert row[0].interval.startswith(drive.folder)


def test_decoders_with_the_same_plans_everywhere_share_a_row(summary: Summary) -> None:
    assert summary.same == [["ar", "dflash"]]
    one, two, three = (("a", "b", "c"),), (("a", "b"), ("c",)), (("a", "c"), ("b",))
    assert same_everywhere([one, two]) == [["a", "b"], ["c"]]
    assert same_everywhere([two, three]) == [["a"], ["b"], ["c"]]


def test_the_summary_is_what_its_file_says(summary: Summary) -> None:
    assert Summary.model_validate_json(summary.model_dump_json()) == summary


def test_a_recording_counts_once(reports: list[Report]) -> None:
    once, twice = distinct([Finished.of(Item(name, name, name), reports[0]) for name in ("a", "b")])
    assert once.report is not None
    assert twice.report is None
    assert "the same recording as a" in twice.error


def test_the_page_links_and_escapes(reports: list[Report]) -> None:
    odd = Finished.of(Item("<script>alert(1)</script>", "a b&c", "a"), reports[0])
    html = summary_page(pooled([odd, Finished(Item("x", "y", "x"), None, "<b>no</b>")], JOB))
    assert 'href="a%20b%26c/index.html"' in html
    assert "<script>" not in html
    assert "&lt;b&gt;no&lt;/b&gt;" in html
    assert "SYNTHETIC DRIVES" in html
    assert "http" not in html


@pytest.mark.parametrize("width", [80, 200])
def test_the_terminal_cuts_nothing(summary: Summary, width: int) -> None:
    screen = Console(file=io.StringIO(), width=width)
    show_summary(summary, screen)
    shown = screen.file.getvalue()
    assert "…" not in shown.replace(" … ", "")
    assert max(len(line.rstrip()) for line in shown.splitlines()) <= width
    for table in (pooled_table(summary), drives_table(summary)):
        for row in table.rows:
            assert len(row) == len(table.columns)
            assert row[0].text in shown
        assert rich_table(table, everything=True).row_count == len(table.rows)


def test_equal_replays_compare_equal_and_others_do_not() -> None:
    one, again, other = reported(3, 4), reported(3, 4), reported(3, 4, lost=1)
    assert one.rows != again.rows  # latencies
    assert comparable(one) == comparable(again)
    assert comparable(one) != comparable(other)
    told = comparable(one)
    assert told["rows"][0].keys() >= {"trajectory", "ade_5s", "acceptance_length", "frame"}
    assert "latency_ms" not in told["rows"][0]
    assert "machine" not in told


def test_what_the_gate_decides_is_not_compared() -> None:
    report = reported(3, 4)
    settings = report.decoders[1].settings.model_copy(update={"block": None})
    gated = report.decoders[1].model_copy(update={"settings": settings})
    told = comparable(report.model_copy(update={"decoders": [report.decoders[0], gated]}))
    assert "acceptance_length" in told["decoders"][0]
    assert "acceptance_length" not in told["decoders"][1]
    assert told["rows"][1]["decoder"] == "dflash"
    assert "target_passes" not in told["rows"][1]
    assert "trajectory" in told["rows"][1]


def test_the_key_of_a_recording_follows_what_was_recorded() -> None:
    drive = open_drive("synthetic:3")
    key = drive_key(drive)
    assert key == drive_key(open_drive("synthetic:3"))
    assert key == drive_key(replace(drive, source="moved"))
    assert key != drive_key(replace(drive, speeds=drive.speeds + 1e-12))
    assert key != drive_key(replace(drive, intents=np.zeros(len(drive.times), np.int64)))
    assert key != drive_key(replace(drive, dataset="Boreas"))
