"""Shapes, rules and draws together: exact by enumeration, and the same in any batch."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from runtime.accept import LAST, by_choice, by_rule
from runtime.best_tree import best_nodes, best_tree
from runtime.draws import ACCEPT, DRAFT, Draws
from runtime.marginals import Marginals
from runtime.markov import Markov
from runtime.proof.statistics import chi_square_p, fit
from runtime.propose import Block
from runtime.sampling import draw
from runtime.scaffold import VALUE
from runtime.settings import DRAFTING, FOLLOWING, RULES, Sampling
from runtime.shapes import chain, paths, sampled_tree
from runtime.tree import Nodes
from runtime.verify import block_wise, token_wise
from tests.runtime.enumeration import Pair, block_of, distance, prefix_of, targets
from tests.runtime.symbolic import World, worlds
from tests.runtime.test_enumeration import (
    BUSHY,
    CHAIN_RULES,
    DEEP,
    KINDS,
    MIXED,
    PATH_RULES,
    TOLERANCE,
    TREE_RULES,
)

SAMPLED = Sampling(1.0)
SHAPED = np.zeros((1, 4))  # scores of a tree whose shape is given


# From a block drafter's marginals through shape and rule, drafts drawn with symbolic uniforms too.


def dependent(vocab: int, seed: int = 0) -> np.ndarray:
    """A bias by which the token before matters a lot."""
    return np.random.default_rng([seed, vocab]).normal(0.0, 1.5, (vocab, vocab)).astype(np.float32)


def marginals_of(pair: Pair, depth: int) -> Marginals:
    tokens = np.asarray([[0] + [pair.fixed.get(i, VALUE) for i in range(depth)]])
    block = Block(tokens, np.arange(depth + 1)[None], tokens >= VALUE, tokens == VALUE)
    with np.errstate(divide="ignore"):
        logits = [np.log(pair.drafter((0,) * i)) for i in range(depth) if i not in pair.fixed]
    head = None if pair.bias is None else Markov(pair.bias, np.eye(pair.vocab, dtype=np.float32))
    return Marginals(block, np.asarray(logits), head)


def shaped(rule: str, marginals: Marginals, numbers) -> Block:
    """A block for a rule, drawn as the runtime draws it."""
    width = marginals.block.width
    if rule in CHAIN_RULES:
        return chain(marginals, SAMPLED, numbers(np.zeros((1, width), np.int64), DRAFT), True)
    if rule in PATH_RULES:
        places = np.broadcast_to(np.arange(2), (1, width, 2))
        return paths(marginals, 2, SAMPLED, numbers(places, DRAFT))
    nodes, _ = best_nodes(marginals, SAMPLED, 3)
    rows = 1 + nodes.most
    u = numbers(np.zeros((1, rows), np.int64), DRAFT)
    return sampled_tree(marginals, nodes, rows, SAMPLED, u)


@pytest.mark.parametrize("rule", CHAIN_RULES + PATH_RULES + TREE_RULES)
@pytest.mark.parametrize("kind", ["free", "holes"])
@pytest.mark.parametrize("fixed", [{}, {0: 1}])
@pytest.mark.parametrize("markov", [False, True])
def test_marginals_shape_rule_and_draw_together(rule, kind, fixed, markov) -> None:
    vocab = 2 if rule in PATH_RULES else 3
    bias = dependent(vocab) if markov else None
    pair = Pair(kind, vocab, 3, fixed, marginal=True, bias=bias)

    def emit(world: World) -> tuple[int, ...]:
        block = shaped(rule, marginals_of(pair, 2), world.numbers)
        accepted = by_rule(rule, block, targets(pair, block), world.numbers)
        row = np.flatnonzero(accepted.holds[0]).max()
        return (*prefix_of(block, 0, row), int(accepted.token[0]))

    pieces = [(world.weight, prefix) for world, prefix in worlds(emit)]
    assert sum(weight for weight, _ in pieces) == pytest.approx(1.0, abs=1e-12)
    assert distance(pair, pieces, 3) < TOLERANCE


@pytest.mark.parametrize("rule", TREE_RULES)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_tree_that_runs_out_of_tokens_is_exact(rule, seed) -> None:
    """A nucleus may hold fewer tokens behind one parent than behind another: rows are missing."""
    pair = Pair("free", 3, seed, marginal=True, bias=2 * dependent(3, seed))
    sampling, missing = Sampling(1.0, 0, 0.7), 0

    def emit(world: World) -> tuple[int, ...]:
        nonlocal missing
        marginals = marginals_of(pair, 2)
        nodes = Nodes(
            *(np.asarray([x]) for x in ([0, 0, 1, 1], [1, 1, 2, 2], [0, 1, 0, 1])), SHAPED
        )
        u = world.numbers(np.zeros((1, 5), np.int64), DRAFT)
        block = sampled_tree(marginals, nodes, 5, sampling, u)
        missing += 5 - int(block.real.sum())
        accepted = by_rule(rule, block, targets(pair, block), world.numbers)
        row = np.flatnonzero(accepted.holds[0]).max()
        return (*prefix_of(block, 0, row), int(accepted.token[0]))

    pieces = [(world.weight, prefix) for world, prefix in worlds(emit)]
    assert missing
    assert distance(pair, pieces, 3) < TOLERANCE


def test_no_number_decides_twice() -> None:
    """The widest proposals there may be: the last draw has a number of its own."""
    pair = Pair("free", 3, 0, marginal=True)
    k = 64
    u = np.random.default_rng(0).random((1, 2, k))
    block = paths(marginals_of(pair, 1), k, SAMPLED, u)
    asked = []

    def numbers(places, word):
        assert word == ACCEPT
        asked.append(np.unique(places).tolist())
        return np.full(places.shape, 0.5)

    by_rule("k-seq", block, targets(pair, block), numbers)
    assert sorted(asked) == [[i] for i in range(k)] + [[LAST]]
    assert k <= LAST


@pytest.mark.parametrize("rule", TREE_RULES)
def test_a_node_may_have_any_number_of_children(rule) -> None:
    wide = 100
    marginals = Marginals(marginals_of(Pair("free", 3, 0), 1).block, np.zeros((1, wide)))
    nodes, _ = best_nodes(marginals, SAMPLED, wide - 1)
    u = np.random.default_rng(0).random((1, wide))
    block = sampled_tree(marginals, nodes, wide, SAMPLED, u)
    p = np.full((1, wide, wide), 0.0)
    p[..., np.setdiff1d(np.arange(wide), block.tokens[0, 1:])] = 1.0  # what nobody drafted
    accepted = by_rule(rule, block, p, lambda places, word: np.full(places.shape, 0.5))
    assert accepted.length.tolist() == [0]
    assert accepted.token[0] not in block.tokens[0, 1:]


@pytest.mark.parametrize("rule", ["block", "traversal"])
def test_rounding_never_rejects_what_is_certain(rule) -> None:
    """A row of weight 1 stands though its residual is of the size of a rounding error."""
    tiny = 1.6e-16
    pair = Pair("equal", 3, 0)
    pair.rows[True, (0,)] = np.asarray([0.5, 0.5, 0.0])
    block = block_of(pair, [0, 0, 2], None if rule == "block" else [-1, 0, 1])
    assert block.q is not None
    block.q[0, 2] = [0.5, 0.5 - tiny, tiny]
    almost_one = np.nextafter(1.0, 0.0)
    accepted = by_rule(
        rule, block, targets(pair, block), lambda places, word: np.full(places.shape, almost_one)
    )
    assert accepted.length.tolist() == [1]
    assert accepted.token.tolist() == [1]


# Sample and match.


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("parents", [None, BUSHY, MIXED, DEEP])
@pytest.mark.parametrize("by_position", [False, True])
def test_following_the_targets_own_samples_is_exact(kind, parents, by_position) -> None:
    """Any deterministic proposal, and one number a row or a depth."""
    pair = Pair(kind, 3, 4, {1: 2} if parents is None else {})
    above = [-1, 0, 1] if parents is None else parents
    tokens = [0] + [above[:row].count(above[row]) for row in range(1, len(above))]
    block = block_of(pair, tokens, parents, padding=1)
    p = targets(pair, block)
    length = int(block.depth.max()) + 1

    def emit(world: World) -> tuple[int, ...]:
        places = block.depth if by_position else np.arange(block.width)[None]
        u = world.array(int(places.max()) + 1, 1)[places, 0]
        choices = np.zeros(block.tokens.shape, np.int64)
        choices[block.real] = draw(p[block.real], u[block.real])
        accepted = by_choice(block, choices)
        row = np.flatnonzero(accepted.holds[0]).max()
        return (*prefix_of(block, 0, row), int(accepted.token[0]))

    pieces = [(world.weight, prefix) for world, prefix in worlds(emit)]
    assert distance(pair, pieces, length) < TOLERANCE


@pytest.mark.parametrize("kind", ["free", "holes", "equal"])
def test_drafts_coupled_to_the_targets_choices_are_exact(kind) -> None:
    """Draft and target draw with the same number of a position, here by inverse CDF."""
    pair = Pair(kind, 3, 5, {1: 0}, marginal=True)

    def emit(world: World) -> tuple[int, ...]:
        u = world.array(4, 1)[:, 0]
        block = chain(marginals_of(pair, 3), SAMPLED, u[None], want_q=False)
        choices = draw(targets(pair, block)[:, :3], u[None, 1:])
        choices = np.concatenate([choices, np.full((1, 1), -1)], axis=1)
        accepted = by_choice(block, choices)
        drafts = prefix_of(block, 0, int(accepted.length[0]))
        return drafts if accepted.token[0] < 0 else (*drafts, int(accepted.token[0]))

    pieces = [(world.weight, prefix[:3]) for world, prefix in worlds(emit)]
    assert distance(pair, pieces, 3) < TOLERANCE


@pytest.mark.parametrize("kind", ["free", "holes", "equal"])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("tree", [False, True])
def test_drafts_that_run_the_targets_race_are_exact(kind, bias, tree) -> None:
    """The first three tokens of many rollouts, by chi-square: chains of winners, best trees."""
    n, depth, vocab = 20_000, 3, 4
    head = dependent(vocab) if bias else None
    pair = Pair(kind, vocab, 5, {1: 0}, marginal=True, bias=head)
    marginals = marginals_of(pair, depth).repeated(n)
    race = Draws(2, 0).at_position(np.arange(n)[:, None], np.arange(depth + 2))
    if tree:
        nodes, tokens = best_nodes(marginals, SAMPLED, 4, race[:, : depth + 1])
        block = best_tree(marginals, nodes, tokens, 5)
    else:
        block = chain(marginals, SAMPLED, race[:, : depth + 1], want_q=False)
    at = np.arange(n)[:, None], block.positions + 1
    accepted = by_choice(block, race[at].draw(targets(pair, block)))
    counts: dict[tuple[int, ...], int] = {}
    for i in range(n):
        row = int(np.flatnonzero(accepted.holds[i]).max())
        ended = (*prefix_of(block, i, row), int(accepted.token[i]))
        while len(ended) < depth:  # the next rounds follow the same race
            place = race[i, len(ended) + 1]
            ended = (*ended, int(place.draw(pair.target(ended))))
        counts[ended[:depth]] = counts.get(ended[:depth], 0) + 1
    laws = {
        output: float(np.prod([pair.target(output[:k])[output[k]] for k in range(depth)]))
        for output in product(range(vocab), repeat=depth)
    }
    assert counts.keys() <= laws.keys()
    found = np.asarray([counts.get(output, 0) for output in laws])
    assert chi_square_p(*fit(found, np.asarray([*laws.values()]))) > 1e-4
    assert (accepted.length > 0).mean() > 0.3


def test_a_sampled_tree_would_not_be_exact_by_its_draft_numbers() -> None:
    """The check above can fail: choices that reuse another row's number are caught."""
    pair = Pair("free", 3, 4)
    block = block_of(pair, [0, 0, 1], [-1, 0, 0])
    p = targets(pair, block)

    def emit(world: World) -> tuple[int, ...]:
        u = world.array(1, 1)[:, 0]
        accepted = by_choice(block, draw(p, u[None][:, [0, 0, 0]]))
        row = np.flatnonzero(accepted.holds[0]).max()
        return (*prefix_of(block, 0, row), int(accepted.token[0]))

    assert distance(pair, [(w.weight, prefix) for w, prefix in worlds(emit)], 2) > 1e-3


