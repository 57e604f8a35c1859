"""Token trees: building the best one from a drafter's marginals, and who sees whom in it.

A tree is a row of nodes, parents before children; row 0 is the root (the anchor, already decided).
`parents` [N, W] holds each row's parent row, -1 for the root and for padding.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from runtime.cache import MASKED

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Nodes:
    """The n best prefixes of each rollout, best first.

    Attributes:
        parents: [N, n] row of the parent, counted with the root as row 0; -1 for padding.
        depth: [N, n]; 1 is the first position behind the anchor.
        rank: [N, n]; the node's token is the rank-th likeliest at its depth.
        score: [N, n] log probability of the prefix under the marginals; -inf for padding.
    """

    parents: Ints
    depth: Ints
    rank: Ints
    score: Floats

    @property
    def most(self) -> int:
        """The most real nodes of any rollout."""
        return int(np.isfinite(self.score).sum(axis=1).max())


def best_first(log_probabilities: Floats, budget: int) -> Nodes:
    """The `budget` most probable prefixes over all depths (DDTree, arXiv 2604.12989).

    They maximise the expected accepted length if the target followed the product of the marginals,
    and are prefix-closed, as no prefix is less probable than its extension. The paper pops them
    off a heap; here each depth keeps its best `budget` prefixes, which is the same set, for all
    rollouts at once. The budget does not count the root.

    Args:
        log_probabilities: [N, D, R]; at each depth the R likeliest tokens', falling; -inf where
            there is none (a fixed token is the only child: [0, -inf, ...]).
    """
    n, depths, ranks = log_probabilities.shape
    above, nth = _pairs(budget, ranks)
    frontier = np.full((n, budget), -np.inf)
    frontier[:, 0] = 0.0
    scores, parent_places, own_ranks = [], [], []
    for depth in range(depths):
        # prefix i with rank r is behind (i+1)(r+1)-1 others of its depth, so few pairs can matter
        candidates = frontier[:, above] + log_probabilities[:, depth, nth]
        order = np.argsort(-candidates, axis=1, kind="stable")[:, :budget]
        frontier = np.take_along_axis(candidates, order, axis=1)
        if frontier.shape[1] < budget:
            missing = budget - frontier.shape[1]
            frontier = np.pad(frontier, ((0, 0), (0, missing)), constant_values=-np.inf)
            order = np.pad(order, ((0, 0), (0, missing)))
        scores.append(frontier)
        parent_places.append(above[order])
        own_ranks.append(nth[order])
    return _select(np.stack(scores, 1), np.stack(parent_places, 1), np.stack(own_ranks, 1), budget)


def _select(scores: Floats, parent_places: Ints, ranks: Ints, budget: int) -> Nodes:
    """The best of all depths' prefixes [N, D, budget], parents turned into rows."""
    n, depths, wide = scores.shape
    flat = scores.reshape(n, -1)
    # stable and depth by depth: of equals the parent comes first
    chosen = np.argsort(-flat, axis=1, kind="stable")[:, :budget]
    score = np.take_along_axis(flat, chosen, axis=1)
    depth = chosen // wide
    row_of = np.zeros((n, depths * wide), np.int64)
    rows = np.arange(1, chosen.shape[1] + 1)
    np.put_along_axis(row_of, chosen, np.broadcast_to(rows, chosen.shape), axis=1)
    above = np.take_along_axis(parent_places.reshape(n, -1), chosen, axis=1)
    at = np.maximum((depth - 1) * wide + above, 0)
    parents = np.where(depth == 0, 0, np.take_along_axis(row_of, at, axis=1))
    real = np.isfinite(score)
    return Nodes(
        np.where(real, parents, -1),
        np.where(real, depth + 1, 0),
        np.take_along_axis(ranks.reshape(n, -1), chosen, axis=1),
        score,
    )


@lru_cache(maxsize=64)
def _pairs(budget: int, ranks: int) -> tuple[Ints, Ints]:
    """(prefix, rank) pairs that can be among the best `budget` of a depth, prefix by prefix."""
    pairs = [(i, r) for i in range(budget) for r in range(min(ranks, budget // (i + 1)))]
    prefix, rank = np.asarray(pairs, np.int64).T
    return prefix, rank


def trie(paths: Ints) -> tuple[Ints, Ints, Ints]:
    """Merge paths that share a beginning.

    Args:
        paths: [k, D] tokens.

    Returns:
        parents [W] and tokens [W] of the rows (the root is row 0, its token -1), and the row of
        each path's node at each depth [k, D].
    """
    parents, tokens = [-1], [-1]
    rows = np.zeros(paths.shape, np.int64)
    children: dict[tuple[int, int], int] = {}
    for depth in range(paths.shape[1]):
        for path in range(len(paths)):
            above = int(rows[path, depth - 1]) if depth else 0
            token = int(paths[path, depth])
            row = children.setdefault((above, token), len(parents))
            if row == len(parents):
                parents.append(above)
                tokens.append(token)
            rows[path, depth] = row
    return np.asarray(parents), np.asarray(tokens), rows


def ancestors(parents: Ints) -> NDArray[np.bool_]:
    """[N, W, W]: row i descends from (or is) row j."""
    n, w = parents.shape
    sees = np.zeros((n, w + 1, w), np.bool_)  # parent -1 is the last row: it sees nothing
    rollouts = np.arange(n)
    for row in range(w):
        sees[:, row] = sees[rollouts, parents[:, row]]
        sees[:, row, row] = True
    return sees[:, :w]


def tree_bias(parents: Ints) -> NDArray[np.float32]:
    """[N, W, W] bias of a tree: each row sees its ancestors and itself."""
    return np.asarray(np.where(ancestors(parents), np.float32(0.0), MASKED))


@lru_cache(maxsize=256)
def causal(width: int) -> NDArray[np.float32]:
    """[S, S] bias of a chain: each row sees itself and those before it."""
    return np.triu(np.full((width, width), MASKED), 1)


def looking_ahead(ahead: NDArray[np.bool_]) -> NDArray[np.float32]:
    """[N, S, S] bias of chains, and masks `ahead` [N, S] behind them that see each other too."""
    both = ahead[:, :, None] & ahead[:, None]
    return np.where(both, np.float32(0.0), causal(ahead.shape[1]))
