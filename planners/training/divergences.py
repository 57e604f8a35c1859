"""How far a draft's distribution is from the target's, one figure for each row.

Every function takes log-probabilities [..., V] of the target, p, and of the draft, q, and returns
[...]. A token that the target can't say may have log p = -inf or a large negative number.
"""

from __future__ import annotations

import torch
from torch import Tensor


def forward_kl(log_p: Tensor, log_q: Tensor) -> Tensor:
    """KL(p || q) in nats: q must cover whatever the target says."""
    return (log_p.exp() * (log_p.clamp_min(-1e4) - log_q)).sum(-1)


def reverse_kl(log_p: Tensor, log_q: Tensor) -> Tensor:
    """KL(q || p) in nats: q must not say what the target would not."""
    return (log_q.exp() * (log_q - log_p.clamp_min(-1e4))).sum(-1)


def log_acceptance(log_p: Tensor, log_q: Tensor) -> Tensor:
    """log alpha; alpha = sum_x min(p, q) is how often speculative sampling keeps a drawn draft.

    Source: arXiv 2211.17192, corollary 3.6.
    """
    return torch.minimum(log_p, log_q).logsumexp(-1)


def total_variation(log_p: Tensor, log_q: Tensor) -> Tensor:
    """TV(p, q) = 1 - alpha (arXiv 2211.17192, lemma 3.3)."""
    return 1.0 - log_acceptance(log_p, log_q).exp()


def negative_log_acceptance(log_p: Tensor, log_q: Tensor) -> Tensor:
    """-log alpha in nats: steep where little is accepted, unlike the total variation."""
    return -log_acceptance(log_p, log_q)


def blended(log_p: Tensor, log_q: Tensor, eta: float = 3.0) -> Tensor:
    """lambda KL(p || q) + (1 - lambda) TV(p, q) with lambda = exp(-eta alpha), not differentiated.

    While little is accepted the KL leads, whose gradient reaches every token; later the total
    variation, which is what acceptance is about.
    """
    alpha = log_acceptance(log_p, log_q).exp()
    share = torch.exp(-eta * alpha.detach())
    return share * forward_kl(log_p, log_q) + (1.0 - share) * (1.0 - alpha)


def log_common_draw(log_p: Tensor, log_q: Tensor) -> Tensor:
    """How often p and q give the same token when both are drawn by inverse CDF from one uniform.

    The logarithm of the length that the tokens' intervals share, summed over tokens: at most log
    alpha. It is what the rule `coupled` accepts when the draft is the drafter's own draw at the
    target's number.
    """
    p, q = log_p.exp(), log_q.exp()
    ends_p, ends_q = p.cumsum(-1), q.cumsum(-1)
    shared = torch.minimum(ends_p, ends_q) - torch.maximum(ends_p - p, ends_q - q)
    return shared.clamp_min(0.0).sum(-1).clamp_min(1e-8).log()
