"""What the target is trained to minimise; the drafter's objective is in `drafter_objective.py`."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional


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
