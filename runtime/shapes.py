"""From a drafter's marginals to a proposal: a chain, a best-first tree, a trie of paths."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.drafter import Marginals
from runtime.propose import Block, pad_with_anchor
from runtime.sampling import distribution, draw, one_hot
from runtime.settings import Sampling
from runtime.tree import Nodes, best_first, trie

Array = NDArray[Any]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

RAW = Sampling(temperature=1.0)


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


def best_nodes(marginals: Marginals, sampling: Sampling, budget: int) -> tuple[Nodes, Ints]:
    """The best-first tree's nodes, and the tokens by depth and rank [N, D, R].

    At temperature 0 the marginals count as they are (as in DDTree's release); above it they are
    processed like the target, since a node is reached as often as the target samples it.
    """
    block = marginals.block
    n, w = block.tokens.shape
    q = distribution(marginals.logits, sampling if sampling.temperature > 0 else RAW)
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
    block.q = np.take_along_axis(q, block.depth[..., None], axis=1)
    for n, row in zip(*np.nonzero(block.real), strict=True):
        if row == 0:
            continue
        left = block.q[n, row].copy()
        siblings = np.flatnonzero(parents[n, :row] == parents[n, row])
        left[block.tokens[n, siblings]] = 0.0
        block.tokens[n, row] = draw(left, u[n, row])
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
    block.q = np.take_along_axis(q, block.depth[..., None], axis=1)
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
