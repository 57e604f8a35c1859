"""Slots that depend on the token before them: chains against straight formulas."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from runtime.best_tree import best_nodes
from runtime.marginals import Marginals, settle
from runtime.markov import Markov
from runtime.propose import Block
from runtime.scaffold import VALUE
from runtime.settings import Sampling
from runtime.shapes import chain, drawn_nodes, paths, sampled_tree
from tests.runtime.markov_blocks import FEW, HOT, VOCAB, Reference, cases, check_q, copied
from tests.runtime.test_shapes import race_of


@FEW
@given(
    st.integers(0, 2**32),
    st.sampled_from([Sampling(), Sampling(1.0), Sampling(0.7, 2)]),
    st.sampled_from([None, "plain", "gated"]),
)
def test_slots_settle_as_a_loop_from_left_to_right_fills_them(seed, sampling, kind) -> None:
    """Fixed tokens between them and several rows included; guesses are mostly wrong here."""
    rng, (n, w) = np.random.default_rng([seed, 1]), (3, 12)
    drafted = rng.random((n, w)) < 0.8
    drafted[:, 0], drafted[:, 1] = False, True
    tokens = np.where(drafted, VALUE, rng.integers(0, VOCAB, (n, w)))
    known = Block(tokens, np.tile(np.arange(w), (n, 1)), np.ones((n, w), np.bool_), drafted)
    logits = rng.normal(size=(int(drafted.sum()), VOCAB)).astype(np.float32)
    w1, w2, gate = (2 * rng.normal(size=(VOCAB, 3)).astype(np.float32) for _ in range(3))
    alone = kind is None
    head = None if alone else Markov(w1, w2, gate.T if kind == "gated" else None)
    gates = head.gates(rng.normal(size=(len(logits), VOCAB)).astype(np.float32)) if head else None
    marginals = Marginals(known, logits, head, gates)
    block, given_ = marginals.block, marginals.under(sampling)
    at = np.nonzero(block.drafted)
    u = rng.random(len(at[0]))
    calls: list[int] = []

    def choose(some: np.ndarray, previous: np.ndarray) -> np.ndarray:
        calls.append(len(some))
        if sampling.temperature == 0:
            return marginals.likeliest(some, previous)
        return given_(some, previous).draw(u[some])

    wanted, found = block.tokens.copy(), block.tokens.copy()
    for slot, (row, column) in enumerate(zip(*at, strict=True)):
        one = np.asarray([slot])
        wanted[row, column] = choose(one, wanted[row, [column - 1]])[0]
    calls.clear()
    settle(found, at, marginals, choose)
    assert np.array_equal(found, wanted)
    most = 1 if alone else int(block.drafted.sum(axis=1).max()) + 1
    assert len(calls) <= most
    assert calls[0] == len(u)


@FEW
@given(cases())
def test_the_greedy_chain_follows_each_token(case) -> None:
    marginals, _ = case
    reference = Reference(marginals, Sampling())
    block = chain(marginals, Sampling(), None, want_q=True)
    assert block.q is None
    for n, row in zip(*np.nonzero(block.drafted), strict=True):
        scores = reference.scores(n, row, int(block.tokens[n, row - 1]))
        assert block.tokens[n, row] == scores.argmax()
    known = block.real & ~block.drafted
    assert np.array_equal(block.tokens[known], reference.known.tokens[known])


@FEW
@given(cases(), HOT)
def test_a_drawn_chain_reports_its_conditionals(case, sampling) -> None:
    marginals, rng = case
    reference = Reference(marginals, sampling)
    u = rng.random(marginals.block.tokens.shape)
    block = chain(marginals, sampling, u, want_q=True)
    check_q(block, reference)
    for n, row in zip(*np.nonzero(block.drafted), strict=True):
        q = reference.q(n, row, int(block.tokens[n, row - 1]))
        token = int(block.tokens[n, row])
        assert q[:token].sum() - 1e-6 <= u[n, row] <= q[: token + 1].sum() + 1e-6


@FEW
@given(cases(), HOT)
def test_a_coupled_chain_is_the_winners(case, sampling) -> None:
    """Of tokens' own races, though columns are not tokens here."""
    marginals, rng = case
    reference, race = Reference(marginals, sampling), race_of(marginals.block, rng)
    block = chain(marginals, sampling, race, want_q=False)
    assert block.q is None
    for n, row in zip(*np.nonzero(block.drafted), strict=True):
        q = reference.q(n, row, int(block.tokens[n, row - 1]))
        second, first = np.sort(q / race[n, row].over(np.arange(VOCAB)).noise)[-2:]
        if first > second * (1 + 1e-5):  # no tie of roundings
            assert block.tokens[n, row] == race[n, row].draw(q)


@FEW
@given(cases(), st.integers(1, 9), HOT)
def test_a_head_that_adds_nothing_changes_nothing(case, budget, sampling) -> None:
    """The two ways of drafting meet there: token for token, row for row."""
    marginals, rng = case
    n, w = marginals.block.tokens.shape
    u, many = rng.random((n, 64)), rng.random((n, w, 3))
    race = race_of(marginals.block, rng)
    nothing = Markov(np.zeros((VOCAB, 3), np.float32), np.ones((VOCAB, 3), np.float32))

    def all_shapes(head: Markov | None) -> list[np.ndarray]:
        def fresh() -> Marginals:
            gates = marginals.gates if head else None
            return Marginals(copied(marginals.block), marginals.logits, head, gates)

        drawn = chain(fresh(), sampling, u[:, :w], want_q=True)
        winners = chain(fresh(), sampling, race, want_q=False)
        nodes, tokens = best_nodes(fresh(), sampling, budget, race)
        shape = drawn_nodes(fresh(), sampling, budget)
        tree = sampled_tree(fresh(), shape, 1 + shape.most, sampling, u[:, : 1 + shape.most])
        trie = paths(fresh(), 3, sampling, many)
        real = np.isfinite(nodes.score)
        assert drawn.q is not None
        assert tree.q is not None
        assert trie.q is not None
        return [
            chain(fresh(), Sampling(), None, want_q=False).tokens,
            winners.tokens,
            *(drawn.tokens, drawn.q[drawn.real], nodes.parents[real], tokens[real]),
            *(tree.tokens, tree.parents, tree.q[tree.real], trie.tokens, trie.q[trie.real]),
        ]

    for found, expected in zip(all_shapes(nothing), all_shapes(None), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-12)


def test_repeated_slots_keep_their_gates() -> None:
    rng = np.random.default_rng(6)
    head = Markov(*rng.normal(size=(2, VOCAB, 3)), rng.normal(size=(3, 4)))
    drafted = np.asarray([[False, True, True]])
    block = Block(np.where(drafted, VALUE, 1), np.arange(3)[None], drafted | True, drafted)
    gates = head.gates(rng.normal(size=(2, 4)).astype(np.float32))
    one = Marginals(block, rng.normal(size=(2, VOCAB)), head, gates)
    single = chain(Marginals(copied(block), one.logits, head, gates), Sampling(), None, False)
    many = chain(one.repeated(3), Sampling(), None, False)
    assert many.tokens.tolist() == single.tokens.tolist() * 3
