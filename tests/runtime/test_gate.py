"""The cost gate and the cost curve it decides by."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from runtime.accept import Accepted
from runtime.ahead import Offer
from runtime.costs import CostCurve, load_or_measure
from runtime.gate import (
    MEMORY,
    NO_DRAFT,
    PRIOR_RATE,
    Evidence,
    Gate,
    Width,
)
from runtime.propose import Block
from runtime.script import Rollouts, Script
from runtime.tree import Nodes
from runtime.trial import ARMS
from runtime.window import FRESH, LEFT, MISLED
from tests.runtime.tabular import scaffold_of, tabular_graphs

WIDTHS = (2, 4, 8)
CHAIN = ARMS["dflash"]
SCRIPT = Script.of(np.asarray([1, 3]), scaffold_of("1?|" + "?" * 20))
MIXED = Script.of(np.asarray([1, 3]), scaffold_of("1?|?11?11?11?"))


def curve_of(per_pass: float, per_row: float, draft: float) -> CostCurve:
    """s: a pass costs per_pass + per_row * rows * rollouts; a draft costs the same everywhere."""
    rollouts, rows, lengths = np.asarray([1.0, 4.0]), np.asarray([1.0, 16.0]), np.asarray([8.0, 64])
    target = per_pass + per_row * rollouts[:, None, None] * rows[:, None] + 0 * lengths
    return CostCurve(rollouts, rows, lengths, target, np.full_like(target, draft))


def rollouts_at(*starts: int) -> Rollouts:
    n = len(starts)
    tokens = np.repeat(SCRIPT.tokens[None], n, axis=0)
    return Rollouts(np.arange(n), tokens, np.asarray(starts))


# The curve.


def test_a_curve_is_linear_between_its_points_and_flat_or_steeper_beyond() -> None:
    rng = np.random.default_rng(0)
    curve = CostCurve(
        np.asarray([1.0, 4.0]),
        np.asarray([1.0, 2.0, 8.0]),
        np.asarray([16.0, 64.0]),
        rng.random((2, 3, 2)),
        rng.random((2, 3, 2)),
    )
    for a, n in enumerate((1, 4)):
        for c, length in enumerate((16, 64)):
            assert np.allclose(
                curve.target_seconds(n, curve.rows, length), curve.target[a, :, c], atol=1e-15
            )
            assert np.allclose(
                curve.draft_seconds(n, curve.rows, length), curve.draft[a, :, c], atol=1e-15
            )
    grid = curve.target
    middle = curve.target_seconds(1, np.asarray([5.0]), 40)[0]
    assert middle == pytest.approx(grid[0, 1:].mean())
    third = curve.target_seconds(2, np.asarray([2.0]), 16)[0]
    assert third == pytest.approx(grid[0, 1, 0] * 2 / 3 + grid[1, 1, 0] / 3)
    # outside: the nearest rollouts and length, and rows in proportion
    assert curve.target_seconds(9, np.asarray([2.0]), 999)[0] == pytest.approx(grid[1, 1, 1])
    assert curve.target_seconds(1, np.asarray([16.0]), 1)[0] == pytest.approx(2 * grid[0, 2, 0])


def test_a_curve_survives_json() -> None:
    curve = curve_of(1e-3, 1e-5, math.inf)  # as without a drafter
    again = CostCurve.from_json(curve.to_json())
    for name, value in vars(curve).items():
        assert np.array_equal(getattr(again, name), value)


BROKEN = ["", "{", "[1, 2]", "7", "{}", '{"rollouts": [1]}', "\udcff"]


@pytest.mark.parametrize("text", [*BROKEN, "misfit"])
def test_a_broken_curve_is_measured_anew(tmp_path, monkeypatch, text) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    graphs = tabular_graphs(tmp_path)
    first = load_or_measure(graphs, "key", 1)
    (path,) = tmp_path.rglob("key-*.json")
    if text == "misfit":
        text = path.read_text("utf-8").replace('"rows": [1.0, ', '"rows": [')
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    measured = load_or_measure(graphs, "key", 1)
    assert measured.target.shape == first.target.shape
    assert (measured.target > 0).all()
    assert np.isfinite(measured.draft).all()
    # and kept: the next start reads what this one wrote
    kept = load_or_measure(graphs, "key", 1)
    assert np.array_equal(kept.target, measured.target)
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_a_cache_folder_that_cannot_be_written_costs_only_time(tmp_path, monkeypatch) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("a file where the folder should be")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    curve = load_or_measure(tabular_graphs(tmp_path), "key", 1)
    assert (curve.target > 0).all()
    assert blocked.read_text() == "a file where the folder should be"


def test_a_user_without_a_home_loses_only_time(tmp_path, homeless) -> None:
    assert (load_or_measure(tabular_graphs(tmp_path), "key", 1).target > 0).all()


def test_bundle_machine_and_threads_have_curves_of_their_own(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    graphs = tabular_graphs(tmp_path)
    for key, threads in (("a", 1), ("a", 2), ("b", 1), ("a", 1)):
        load_or_measure(graphs, key, threads)
    assert len(list(tmp_path.rglob("*.json"))) == 3


# The width of a block.


def test_no_draft_where_drafting_cannot_pay() -> None:
    gate = Gate(curve_of(1e-3, 0.0, draft=20e-3), WIDTHS, CHAIN)
    assert gate.choose(rollouts_at(3), SCRIPT, len(SCRIPT), False, False) == NO_DRAFT
    dear_rows = Gate(curve_of(0.0, 1e-3, draft=0.0), WIDTHS, CHAIN)
    assert dear_rows.choose(rollouts_at(3), SCRIPT, len(SCRIPT), False, False) == NO_DRAFT


def test_a_wide_block_where_rows_are_nearly_free() -> None:
    gate = Gate(curve_of(10e-3, 1e-6, draft=1e-3), WIDTHS, CHAIN)
    assert gate.choose(rollouts_at(3), SCRIPT, len(SCRIPT), False, False) == (8, 8)
    assert gate.choose(rollouts_at(3, 4, 5), SCRIPT, len(SCRIPT), True, False) == (8, 8)


def test_the_block_narrows_as_rows_grow_dearer() -> None:
    chosen = [
        Gate(curve_of(5e-3, per_row, draft=0.5e-3), WIDTHS, CHAIN)
        .choose(rollouts_at(3), SCRIPT, len(SCRIPT), False, False)
        .verify
        for per_row in (1e-6, 2.5e-3, 2e-2)
    ]
    assert chosen[0] == 8 > chosen[1] > chosen[2] == 0


def test_expected_tokens_are_a_sum_of_products() -> None:
    """1 + r + r^2 + ... over values; fixed tokens survive for certain; nothing behind the end."""
    gate = Gate(curve_of(1e-3, 0.0, 1e-3), WIDTHS, CHAIN)

    def tokens(script: Script, *starts: int) -> list[float]:
        section = script.section[script.prompt :]
        rates = np.where(section == 0, 0.5, 0.8)
        every = gate._tokens(rollouts_at(*starts), script, len(script), rates, WIDTHS[-1])
        return every[np.asarray(WIDTHS) - 2].tolist()

    free = tokens(SCRIPT, 4)
    assert free == pytest.approx([sum(0.8**i for i in range(w)) for w in WIDTHS])
    # then 1 1 ? 1 1 ? ...
    assert tokens(MIXED, 4) == pytest.approx([2, 3.8, 1 + 2 + 3 * 0.8 + 2 * 0.64])
    last = tokens(SCRIPT, len(SCRIPT) - 3)
    assert last == pytest.approx([1.8] * len(WIDTHS))
    both = tokens(SCRIPT, 4, len(SCRIPT) - 3)
    assert both == pytest.approx([(a + b) / 2 for a, b in zip(free, last, strict=True)])


# What it learns.


def round_of(stands: int, start: int = 4, width: int = 8) -> tuple[Block, Accepted]:
    """One rollout's chain of which `stands` drafts were accepted."""
    positions = start + np.arange(width)[None]
    drafted = ~SCRIPT.fixed[positions]
    drafted[:, 0] = False
    block = Block(
        np.zeros((1, width), np.int64),
        positions,
        np.ones((1, width), np.bool_),
        drafted,
        draft_width=width,
    )
    return block, Accepted(np.arange(width)[None] <= stands, np.zeros(1, np.int64))


