"""The report's figures against numpy, its schema, and which of its frames were trained on."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from drives.open import open_drive
from drives.page import page
from drives.replay import Replay
from drives.report import write_report
from drives.results import REPORT, Report, read_report
from drives.summary import kind_of
from drives.table import KINEMATIC, accuracy_table, readings_table
from drives.trained_on import training_of
from drives.verdicts import verdicts
from drives.windows import windows
from runtime.errors import SlipstreamError
from slipstream.commands.terminal import show_report
from tests.drives.kinematic_planner import KinematicPlanner
from tests.drives.kinematic_report import BUNDLE, DRIVE, replayed, reported


def test_ade_is_the_mean_over_frames_that_have_a_plan(result: Replay, report: Report) -> None:
    truth = np.stack([w.future for w in result.windows[1:]])
    plans = np.stack([plan.trajectory for plan in result.plans["ar ×4"][1:]])
    gap = np.hypot(*np.moveaxis(plans - truth, -1, 0))
    accuracy = report.decoders[2].accuracy
    assert accuracy.ade[3].value == pytest.approx(gap[:, :12].mean())
    assert accuracy.fde[5].value == pytest.approx(gap[:, 19].mean())
    assert accuracy.ade[5].low < accuracy.ade[5].value < accuracy.ade[5].high
    assert report.decoders[2].frames_without_plan == 1


def test_costs_are_sums_over_frames(result: Replay, report: Report) -> None:
    for decoder in report.decoders:
        plans = result.plans[decoder.name]
        latency = np.array([1e3 * plan.latency for plan in plans])
        assert decoder.latency_ms.mean.value == pytest.approx(latency.mean())
        assert decoder.latency_ms.p50.value in latency
        assert decoder.latency_ms.p50.value == np.sort(latency)[29]
        assert decoder.latency_ms.longest == latency.max()
        assert sum(decoder.stages_ms.values()) == pytest.approx(latency.mean())
        rounds = sum(plan.stats.rounds for plan in plans)
        committed = sum(plan.stats.committed for plan in plans)
        assert decoder.acceptance_length == pytest.approx(committed / rounds)
        assert 0 <= decoder.host_share <= 1
    drafted = report.decoders[3]
    assert sum(p.drafted for p in drafted.by_position) > 0
    kept = sum(p.accepted for p in drafted.by_position)
    section = drafted.by_section["trajectory"]
    assert (kept, section.acceptance_rate) == (section.accepted, drafted.acceptance_rate)
    assert report.decoders[0].acceptance_rate is None
    decode_s = sum(plan.stats.total for plan in result.plans["ar ×4"])
    assert report.decoders[2].tokens_per_s == pytest.approx(60 * (4 + 4 * 16) / decode_s)


def test_unusable_rollouts_are_counted_by_kind(report: Report) -> None:
    assert any("rollouts: " in told and "no number (4)" in told for told in verdicts(report))
    assert report.decoders[3].unusable == {"folded": 11, "no number": 4} or (
        report.decoders[3].unusable["no number"] == 4 and report.decoders[3].unusable["folded"] > 0
    )
    assert kind_of("speed 71 m/s is above 60") == "speed"
    assert kind_of("acceleration -14 m/s² is beyond ±12") == "acceleration"
    assert kind_of("folds back by 130° within a second") == "folds back"
    assert kind_of("parse: number") == "parse: number"


def test_the_six_readings_are_ordered(report: Report) -> None:
    found = {n: f.value for n, f in report.decoders[3].rollout_ade_5s.items()}
    assert list(found) == ["greedy", "plan", "mean", "medoid", "mean_of_ade", "min_ade"]
    assert found["min_ade"] < found["mean_of_ade"]
    assert found["mean"] <= found["mean_of_ade"]  # the norm is convex
    assert found["greedy"] == report.decoders[0].accuracy.ade[5].value
    assert found["plan"] == report.decoders[3].accuracy.ade[5].value
    titles = [column.title for column in readings_table(report).columns]
    assert titles[1:3] == ["greedy", "plan (mean)"]


def test_a_planner_equal_to_a_baseline_differs_from_it_by_nothing(report: Report) -> None:
    # the greedy kinematic planner is constant turn rate and acceleration itself
    paired = report.decoders[0].versus_kinematic["ctra"].ade_5s
    assert (paired.value, paired.low, paired.high) == (0.0, 0.0, 0.0)
    still = report.decoders[0].versus_kinematic["still"].ade_5s
    assert still.excludes_zero
    assert still.value < 0
    assert accuracy_table(report).rows[0][6].text == "0"


def test_scenes_are_the_best_the_median_and_the_worst(result: Replay, report: Report) -> None:
    errors = [row.ade_5s for row in report.rows if row.decoder == "dflash ×4" and row.ade_5s]
    worst, *_, median, best = report.scenes
    assert (best.ade_5s, worst.ade_5s) == pytest.approx((min(errors), max(errors)))
    assert best.ade_5s <= median.ade_5s <= worst.ade_5s
    window = next(w for w in result.windows if w.observation.frame == worst.frame)
    assert np.allclose(worst.truth, window.future, atol=6e-4)
    assert len(worst.past) == 16


def test_json_and_schema_agree(report: Report, tmp_path: Path) -> None:
    write_report(report, tmp_path / "report")
    text = (tmp_path / "report" / REPORT).read_text()
    assert "NaN" not in text
    assert "Infinity" not in text
    assert read_report(tmp_path / "report" / REPORT) == report
    for name, field in Report.model_json_schema()["$defs"]["Decoder"]["properties"].items():
        assert "description" in field or "$ref" in field, f"{name} states no convention"


def test_a_broken_report_is_named(tmp_path: Path) -> None:
    path = tmp_path / REPORT
    for text in ("", "[]", json.dumps({"version": 9})):
        path.write_text(text)
        with pytest.raises(SlipstreamError, match=r"report\.json is no report"):
            read_report(path)


def test_one_frame_gets_figures_but_no_intervals(tmp_path: Path) -> None:
    report = reported(replayed(KinematicPlanner(), "1"))
    figure = report.decoders[0].accuracy.ade[5]
    assert figure.value is not None
    assert figure.low is None
    assert report.decoders[0].latency_ms.p99 is None
    html = write_report(report, tmp_path / "r").read_text()
    assert "too few segments" in html


def test_readings_merge_decoders_with_the_same_plans(report: Report) -> None:
    assert [row[0].text for row in readings_table(report).rows] == ["ar ×4 = dflash ×4"]


BOREAS = "Boreas (IJRR 2023), drive 2021-08-05-13-34, University of Toronto"


@pytest.mark.parametrize(
    ("data", "match", "frames"),
    [
        ([], None, 0),
        ([BOREAS], None, 0),
        (["Synthetic drive 12, all"], "data set", 0),
        (["synthetic 2000-0-1"], "data set", 0),
        (["synthetic 0"], "recording", 60),
        ([BOREAS, "synthetic: 0, first 100 %"], "recording", 60),
        (["synthetic 0, first 0 %"], "recording", 0),
    ],
)
def test_training_data_is_told_from_the_bundles_record(
    result: Replay, data: list[str], match: str | None, frames: int
) -> None:
    report = reported(result, bundle=BUNDLE.model_copy(update={"data": data}))
    found = report.training
    assert (found.match if found else None, found.frames if found else 0) == (match, frames)
    html = page(report)
    assert ("TRAINING DATA" in html) == bool(frames)
    console = Console(width=200, file=io.StringIO())
    show_report(report, console)
    assert ("TRAINING DATA" in console.file.getvalue()) == bool(frames)
    assert any("trained on" in sentence for sentence in verdicts(report)) == bool(match)


def test_only_windows_that_reach_into_the_trained_part_count(result: Replay) -> None:
    report = reported(
        result, bundle=BUNDLE.model_copy(update={"data": ["synthetic 0, first 50 %"]})
    )
    inside = sum(w.observation.time - 3.75 < DRIVE.duration / 2 for w in result.windows)
    assert 0 < inside < 60
    assert report.training.frames == inside


def test_recorded_drives_say_what_a_record_calls_them(boreas_excerpt: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copies" / "boreas-2021-08-05-13-34"
    shutil.copytree(boreas_excerpt, copy)
    drive = open_drive(copy)
    assert (drive.dataset, drive.recording) == ("Boreas", "2021-08-05-13-34")
    cut = windows(drive).windows
    assert training_of(drive, cut, [BOREAS]).frames == len(cut)
    assert training_of(drive, cut, ["Boreas 2020-11-26-13-58"]).match == "data set"
    poses = tmp_path / "00.txt"
    np.savetxt(poses, np.tile(np.eye(3, 4).ravel(), (40, 1)))
    kitti = open_drive(poses)
    assert (kitti.dataset, kitti.recording) == ("KITTI", "00")
    assert training_of(kitti, [], ["KITTI odometry 00, 02"]).match == "recording"
    assert training_of(kitti, [], ["KITTI odometry 05, 07"]).match == "data set"
    assert training_of(kitti, [], [BOREAS]) is None


def test_baselines_leave_cells_blank_that_ask_nothing_of_them(report: Report) -> None:
    table = accuracy_table(report)
    rows = [row for row, group in zip(table.rows, table.groups, strict=True) if group == KINEMATIC]
    assert len(rows) == len(report.kinematic)
    assert {cell.text for row in rows for cell in row[5:]} == {""}
