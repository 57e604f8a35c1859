"""From a drafter's marginals to a proposal: a chain, a best-first tree, a trie of paths."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.drafter import Marginals
from runtime.propose import Block, pad_with_anchor
from runtime.sampling import distribution, draw, foreseen, one_hot
from runtime.settings import Sampling
from runtime.tree import Nodes, best_first, trie

Array = NDArray[Any]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# at temperature 0 the target takes its likeliest token, which is the drafter's likeliest more often
# than a draw would be: measured, as often as its probability at this temperature says
LIKELIEST = Sampling(temperature=0.45)

SIBLINGS = 8  # most drawn children of a node
DOUBT = 0.5  # how far the overlap of drafter and target falls where the drafter is in doubt
LATER = 0.4  # chance of a younger sibling when the elder ones have fallen


def chain(marginals: Marginals, sampling: Sampling, u: Floats | None, want_q: bool) -> Block:
    """The likeliest token at every place, or a draw.

    Args:
        u: [N, W] uniforms; None at temperature 0.
        want_q: keep the distributions that the drafts were drawn from.
    """
    block, at = marginals.block, np.nonzero(marginals.block.drafted)
    q = None
    if u is None:
        block.tokens[at] = marginals.logits.argmax(axis=-1)
    else:
        q = distribution(marginals.logits, sampling)
        block.tokens[at] = draw(q, u[at])
    pad_with_anchor(block)
    if want_q and q is not None:
        block.q = one_hot(block.tokens, marginals.logits.shape[-1])
        block.q[at] = q
    return block


def best_nodes(
    marginals: Marginals, sampling: Sampling, budget: int, u: Floats | None = None
) -> tuple[Nodes, Ints]:
    """The best-first tree's nodes, and the tokens by depth and rank [N, D, R].

    Above temperature 0 the marginals are processed like the target, since a node is reached as
    often as the target samples it.

    Args:
        u: [N, W] the numbers that the target will draw with, where they may be used: a node is then
            as likely as the target's draw at that number.
    """
    block = marginals.block
    n, w = block.tokens.shape
    q = distribution(marginals.logits, sampling if sampling.temperature > 0 else LIKELIEST)
    if u is not None:
        q = foreseen(q, u[np.nonzero(block.drafted)])
    ranks = min(budget, q.shape[-1])
    if ranks < q.shape[-1]:
        likeliest = np.argpartition(-q, ranks - 1, axis=-1)[:, :ranks]
        order = np.argsort(-np.take_along_axis(q, likeliest, axis=-1), axis=-1, kind="stable")
        likeliest = np.take_along_axis(likeliest, order, axis=-1)
    else:
        likeliest = np.argsort(-q, axis=-1, kind="stable")
    logs = np.full((n, w - 1, ranks), -np.inf)
    tokens = np.zeros((n, w - 1, ranks), np.int64)
    fixed = block.real[:, 1:] & ~block.drafted[:, 1:]
    logs[fixed, 0] = 0.0
    tokens[..., 0] = np.maximum(block.tokens[:, 1:], 0)
    with np.errstate(divide="ignore"):
        logs[block.drafted[:, 1:]] = np.log(np.take_along_axis(q, likeliest, axis=-1))
    tokens[block.drafted[:, 1:]] = likeliest
    return best_first(logs, budget), tokens


def best_tree(marginals: Marginals, nodes: Nodes, tokens: Ints, width: int) -> Block:
    """The `width` - 1 best nodes with the likeliest tokens (DDTree, arXiv 2604.12989)."""
    block = _tree_block(marginals.block, nodes, width)
    depth, rank = nodes.depth[:, : width - 1], nodes.rank[:, : width - 1]
    at = np.arange(len(depth))[:, None]
    block.tokens[:, 1:] = tokens[at, np.maximum(depth - 1, 0), rank]
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
    q = distribution(marginals.logits, sampling)
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

    Args:
        u: [N, width] uniforms, one a row.
    """
    block = _tree_block(marginals.block, nodes, width)
    q = one_hot(np.maximum(marginals.block.tokens, 0), marginals.logits.shape[-1])
    q[np.nonzero(marginals.block.drafted)] = distribution(marginals.logits, sampling)
    parents = block.parents
    assert parents is not None
    drawn = np.zeros((*parents.shape, int(nodes.rank.max()) + 1), np.int64)  # by parent and rank
    block.q = q[np.arange(len(q))[:, None], block.depth]
    rank = nodes.rank[:, : width - 1]
    for nth in range(int(rank.max()) + 1):  # all first children at once, then all second ones
        at = np.nonzero(block.real[:, 1:] & (rank == nth))
        at = at[0], at[1] + 1
        left = block.q[at]
        for elder in range(nth):
            left[np.arange(len(left)), drawn[at[0], parents[at], elder]] = 0.0
        block.tokens[at] = draw(left, u[at])
        drawn[at[0], parents[at], nth] = block.tokens[at]
    return block


def paths(marginals: Marginals, k: int, sampling: Sampling, u: Floats) -> Block:
    """k independent paths, merged where they share a beginning (SpecTr, arXiv 2310.15141).

    Args:
        u: [N, W, k] uniforms.
    """
    chain_block = marginals.block
    q = one_hot(np.maximum(chain_block.tokens, 0), marginals.logits.shape[-1])
    q[np.nonzero(chain_block.drafted)] = distribution(marginals.logits, sampling)
    drawn = np.repeat(np.maximum(chain_block.tokens, 0)[..., None], k, axis=-1)  # [N, W, k]
    at = np.nonzero(chain_block.drafted)
    drawn[at] = draw(q[at][:, None], u[at])
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
    block.q = q[np.arange(len(q))[:, None], block.depth]
    return block


def _tree_block(known: Block, nodes: Nodes, width: int) -> Block:
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
