"""From a drafter's marginals to a proposal: a chain, a tree of drawn tokens, a trie of paths."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from runtime.marginals import Marginals, Some, settle
from runtime.propose import Block, pad_with_anchor
from runtime.race import Race
from runtime.sampling import draw
from runtime.settings import Sampling
from runtime.tree import Nodes, best_first, trie

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SIBLINGS = 8  # most drawn children of a node
DOUBT = 0.5  # how far the overlap of drafter and target falls where the drafter is in doubt
LATER = 0.4  # chance of a younger sibling when the elder ones have fallen


def chain(
    marginals: Marginals, sampling: Sampling, numbers: Floats | Race | None, want_q: bool
) -> Block:
    """The likeliest token at every place, or a draw.

    Args:
        numbers: [N, W] uniforms, or the target's own race; None for the likeliest.
        want_q: keep the distributions that the drafts were drawn from.
    """
    block, at = marginals.block, np.nonzero(marginals.block.drafted)
    given = None if numbers is None else marginals.under(sampling)
    if isinstance(numbers, Race):
        of_slots: Floats | Race | None = marginals.raced(numbers)
    else:
        of_slots = None if numbers is None else numbers[at]

    def drawn(some: Some, previous: Ints) -> Ints:
        if given is None or of_slots is None:
            return marginals.likeliest(some, previous)
        return given(some, previous).draw(of_slots[some])

    settle(block.tokens, at, marginals, drawn)
    pad_with_anchor(block)
    if want_q and given is not None:
        block.q = given.drawn_from(block, marginals.slots)
    return block


def drawn_nodes(marginals: Marginals, sampling: Sampling, budget: int) -> Nodes:
    """The best-first tree for drawn tokens: by how likely each child of a node is the one to stand.

    A first child x ~ q stands with probability sum_x min(p, q). The target's p is not known; the
    measured overlap falls about linearly in the doubt 1 - sum_x q(x)^2. A younger sibling, drawn
    without the elder ones, gets its chance when they have fallen.
    """
    block = marginals.block
    n, w = block.tokens.shape
    ranks = min(budget, SIBLINGS)
    # what is drawn must not change the shape: where it matters, along the likeliest tokens
    q = marginals.under(sampling).along_the_likeliest(block)
    falls = DOUBT * (1.0 - np.square(q).sum(axis=-1))
    chances = np.full((n, w - 1, ranks), -np.inf)
    chances[block.real[:, 1:] & ~block.drafted[:, 1:], 0] = 0.0
    later = LATER * (1.0 - LATER) ** np.arange(ranks - 1)
    stands = np.concatenate([1.0 - falls[:, None], falls[:, None] * later], axis=-1)
    there_are = np.count_nonzero(q, axis=-1)[:, None]
    with np.errstate(divide="ignore"):
        chances[block.drafted[:, 1:]] = np.where(
            np.arange(ranks) < there_are, np.log(stands), -np.inf
        )
    return best_first(chances, budget)


def sampled_tree(
    marginals: Marginals, nodes: Nodes, width: int, sampling: Sampling, u: Floats
) -> Block:
    """The best tree's shape, its tokens drawn: siblings without replacement, in row order.

    A row for which no token is left is missing, and with it all below.

    Args:
        u: [N, width] uniforms, one a row.
    """
    block, given = tree_block(marginals.block, nodes, width), marginals.under(sampling)
    assert block.parents is not None
    block.tokens = np.take_along_axis(marginals.block.tokens, block.depth, axis=1)
    rollout, row = np.nonzero(block.drafted)
    depth, parent = block.depth[rollout, row], block.parents[rollout, row]
    rank = nodes.rank[rollout, row - 1]
    slot, number = marginals.slots[rollout, depth], np.arange(len(row))
    drawn = np.zeros((*block.parents.shape, int(nodes.rank.max()) + 1), np.int64)  # by parent, rank
    for some in marginals.in_order(depth):
        for nth in range(int(rank[some].max(initial=-1)) + 1):  # first children, then second ones
            at = number[some][rank[some] == nth]
            options = given(slot[at], block.tokens[rollout[at], parent[at]])
            left = options.q
            for elder in range(nth):
                left[np.arange(len(left)), drawn[rollout[at], parent[at], elder]] = 0.0
            column = draw(left, u[rollout[at], row[at]])
            drawn[rollout[at], parent[at], nth] = column
            block.tokens[rollout[at], row[at]] = options.of_columns(column)
            block.real[rollout[at], row[at]] = left[np.arange(len(left)), column] > 0
    if not block.real[rollout, row].all():
        _drop(block)
    block.q = given.drawn_from(block, marginals.slots)
    return block


def paths(marginals: Marginals, k: int, sampling: Sampling, u: Floats) -> Block:
    """k independent paths, merged where they share a beginning (SpecTr, arXiv 2310.15141).

    Args:
        u: [N, W, k] uniforms.
    """
    chain_block, given = marginals.block, marginals.under(sampling)
    drawn = np.repeat(np.maximum(chain_block.tokens, 0)[..., None], k, axis=-1)  # [N, W, k]
    at = np.nonzero(chain_block.drafted)
    for some in marginals.in_order(at[1]):
        row, place = at[0][some], at[1][some]
        drawn[row, place] = given(some, drawn[row, place - 1]).draw(u[row, place])
    block = merged_paths(chain_block, drawn)
    block.q = given.drawn_from(block, marginals.slots)
    return block


def merged_paths(chain_block: Block, drawn: Ints) -> Block:
    """The trie of paths whose tokens are `drawn` [N, W, k]; each is a chain like `chain_block`."""
    k = drawn.shape[-1]
    merged = [trie(drawn[n, 1 : 1 + limit].T) for n, limit in enumerate(chain_block.limit)]
    width = max(len(parents) for parents, _, _ in merged)
    block = _empty(chain_block, width)
    assert block.parents is not None
    block.paths = np.full((len(merged), k, chain_block.width - 1), -1)
    for n, (parents, tokens, rows) in enumerate(merged):
        size = len(parents)
        depth = np.zeros(size, np.int64)
        depth[rows] = np.arange(1, rows.shape[1] + 1)
        block.parents[n, :size] = parents
        block.tokens[n, 1:size] = tokens[1:]
        block.positions[n, :size] += depth
        block.real[n, :size] = True
        block.drafted[n, :size] = chain_block.drafted[n, depth]
        block.paths[n, :, : rows.shape[1]] = rows
    return block


def tree_block(known: Block, nodes: Nodes, width: int) -> Block:
    """The best `width` - 1 nodes as rows whose tokens are not filled in yet."""
    block = _empty(known, width)
    assert block.parents is not None
    block.parents[:, 1:] = nodes.parents[:, : width - 1]
    block.real[:, 1:] = block.parents[:, 1:] >= 0
    block.positions[:, 1:] += nodes.depth[:, : width - 1]
    block.drafted = np.take_along_axis(known.drafted, block.depth, axis=1) & block.real
    return block


def _empty(known: Block, width: int) -> Block:
    """`width` rows of which only the anchor is real."""
    n = len(known.tokens)
    real = np.zeros((n, width), np.bool_)
    real[:, 0] = True
    return Block(
        tokens=np.repeat(known.tokens[:, :1], width, axis=1),
        positions=np.repeat(known.positions[:, :1], width, axis=1),
        real=real,
        drafted=np.zeros((n, width), np.bool_),
        parents=np.full((n, width), -1),
        draft_width=known.draft_width,
    )


def _drop(block: Block) -> None:
    """Rows below a row that is missing are missing too; missing rows become padding."""
    assert block.parents is not None
    held = np.maximum(block.parents, 0)
    for _ in range(int(block.depth.max())):
        block.real &= np.take_along_axis(block.real, held, axis=1)
    block.drafted &= block.real
    block.parents[~block.real] = -1
    for each in (block.tokens, block.positions):
        each[:] = np.where(block.real, each, each[:, :1])
