"""The cost gate of a stepwise drafter: a pass for each draft, weighed against what it promises."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from runtime.costs import CostCurve, draft_pass, measure
from runtime.decode import Decoder
from runtime.draws import Draws
from runtime.graphs import Graphs
from runtime.script import Rollouts, Script
from runtime.settings import DRAFTING, FOLLOWING, RULES, DecodeSettings, Sampling
from runtime.step_drafter import StepDrafter
from runtime.step_gate import StepGate
from runtime.step_proposer import StepProposer
from runtime.telemetry import FrameStats
from runtime.trial import ARMS
from tests.runtime.stepwise import step_graphs
from tests.runtime.tabular import scaffold_of

PROMPT = [1, 3, 2, 0, 1]
PICTURE = "1?|" + "?" * 20


@pytest.fixture
def graphs(tmp_path: Path) -> Graphs:
    return step_graphs(tmp_path, block=8, trunk=128, branch=128)


def curve(target: float, step: float) -> CostCurve:
    """Passes that cost the same at every size, s."""
    axes = [np.asarray(axis, np.float64) for axis in ([1, 16], [1, 2, 16], [64, 128])]
    shape = tuple(len(axis) for axis in axes)
    return CostCurve(*axes, np.full(shape, target), np.full(shape, step))


def gate_of(step: float) -> StepGate:
    return StepGate(curve(10e-3, step), (8,), ARMS["dflash"], host=0.0)


def depth_of(graphs: Graphs, gate: StepGate, picture: str = PICTURE, start: int = 4) -> int:
    script = Script.of(np.asarray(PROMPT), scaffold_of(picture))
    rollouts = Rollouts(np.zeros(1, np.int64), script.tokens[None].copy(), np.asarray([start]))
    drafter = StepDrafter(graphs, Decoder(graphs, None).draft_cache)
    return gate.depth(drafter, rollouts, script, len(script), False, False, 1)


def test_the_depth_follows_the_cost_of_a_step(graphs: Graphs) -> None:
    depths = [depth_of(graphs, gate_of(step)) for step in (0.1e-3, 1e-3, 4e-3, 20e-3)]
    assert depths[0] == 7
    assert depths == sorted(depths, reverse=True)
    assert depths[-1] == 0


def test_the_depth_is_where_tokens_a_second_are_most(graphs: Graphs) -> None:
    """Brute force, at the prior's rate of standing."""
    step, rate = 2e-3, 0.85
    promised = [1 / 10e-3] + [
        sum(rate**i for i in range(depth + 1)) / (10e-3 + depth * step) for depth in range(1, 8)
    ]
    assert depth_of(graphs, gate_of(step), "?|" + "?" * 20) == int(np.argmax(promised))


def test_the_depth_falls_where_drafts_fall(graphs: Graphs) -> None:
    gate, script = gate_of(1e-3), Script.of(np.asarray(PROMPT), scaffold_of(PICTURE))
    before = depth_of(graphs, gate, start=8)
    evidence = gate._evidence(script, 8, False, False)
    for _ in range(60):
        evidence.add(np.zeros(0, np.int64), np.asarray([6]))  # the sixth token never stands
    assert depth_of(graphs, gate, start=8) < before
    assert depth_of(graphs, gate, start=8) <= 2


def test_fixed_tokens_make_a_pass_worth_more(graphs: Graphs) -> None:
    dense = "1?|" + "?" * 20
    sparse = "1?|" + "?111" * 5
    assert depth_of(graphs, gate_of(3e-3), sparse) > depth_of(graphs, gate_of(3e-3), dense)


@pytest.mark.parametrize(("step", "deepest"), [(1e-6, True), (50e-3, False)])
def test_a_growing_tree_stops_where_a_step_does_not_pay(
    graphs: Graphs, step: float, deepest: bool
) -> None:
    settings = DecodeSettings("ddtree", "match", sampling=Sampling(1.0))
    script = Script.of(np.asarray(PROMPT), scaffold_of(PICTURE))
    rollouts = Rollouts(np.zeros(1, np.int64), script.tokens[None].copy(), np.asarray([4]))
    decoder, stats = Decoder(graphs, None), FrameStats()
    drafter = StepDrafter(graphs, decoder.draft_cache)
    hidden, taps = graphs.target(
        graphs.embed(np.asarray([PROMPT[:4]])),
        np.arange(4)[None],
        np.triu(np.full((4, 4), -30000.0, np.float32), 1),
        decoder.cache,
    )
    assert hidden.shape[1] == 4
    drafter.observe(taps, np.arange(4)[None], np.ones((1, 4), np.bool_))
    gate = StepGate(curve(10e-3, step), (8,), ARMS["ddtree"], host=0.0)
    proposer = StepProposer(settings, script, drafter, gate, Draws(0, 0), stats, 16)
    block = proposer.propose(rollouts, len(script), Sampling(1.0))
    assert (stats.draft_passes > 4) == deepest
    assert (int(block.depth.max()) > 2) == deepest


@pytest.mark.parametrize("method", DRAFTING)
def test_whatever_the_gate_decides_the_output_stays(graphs: Graphs, method: str) -> None:
    scaffold = scaffold_of("10?2?|34?1??2")
    for step in (1e-6, 3e-3, 1.0):
        decoder = Decoder(graphs, curve(10e-3, step))
        for rollouts in (1, 3):
            for sampling in (Sampling(), Sampling(1.0)):
                rules = [r for r in RULES[method] if r in FOLLOWING] if sampling.temperature else []
                plain = DecodeSettings("ar", rollouts=rollouts, sampling=sampling)
                for rule in rules or [RULES[method][0]]:
                    if sampling.temperature and not rules:
                        continue
                    for frame in range(6):
                        expected = decoder.decode(
                            np.asarray(PROMPT), scaffold, replace(plain, frame=frame), "tail"
                        )
                        settings = replace(plain, method=method, accept=rule, frame=frame)
                        found = decoder.decode(np.asarray(PROMPT), scaffold, settings, "tail")
                        assert np.array_equal(found.tokens, expected.tokens)


@pytest.mark.parametrize(("method", "accept"), [(m, r) for m in DRAFTING for r in RULES[m]])
def test_every_rule_runs_under_the_gate(graphs: Graphs, method: str, accept: str) -> None:
    decoder = Decoder(graphs, curve(10e-3, 0.5e-3))
    settings = DecodeSettings(method, accept, rollouts=4, sampling=Sampling(1.0))
    for frame in range(4):
        decoded = decoder.decode(
            np.asarray(PROMPT), scaffold_of(PICTURE), replace(settings, frame=frame), "tail"
        )
        assert (decoded.tokens >= 0).all()
        assert decoded.stats.proposed > 0


def test_a_step_is_measured(graphs: Graphs) -> None:
    draft_pass(graphs, 3, 4, 16)()
    measured = measure(graphs)
    assert np.isfinite(measured.draft).all()
    assert (measured.draft > 0).all()
    assert measured.rows[-1] == 16
