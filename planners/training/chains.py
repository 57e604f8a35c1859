"""Losses that know that a block is accepted from left to right, up to the first wrong row.

A grid [M, K] holds M blocks of K rows behind the anchor. `inside` marks the rows that a block has:
those up to its width, and up to the end of the sequence. Known rows (fixed tokens) are accepted for
sure, so they stand in a grid of log-acceptances as 0 and are never an error.
"""

from __future__ import annotations

import torch
from torch import Tensor


def chain_reward(log_accept: Tensor, inside: Tensor) -> Tensor:
    """R, the expected share of rows that are accepted (arXiv 2606.11552, chain reward).

    For one full block R = 1/K sum_k prod_{j<=k} a_j. Over blocks of different widths every row
    counts the same, wherever it stands.

    Args:
        log_accept: [M, K] log a_k, how likely row k is to be accepted once it is reached.
        inside: [M, K] bool.
    """
    reach = log_accept.cumsum(-1).exp() * inside
    return reach.sum() / inside.sum().clamp_min(1)


def block_reward(log_ratio: Tensor, inside: Tensor) -> Tensor:
    """The expected share of rows that block verification keeps of drawn drafts, without bias.

    With tokens that the target has drawn, P(at least k rows stand) is the mean of
    min(1, min_{j<=k} prod_{i<=j} q_i/p_i): the acceptance probabilities of arXiv 2403.10444,
    algorithm 2, with the roles of draft and target exchanged.

    Args:
        log_ratio: [M, K] log q - log p of the response's tokens; 0 at known rows.
        inside: [M, K] bool.
    """
    lowest = log_ratio.cumsum(-1).cummin(-1).values
    reach = lowest.clamp_max(0.0).exp() * inside
    return reach.sum() / inside.sum().clamp_min(1)


def first_error_loss(losses: Tensor, wrong: Tensor, weights: Tensor, eps: float = 1e-9) -> Tensor:
    """Mean loss of each block's first wrong row (arXiv 2606.11552, first-error loss).

    L = sum w_{k*} (-log p_{k*}) / (sum w_{k*} + eps) over the blocks that have an error. The
    selection is hard and has no gradient; blocks without an error count nothing.

    Args:
        losses: [M, K] -log p_k.
        wrong: [M, K] bool, drafted and argmax q_k is not the token; false at known rows.
        weights: [M, K] of the rows.
    """
    first = wrong & (wrong.int().cumsum(-1) == 1)
    chosen = weights * first
    return (losses * chosen).sum() / (chosen.sum() + eps)


def pace_weights(log_accept: Tensor, inside: Tensor, smoothing: float = 0.5) -> Tensor:
    """D-PACE's weights [M, K] without gradient (arXiv 2605.18810).

    w_k = sum_{j>=k} prod_{m<=j} s_m with s_k = (1 - a) p_k + a: the chain reward's gradient,
    softened so that rows behind an unlikely one still learn.

    Args:
        log_accept: [M, K] log p_k, 0 at known rows.
        smoothing: a.
    """
    p = log_accept.detach().exp()
    # a known row has p = 1, so s = 1
    reach = ((1.0 - smoothing) * p + smoothing).cumprod(-1) * inside
    return reach.flip(-1).cumsum(-1).flip(-1)


def pace_loss(log_accept: Tensor, inside: Tensor, smoothing: float = 0.5) -> Tensor:
    """Cross-entropy -log p_k under D-PACE's weights, on the chain reward's scale."""
    weights = pace_weights(log_accept, inside, smoothing)
    return -(weights * log_accept).sum() / inside.sum().clamp_min(1)


def row_weights(rows: Tensor, gamma: float | None) -> Tensor:
    """exp(-(k - 1) / gamma) of block row k >= 1 (arXiv 2602.06036, section 4.2); None: all 1."""
    if gamma is None:
        return torch.ones_like(rows, dtype=torch.float32)
    return torch.exp(-(rows.float() - 1.0) / gamma)
