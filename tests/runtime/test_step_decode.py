"""A stepwise drafter in the decode loop: the target's outputs, and drafts by the drafter's law."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runtime.cache import TwoPartCache
from runtime.decode import Decoder
from runtime.graphs import Graphs
from runtime.proof.cache import CacheWatcher
from runtime.proof.cases import Case
from runtime.propose import Block
from runtime.sampling import distribution, restrict
from runtime.script import Rollouts, Script
from runtime.settings import DRAFTING, FOLLOWING, RULES, DecodeSettings, Sampling
from runtime.step_drafter import Walk
from runtime.step_proposer import StepProposer
from tests.runtime.stepwise import draft_logits, step_graphs
from tests.runtime.tabular import probabilities, scaffold_of
from tests.runtime.test_decode import PICTURES, PROMPT, chi_square, enumerated, likeliest, outputs

DRAFTED = [(method, rule) for method in DRAFTING for rule in RULES[method]]
KINDS = {"runs": (True, None), "token by token": (False, None), "few tokens": (True, [0, 2, 3])}


@pytest.fixture(params=KINDS)
def graphs(request: pytest.FixtureRequest, tmp_path: Path) -> Graphs:
    runs, known = KINDS[request.param]
    return step_graphs(tmp_path, runs=runs, known=known)


@pytest.mark.parametrize("picture", PICTURES)
@pytest.mark.parametrize("method", DRAFTING)
@pytest.mark.parametrize("block", [2, 4])
def test_greedy_is_the_argmax_of_every_conditional(graphs, picture, method, block) -> None:
    expected = likeliest(graphs, picture)
    for rollouts in (1, 3):
        settings = DecodeSettings(method=method, block=block, nodes=6, rollouts=rollouts)
        assert outputs(graphs, picture, settings) == [expected] * rollouts


@pytest.mark.parametrize("picture", PICTURES)
def test_rules_that_follow_the_target_draw_what_it_draws(graphs, picture) -> None:
    settings = DecodeSettings("ar", block=4, nodes=7, rollouts=4, sampling=Sampling(1.0), seed=5)
    plain = outputs(graphs, picture, settings, frames=10)
    assert len(set(plain)) > 3
    for method, rules in RULES.items():
        for rule in set(rules) & set(FOLLOWING):
            again = replace(settings, method=method, accept=rule)
            assert outputs(graphs, picture, again, frames=10) == plain


def test_a_rollout_does_not_depend_on_its_batch(graphs) -> None:
    picture = "10?2?|34?1??2"
    for method, accept in DRAFTED:
        settings = DecodeSettings(
            method=method, accept=accept, block=4, nodes=7, sampling=Sampling(1.0), rollouts=7
        )
        many = outputs(graphs, picture, settings)
        for n in (2, 5):
            assert outputs(graphs, picture, replace(settings, rollouts=n)) == many[:n]


@pytest.mark.parametrize(("method", "accept"), DRAFTED)
@pytest.mark.parametrize(
    ("picture", "rollouts", "known"),
    [("1|?*?", 1, None), ("12|*0?*", 1, [0, 1]), ("1|*?", 2, None)],
)
def test_all_random_numbers_integrated_out(
    tmp_path, monkeypatch, method, accept, picture, rollouts, known
) -> None:
    """From the counters of the random numbers to the output: exact but for float32 logits."""
    graphs, prompt = step_graphs(tmp_path, vocab=3, known=known), [1, 2, 0, 1]
    settings = DecodeSettings(
        method=method,
        accept=accept,
        block=3,
        nodes=3,
        paths=2,
        rollouts=rollouts,
        sampling=Sampling(1.0),
    )
    found = enumerated(graphs, monkeypatch, prompt, picture, settings)
    single = probabilities(graphs, prompt, scaffold_of(picture, vocab=3))
    exact = {
        sum(batch, ()): float(np.prod([single[output] for output in batch]))
        for batch in product(single, repeat=rollouts)
    }
    assert set(found) == set(exact)
    assert max(abs(found[outputs] - p) for outputs, p in exact.items()) < 1e-7


@pytest.mark.parametrize(("method", "accept"), DRAFTED)
def test_sampled_outputs_have_the_exact_distribution(tmp_path, method, accept) -> None:
    """A whole batch that shares its passes, by its statistics."""
    graphs, picture = step_graphs(tmp_path, vocab=4, known=[0, 1, 3]), "*|?2*?"
    settings = DecodeSettings(
        method=method,
        accept=accept,
        block=4,
        nodes=6,
        paths=3,
        rollouts=16,
        sampling=Sampling(1.0),
        prefix_sampling=Sampling(1.0),
    )
    decoder, scaffold = Decoder(graphs, None), scaffold_of(picture, vocab=4)
    found: list[tuple[int, ...]] = []
    for frame in range(60):
        decoded = decoder.decode(np.asarray(PROMPT), scaffold, replace(settings, frame=frame), None)
        found += [tuple(row) for row in decoded.tokens.tolist()]
    # forked at the very start, so that all rollouts of a frame are independent
    assert chi_square(found, probabilities(graphs, PROMPT, scaffold)) < 4


def proposals(
    monkeypatch: pytest.MonkeyPatch,
) -> list[tuple[Rollouts, Block]]:
    """Every proposal of what is decoded from now on, with the rollouts as they stood."""
    seen: list[tuple[Rollouts, Block]] = []
    whole = StepProposer.propose

    def watched(self, rollouts, until, sampling):
        block = whole(self, rollouts, until, sampling)
        stood = Rollouts(rollouts.ids.copy(), rollouts.tokens.copy(), rollouts.start.copy())
        seen.append((stood, block))
        return block

    monkeypatch.setattr(StepProposer, "propose", watched)
    return seen


def path_to(rollouts: Rollouts, block: Block, n: int, row: int) -> list[int]:
    """Every token in front of a row: committed ones, and those of its ancestors."""
    line: list[int] = []
    above = block.above
    row = int(above[n, row])
    while row > 0:
        line.insert(0, int(block.tokens[n, row]))
        row = int(above[n, row])
    return [*rollouts.tokens[n, : rollouts.start[n] + 1].tolist(), *line]


@pytest.mark.parametrize(("method", "accept"), [d for d in DRAFTED if d[1] not in FOLLOWING])
@pytest.mark.parametrize("picture", ["10?2?|34?1??2", "?|*1****1*"])
def test_drafts_are_drawn_from_the_law_that_no_cache_gives(
    graphs, monkeypatch, method, accept, picture
) -> None:
    """Features, positions, who sees whom, and the cache: against the drafter run row by row."""
    assert graphs.manifest.draft is not None
    runs = graphs.manifest.draft.scaffold_in_block
    seen = proposals(monkeypatch)
    settings = DecodeSettings(
        method, accept, block=4, nodes=7, rollouts=3, sampling=Sampling(1.0), seed=2
    )
    scaffold = scaffold_of(picture)
    outputs(graphs, picture, settings, frames=3)
    script = Script.of(np.asarray(PROMPT), scaffold)
    compared = deep = 0
    for rollouts, block in seen:
        if block.q is None:
            continue
        for n, row in zip(*np.nonzero(block.drafted), strict=True):
            sequence = path_to(rollouts, block, n, row)
            start, place = int(rollouts.start[n]), int(block.positions[n, row])
            assert len(sequence) == place
            logits = draft_logits(graphs, script, sequence, start, runs)
            law = distribution(
                restrict(logits[None], script.bias_at(np.asarray([place]))), Sampling(1.0)
            )
            np.testing.assert_allclose(block.q[n, row], law[0], atol=1e-5)
            compared, deep = compared + 1, deep + (place - start > 2)
    assert compared > 30
    assert deep > 5


@pytest.mark.parametrize("rollouts", [1, 3])
def test_a_dynamic_tree_has_the_likeliest_paths(graphs, monkeypatch, rollouts) -> None:
    """With a front as wide as the budget no path is missed: brute force over all of them."""
    seen = proposals(monkeypatch)
    picture, nodes = "?|??2?*", 6
    settings = DecodeSettings(
        "ddtree", "match", block=4, nodes=nodes, rollouts=rollouts, sampling=Sampling(1.0)
    )
    outputs(graphs, picture, settings, frames=2)
    assert graphs.manifest.draft is not None
    runs = graphs.manifest.draft.scaffold_in_block
    scaffold = scaffold_of(picture)
    script = Script.of(np.asarray(PROMPT), scaffold)
    compared = 0
    for rollout_rows, block in seen:
        if block.parents is None:
            continue
        for n in range(len(rollout_rows)):
            start = int(rollout_rows.start[n])
            known = rollout_rows.tokens[n, : start + 1].tolist()
            found = sorted(
                (*path_to(rollout_rows, block, n, row), int(block.tokens[n, row]))
                for row in np.flatnonzero(block.real[n])[1:]
            )
            stop = int(block.positions[n].max()) + 1
            every = _paths(graphs, script, known, start, runs, len(script) - 1)
            best = sorted(every, key=lambda path: -every[path])[: len(found)]
            weakest = min(every[path] for path in best)
            assert all(every[path] >= weakest - 1e-6 for path in found), (found, best, stop)
            compared += 1
    assert compared >= 4


def _paths(
    graphs: Graphs, script: Script, known: list[int], start: int, runs: bool, until: int
) -> dict[tuple[int, ...], float]:
    """Log probability of every path of up to three passes behind the anchor."""
    found: dict[tuple[int, ...], float] = {}

    def go(sequence: list[int], log: float, passes: int) -> None:
        place = len(sequence)
        if place >= until:
            return
        if runs and script.fixed[place]:
            sequence = [*sequence, int(script.tokens[place])]
            found[tuple(sequence)] = log
            go(sequence, log, passes)
            return
        if passes == 3:
            return
        logits = draft_logits(graphs, script, sequence, start, runs)
        law = distribution(
            restrict(logits[None], script.bias_at(np.asarray([place]))), Sampling(1.0)
        )[0]
        for token in np.flatnonzero(law):
            longer = [*sequence, int(token)]
            found[tuple(longer)] = log + float(np.log(law[token]))
            go(longer, found[tuple(longer)], passes + 1)

    go(known, 0.0, 0)
    return found


@pytest.mark.parametrize("method", DRAFTING)
@pytest.mark.parametrize("rollouts", [1, 4])
def test_the_cache_holds_verified_rows_alone(graphs, method, rollouts) -> None:
    picture = "10?2?|34?1??2"
    case = Case(0, np.asarray(PROMPT), scaffold_of(picture), "tail")
    settings = DecodeSettings(
        method, block=4, nodes=7, rollouts=rollouts, sampling=Sampling(1.0), seed=3
    )
    decoded = Decoder(graphs, None).decode(case.prompt, case.scaffold, settings, "tail").tokens
    watcher = CacheWatcher(graphs, case, decoded)

    def watch(rows: Rollouts, target: TwoPartCache, draft: TwoPartCache | None) -> None:
        watcher(rows, target, draft)
        assert draft is not None
        draft.check_integrity()

    again = Decoder(graphs, None, watch).decode(case.prompt, case.scaffold, settings, "tail").tokens
    assert np.array_equal(again, decoded)
    assert watcher.fault == ""
    assert watcher.rounds > 2
    assert watcher.worst < 1e-5


def test_known_tokens_cost_no_pass(tmp_path) -> None:
    """A chain of three drafts is three passes, however many fixed tokens lie between."""
    picture, scaffold = "10?22?111?0000", scaffold_of("10?22?111?0000")
    for runs, passes in ((True, 3), (False, 3)):
        decoder = Decoder(step_graphs(tmp_path, runs=runs), None)
        settings = DecodeSettings("dflash", block=4)
        stats = decoder.decode(np.asarray(PROMPT), scaffold, settings, None).stats
        rounds = stats.rounds
        assert stats.draft_passes <= passes * rounds, picture
        if runs:
            assert stats.by_position[0].sum() == stats.proposed


@pytest.mark.parametrize("method", ["dflash", "ddtree", "spectr"])
def test_a_round_puts_no_more_aside_than_it_made_room_for(graphs, monkeypatch, method) -> None:
    """Also where some rollouts are at their end and others draft on."""
    asked = []

    class Watched(Walk):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            self.room = args[-2]

        def close(self) -> None:
            asked.append((len(self._columns), self.room))
            super().close()

    monkeypatch.setattr("runtime.step_proposer.Walk", Watched)
    settings = DecodeSettings(method, block=4, nodes=6, rollouts=4, sampling=Sampling(1.0))
    for picture in ("1?|?0??00?0??0000", "1?|" + "?" * 14):
        outputs(graphs, picture, settings, 10)
    assert all(aside <= room for aside, room in asked)
    assert any(aside > 0 for aside, _ in asked)


def test_a_branch_without_room_for_a_tree_drafts_less(tmp_path) -> None:
    picture = "1?|" + "?" * 14
    settings = DecodeSettings("ddtree", "match", nodes=6, rollouts=4, sampling=Sampling(1.0))
    plain = replace(settings, method="ar", accept=None, nodes=None)
    graphs = step_graphs(tmp_path, branch=24)
    assert outputs(graphs, picture, settings, 5) == outputs(graphs, picture, plain, 5)
