"""Proposals of every shape: what stands in them, and what they say it was drawn from."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.best_tree import LIKELIEST, best_nodes, best_tree
from runtime.draws import Draws
from runtime.marginals import Marginals
from runtime.propose import Block, known_block, root_only, scaffold_run
from runtime.race import Race
from runtime.sampling import distribution, one_hot
from runtime.scaffold import VALUE
from runtime.script import Rollouts, Script
from runtime.settings import Sampling
from runtime.shapes import chain, drawn_nodes, paths, sampled_tree
from tests.runtime.enumeration import prefix_of
from tests.runtime.symbolic import worlds
from tests.runtime.tabular import scaffold_of

FEW = settings(max_examples=40, deadline=None)
VOCAB = 5
PROMPT = np.asarray([1, 3])
SAMPLINGS = st.sampled_from([Sampling(1.0), Sampling(0.7, 2), Sampling(1.3, 0, 0.6)])


@st.composite
def cases(draw) -> tuple[Marginals, Script, np.random.Generator]:
    """Marginals of a few rollouts that have come differently far in one script."""
    picture = "1?|" + draw(st.text("?*??012", min_size=4, max_size=9)) + "?"
    script = Script.of(PROMPT, scaffold_of(picture))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n = draw(st.integers(1, 3))
    start = rng.integers(len(PROMPT) - 1, len(script) - 1, n)
    tokens = np.repeat(script.tokens[None], n, axis=0)
    for row, end in zip(tokens, start, strict=True):
        row[: end + 1] = np.where(row[: end + 1] == VALUE, 1, row[: end + 1])
    rollouts = Rollouts(np.arange(n), tokens, start)
    block = known_block(rollouts, script, draw(st.integers(2, 6)), len(script))
    at = block.positions[block.drafted]
    logits = rng.normal(size=(len(at), VOCAB)) * 2 + script.bias_at(at)
    return Marginals(block, logits), script, rng


def sampled_cases() -> st.SearchStrategy[tuple[Marginals, Script, np.random.Generator]]:
    return cases().filter(lambda case: case[0].block.drafted.any())


def marginals_by_depth(marginals: Marginals, sampling: Sampling) -> np.ndarray:
    """[N, W, V] the drafter's distribution at each depth: one-hot where the token is known."""
    known = marginals.block
    q = one_hot(np.maximum(known.tokens, 0), VOCAB)
    q[known.drafted] = distribution(marginals.logits, sampling)
    return q


def race_of(block: Block, rng: np.random.Generator) -> Race:
    """[N, W] a target's race at a block's positions, for one seed or another."""
    rollouts = np.arange(len(block.tokens))[:, None]
    return Draws(int(rng.integers(2**40)), 0).at_position(rollouts, block.positions)


def check_rows(block: Block, marginals: Marginals, script: Script) -> None:
    """What holds for every row of every proposal."""
    known = marginals.block
    assert np.array_equal(block.tokens[:, 0], known.tokens[:, 0])
    assert np.array_equal(block.positions[:, 0], known.positions[:, 0])
    assert block.real[:, 0].all()
    assert not (block.drafted & ~block.real).any()
    assert ((block.tokens >= 0) & (block.tokens < VOCAB)).all()
    assert (block.positions < len(script) - 1).all()  # something can still follow each row
    for n, row in zip(*np.nonzero(block.real), strict=True):
        position, token = block.positions[n, row], block.tokens[n, row]
        if row == 0:
            continue
        assert block.drafted[n, row] == (not script.fixed[position])
        if script.fixed[position]:
            assert token == script.tokens[position]
        else:
            assert script.bias_at(position)[token] == 0.0
    for n in range(len(block.tokens)):
        assert block.limit[n] <= known.limit[n]


def check_tree(block: Block) -> None:
    """Parents before children and one depth above; siblings distinct; padding out of it."""
    assert block.parents is not None
    for n, parents in enumerate(block.parents):
        assert parents[0] == -1
        assert np.array_equal(parents[1:] >= 0, block.real[n, 1:])
        rows = np.flatnonzero(parents >= 0)
        assert (parents[rows] < rows).all()
        assert (block.depth[n, rows] == block.depth[n, parents[rows]] + 1).all()
        edges = {(parents[row], block.tokens[n, row]) for row in rows}
        assert len(edges) == len(rows)


@FEW
@given(cases())
def test_the_greedy_chain_is_the_likeliest_token_everywhere(case) -> None:
    marginals, script, _ = case
    block = chain(marginals, Sampling(), None, want_q=True)
    check_rows(block, marginals, script)
    assert block.parents is block.q is block.paths is None
    assert np.array_equal(block.tokens[block.drafted], marginals.logits.argmax(axis=-1))


@FEW
@given(sampled_cases(), SAMPLINGS)
def test_a_drawn_chain_knows_what_it_was_drawn_from(case, sampling) -> None:
    marginals, script, rng = case
    q = marginals_by_depth(marginals, sampling)
    u = rng.random(marginals.block.tokens.shape)
    block = chain(marginals, sampling, u, want_q=True)
    check_rows(block, marginals, script)
    assert block.q is not None
    assert np.array_equal(block.q[block.real], q[block.real])
    assert (np.take_along_axis(block.q, block.tokens[..., None], axis=-1) > 0).all()


