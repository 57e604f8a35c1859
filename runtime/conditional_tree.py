"""The best-first tree where a token's probability depends on the token before it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from runtime.tree import Nodes

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
# (depth, rollouts [K], their prefixes' last tokens [K]) -> log probabilities and tokens [K, C]
Children = Callable[[int, Ints, Ints], tuple[Floats, Ints]]


def best_first_given(
    roots: Ints, depths: int, budget: int, children: Children
) -> tuple[Nodes, Ints]:
    """The `budget` most probable prefixes of each rollout over all depths, and their tokens [N, n].

    DDTree's tree (arXiv 2604.12989) with conditional probabilities. No prefix is less probable than
    its extension, so the best ones stay prefix-closed, and only prefixes that are among the best so
    far are worth extending: depth by depth, all rollouts at once.

    Args:
        roots: [N] the anchors' tokens.
        children: of some prefixes at a depth; -inf where there is none.
    """
    n = len(roots)
    best = np.full((n, budget), -np.inf)  # the best scores so far, in no order
    rollout, token, score, number = np.arange(n), roots, np.zeros(n), np.full(n, -1)
    found: list[tuple[Ints, Ints, Floats, Ints, Ints]] = []
    count = 0
    for depth in range(1, depths + 1):
        logs, tokens = children(depth, rollout, token)
        scores = score[:, None] + logs
        # of equals the earlier one comes first, as it does below
        at = np.nonzero(scores > best.min(axis=1)[rollout, None])
        if len(at[0]) == 0:
            break
        rollout, token, score, parent = rollout[at[0]], tokens[at], scores[at], number[at[0]]
        best = _merged(best, rollout, score)
        number = count + np.arange(len(rollout))
        count += len(rollout)
        found.append((rollout, token, score, parent, np.full(len(rollout), depth)))
        extended = score > best.min(axis=1)[rollout]
        rollout, token, score, number = (each[extended] for each in (rollout, token, score, number))
        if len(rollout) == 0:
            break
    return _nodes(n, budget, found)


def _merged(best: Floats, rollout: Ints, score: Floats) -> Floats:
    """The best scores [N, budget] when some more, sorted by rollout, have come."""
    n, budget = best.shape
    counts = np.bincount(rollout, minlength=n)
    place = np.arange(len(rollout)) - np.repeat(counts.cumsum() - counts, counts)
    more = np.full((n, budget + int(counts.max())), -np.inf)
    more[:, :budget] = best
    more[rollout, budget + place] = score
    return np.asarray(np.partition(more, -budget, axis=1)[:, -budget:])


def _nodes(
    n: int, budget: int, found: list[tuple[Ints, Ints, Floats, Ints, Ints]]
) -> tuple[Nodes, Ints]:
    """The best of what was found, as rows, best first."""
    parents, depth = np.full((n, budget), -1), np.zeros((n, budget), np.int64)
    rank, score = np.zeros((n, budget), np.int64), np.full((n, budget), -np.inf)
    token = np.zeros((n, budget), np.int64)
    if found:
        rollouts, tokens, scores, above, depths = (
            np.concatenate(part) for part in zip(*found, strict=True)
        )
        order = np.lexsort((-scores, rollouts))  # stable: a parent comes before its equals below
        counts = np.bincount(rollouts, minlength=n)
        place = np.arange(len(order)) - np.repeat(counts.cumsum() - counts, counts)
        chosen, row = order[place < budget], place[place < budget]
        row_of = np.zeros(len(order) + 1, np.int64)  # the last for the root: parent -1
        row_of[chosen] = row + 1
        at = rollouts[chosen], row
        parents[at], depth[at] = row_of[above[chosen]], depths[chosen]
        score[at], token[at] = scores[chosen], tokens[chosen]
        elder = np.tril(parents[:, :, None] == parents[:, None], -1) & (parents >= 0)[:, None]
        rank = elder.sum(axis=2)
    return Nodes(parents, depth, rank, score), token
