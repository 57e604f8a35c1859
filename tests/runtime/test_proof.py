"""The proof on a model small enough to run all of it: it passes, and it can fail."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from runtime.accept import CHAIN_RULES, TREE_RULES
from runtime.cache import TwoPartCache
from runtime.decode import Decoder
from runtime.draws import Draws
from runtime.graphs import Graphs
from runtime.proof.cache import cache_check
from runtime.proof.cases import Case, outputs
from runtime.proof.controls import accepts_leniently, recorded, residual_dropped
from runtime.proof.fresh import RememberedPrefill, second_laws, value_laws
from runtime.proof.identity import edge_distance, explain, identity_check, race_gap
from runtime.proof.results import Check, Control, Proof
from runtime.proof.suite import ALPHA, Options, Suite
from runtime.sampling import distribution
from runtime.settings import DRAFTING, RULES, DecodeSettings, Sampling
from tests.runtime.tabular import probabilities, scaffold_of, tabular_graphs

HOT = Sampling(1.0)


def case_of(frame: int, picture: str = "10?2?|3??1??*2?", vocab: int = 6) -> Case:
    prompt = np.random.default_rng(frame).integers(0, vocab, 5)
    return Case(frame, prompt, scaffold_of(picture, vocab=vocab), "tail")


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Graphs:
    return tabular_graphs(tmp_path_factory.mktemp("tabular"), vocab=6)


@pytest.fixture(scope="module")
def proof(graphs: Graphs) -> Proof:
    """Everything that `slipstream verify` does, on four prompts."""
    suite = Suite(graphs, None, [case_of(frame) for frame in range(4)], Options(samples=1200))
    checks: list[Check] = []
    controls: list[Control] = []
    steps = 0
    for found in suite.run():
        steps += 1
        if isinstance(found, Control):
            controls.append(found)
        else:
            checks += found
    assert steps == len(suite.efforts)
    return Proof(
        created="now",
        command="",
        versions={},
        bundle="tabular",
        bundle_key="0",
        drive="none",
        engine_threads=None,
        seed=0,
        frames=4,
        temperature=1.0,
        samples=1200,
        alpha=ALPHA,
        threshold=suite.threshold,
        probes=[probe.point for probe in suite.probes],
        checks=checks,
        controls=controls,
        seconds=0.0,
    )


def test_every_method_and_rule_passes(proof: Proof) -> None:
    assert [check for check in proof.checks if not check.passed] == []
    decoders = {check.decoder for check in proof.checks}
    methods = Options().methods
    assert decoders == {*methods, *(f"{m}:{rule}" for m in methods for rule in RULES[m])}
    for check in proof.checks:
        if check.name in ("greedy", "seed by seed"):
            assert check.identical == check.samples > 0
        elif check.name == "cache":
            assert check.samples >= 3
        else:
            assert check.samples >= 1200
            assert check.p_value is not None
            assert check.p_value >= proof.threshold
    assert {check.name for check in proof.checks if check.decoder == "spectr:rrs"} >= {
        "first token",
        "two tokens",
        "drafter's pull",
        "total variation",
    }


def test_every_planted_fault_is_caught(proof: Proof) -> None:
    assert [control for control in proof.controls if not control.caught] == []
    assert len(proof.controls) == 12
    assert proof.passed
    for control in proof.controls:
        assert control.by
        assert control.p_value is None or control.p_value < proof.threshold


def test_a_missed_fault_fails_the_proof(proof: Proof) -> None:
    missed = proof.controls[0].model_copy(update={"caught": False, "by": ""})
    assert not proof.model_copy(update={"controls": [missed]}).passed
    failed = proof.checks[0].model_copy(update={"passed": False})
    assert not proof.model_copy(update={"checks": [failed]}).passed


def test_the_file_reads_back_as_it_was(proof: Proof) -> None:
    assert Proof.model_validate_json(proof.model_dump_json()) == proof


def test_too_few_draws_have_no_power_and_say_so(graphs: Graphs) -> None:
    options = Options(methods=("dflash",), samples=64)
    suite = Suite(graphs, None, [case_of(0)], options)
    lenient = [c for c in suite.controls() if c.name == "accepts at 0.9"]
    assert [control.caught for control in lenient] == [False]
    assert lenient[0].by == ""


@pytest.mark.parametrize("fault", [residual_dropped, accepts_leniently])
@pytest.mark.parametrize("rule", ["token", "k-seq"])
def test_the_rules_are_whole_after_a_planted_fault(fault, rule) -> None:
    def planted_and_broken_off() -> None:
        with fault(rule):
            assert tables() != before
            raise RuntimeError

    def tables():
        return {**CHAIN_RULES, **TREE_RULES}

    before = tables()
    with pytest.raises(RuntimeError):
        planted_and_broken_off()
    assert tables() == before


class SwappedRows(Graphs):
    """Two rows of the trunk change places during every pass over a filled cache."""

    def __init__(self, graphs: Graphs) -> None:
        self.__dict__.update(graphs.__dict__)

    def target(self, embeddings, positions, rows_bias, cache, deepstack=None):
        out = super().target(embeddings, positions, rows_bias, cache, deepstack)
        if cache.trunk.used:
            for layer in cache.trunk.layers:
                layer[[0, 1]] = layer[[1, 0]]
        return out


@pytest.mark.parametrize("method", DRAFTING)
@pytest.mark.parametrize("rollouts", [1, 4])
def test_swapped_cache_rows_are_caught(graphs, method, rollouts) -> None:
    settings = DecodeSettings(method, block=4, nodes=6, rollouts=rollouts, sampling=HOT)
    assert cache_check(graphs, case_of(1), settings, "").passed
    swapped = cache_check(SwappedRows(graphs), case_of(1), settings, "")
    assert not swapped.passed
    assert swapped.figure is not None
    assert swapped.figure > 0.1


def test_a_row_that_should_be_masked_is_caught(graphs, monkeypatch) -> None:
    whole = TwoPartCache.commit
    monkeypatch.setattr(
        TwoPartCache, "commit", lambda cache, holds: whole(cache, np.ones_like(holds))
    )
    settings = DecodeSettings("dflash", block=4, sampling=HOT)
    found = cache_check(graphs, case_of(1), settings, "")
    assert not found.passed
    assert found.note


def test_other_seeds_are_other_outputs_and_no_near_ties(graphs) -> None:
    cases = [case_of(frame) for frame in range(3)]
    settings = DecodeSettings("dflash", "coupled", block=4, rollouts=4, sampling=HOT)
    decoder = Decoder(graphs, None)
    plain = DecodeSettings("ar", rollouts=4, sampling=HOT)
    good = identity_check(decoder, cases, outputs(decoder, cases, plain), settings, "")
    assert good.passed
    assert good.identical == good.samples == 12
    other = outputs(decoder, cases, replace(plain, seed=1))
    bad = identity_check(decoder, cases, other, settings, "")
    assert not bad.passed
    assert bad.differences


def test_a_difference_is_explained_by_where_it_is(graphs) -> None:
    case = case_of(0)
    output = outputs(Decoder(graphs, None), [case], DecodeSettings("ar"))[0][0]
    fork = case.fork
    law = value_laws(graphs, case.prompt, case.scaffold, output, np.asarray([fork]), HOT)[0]
    theirs, ours = output.copy(), output.copy()
    theirs[fork], ours[fork] = 2, 3
    edge = law.cumsum()[2]
    assert edge_distance(law, (2, 3), edge + 5e-5) == pytest.approx(5e-5, rel=1e-6)
    # with a token between the two, no rounding can swap them
    assert edge_distance(law, (4, 2), edge) == pytest.approx(law[3])
    settings = DecodeSettings("dflash", "coupled", rollouts=2, sampling=HOT)
    race = Draws(settings.seed, case.frame).at_position(
        np.asarray(0), np.asarray(len(case.prompt) + fork)
    )
    found = explain(graphs, case, settings, 0, fork, ours, theirs)
    assert found.margin == pytest.approx(race_gap(law, (2, 3), race, HOT))
    assert not found.near_tie
    # before the fork the choice is greedy, and the margin a gap of logits
    first = int(np.argmax(case.scaffold.is_value))
    ours[first] = (ours[first] + 1) % 6
    greedy = explain(graphs, case, settings, 0, first, ours, theirs)
    assert greedy.margin > 0
    assert not greedy.near_tie


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.5])
def test_a_race_is_as_close_as_what_must_be_added_to_a_logit(temperature) -> None:
    sampling, race = Sampling(temperature), Draws(3, 1).at_position(np.asarray(2), np.asarray(9))
    logits = np.random.default_rng(0).normal(size=7)
    law = distribution(logits, sampling)
    winner = int(race.draw(law))
    for other in set(range(7)) - {winner}:
        gap = race_gap(law, (winner, other), race, sampling)
        for more, wins in ((gap * 0.999, False), (gap * 1.001, True)):
            moved = np.full(7, -np.inf)
            moved[[winner, other]] = logits[[winner, other]]
            moved[other] += more
            assert (race.draw(distribution(moved, sampling)) == other) == wins
    # a token that the law does not have is out of reach of any rounding
    law[(winner + 1) % 7] = 0.0
    far = race_gap(law, (winner, (winner + 1) % 7), race, sampling)
    assert 100 * temperature < far < np.inf


def test_fresh_laws_are_the_definitions(tmp_path: Path) -> None:
    graphs = tabular_graphs(tmp_path, vocab=4)
    case = case_of(0, "|?1?", vocab=4)
    exact = probabilities(graphs, case.prompt.tolist(), case.scaffold)
    first = value_laws(
        graphs, case.prompt, case.scaffold, np.zeros(3, np.int64), np.asarray([0]), HOT
    )[0]
    second = second_laws(graphs, case.prompt, case.scaffold, np.arange(4), 0, 2, HOT)
    for (a, _, b), p in exact.items():
        assert first[a] * second[a, b] == pytest.approx(p, rel=1e-5)


def test_pinning_keeps_what_is_drawn(graphs) -> None:
    """The same numbers at the same positions: a pinned decode draws what the whole one drew."""
    case = case_of(2)
    settings = DecodeSettings("ar", rollouts=8, sampling=HOT)
    whole = outputs(Decoder(graphs, None), [case], settings)[0]
    pinned = case.pinned(whole[0], case.fork, 3)
    for decoder in (Decoder(graphs, None), Decoder(RememberedPrefill(graphs), None)):
        for method in ("ar", "dflash"):
            again = replace(settings, method=method, accept="coupled")
            for _ in range(2):
                drawn = outputs(decoder, [pinned], again)[0][:, pinned.fork :]
                length = drawn.shape[1]
                assert np.array_equal(drawn, whole[:, case.fork : case.fork + length])


def test_the_recorder_sees_the_drafters_first_word(graphs) -> None:
    case = case_of(2)
    output = outputs(Decoder(graphs, None), [case], DecodeSettings("ar"))[0][0]
    calls: list[tuple[np.ndarray, np.ndarray]] = []
    settings = DecodeSettings("dflash", "token", block=4, rollouts=2, sampling=HOT)
    with recorded("token", calls):
        outputs(Decoder(graphs, None), [case.pinned(output, case.fork, 3)], settings)
    law = value_laws(graphs, case.prompt, case.scaffold, output, np.asarray([case.fork]), HOT)[0]
    assert np.allclose(calls[0][1][0, 0], law, atol=1e-6)
    assert calls[0][0][0, 0].max() < 1
