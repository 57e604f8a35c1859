"""The report: its figures against numpy, its page, its schema, and how it is written."""

from __future__ import annotations

import io
import json
import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from rich.console import Console

import drives.page
from drives.drive import Drive
from drives.open import open_drive
from drives.page import page
from drives.pictures import METHOD
from drives.replay import Replay, replay
from drives.report import PAGE, build_report, check_output, write_report
from drives.results import REPORT, BundleInfo, Report, read_report
from drives.selection import Selection
from drives.summary import OutputLength, kind_of
from drives.table import KINEMATIC, accuracy_table, readings_table, speed_table
from drives.trained_on import training_of
from drives.verdicts import headlines, intervals, to_beat, verdicts
from drives.windows import windows
from runtime.errors import SlipstreamError
from runtime.settings import DecodeSettings, Method, Sampling
from slipstream.commands.terminal import show_report
from tests.drives.kinematic_planner import KinematicPlanner

BUNDLE = BundleInfo(name="kinematic", key="0" * 16, target="none", drafter=None, precision={})
DRIVE = open_drive("synthetic")
HOT = Sampling(0.5)
SETTINGS = {
    "ar": DecodeSettings(method="ar"),
    "dflash": DecodeSettings(),
    "ar ×4": DecodeSettings(method="ar", rollouts=4, sampling=HOT),
    "dflash ×4": DecodeSettings(accept="coupled", rollouts=4, sampling=HOT),
}


def replayed(planner: KinematicPlanner, frames: str = "60", **settings: Any) -> Replay:
    cut = windows(DRIVE)
    chosen = Selection.parse(frames).of(cut.windows, DRIVE.name)
    return replay(planner, chosen, settings or SETTINGS, skipped=cut.skipped)


def reported(result: Replay, drive: Drive = DRIVE, bundle: BundleInfo = BUNDLE) -> Report:
    return build_report(
        result,
        drive=drive,
        bundle=bundle,
        output=OutputLength(20, 4),
        text=KinematicPlanner().text,
        wall_s=1.0,
    )


@pytest.fixture(scope="module")
def result() -> Replay:
    return replayed(KinematicPlanner(fail_every=5, lose_frame=0))


@pytest.fixture(scope="module")
def report(result: Replay) -> Report:
    return reported(result)


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


def test_speedup_is_paired_with_ar_under_the_same_conditions(
    result: Replay, report: Report
) -> None:
    assert [d.reference for d in report.decoders] == ["ar", "ar", "ar ×4", "ar ×4"]
    own = np.array([plan.latency for plan in result.plans["dflash"]])
    other = np.array([plan.latency for plan in result.plans["ar"]])
    assert report.decoders[1].speedup.value == pytest.approx(np.sort(other / own)[29])
    assert report.decoders[0].speedup.value == 1.0
    assert report.decoders[0].identity is None
    identity = report.decoders[3].identity
    assert (identity.rollouts, identity.identical, identity.expected) == (240, 240, True)


def test_differing_outputs_are_counted(result: Replay) -> None:
    plans = dict(result.plans)
    plans["dflash"] = [replace(plans["dflash"][0], tokens=plans["dflash"][0].tokens + 1)]
    plans["dflash"] += result.plans["dflash"][1:]
    report = reported(replace(result, plans=plans))
    identity = report.decoders[1].identity
    assert (identity.identical, identity.rollouts) == (59, 60)
    assert speed_table(report).rows[1][-1].mark == "worse"


def test_a_rule_that_promises_no_equality_is_not_blamed() -> None:
    rules = {"ar": DecodeSettings("ar", sampling=HOT), "dflash": DecodeSettings(sampling=HOT)}
    report = reported(replayed(KinematicPlanner(), **rules))
    assert report.decoders[1].identity.expected is False
    assert any("promises the same distribution" in sentence for sentence in verdicts(report))


def test_what_is_not_lossless_claims_no_equality() -> None:
    """Not even where the outputs happen to be equal, and at temperature 0."""
    methods = {"ar": DecodeSettings("ar"), "fills": DecodeSettings("section-diffusion")}
    result = replayed(KinematicPlanner(), **methods)
    for plan in result.plans["fills"]:
        plan.stats.target_passes = 10
    report = reported(result)
    ar, fills = report.decoders
    assert fills.identity is not None
    assert fills.identity.identical == fills.identity.rollouts == 60
    assert fills.identity.expected is False
    cell = speed_table(report).rows[1][-1]
    assert (cell.interval, cell.mark) == ("not lossless", "")
    (said,) = [sentence for sentence in verdicts(report) if "lossless" in sentence]
    assert said.startswith("section-diffusion is not lossless: nothing verifies what it fills")
    assert not any("token for token" in sentence for sentence in verdicts(report))
    assert (fills.settings.threshold, ar.settings.threshold) == (0.9, None)
    assert (ar.tokens_per_pass, fills.tokens_per_pass) == (1.0, 2.0)


