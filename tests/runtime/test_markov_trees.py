"""Trees and paths of slots that depend on the token before them, against straight formulas."""

from __future__ import annotations

from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from runtime.best_tree import LIKELIEST, best_nodes, best_tree
from runtime.marginals import Marginals
from runtime.markov import Markov
from runtime.propose import Block
from runtime.scaffold import VALUE
from runtime.settings import Sampling
from runtime.shapes import drawn_nodes, paths, sampled_tree
from tests.runtime.enumeration import prefix_of
from tests.runtime.markov_blocks import FEW, HOT, VOCAB, Reference, cases, check_q
from tests.runtime.test_shapes import check_tree, race_of


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
