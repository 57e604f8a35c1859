"""What the networks are trained to minimise."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

DrafterObjective = Literal["ce", "kl", "ce+kl"]


def weighted_mean(values: Tensor, weights: Tensor) -> Tensor:
    """Mean of `values` under `weights` of the same shape; 0 where every weight is 0."""
    return (values * weights).sum() / weights.sum().clamp_min(1e-9)


def token_loss(logits: Tensor, tokens: Tensor, weights: Tensor) -> Tensor:
    """Weighted mean cross-entropy of logits [..., V] and tokens [...], nats."""
    losses = functional.cross_entropy(
        logits.float().flatten(0, -2), tokens.flatten(), reduction="none"
    )
    return weighted_mean(losses, weights.flatten())


def distance_loss(points: Tensor, truth: Tensor) -> Tensor:
    """Mean Euclidean distance of points [..., 2], m: the regression twin of ADE."""
    return (points.float() - truth).square().sum(-1).add(1e-6).sqrt().mean()


def block_weights(rows: Tensor, gamma: float) -> Tensor:
    """exp(-(k - 1) / gamma) of block row k >= 1, 0 for the anchor's row (DFlash, section 4.2)."""
    return torch.exp(-(rows.float() - 1) / gamma) * (rows > 0)


def drafter_loss(
    logits: Tensor,
    tokens: Tensor,
    target_logits: Tensor,
    weights: Tensor,
    objective: DrafterObjective,
) -> Tensor:
    """How far the draft is from the target, over the drafted rows.

    Args:
        logits: [..., V] of the drafter at each row's own position.
        tokens: [...] what the target's response has there; the greedy draft should hit it.
        target_logits: [..., V] of the target at temperature 1, given all tokens before; a draft
            close to it is accepted often when sampling.
        weights: [...] from `block_weights`, 0 at scaffold rows.
        objective: cross-entropy to the token, KL(target || draft), or half of each.
    """
    loss = logits.new_zeros(())
    parts = objective.split("+")
    if "ce" in parts:
        loss = loss + token_loss(logits, tokens, weights) / len(parts)
    if "kl" in parts:
        target = functional.log_softmax(target_logits.float(), -1)
        draft = functional.log_softmax(logits.float(), -1)
        divergence = (target.exp() * (target - draft)).sum(-1)
        loss = loss + weighted_mean(divergence, weights) / len(parts)
    return loss