def test_a_bad_drafter_is_found_out_and_tried_again_later() -> None:
    gate = Gate(curve_of(4e-3, 1e-4, draft=2e-3), WIDTHS, CHAIN)

    def choose(sampled: bool) -> Width:
        return gate.choose(rollouts_at(4), SCRIPT, len(SCRIPT), sampled, False)

    assert choose(False).draft > 2
    for width in WIDTHS * 40:
        gate.observe(SCRIPT, *round_of(0, width=width), sampled=False)
    assert choose(False) == NO_DRAFT
    assert choose(True).draft > 2  # greedy and sampled drafts are judged apart
    waited = 0
    while choose(False) == NO_DRAFT:
        waited += 1
        assert waited < 2000
    assert waited > 10


def test_a_good_drafter_earns_wider_blocks() -> None:
    gate = Gate(curve_of(4e-3, 3e-4, draft=1e-3), WIDTHS, CHAIN)
    places = len(SCRIPT.scaffold)
    for width in WIDTHS:
        poor = Evidence(np.full(places, 40.0), np.full(places, 22.0), np.full(places, 0.5))
        gate.evidence[places, width, False, False] = poor
    before = gate.choose(rollouts_at(4), SCRIPT, len(SCRIPT), False, False)
    for _ in range(60):
        gate.observe(SCRIPT, *round_of(7), sampled=False)
    after = gate.choose(rollouts_at(4), SCRIPT, len(SCRIPT), False, False)
    assert before.verify < after.verify == 8


