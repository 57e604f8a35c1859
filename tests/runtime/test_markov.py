"""Slots that depend on the token before them: every shape against straight formulas."""

from __future__ import annotations

from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from runtime.best_tree import LIKELIEST, best_nodes, best_tree
from runtime.errors import BundleError
from runtime.marginals import Marginals, settle
from runtime.markov import FEW as FEW_ROWS
from runtime.markov import TABULATED_UP_TO, Markov
from runtime.propose import Block
from runtime.race import Race
from runtime.sampling import distribution, one_hot
from runtime.scaffold import VALUE
from runtime.settings import Sampling
from runtime.shapes import chain, drawn_nodes, paths, sampled_tree
from tests.runtime.enumeration import prefix_of
from tests.runtime.test_shapes import check_tree, race_of

FEW = settings(max_examples=60, deadline=None)
VOCAB = 5
HOT = st.sampled_from([Sampling(1.0), Sampling(0.7, 2), Sampling(1.3, 0, 0.6)])


@st.composite
def cases(draw) -> tuple[Marginals, np.random.Generator]:
    """Blocks of a few rollouts with known tokens, tokens that are not allowed, and padding."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n, w = draw(st.integers(1, 3)), draw(st.integers(2, 5))
    tokens = rng.integers(0, VOCAB, (n, w))
    limit = rng.integers(1, w, n)
    real = np.arange(w) <= limit[:, None]
    drafted = real & (rng.random((n, w)) < 0.7)
    drafted[:, 0], drafted[0, 1] = False, True
    positions = 4 + np.minimum(np.arange(w), limit[:, None])
    block = Block(np.where(drafted, VALUE, tokens), positions, real, drafted)
    logits = rng.normal(size=(int(drafted.sum()), VOCAB)).astype(np.float32) * 2
    forbidden = rng.random(logits.shape) < 0.25
    forbidden[:, 1] &= forbidden.sum(axis=1) < VOCAB
    logits[forbidden] = -np.inf
    w1, w2 = rng.normal(size=(2, VOCAB, 3)).astype(np.float32)
    if not draw(st.booleans()):
        return Marginals(block, logits, Markov(w1, w2)), rng
    head = Markov(w1, w2, rng.normal(size=(3, 4)).astype(np.float32))
    hidden = rng.normal(size=(len(logits), 4)).astype(np.float32)
    return Marginals(block, logits, head, head.gates(hidden)), rng


class Reference:
    """The drafter by its definition: q(x | previous) ~ exp(logits_k + W2 (g_k * W1[previous]))."""

    def __init__(self, marginals: Marginals, sampling: Sampling, race: Race | None = None):
        self.known, self.sampling, self.race = copied(marginals.block), sampling, race
        head = marginals.markov
        assert head is not None
        self.w1, self.w2 = (table.astype(np.float64) for table in (head._w1, head._w2))
        self.logits = np.full((*self.known.tokens.shape, VOCAB), np.nan)
        self.logits[self.known.drafted] = marginals.logits
        self.gates = np.ones((*self.known.tokens.shape, self.w1.shape[1]))
        if marginals.gates is not None:
            self.gates[self.known.drafted] = marginals.gates

    def scores(self, n: int, depth: int, previous: int) -> np.ndarray:
        scores = self.logits[n, depth] + self.w2 @ (self.gates[n, depth] * self.w1[previous])
        return np.asarray(scores)

    @cache  # noqa: B019 - a reference lives for one example
    def q(self, n: int, depth: int, previous: int) -> np.ndarray:
        if not self.known.drafted[n, depth]:
            return one_hot(self.known.tokens[n, depth], VOCAB)
        q = distribution(self.scores(n, depth, previous), self.sampling)
        return q if self.race is None else self.race[n, depth].foreseen(q)

    def likelihood(self, n: int, prefix: tuple[int, ...]) -> float:
        path = (int(self.known.tokens[n, 0]), *prefix)
        steps = zip(path, prefix, strict=False)
        return float(np.prod([self.q(n, k, x)[y] for k, (x, y) in enumerate(steps, 1)]))


def copied(block: Block) -> Block:
    return Block(*(x.copy() for x in (block.tokens, block.positions, block.real, block.drafted)))


def check_q(block: Block, reference: Reference) -> None:
    """Every row's q is its distribution behind its parent's token, and gives the token some."""
    assert block.q is not None
    for n, row in zip(*np.nonzero(block.real), strict=True):
        if row:
            previous = int(block.tokens[n, block.above[n, row]])
            q = reference.q(n, int(block.depth[n, row]), previous)
            np.testing.assert_allclose(block.q[n, row], q, atol=1e-6)
            assert block.q[n, row, block.tokens[n, row]] > 0


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
@given(cases(), st.integers(1, 14), st.sampled_from([0.0, 1.0]), st.booleans())
def test_the_best_tree_holds_the_likeliest_prefixes_of_all(case, budget, temperature, know) -> None:
    marginals, rng = case
    race = race_of(marginals.block, rng) if know else None
    sampling = Sampling(temperature)
    reference = Reference(marginals, sampling if temperature else LIKELIEST, race)
    nodes, tokens = best_nodes(marginals, sampling, budget, race)
    block = best_tree(marginals, nodes, tokens, 1 + nodes.most)
    check_tree(block)
    for n, limit in enumerate(reference.known.limit):
        everything = sorted(
            (
                likelihood
                for depth in range(1, limit + 1)
                for prefix in product(range(VOCAB), repeat=depth)
                if (likelihood := reference.likelihood(n, prefix)) > 0
            ),
            reverse=True,
        )
        rows = np.flatnonzero(block.real[n])[1:]
        assert len(rows) == min(budget, len(everything))
        found = [reference.likelihood(n, prefix_of(block, n, row)) for row in rows]
        np.testing.assert_allclose(found, everything[: len(rows)], rtol=1e-4)
        np.testing.assert_allclose(np.exp(nodes.score[n, rows - 1]), found, rtol=1e-4)
        elder: dict[int, int] = {}
        for row in rows:  # ranks count siblings, in falling order
            parent = int(block.above[n, row])
            assert nodes.rank[n, row - 1] == elder.get(parent, 0)
            elder[parent] = elder.get(parent, 0) + 1


@FEW
@given(cases(), st.integers(1, 10), HOT)
def test_a_drawn_tree_reports_its_conditionals(case, budget, sampling) -> None:
    marginals, rng = case
    reference = Reference(marginals, sampling)
    nodes = drawn_nodes(marginals, sampling, budget)
    width = 1 + nodes.most
    u = rng.random((len(marginals.block.tokens), width))
    block = sampled_tree(marginals, nodes, width, sampling, u)
    check_tree(block)
    check_q(block, reference)
    # nothing but a lack of tokens takes a row of the shape away
    for n in range(len(block.tokens)):
        for row in np.flatnonzero(nodes.parents[n, : width - 1] >= 0) + 1:
            parent = int(nodes.parents[n, row - 1])
            if block.real[n, row] or not block.real[n, parent]:
                assert block.real[n, row] <= block.real[n, parent]
                continue
            depth, above = int(nodes.depth[n, row - 1]), int(block.tokens[n, parent])
            q = reference.q(n, depth, above)
            assert np.count_nonzero(q) == (block.above[n] == parent).sum()


@FEW
@given(cases(), st.integers(1, 8), HOT)
def test_the_shape_of_a_drawn_tree_does_not_depend_on_the_draws(case, budget, sampling) -> None:
    marginals, _ = case
    before = drawn_nodes(marginals, sampling, budget)
    tokens = marginals.block.tokens.copy()
    sampled_tree(marginals, before, 1 + before.most, sampling, np.full((3, 9), 0.9)[: len(tokens)])
    assert np.array_equal(marginals.block.tokens, tokens)  # nor does drawing leave anything behind
    after = drawn_nodes(marginals, sampling, budget)
    assert np.array_equal(before.parents, after.parents)


@FEW
@given(cases(), st.integers(1, 4), HOT)
def test_paths_are_drawn_from_left_to_right(case, k, sampling) -> None:
    marginals, rng = case
    reference = Reference(marginals, sampling)
    u = rng.random((*marginals.block.tokens.shape, k))
    block = paths(marginals, k, sampling, u)
    check_tree(block)
    check_q(block, reference)
    assert block.paths is not None
    for n, path in product(range(len(block.tokens)), range(k)):
        for depth, row in enumerate(block.paths[n, path], 1):
            if row >= 0 and block.drafted[n, row]:
                token = int(block.tokens[n, row])
                q = reference.q(n, depth, int(block.tokens[n, block.above[n, row]]))
                assert q[:token].sum() - 1e-6 <= u[n, depth, path] <= q[: token + 1].sum() + 1e-6


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


def test_a_rollout_does_not_depend_on_its_batch() -> None:
    rng = np.random.default_rng(3)
    head = Markov(*rng.normal(size=(2, VOCAB, 3)).astype(np.float32))
    limits, width = (2, 4, 3), 5
    logits = rng.normal(size=(3, width, VOCAB)).astype(np.float32)

    def marginals_of(rollouts: list[int]) -> Marginals:
        limit = np.asarray([limits[i] for i in rollouts])[:, None]
        real = np.arange(width) <= limit
        drafted = real & (np.arange(width) != 2) & (np.arange(width) > 0)
        tokens = np.where(drafted, VALUE, 1)
        positions = np.minimum(np.arange(width), limit)
        block = Block(tokens, positions, real, drafted)
        return Marginals(block, logits[rollouts][drafted], head)

    together, tokens = best_nodes(marginals_of([0, 1, 2]), Sampling(1.0), 12)
    for i in range(3):
        alone, own = best_nodes(marginals_of([i]), Sampling(1.0), 12)
        assert np.array_equal(alone.parents[0], together.parents[i])
        assert np.array_equal(own[0], tokens[i])
        assert np.array_equal(alone.score[0], together.score[i])


def test_a_large_vocabulary_is_scored_at_its_candidates_only() -> None:
    """Without a table of all pairs; the numbers are the same."""
    rng, vocab = np.random.default_rng(4), TABULATED_UP_TO + 1
    w1, w2 = rng.normal(size=(2, vocab, 6)).astype(np.float32)
    previous, tokens = rng.integers(0, vocab, (2, 3)), rng.integers(0, vocab, (2, 3, 7))
    expected = np.einsum("nkr,nkcr->nkc", w1[previous], w2[tokens])
    np.testing.assert_allclose(Markov(w1, w2).bias(previous, tokens), expected, rtol=1e-5)
    small = Markov(w1[:-1], w2[:-1]).bias(previous % 900, tokens % 900)
    expected = np.einsum("nkr,nkcr->nkc", w1[previous % 900], w2[tokens % 900])
    np.testing.assert_allclose(small, expected, rtol=1e-5, atol=1e-5)
    # one slot's candidates behind several tokens
    shared = Markov(w1, w2).bias(previous, tokens[:, :1])
    np.testing.assert_allclose(
        shared, np.einsum("nkr,ncr->nkc", w1[previous], w2[tokens[:, 0]]), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("vocab", [10, 200], ids=["most tokens", "few of many"])
@pytest.mark.parametrize("tokens_before", [(4,), (4, 3)], ids=["one before", "several"])
def test_a_gate_weighs_what_the_token_before_adds(
    vocab: int, tokens_before: tuple[int, ...]
) -> None:
    """By the formula, slot by slot, whichever of the two products is cheaper."""
    rng = np.random.default_rng(5)
    w1, w2 = rng.normal(size=(2, vocab, 6)).astype(np.float32)
    gate, hidden = rng.normal(size=(6, 8)), rng.normal(size=(4, 8))
    head = Markov(w1, w2, gate.astype(np.float32))
    gates = head.gates(hidden.astype(np.float32))
    assert gates is not None
    assert gates.shape == (4, 6)
    tokens = np.sort(rng.integers(0, vocab, (4, 7)), axis=1)
    assert (vocab > 7 * FEW_ROWS) == (vocab == 200), "both ways are taken"
    previous = rng.integers(0, vocab, tokens_before)
    shown = tokens if previous.ndim == 1 else tokens[:, None]
    found = head.bias(previous, shown, gates)
    assert found.shape == (*tokens_before, 7)
    for at in np.ndindex(*tokens_before):
        g = 1 + gate @ hidden[at[0]]
        wanted = w2[tokens[at[0]]].astype(np.float64) @ (g * w1[previous[at]])
        np.testing.assert_allclose(found[at], wanted, rtol=1e-4, atol=1e-4)
    # and slots that no state gates are those of the same head without a gate
    plain = head.bias(previous, shown, head.ungated(4))
    np.testing.assert_allclose(plain, Markov(w1, w2).bias(previous, shown), rtol=1e-4, atol=1e-4)


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


def tables(**changes: np.ndarray | None) -> dict[str, np.ndarray]:
    found = {f"markov_w{i}": np.ones((4, 2), np.float32) for i in (1, 2)} | changes
    return {name: table for name, table in found.items() if table is not None}


def test_tables_are_read_back(tmp_path: Path) -> None:
    w1, w2 = np.random.default_rng(0).normal(size=(2, 4, 2)).astype(np.float32)
    save_file({"markov_w1": w1, "markov_w2": w2}, tmp_path / "markov.safetensors")
    head = Markov.load(tmp_path / "markov.safetensors", 4)
    every = np.arange(4)
    np.testing.assert_allclose(
        head.bias(every, np.broadcast_to(every, (4, 4))), w1 @ w2.T, rtol=1e-6
    )


GATE = {"markov_gate": np.ones((2, 3), np.float32)}


def test_a_gate_is_read_back(tmp_path: Path) -> None:
    gate = np.random.default_rng(0).normal(size=(2, 3)).astype(np.float32)
    save_file(tables(markov_gate=gate), tmp_path / "markov.safetensors")
    head = Markov.load(tmp_path / "markov.safetensors", 4, 3)
    hidden = np.asarray([[1.0, -2.0, 0.5]], np.float32)
    found = head.gates(hidden)
    assert found is not None
    np.testing.assert_allclose(found, 1 + hidden @ gate.T, rtol=1e-6)


@pytest.mark.parametrize(
    ("content", "width"),
    [
        (tables(), 3),
        (tables(**GATE), None),
        (tables(**GATE), 4),
        (tables(markov_gate=np.ones((3, 2), np.float32)), 3),
        (tables(markov_gate=np.ones(3, np.float32)), 3),
        (tables(markov_gate=np.full((2, 3), np.nan, np.float32)), 3),
        (tables(markov_gate=np.full((2, 3), np.inf, np.float32)), 3),
    ],
    ids=["missing", "not asked for", "width", "turned", "flat", "nan", "infinite"],
)
def test_a_gate_that_does_not_fit_is_refused(tmp_path: Path, content, width: int | None) -> None:
    save_file(content, tmp_path / "markov.safetensors")
    with pytest.raises(BundleError, match="is no Markov head") as caught:
        Markov.load(tmp_path / "markov.safetensors", 4, width)
    assert "markov_gate" in caught.value.expected
    assert caught.value.fix


@pytest.mark.parametrize(
    ("content", "vocab"),
    [
        (tables(markov_w2=None), 4),
        (tables(markov_w3=np.ones(1)), 4),
        (tables(markov_w2=np.ones((4, 3), np.float32)), 4),
        (tables(markov_w1=np.ones(4, np.float32)), 4),
        (tables(markov_w1=np.full((4, 2), np.nan, np.float32)), 4),
        (tables(), 5),
    ],
)
def test_tables_that_do_not_fit_are_refused(tmp_path: Path, content, vocab: int) -> None:
    save_file(content, tmp_path / "markov.safetensors")
    with pytest.raises(BundleError, match="is no Markov head") as caught:
        Markov.load(tmp_path / "markov.safetensors", vocab)
    assert caught.value.fix


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "markov.safetensors").write_bytes(b"\x00" * 20)
    with pytest.raises(BundleError, match="is no Markov head"):
        Markov.load(tmp_path / "markov.safetensors", 4)
    with pytest.raises(BundleError, match="is no Markov head"):
        Markov.load(tmp_path / "nowhere.safetensors", 4)
