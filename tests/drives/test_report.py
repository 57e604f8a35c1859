"""The report: its figures against numpy, its page, its schema, and how it is written."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drives.drive import Drive
from drives.open import open_drive
from drives.page import page
from drives.replay import Replay, replay
from drives.report import PAGE, build_report, check_output, write_report
from drives.results import REPORT, BundleInfo, Report, read_report
from drives.selection import Selection
from drives.summary import OutputLength, kind_of
from drives.table import accuracy_table, readings_table, speed_table
from drives.verdicts import headlines, verdicts
from drives.windows import windows
from runtime.errors import SlipstreamError
from runtime.settings import DecodeSettings, Sampling
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


def reported(result: Replay, drive: Drive = DRIVE) -> Report:
    return build_report(
        result,
        drive=drive,
        bundle=BUNDLE,
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
        assert decoder.latency_ms.p50 in latency
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
    own = sum(plan.latency for plan in result.plans["dflash"])
    other = sum(plan.latency for plan in result.plans["ar"])
    assert report.decoders[1].speedup.value == pytest.approx(other / own)
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


def test_unusable_rollouts_are_counted_by_kind(report: Report) -> None:
    assert report.decoders[3].unusable == {"folded": 11, "no number": 4} or (
        report.decoders[3].unusable["no number"] == 4 and report.decoders[3].unusable["folded"] > 0
    )
    assert kind_of("speed 71 m/s is above 60") == "speed"
    assert kind_of("acceleration -14 m/s² is beyond ±12") == "acceleration"
    assert kind_of("folds back by 130° within a second") == "folds back"
    assert kind_of("parse: number") == "parse: number"


def test_the_five_readings_are_ordered(report: Report) -> None:
    found = {n: f.value for n, f in report.decoders[3].rollout_ade_5s.items()}
    assert list(found) == ["greedy", "mean", "medoid", "mean_of_ade", "min_ade"]
    assert found["min_ade"] < found["mean_of_ade"]
    assert found["mean"] <= found["mean_of_ade"]  # the norm is convex
    assert found["greedy"] == report.decoders[0].accuracy.ade[5].value


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
    best, median, worst = report.scenes
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
    assert parser.tags.count("svg") == 5 + 3
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
    assert "Frames from above" not in write_report(report, tmp_path / "r").read_text()
    assert headlines(report)[-1].value == "0"


def test_one_frame_gets_figures_but_no_intervals(tmp_path: Path) -> None:
    report = reported(replayed(KinematicPlanner(), "1"))
    figure = report.decoders[0].accuracy.ade[5]
    assert figure.value is not None
    assert figure.low is None
    assert report.decoders[0].latency_ms.p99 == report.decoders[0].latency_ms.p50
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
    assert "ar ×4 has the lowest mean latency here" in sentences