@pytest.mark.parametrize("stands", [0, 1, 5, 7])
def test_only_judged_drafts_are_evidence(stands) -> None:
    """Those that stood, and the one that fell; never those behind it."""
    gate = Gate(curve_of(1e-3, 0.0, 1e-3), WIDTHS, CHAIN)
    places = len(SCRIPT.scaffold)
    prior = Evidence.of_places(places)
    gate.observe(SCRIPT, *round_of(stands), sampled=False)
    (key,) = gate.evidence
    assert key == (places, 8, False, False)
    first = 5 - SCRIPT.prompt  # the block's anchor is at 4
    judged = gate.evidence[key].judged - prior.judged
    stood = gate.evidence[key].stood - prior.stood
    assert np.flatnonzero(stood).tolist() == list(range(first, first + stands))
    assert np.flatnonzero(judged).tolist() == list(range(first, first + stands + (stands < 7)))


def test_old_evidence_fades() -> None:
    evidence = Evidence.of_places(2)
    for _ in range(1000):
        evidence.add(stood=np.asarray([0]), fell=np.zeros(0, np.int64))
    assert evidence.judged[0] <= MEMORY + 1
    assert 0.97 < evidence.rates[0] < 1.0
    assert evidence.rates[1] == pytest.approx(PRIOR_RATE)
    for _ in range(600):
        evidence.add(stood=np.asarray([0]), fell=np.asarray([0, 0, 0, 0]))
    assert evidence.rates[0] == pytest.approx(0.2, abs=0.02)


# The size of a tree.


def budget_of(curve: CostCurve, probabilities: list[float], n: int = 1) -> int:
    score = np.log(np.asarray([probabilities] * n))
    blank = np.zeros(score.shape, np.int64)
    return Gate(curve, WIDTHS, CHAIN, host=0.0).budget(Nodes(blank, blank, blank, score), 16)


