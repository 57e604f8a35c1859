"""The report's speed-ups and equality of outputs, and what its verdicts say of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from drives.page import page
from drives.replay import Replay
from drives.results import Report
from drives.table import speed_table
from drives.verdicts import headlines, intervals, to_beat, verdicts
from runtime.settings import DecodeSettings
from tests.drives.kinematic_planner import KinematicPlanner
from tests.drives.kinematic_report import HOT, SETTINGS, replayed, reported


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