def test_every_decoder_has_a_colour_by_day_and_by_night() -> None:
    styles = (Path(drives.page.__file__).parent / "templates" / "report.css").read_text("utf-8")
    assert set(METHOD) == set(get_args(Method))
    for method in METHOD:
        assert len(re.findall(rf"--{method}: #", styles)) == 2


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


class Outside(HTMLParser):
    """Collects what a page would load from elsewhere, and its element stack."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.open: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [
            value or ""
            for name, value in attrs
            if name in ("src", "href", "xlink:href") and not (value or "").startswith("#")
        ]


def test_the_page_needs_nothing_outside_of_it(report: Report) -> None:
    html = page(report)
    parser = Outside()
    parser.feed(html)
    assert parser.links == []
    assert "script" not in parser.tags
    assert "@import" not in html
    assert not re.search(r"url\((?!#)", html)
    assert parser.tags.count("svg") == 5 + len(report.scenes)
    assert not re.search(r"#0101[0-9a-f]{2}", html)  # stand-in colours all became variables
    for name in (
        *SETTINGS,
        "CTRA",
        "constant turn rate and acceleration",
        "Best",
        "SYNTHETIC DRIVE",
    ):
        assert name.lower() in html.lower()
    assert "prefers-color-scheme: dark" in html


def test_text_from_outside_is_escaped(result: Replay) -> None:
    report = reported(result, replace(DRIVE, name="<script>x</script>", synthetic=False))
    html = page(report)
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert "SYNTHETIC DRIVE" not in html


def test_a_planner_that_never_plans_still_gets_its_report(tmp_path: Path) -> None:
    class Mute(KinematicPlanner):
        def problems(self, n: int, frame: int) -> tuple[str, ...]:
            return ("parse: number",) * n

    report = reported(replayed(Mute(), ar=DecodeSettings(method="ar")))
    assert report.decoders[0].accuracy.ade[5].value is None
    assert report.decoders[0].frames_without_plan == 60
    assert report.scenes == []
    assert "Worst frames first" not in write_report(report, tmp_path / "r").read_text()
    assert headlines(report)[-1].value == "0"


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


def test_an_older_report_is_replaced_and_nothing_else_is(report: Report, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    write_report(report, folder)
    (folder / PAGE).write_text("old")
    write_report(report, folder)
    assert (folder / PAGE).read_text() != "old"
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(SlipstreamError, match="not replaced"):
        write_report(report, folder)
    assert (folder / "notes.txt").read_text() == "mine"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out"]
    file = tmp_path / "file"
    file.write_text("mine")
    with pytest.raises(SlipstreamError, match="a file"):
        check_output(file)


def test_a_failed_write_leaves_nothing(
    report: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Path.write_text

    def full(self: Path, *args: Any, **kwargs: Any) -> int:
        if self.name == PAGE:
            raise OSError(28, "No space left on device")
        return real(self, *args, **kwargs)

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(SlipstreamError, match="No space left"):
        write_report(report, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_faster_decoder_does_not_go_unsaid(result: Replay) -> None:
    slow = [replace(plan, latency=plan.latency + 1.0) for plan in result.plans["dflash ×4"]]
    report = reported(replace(result, plans={**result.plans, "dflash ×4": slow}))
    sentences = " ".join(verdicts(report))
    assert "dflash ×4 against ar ×4: slower" in sentences
    assert "ar ×4 has the lowest median latency here" in sentences


def with_latencies(result: Replay, **seconds: np.ndarray) -> Replay:
    """The same replay, had its frames taken this long."""
    plans = dict(result.plans)
    for name, values in seconds.items():
        timed = zip(result.plans[name], values, strict=True)
        plans[name] = [replace(plan, latency=float(value)) for plan, value in timed]
    return replace(result, plans=plans)


def steady(result: Replay) -> Replay:
    """Latencies of a quiet machine: ar 0.2 s, dflash 0.1 s, to 10 %."""
    noise = np.random.default_rng(0).uniform(0.95, 1.05, (2, 60))
    return with_latencies(result, ar=0.2 * noise[0], dflash=0.1 * noise[1])


def test_one_frozen_frame_does_not_make_the_speed_up(result: Replay) -> None:
    quiet = steady(result)
    frozen = np.array([plan.latency for plan in quiet.plans["ar"]])
    frozen[17] = 100.0
    before, after = reported(quiet), reported(with_latencies(quiet, ar=frozen))
    was, now = before.decoders[1].speedup, after.decoders[1].speedup
    assert was.value == pytest.approx(2.0, rel=0.02)
    assert now.value == pytest.approx(was.value, rel=0.01)
    assert now.low > 1.9
    assert now.high < 2.1
    assert after.decoders[0].latency_ms.p50.value == pytest.approx(200.0, rel=0.02)
    assert after.decoders[0].latency_ms.mean.value > 1800.0  # nothing is hidden
    number = result.plans["ar"][17].frame
    assert before.decoders[0].latency_ms.outliers == []
    assert after.decoders[0].latency_ms.outliers == [number]
    (sentence,) = (each for each in verdicts(after) if "times the median" in each)
    assert f"ar: frame {number}, up to 100,000 ms" in sentence
    assert not any("ar: frame" in each for each in verdicts(before))
    html = page(after)
    assert "the median over frames of reference / decoder" in html
    assert f"ar: 1 over 5 medians (frame {number})" in html


def test_a_machine_that_stalls_in_turn_still_pairs_frames(result: Replay) -> None:
    """Frames ten times slower than others, for both decoders: the ratio of each pair is 2."""
    slow = np.where(np.arange(60) % 7 == 0, 10.0, 1.0)
    both = with_latencies(result, ar=0.2 * slow, dflash=0.1 * slow)
    assert reported(both).decoders[1].speedup.value == pytest.approx(2.0)


def test_p99_needs_a_hundred_frames(report: Report, tmp_path: Path) -> None:
    assert report.decoders[0].latency_ms.p99 is None
    assert any(sentence.startswith("No p99") for sentence in verdicts(report))
    assert "too few frames for p99" in headlines(report)[1].note
    assert "p99" not in [column.title for column in speed_table(report).columns]  # empty
    many = reported(replayed(KinematicPlanner(), "100", ar=DecodeSettings(method="ar")))
    latency = many.decoders[0].latency_ms
    assert latency.p90 <= latency.p99 <= latency.longest
    assert not any(sentence.startswith("No p99") for sentence in verdicts(many))
    assert "p50, p90, p99" in page(many)
    assert "p50, p90, p99" not in page(report)


def test_flags_of_the_plans_are_told(result: Replay) -> None:
    parted = [
        replace(plan, flags=("two modes",)) if place % 3 == 0 else plan
        for place, plan in enumerate(result.plans["ar ×4"])
    ]
    report = reported(replace(result, plans={**result.plans, "ar ×4": parted}))
    told = [sentence for sentence in verdicts(report) if "two modes" in sentence]
    assert any("of 60 frames" in sentence and "two modes in 20" in sentence for sentence in told)
    assert "two modes (20)" in page(report)
    console = Console(width=200, file=io.StringIO())
    show_report(report, console)
    assert "two modes in 20" in console.file.getvalue()


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


def test_frames_stand_beside_the_windows_that_there_are(report: Report) -> None:
    cut = len(windows(DRIVE))
    assert report.drive.windows == cut
    assert f"60 of {cut} windows" in page(report)
    console = Console(width=200, file=io.StringIO())
    show_report(report, console)
    assert f"60 of {cut} windows of {DRIVE.name}" in console.file.getvalue()  # type: ignore[attr-defined]
    uncounted = report.drive.model_copy(update={"windows": None})
    assert "60 frames" in page(report.model_copy(update={"drive": uncounted}))


def test_intervals_that_are_not_there_have_no_resamples(report: Report) -> None:
    assert "resamples" in intervals(report)
    few = report.intervals.model_copy(update={"segments": 1})
    text = intervals(report.model_copy(update={"intervals": few}))
    assert text.startswith("None: 1 segment of ")
    assert "resamples," not in text


def test_one_output_is_not_all_of_them(result: Replay) -> None:
    one = replayed(KinematicPlanner(), "1", ar=SETTINGS["ar"], dflash=SETTINGS["dflash"])
    said = verdicts(reported(one))
    assert "The output equals that of ar, token for token." in said
    assert not any("All 1 " in sentence for sentence in said)


def test_the_baseline_to_beat_is_named(report: Report) -> None:
    last, near = report.best_kinematic(5), report.best_kinematic(3)
    assert f"{last.name.upper()} ({last.label})" in to_beat(report)
    assert near.label in to_beat(report)
    assert to_beat(report) in page(report)


def test_baselines_leave_cells_blank_that_ask_nothing_of_them(report: Report) -> None:
    table = accuracy_table(report)
    rows = [row for row, group in zip(table.rows, table.groups, strict=True) if group == KINEMATIC]
    assert len(rows) == len(report.kinematic)
    assert {cell.text for row in rows for cell in row[5:]} == {""}


def test_conventions_can_be_opened_without_a_pointer(report: Report) -> None:
    html = page(report)
    assert html.count('<details class="columns">') == html.count('<div class="scroll"><table>')
    assert "What the columns mean" in html