def test_a_trees_budget_follows_the_price_of_rows() -> None:
    falling = [0.8**i for i in range(1, 15)]
    sizes = [budget_of(curve_of(1e-3, row, 0.0), falling) for row in (0.0, 2e-5, 1e-4, 1e-3, 1e-1)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == 14
    assert sizes[-1] == 1
    assert len(set(sizes)) >= 4


def test_a_trees_budget_is_the_best_of_all() -> None:
    falling = [0.7, 0.49, 0.3, 0.2, 0.1, 0.05]
    expected = 1 + np.cumsum(falling)
    seconds = 1e-3 + 1.2e-4 * np.arange(2, 8)
    assert budget_of(curve_of(1e-3, 1.2e-4, 0.0), falling) == 1 + np.argmax(expected / seconds)


def test_padding_nodes_are_worth_nothing() -> None:
    with np.errstate(divide="ignore"):
        assert budget_of(curve_of(1e-3, 1e-6, 0.0), [0.9, 0.8, 0.0, 0.0], n=3) == 2


# Splitting a pass between rows to verify and masks.

PACE = 4.6e-3  # s a token takes: a row of 3 ms is worth it while 0.65 tokens are expected


def offer_of(*confidences: float, rests: int = FRESH) -> Offer:
    """Drafts behind position 4, for one rollout."""
    sure = np.asarray([confidences])
    reach = np.asarray([sure.shape[1]])
    return Offer(reach, np.ones(sure.shape, np.bool_), sure, np.full(sure.shape, rests), 128)


def splitting_gate(pace: float = PACE) -> Gate:
    gate = Gate(curve_of(4e-3, 3e-3, draft=2e-3), WIDTHS, ARMS["scaffold-spec"])
    gate.pace = pace
    return gate


def split(gate: Gate, offer: Offer, sampled: bool = False) -> tuple[int, int]:
    rollouts = rollouts_at(*[4] * len(offer.reach))
    found = gate.split(offer, gate.kinds_of(offer), rollouts, SCRIPT, sampled)
    return int(found.chain[0]), int(found.masks[0])


def test_rows_are_verified_while_they_are_worth_their_time() -> None:
    assert split(splitting_gate(), offer_of(*[0.9995] * 7))[0] == 7
    assert split(splitting_gate(), offer_of(0.9995, 0.9995, 0.01, *[0.9995] * 4))[0] == 2
    assert split(splitting_gate(0.1), offer_of(0.9995, 0.9995, 0.01, 0.9995))[0] == 4
    assert split(splitting_gate(1e-3), offer_of(*[0.9995] * 7)) == (0, 0)
    assert split(splitting_gate(), offer_of())[0] == 0


def test_fixed_tokens_are_verified_with_the_draft_before_them() -> None:
    offer = offer_of(0.9995, 0.0, 0.0, 0.01)
    offer.drafted[0, 1:3] = False
    assert split(splitting_gate(), offer)[0] == 3


def test_how_sure_a_drafter_is_is_believed_as_far_as_it_proves_right() -> None:
    gate = splitting_gate()
    tokens = np.ones((1, 3), np.int64)
    positions, real = np.arange(4, 7)[None], np.ones((1, 3), np.bool_)
    for _ in range(60):  # 0.4 and always right; then 0.96, left over, and always refused
        offer = offer_of(0.4, 0.96)
        offer.rests[0, 1] = LEFT
        block = Block(tokens, positions, real, real & [False, True, True])
        block.kinds = gate.kinds_of(offer)
        stands = np.asarray([[True, True, False]])
        gate.observe(SCRIPT, block, Accepted(stands, np.zeros(1, np.int64)), sampled=False)
    assert split(gate, offer_of(*[0.4] * 7))[0] == 7
    assert split(gate, offer_of(*[0.96] * 7, rests=LEFT))[0] == 0
    # fresh ones are judged apart, and those that have seen a refused token, and sampled ones
    assert split(gate, offer_of(*[0.96] * 7))[0] > 0
    assert split(gate, offer_of(*[0.96] * 7, rests=MISLED))[0] > 0
    assert split(gate, offer_of(*[0.96] * 7, rests=LEFT), sampled=True)[0] > 0


def test_what_was_cut_is_tried_again() -> None:
    gate = splitting_gate()
    kinds = gate.kinds_of(offer_of(0.9))[0]
    for _ in range(60):
        gate._sureness(False).add(np.zeros(0, np.int64), kinds)
    tries = [split(gate, offer_of(0.9))[0] for _ in range(500)]
    assert tries[0] == 0
    assert tries[-1] == 1


def test_masks_reach_as_far_as_drafts_lasted() -> None:
    gate = splitting_gate(6e-3)
    for _ in range(200):
        split(gate, offer_of(0.9995, 0.9995, 0.9995, 0.01, 0.01, 0.01))
    near = split(gate, offer_of(0.9995))[1]
    assert near == 3
    for _ in range(200):
        split(gate, offer_of(*[0.9995] * 20))
    assert split(gate, offer_of(0.9995))[1] >= 20
    assert split(gate, offer_of(0.01))[1] < 20, "they are lost if the chain falls"
    for rests in (LEFT, MISLED):  # which say nothing of fresh windows
        for _ in range(200):
            split(gate, offer_of(*[0.01] * 20, rests=rests))
    assert split(gate, offer_of(0.9995))[1] >= 20


def test_rollouts_share_the_width_of_a_pass() -> None:
    gate = splitting_gate(9e-3)
    sure = np.asarray([[0.9995] * 6, [0.01] * 6])
    offer = Offer(np.full(2, 6), np.ones((2, 6), bool), sure, np.full((2, 6), FRESH), 128)
    found = gate.split(offer, gate.kinds_of(offer), rollouts_at(4, 4), SCRIPT, False)
    assert found.chain.tolist() == [6, 0]
    assert len(set((found.chain + found.masks).tolist())) == 1


def test_a_column_of_a_pass_must_be_worth_the_rows_of_all_rollouts() -> None:
    def chains(rows: int) -> list[int]:
        sure = np.asarray([[0.9995] * 6, [0.01] * 6])[:rows]
        reach, rests = np.full(rows, 6), np.full(sure.shape, FRESH)
        offer = Offer(reach, np.ones(sure.shape, np.bool_), sure, rests, 128)
        gate = splitting_gate(3.2e-3 * rows)  # masks save too little
        rollouts = rollouts_at(*[4] * rows)
        found = gate.split(offer, gate.kinds_of(offer), rollouts, SCRIPT, False)
        return [int(chain) for chain in found.chain]

    assert chains(1) == [6]
    assert chains(2) == [0, 0], "six rows of the one would be twelve"
