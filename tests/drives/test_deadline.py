"""A deadline in the report: frames in time, rollouts taken, and outputs compared with fewer."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from drives.bootstrap import BlockBootstrap
from drives.deadline import deadline_of
from drives.open import open_drive
from drives.page import page
from drives.replay import Replay, replay
from drives.report import build_report, write_report
from drives.results import REPORT, BundleInfo, Report, read_report
from drives.selection import Selection
from drives.summary import OutputLength
from drives.table import group_of, speed_table
from drives.verdicts import verdicts
from drives.windows import windows
from planners.observation import Observation
from planners.plan import Aggregate, Plan
from runtime.settings import DecodeSettings, Sampling
from slipstream.commands.terminal import show_report
from slipstream.fleet.job import Finished, Item, Job
from slipstream.fleet.pooled import pooled
from slipstream.fleet.tables import pooled_table
from tests.drives.kinematic_planner import KinematicPlanner

BUNDLE = BundleInfo(name="kinematic", key="0" * 16, target="none", drafter=None, precision={})
HOT = Sampling(0.5)
FRAMES = 12
SETTINGS = {
    "ar ×8": DecodeSettings("ar", rollouts=8, sampling=HOT),
    "dflash:coupled ×8": DecodeSettings(
        accept="coupled", rollouts=8, sampling=HOT, budget_ms=100.0
    ),
}


class Hurried(KinematicPlanner):
    """Of frame f it has 1 + f % 4 of its rollouts after 60, 80, 100 or 120 ms, under a budget."""

    def plan(self, observation: Observation, settings: DecodeSettings, rule: Aggregate) -> Plan:
        plan = super().plan(observation, settings, rule)
        if settings.budget_ms is None:
            return plan
        n, seconds = 1 + observation.frame % 4, 0.06 + 0.02 * (observation.frame % 4)
        fewer = {each: getattr(plan, each)[:n] for each in ("rollouts", "valid", "tokens")}
        return replace(plan, problems=plan.problems[:n], latency=seconds, **fewer)


@pytest.fixture(scope="module")
def result() -> Replay:
    cut = windows(open_drive("synthetic"))
    chosen = Selection.parse(f"0:{FRAMES}").of(cut.windows, "synthetic")
    return replay(Hurried(fail_every=3), chosen, SETTINGS)


@pytest.fixture(scope="module")
def report(result: Replay) -> Report:
    return reported(result)


def reported(result: Replay) -> Report:
    return build_report(
        result,
        drive=open_drive("synthetic"),
        bundle=BUNDLE,
        output=OutputLength(20, 4),
        text=KinematicPlanner().text,
        wall_s=1.0,
    )


def test_frames_in_time_and_rollouts_taken_are_counted(result: Replay, report: Report) -> None:
    first, hurried = report.decoders
    assert first.deadline is None
    frames = np.array([plan.frame for plan in result.plans["ar ×8"]])
    deadline = hurried.deadline
    assert deadline is not None
    assert deadline.budget_ms == hurried.settings.budget_ms == 100.0
    in_time = frames % 4 < 3  # the third takes all of it
    assert deadline.frames_in_time == in_time.sum() == 9
    assert deadline.in_time.value == pytest.approx(in_time.mean())
    assert deadline.rollouts.value == pytest.approx((1 + frames % 4).mean())
    assert (deadline.fewest, deadline.most) == (1, 4)
    assert hurried.rollouts == (1 + frames % 4).sum()
    decode_s = sum(plan.stats.total for plan in result.plans[hurried.name])
    tokens = sum(4 + 16 * (1 + frame % 4) for frame in frames.tolist())
    assert hurried.tokens_per_s == pytest.approx(tokens / decode_s)
    assert {row.name: row.k for row in report.leaderboards.best_of}[hurried.name] == 4


def test_outputs_are_compared_with_the_first_ones_of_the_reference(
    result: Replay, report: Report
) -> None:
    identity = report.decoders[1].identity
    assert identity is not None
    assert identity.reference == "ar ×8"
    own = {plan.frame: plan.tokens for plan in result.plans["dflash:coupled ×8"]}
    same = sum(
        int((own[plan.frame] == plan.tokens[: len(own[plan.frame])]).all(axis=1).sum())
        for plan in result.plans["ar ×8"]
    )
    assert identity.rollouts == sum(map(len, own.values())) == 30
    assert identity.identical == same == 30
    assert any("All 30 outputs equal those of ar ×8" in each for each in verdicts(report))
    plans = dict(result.plans)
    other = plans["dflash:coupled ×8"][3]
    plans["dflash:coupled ×8"] = [
        replace(each, tokens=each.tokens + 1) if each is other else each
        for each in plans["dflash:coupled ×8"]
    ]
    changed = reported(replace(result, plans=plans)).decoders[1].identity
    assert changed is not None
    assert changed.rollouts - changed.identical == len(other.tokens)


def test_the_table_the_page_and_the_terminal_say_so(report: Report) -> None:
    table = speed_table(report)
    titles = [column.title for column in table.columns]
    row = dict(zip(titles, table.rows[1], strict=True))
    assert row["in time %"].text == "75.0"
    assert row["rollouts taken"].text == "2.5"
    assert table.rows[0][titles.index("in time %")].text == "–"
    assert group_of(report.decoders[0]) == "8 rollouts, temperature 0.5"
    assert group_of(report.decoders[1]) == "up to 8 rollouts, temperature 0.5, deadline 100 ms"
    told = (
        "dflash:coupled ×8 met the deadline of 100 ms on 9 of 12 frames, with 2.5 of 8 rollouts a "
        "frame (1 to 4)."
    )
    assert told in verdicts(report)
    html, terminal = page(report), io.StringIO()
    show_report(report, Console(file=terminal, width=200))
    for text in (html, terminal.getvalue()):
        assert told in text
    assert "in time %" in html


def test_without_a_deadline_nothing_is_said_of_one(result: Replay) -> None:
    plain = {name: replace(each, budget_ms=None) for name, each in SETTINGS.items()}
    report = reported(replay(Hurried(), result.windows[:3], plain))
    assert all(each.deadline is None for each in report.decoders)
    assert "in time %" not in [column.title for column in speed_table(report).columns]
    assert not any("deadline" in sentence for sentence in verdicts(report))


def test_the_file_holds_it_and_files_without_it_are_read(report: Report, tmp_path: Path) -> None:
    out = tmp_path / "out"
    write_report(report, out)
    assert read_report(out / REPORT) == report
    raw = json.loads((out / REPORT).read_text())
    for decoder in raw["decoders"]:
        del decoder["deadline"], decoder["settings"]["budget_ms"]
    (out / REPORT).write_text(json.dumps(raw))
    assert all(each.deadline is None for each in read_report(out / REPORT).decoders)


def test_many_drives_are_pooled_from_their_rows(report: Report) -> None:
    done = [Finished.of(Item(f"d/{i}", f"f{i}", f"d/{i}"), report) for i in range(2)]
    job = Job(Path("b"), "0" * 16, "source", SETTINGS, "mean", "12", "cpu", 1, "slipstream run")
    summary = pooled(done, job)
    both = summary.decoders[1].deadline
    assert both is not None
    assert both.frames_in_time == 18
    assert both.rollouts.value == pytest.approx(2.5)
    assert (both.fewest, both.most) == (1, 4)
    table = pooled_table(summary)
    at = [column.title for column in table.columns].index("in time %")
    assert table.rows[1][at].text == "75.0"
    assert all(len(row) == len(table.columns) for row in table.rows)


def test_a_frame_that_takes_all_of_its_budget_is_in_time(result: Replay) -> None:
    latency, counts = np.array([10.0, 10.1]), np.array([2.0, 1.0])
    found = deadline_of(10.0, latency, counts, BlockBootstrap(np.array([0.0, 1.0])))
    assert (found.frames_in_time, found.in_time.value) == (1, 0.5)