@FEW
@given(
    cases().filter(lambda case: case[0].block.drafted.any()),
    st.integers(1, 12),
    st.sampled_from([0.0, 0.3, 1.0]),
    st.booleans(),
)
def test_the_best_tree_holds_the_likeliest_prefixes(case, budget, temperature, known) -> None:
    """By the marginals, or by what they say of who wins the target's race."""
    marginals, script, rng = case
    sampling, drafted = Sampling(temperature), marginals.block.drafted
    race = race_of(marginals.block, rng) if known else None
    nodes, tokens = best_nodes(marginals, sampling, budget, race)
    block = best_tree(marginals, nodes, tokens, 1 + nodes.most)
    check_rows(block, marginals, script)
    check_tree(block)
    assert block.q is None
    q = marginals_by_depth(marginals, sampling if temperature else LIKELIEST)
    if race is not None:
        q[drafted] = race[drafted].foreseen(q[drafted])
    for n in range(len(block.tokens)):
        for row in np.flatnonzero(block.real[n])[1:]:
            prefix = prefix_of(block, n, row)
            likely = np.prod([q[n, depth + 1, token] for depth, token in enumerate(prefix)])
            assert np.exp(nodes.score[n, row - 1]) == pytest.approx(likely)
            # nothing outside is likelier than what is inside: its better siblings are there too
            siblings = block.tokens[n, block.parents[n] == block.parents[n, row]]
            better = np.flatnonzero(q[n, len(prefix)] > q[n, len(prefix), prefix[-1]])
            assert np.isin(better, siblings).all()


@FEW
@given(sampled_cases(), st.integers(1, 12), SAMPLINGS)
def test_a_sampled_tree_has_distinct_siblings_and_the_marginals_as_q(
    case, budget, sampling
) -> None:
    marginals, script, rng = case
    nodes = drawn_nodes(marginals, sampling, budget)
    width = 1 + nodes.most
    u = rng.random((len(marginals.block.tokens), width))
    block = sampled_tree(marginals, nodes, width, sampling, u)
    check_rows(block, marginals, script)
    check_tree(block)
    check_q(block, marginals_by_depth(marginals, sampling))
    # the shape is the best tree's whatever was drawn, or the drafts' distribution would be another
    assert np.array_equal(block.parents[:, 1:], nodes.parents[:, : width - 1])


@FEW
@given(sampled_cases(), st.integers(1, 5), SAMPLINGS)
def test_paths_share_rows_exactly_where_they_agree(case, k, sampling) -> None:
    marginals, script, rng = case
    n, width = marginals.block.tokens.shape
    block = paths(marginals, k, sampling, rng.random((n, width, k)))
    check_rows(block, marginals, script)
    check_tree(block)
    check_q(block, marginals_by_depth(marginals, sampling))
    assert block.paths is not None
    assert block.paths.shape == (n, k, width - 1)
    for i, limit in enumerate(marginals.block.limit):
        assert (block.paths[i, :, limit:] == -1).all()
        on_paths = set(block.paths[i, :, :limit].ravel().tolist())
        assert on_paths | {0} == set(np.flatnonzero(block.real[i]).tolist())
        for path in block.paths[i, :, :limit]:
            above = np.concatenate([[0], path[:-1]])[: len(path)]
            assert np.array_equal(block.parents[i, path], above)


def check_q(block: Block, by_depth: np.ndarray) -> None:
    """Each row's q is the marginal of its depth, in which its token has probability."""
    assert block.q is not None
    for n, row in zip(*np.nonzero(block.real), strict=True):
        if row > 0:
            assert np.array_equal(block.q[n, row], by_depth[n, block.depth[n, row]])
            assert block.q[n, row, block.tokens[n, row]] > 0


def test_a_draw_follows_the_marginal_without_its_siblings() -> None:
    """Two siblings of one node: first from q, then from q without the first."""
    known = Block(
        np.asarray([[0, VALUE]]),
        np.asarray([[4, 5]]),
        np.asarray([[True, True]]),
        np.asarray([[False, True]]),
    )
    q = np.asarray([0.5, 0.3, 0.2])
    marginals = Marginals(known, np.log(q)[None])
    nodes, _ = best_nodes(marginals, Sampling(1.0), 2)
    shares = np.zeros((3, 3))
    for world, block in worlds(
        lambda w: sampled_tree(marginals, nodes, 3, Sampling(1.0), w.array(1, 3, 1)[..., 0])
    ):
        shares[block.tokens[0, 1], block.tokens[0, 2]] += world.weight
    expected = q[:, None] * q / (1 - q[:, None]) * (1 - np.eye(3))
    assert np.allclose(shares, expected, atol=1e-15)


@FEW
@given(cases())
def test_proposals_without_a_drafter(case) -> None:
    """The anchor alone, or with the fixed tokens that follow it."""
    marginals, script, _ = case
    known = marginals.block
    n = len(known.tokens)
    tokens = np.repeat(script.tokens[None], n, axis=0)
    start = known.positions[:, 0]
    tokens[np.arange(n), start] = known.tokens[:, 0]
    rollouts = Rollouts(np.arange(n), tokens, start)
    alone = root_only(rollouts, script, len(script))
    assert alone.tokens.tolist() == known.tokens[:, :1].tolist()
    block = scaffold_run(rollouts, script, len(script))
    assert not block.drafted.any()
    assert (block.tokens >= 0).all()
    for i in range(n):
        run = int(script.next_value[start[i]] - start[i])
        assert block.limit[i] == min(run, len(script) - 1 - start[i]) - 1
        real = block.real[i, 1:]
        assert np.array_equal(
            block.tokens[i, 1:][real], script.tokens[block.positions[i, 1:][real]]
        )
