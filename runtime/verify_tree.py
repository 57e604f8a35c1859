"""Acceptance rules for one rollout's token tree: pure functions over its rows.

Common arguments: `parents` [W] and `tokens` [W] (row 0 is the root; padding has parent -1 too);
`q` [W, V] the distribution that each row's token was drawn from; `p` [W, V] the target's processed
distribution behind each row. Each rule returns `(row, after)`: the last accepted row (the path from
the root to it stands) and [V] the (unnormalised) distribution of the token that follows it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Verdict = tuple[int, Floats]


def k_seq(paths: Ints, tokens: Ints, q: Floats, p: Floats, u: Floats) -> Verdict:
    """SpecTr's K-SEQ, position by position over the paths that still agree (arXiv 2310.15141).

    With k surviving drafts X_1..X_k of q at a position, X_i stands with probability
    min(1, p(X_i) / (rho q(X_i))); the first that stands is taken, and with it the paths that share
    it. If none stands the token comes from the residual
    (p - min(q, p/rho) p_acc/beta) / (1 - p_acc), p_acc = 1 - (1 - beta)^k.

    Args:
        paths: [k, D] row of each path's node, -1 past the end.
        u: [k, D] uniforms.
    """
    row, alive = 0, np.arange(len(paths))
    for depth in range(paths.shape[1]):
        rows = paths[alive, depth]
        if rows[0] < 0:
            break
        draft, target = q[rows[0]], p[row]
        rho = k_seq_rho(draft, target, len(alive))
        drafts = tokens[rows]
        stands = u[alive, depth] * rho * draft[drafts] < target[drafts]
        if not stands.any():
            return row, k_seq_residual(draft, target, len(alive), rho)
        row = int(rows[stands.argmax()])
        alive = alive[rows == row]
    return row, p[row]


def k_seq_rho(q: Floats, p: Floats, k: int) -> float:
    """The smallest rho in [1, k] with 1 - (1 - beta(rho))^k <= rho beta(rho), by bisection.

    beta(rho) = sum min(q, p / rho); q is the draft's distribution, p the target's.
    """

    def lacking(rho: float) -> bool:
        beta = float(np.minimum(q, p / rho).sum())
        return 1.0 - (1.0 - min(beta, 1.0)) ** k > rho * beta

    low, high = 1.0, float(k)
    if k == 1 or not lacking(low):
        return low
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if lacking(middle) else (low, middle)
    return high


def k_seq_residual(q: Floats, p: Floats, k: int, rho: float) -> Floats:
    """[V] unnormalised distribution of the token after k rejected drafts."""
    shared = np.minimum(q, p / rho)
    beta = float(shared.sum())
    if beta <= 0:
        return p
    accepted = 1.0 - (1.0 - min(beta, 1.0)) ** k
    residual = np.maximum(p - shared * (accepted / beta), 0.0)
    return residual if residual.sum() > 0 else p


def recursive_rejection(
    children: list[list[int]],
    tokens: Ints,
    q: Floats,
    p: Floats,
    u: Floats,
    replace: bool,
) -> Verdict:
    """Recursive rejection sampling over a tree (SpecInfer, arXiv 2305.09781).

    At a node, r starts as the target's distribution and d as the drafter's. Child after child, x
    stands with probability min(1, r(x) / d(x)); otherwise r becomes norm((r - d)+) and, for
    children drawn without replacement, d(x) becomes 0 and d is renormalised. If none stands the
    token comes from r.

    Args:
        children: rows of each row's children in the order they were drawn; a token drawn twice
            with replacement stands there twice.
        u: [W, C] uniforms by child and, with replacement, place in its parent's list; without, a
            child stands in the list once and its first uniform counts.
    """
    row = 0
    while True:
        left = p[row]
        taken = -1
        draft = q[children[row][0]].copy() if children[row] else left
        for place, child in enumerate(children[row]):
            token = int(tokens[child])
            if u[child, place if replace else 0] * draft[token] < left[token]:
                taken = child
                break
            left = np.maximum(left - draft, 0.0)
            left = left / left.sum() if left.sum() > 0 else p[row]
            if not replace:
                draft[token] = 0.0
                draft = draft / draft.sum() if draft.sum() > 0 else draft
        if taken < 0:
            return row, left
        row = taken


def traversal(children: list[list[int]], tokens: Ints, q: Floats, p: Floats, u: Floats) -> Verdict:
    """Traversal verification of a tree drawn without replacement (arXiv 2505.12398).

    Leaf to root: visit(node, w) gives each child x the weight w_x = min(1, w p(x) / q(x)) and
    visits it; a leaf stands with probability w_x, with its whole path. When a child's subtree
    falls, r = (w p - q)+, w <- S / (S + 1 - w) with S = sum r, p <- r / S, and q loses x. When all
    have fallen the node itself stands with probability w, the next token drawn from the present p.

    Args:
        children: rows of each row's children in the order they were drawn.
        u: [W] uniforms.
    """

    def visit(row: int, weight: float) -> Verdict | None:
        target = p[row]
        draft = q[children[row][0]].copy() if children[row] else target
        for child in children[row]:
            token = int(tokens[child])
            ratio = target[token] / draft[token] if draft[token] > 0 else 0.0
            if (verdict := visit(child, min(1.0, weight * ratio))) is not None:
                return verdict
            residual = np.maximum(weight * target - draft, 0.0)
            mass = float(residual.sum())
            below = mass + (1.0 - weight)  # in this order the root's weight stays exactly 1
            weight = mass / below if below > 0 else 1.0
            target = residual / mass if mass > 0 else target
            draft[token] = 0.0
            draft = draft / draft.sum() if draft.sum() > 0 else draft
        if u[row] <= weight:
            return row, target
        return None

    verdict = visit(0, 1.0)
    assert verdict is not None, "the root has weight 1"
    return verdict
