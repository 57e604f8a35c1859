"""The best-first tree: the likeliest prefixes of all depths (DDTree, arXiv 2604.12989)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from runtime.conditional_tree import best_first_given
from runtime.marginals import Conditionals, Marginals
from runtime.propose import Block
from runtime.race import Race
from runtime.sampling import distribution
from runtime.settings import Sampling
from runtime.shapes import tree_block
from runtime.tree import Nodes, best_first

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# at temperature 0 the target takes its likeliest token, which is the drafter's likeliest more often
# than a draw would be: measured, as often as its probability at this temperature says
LIKELIEST = Sampling(temperature=0.45)


def best_nodes(
    marginals: Marginals, sampling: Sampling, budget: int, race: Race | None = None
) -> tuple[Nodes, Ints]:
    """The best-first tree's nodes, and their tokens [N, n].

    Above temperature 0 the marginals are processed like the target, since a node is reached as
    often as the target samples it.

    Args:
        race: [N, W] that of the target's own draws, where it may be looked at: a node is then as
            likely as its token is to win.
    """
    hot = sampling if sampling.temperature > 0 else LIKELIEST
    if marginals.markov is None:
        return _independent(marginals, hot, budget, race)
    return _conditional(marginals, marginals.under(hot), budget, race)


def best_tree(marginals: Marginals, nodes: Nodes, tokens: Ints, width: int) -> Block:
    """The `width` - 1 best nodes with their tokens."""
    block = tree_block(marginals.block, nodes, width)
    block.tokens[:, 1:] = tokens[:, : width - 1]
    return block


def _independent(
    marginals: Marginals, sampling: Sampling, budget: int, race: Race | None
) -> tuple[Nodes, Ints]:
    """All slots' likeliest tokens, ranked once."""
    block = marginals.block
    n, w = block.tokens.shape
    q = distribution(marginals.logits, sampling)
    if race is not None:
        q = marginals.raced(race).foreseen(q)
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
    nodes = best_first(logs, budget)
    return nodes, tokens[np.arange(n)[:, None], np.maximum(nodes.depth - 1, 0), nodes.rank]


def _conditional(
    marginals: Marginals, given: Conditionals, budget: int, race: Race | None
) -> tuple[Nodes, Ints]:
    """Slots whose distribution depends on the node's parent."""
    block, slots = marginals.block, marginals.slots
    of_slots = None if race is None else marginals.raced(race)

    def children(depth: int, rollouts: Ints, parents: Ints) -> tuple[Floats, Ints]:
        slot = slots[rollouts, depth]
        drafted = np.flatnonzero(slot >= 0)
        known = np.flatnonzero((slot < 0) & block.real[rollouts, depth])
        options = given(slot[drafted], parents[drafted])
        q = options.q if of_slots is None else of_slots[slot[drafted]].foreseen(options.q)
        with np.errstate(divide="ignore"):
            logs = np.log(q)
        tokens = options.tokens
        assert tokens is not None
        if len(drafted) < len(slot):
            logs_of_all = np.full((len(slot), logs.shape[-1]), -np.inf)
            tokens_of_all = np.zeros(logs_of_all.shape, np.int64)
            logs_of_all[drafted], tokens_of_all[drafted] = logs, tokens
            logs_of_all[known, 0] = 0.0
            tokens_of_all[known, 0] = block.tokens[rollouts[known], depth]
            return logs_of_all, tokens_of_all
        return logs, tokens

    return best_first_given(block.tokens[:, 0], block.width - 1, budget, children)
