"""How far a draft's distribution is from the target's, one figure for each row.

Every function takes log-probabilities [..., V] of the target, p, and of the draft, q, and returns
[...]. A token that the target can't say may have log p = -inf or a large negative number.
"""

from __future__ import annotations

import torch
from torch import Tensor

LIKELY = 16  # tokens that `log_common_draw` tells apart
NEVER = -1e4  # log probability of what can't be said


def forward_kl(log_p: Tensor, log_q: Tensor) -> Tensor:
    """KL(p || q) in nats: q must cover whatever the target says."""
    return (log_p.exp() * (log_p.clamp_min(NEVER) - log_q)).sum(-1)


def reverse_kl(log_p: Tensor, log_q: Tensor) -> Tensor:
    """KL(q || p) in nats: q must not say what the target would not."""
    return (log_q.exp() * (log_q - log_p.clamp_min(NEVER))).sum(-1)


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
    """How often p and q give the same token when both are drawn by a race with the same noise.

    log sum_i 1 / sum_j max(q_j / q_i, p_j / p_i): token i wins both races with probability
    1 / sum_j (Daliri, Musco, Suresh, arXiv 2408.07978). It is what the rule `coupled` accepts when
    the draft is the drafter's own draw by the target's noise; at most log alpha.

    The exact sum takes V^2; here the LIKELY likeliest tokens of p are told apart, and of the others
    max(q_j, p_j) / .. is bounded by the sum of both. That is exact where p and q keep to LIKELY
    tokens, or p does, which with digits it mostly does; elsewhere it is a lower bound.
    """
    log_p, log_q = log_p.clamp_min(NEVER), log_q.clamp_min(NEVER)
    top = log_p.topk(min(LIKELY, log_p.shape[-1]), dim=-1).indices
    p, q = log_p.gather(-1, top), log_q.gather(-1, top)
    of_p, of_q = (x.scatter(-1, top, NEVER).logsumexp(-1, keepdim=True) for x in (log_p, log_q))
    # [..., i, j]
    others = torch.maximum(p[..., None, :] - p[..., :, None], q[..., None, :] - q[..., :, None])
    rivals = torch.cat([others, (of_p - p)[..., None], (of_q - q)[..., None]], -1)
    return (-rivals.logsumexp(-1)).logsumexp(-1)
