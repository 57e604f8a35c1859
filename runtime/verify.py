"""Acceptance rules for drafted chains: pure functions over arrays, vectorised over rollouts.

Common shapes: `drafts` [N, K] tokens; `q` [N, K, V] the distributions they were drawn from; `p`
[N, K+1, V] the target's processed distributions, row j conditional on the drafts before j; `limit`
[N] how many of the K drafts are real (the rest is padding). The sampled rules return `(accepted,
after)`: [N] how many drafts stand, and [N, V] the (unnormalised) distribution of the token that
follows them. Fixed tokens need no case of their own: there p and q are the same one-hot.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Verdict = tuple[Ints, Floats]


def match(drafts: Ints, choices: Ints, limit: Ints) -> tuple[Ints, Ints]:
    """Keep drafts while they equal the target's own choice.

    Exact whatever the drafts are: each emitted token is the target's choice given its own prefix
    (argmax at temperature 0; a sample otherwise, as in DFlash's reference decoding and DDTree).

    Args:
        choices: [N, K+1] the target's choice at every row.

    Returns:
        [N] how many drafts stand, [N] the choice that follows them.
    """
    agree = (drafts == choices[:, :-1]) & (np.arange(drafts.shape[1]) < limit[:, None])
    accepted = agree.cumprod(axis=1).sum(axis=1)
    return accepted, choices[np.arange(len(choices)), accepted]


def token_wise(drafts: Ints, q: Floats, p: Floats, limit: Ints, u: Floats) -> Verdict:
    """Speculative sampling (Leviathan et al. 2023, Algorithm 1).

    Draft x at row j stands with probability min(1, p_j(x) / q_j(x)); at the first that falls the
    next token comes from norm((p_j - q_j)+), after a full chain from p.

    Args:
        u: [N, K] uniforms.
    """
    ratio_p, ratio_q = _at(p[:, :-1], drafts), _at(q, drafts)
    stands = u * ratio_q < ratio_p
    stands &= np.arange(drafts.shape[1]) < limit[:, None]
    accepted = stands.cumprod(axis=1).sum(axis=1)
    rows = np.arange(len(drafts))
    after = p[rows, accepted]
    fell = accepted < limit
    residual = np.maximum(after[fell] - q[rows[fell], accepted[fell]], 0.0)
    after[fell] = _or_else(residual, after[fell])
    return accepted, after


def block_wise(drafts: Ints, q: Floats, p: Floats, limit: Ints, u: Floats) -> Verdict:
    """Block verification (Sun et al. 2024, Algorithm 2): never accepts less than token-wise.

    w_0 = 1, w_i = min(1, w_{i-1} p_i(x_i) / q_i(x_i)); the accepted length is the largest i with
    u_i <= h_i, where h_i = S_i / (S_i + 1 - w_i), S_i = sum (w_i p_{i+1} - q_{i+1})+ inside the
    block and h = w at its end. The next token comes from norm((w_i p_{i+1} - q_{i+1})+), or from p
    at the end.

    Args:
        u: [N, K] uniforms.
    """
    n, k = drafts.shape
    weight = np.ones(n)
    accepted = np.zeros(n, np.int64)
    weight_at = np.ones(n)  # w at the accepted length
    p_at, q_at = _at(p[:, :-1], drafts), _at(q, drafts)
    for i in range(1, k + 1):
        inside = i <= limit
        step = np.divide(p_at[:, i - 1], q_at[:, i - 1], out=np.ones(n), where=q_at[:, i - 1] > 0)
        weight = np.where(inside, np.minimum(1.0, weight * step), weight)
        h = weight.copy()
        if i < k:
            more = np.maximum(weight[:, None] * p[:, i] - q[:, i], 0.0).sum(axis=1)
            below = more + (1.0 - weight)  # in this order h is exactly 1 where weight is
            h_inside = np.divide(more, below, out=np.ones(n), where=below > 0)
            h = np.where(i < limit, h_inside, weight)
        stands = inside & (u[:, i - 1] <= h)
        accepted[stands] = i
        weight_at[stands] = weight[stands]
    rows = np.arange(n)
    after = p[rows, accepted]
    fell = accepted < limit
    residual = np.maximum(weight_at[fell, None] * after[fell] - q[rows[fell], accepted[fell]], 0.0)
    after[fell] = _or_else(residual, after[fell])
    return accepted, after


def _at(distributions: Floats, tokens: Ints) -> Floats:
    """[N, K]: each row's probability of its token."""
    return np.take_along_axis(distributions, tokens[..., None], axis=-1)[..., 0]


def _or_else(residual: Floats, p: Floats) -> Floats:
    """The residual, or p where rounding left none (then p equals q, and nothing falls)."""
    return np.where(residual.sum(axis=-1, keepdims=True) > 0, residual, p)