# Batches.


@pytest.mark.parametrize("rule", [token_wise, block_wise])
def test_a_batch_of_chains_equals_one_at_a_time(rule) -> None:
    rng = np.random.default_rng(0)
    n, k, vocab = 200, 4, 3
    q, p = rng.dirichlet(np.ones(vocab), (n, k)), rng.dirichlet(np.ones(vocab), (n, k + 1))
    q[:20], p[:20, :-1] = p[:20, :-1], q[:20]
    p[20:40, :, 0], q[40:60, :, 1] = 0.0, 0.0
    q, p = q / q.sum(-1, keepdims=True), p / p.sum(-1, keepdims=True)
    drafts, limit = draw(q, rng.random((n, k))), rng.integers(0, k + 1, n)
    u = rng.random((n, k))
    accepted, after = rule(drafts, q, p, limit, u)
    for i in range(n):
        one = slice(i, i + 1)
        alone, alone_after = rule(drafts[one], q[one], p[one], limit[one], u[one])
        assert alone[0] == accepted[i] <= limit[i]
        assert np.array_equal(alone_after[0], after[i])


@pytest.mark.parametrize(
    "rule", sorted({r for method in DRAFTING for r in RULES[method]} - set(FOLLOWING))
)
def test_a_batch_of_blocks_equals_one_at_a_time(rule) -> None:
    """Padding that only company brings changes nothing."""
    rng = np.random.default_rng(1)
    pair = Pair("free", 3, 6, marginal=True)
    alone = [
        shaped(rule, marginals_of(pair, d), lambda s, w: rng.random(s.shape)) for d in (1, 2, 3)
    ]
    width = max(block.width for block in alone)
    u = rng.random((3, width, LAST + 1))
    batch = stacked(alone, width)
    together = by_rule(rule, batch, targets(pair, batch), lambda places, word: at(u, places))
    for n, block in enumerate(alone):
        one = by_rule(
            rule, block, targets(pair, block), lambda places, word, n=n: at(u[n : n + 1], places)
        )
        assert np.flatnonzero(together.holds[n]).tolist() == np.flatnonzero(one.holds).tolist()
        assert together.token[n] == one.token[0]


def at(u: np.ndarray, places: np.ndarray) -> np.ndarray:
    """[N, W] numbers of [N, W] places."""
    return np.take_along_axis(u[:, : places.shape[1]], places[..., None], axis=-1)[..., 0]


def stacked(blocks: list[Block], width: int) -> Block:
    """One block of several rollouts, padded as the runtime pads."""

    def rows(name: str, filler: object) -> np.ndarray:
        parts = [getattr(block, name)[0] for block in blocks]
        return np.stack(
            [np.concatenate([x, np.full((width - len(x), *x.shape[1:]), filler)]) for x in parts]
        )

    batch = Block(
        rows("tokens", 0), rows("positions", 0), rows("real", False), rows("drafted", False)
    )
    batch.q = rows("q", 0.5)
    if blocks[0].parents is not None:
        batch.parents = rows("parents", -1)
    if blocks[0].paths is not None:
        deepest = max(block.paths.shape[2] for block in blocks)
        batch.paths = np.stack(
            [
                np.pad(b.paths[0], ((0, 0), (0, deepest - b.paths.shape[2])), constant_values=-1)
                for b in blocks
            ]
        )
    return batch
