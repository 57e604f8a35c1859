"""A deadline on the shipped planner: fewer rollouts, and those are the first of the whole run."""

from __future__ import annotations

from pathlib import Path

import pytest

import slipstream
from drives.results import REPORT, read_report
from planners.planner import Planner
from runtime.settings import DecodeSettings, Sampling
from tests.slipstream.command import command

BUNDLE = slipstream.shipped_bundle()
pytestmark = pytest.mark.skipif(
    not (BUNDLE / "bundle.json").is_file(), reason=f"no shipped bundle at {BUNDLE}"
)
NEVER, ALWAYS = 1e-3, 1e7  # ms
ASKED = 4
METHODS = {
    "dflash:match": DecodeSettings("dflash", "match"),
    "scaffold-spec:match": DecodeSettings("scaffold-spec", "match"),
    "ar": DecodeSettings("ar"),
    "one block": DecodeSettings("dflash", "block", block=8),
}


@pytest.fixture(scope="module")
def planner() -> Planner:
    return slipstream.load(BUNDLE, threads=1)


@pytest.mark.parametrize("name", METHODS)
def test_the_rollouts_of_a_deadline_are_the_first_of_the_whole_run(
    planner: Planner, name: str
) -> None:
    window = slipstream.windows(slipstream.open_drive("synthetic"))[60]

    def planned(budget_ms: float | None) -> slipstream.Plan:
        settings = METHODS[name].__dict__ | {
            "rollouts": ASKED,
            "sampling": Sampling(0.5),
            "budget_ms": budget_ms,
        }
        return planner.plan(window.observation, DecodeSettings(**settings))

    whole = planned(None)
    assert len({tuple(row) for row in whole.tokens.tolist()}) > 1
    assert (whole.stats.budget, whole.stats.met) == (None, None)
    half = 1e3 * (whole.stats.first_token + whole.latency) / 2
    taken = []
    for budget in (NEVER, half, ALWAYS):
        plan = planned(budget)
        taken.append(plan.stats.rollouts)
        assert plan.tokens.tolist() == whole.tokens[: taken[-1]].tolist()
        assert len(plan.rollouts) == len(plan.valid) == len(plan.problems) == taken[-1]
        assert plan.trajectory is not None
        assert plan.stats.asked == ASKED
        assert plan.stats.budget == pytest.approx(budget / 1e3)
        assert plan.stats.met is (plan.latency <= budget / 1e3)
        assert ("late" in plan.flags) is not plan.stats.met
    assert (taken[0], taken[2]) == (1, ASKED)
    assert 1 <= taken[1] <= ASKED


def test_what_is_asked_must_fit_whatever_the_deadline(planner: Planner) -> None:
    window = slipstream.windows(slipstream.open_drive("synthetic"))[60]
    most = planner.bundle.manifest.limits.rollouts
    with pytest.raises(slipstream.SlipstreamError, match="more rollouts than the bundle"):
        planner.plan(window.observation, DecodeSettings(rollouts=most + 1, budget_ms=NEVER))


def test_costs_that_nobody_has_measured_yet_are_measured_for_a_deadline() -> None:
    planner = slipstream.load(BUNDLE, threads=1)
    planner.decoder.curve = None  # as of a bundle without a drafter
    window = slipstream.windows(slipstream.open_drive("synthetic"))[60]
    planner.plan(window.observation, DecodeSettings("ar-scaffold"))
    assert planner.decoder.curve is None
    plan = planner.plan(window.observation, DecodeSettings("ar-scaffold", budget_ms=ALWAYS))
    assert planner.decoder.curve is not None
    assert (plan.stats.rollouts, plan.stats.met) == (1, True)


def test_run_reports_the_deadline(tmp_path: Path) -> None:
    options = ("--drive", "synthetic", "--threads", "1", "--frames", "0:1", "-o", "out")
    decoders = ("--decoder", "ar-scaffold,dflash:match", "--rollouts", "4")
    deadline = ("--deadline-ms", str(NEVER))
    done = command("run", str(BUNDLE), *options, *decoders, *deadline, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "met the deadline of 0.001 ms on 0 of 1 frame, with 1.0 of 4 rollouts" in done.stdout
    report = read_report(tmp_path / "out" / REPORT)
    for decoder in report.decoders:
        assert decoder.settings.budget_ms == NEVER
        assert decoder.deadline is not None
        assert (decoder.deadline.frames_in_time, decoder.deadline.most) == (0, 1)
        assert decoder.flags["late"] == decoder.rollouts == 1
    identity = report.decoders[1].identity
    assert identity is not None
    assert (identity.identical, identity.rollouts) == (1, 1)
    assert "in time %" in (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
