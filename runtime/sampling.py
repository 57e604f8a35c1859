"""The processed distribution and draws from it.

Exactness everywhere in this package is stated for this distribution: the logits restricted to the
allowed set, then top-k, temperature and top-p, renormalised.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.settings import Sampling

Floats = NDArray[np.float64]
Logits = NDArray[Any]


def restrict(logits: Logits, bias: Logits) -> Logits:
    """Add the scaffold's bias (0 or -inf), both [..., V].

    Where nothing allowed is among the head's top k, every allowed token counts the same.
    """
    restricted = logits + bias
    lost = ~np.isfinite(restricted).any(axis=-1)
    if lost.any():
        restricted[lost] = np.broadcast_to(bias, restricted.shape)[lost]
    return restricted


def distribution(logits: Logits, sampling: Sampling) -> Floats:
    """Probabilities [..., V] in float64 of restricted logits [..., V]; one-hot at temperature 0.

    Ties at the k-th logit or at the nucleus's edge are kept in token order.
    """
    x = logits.astype(np.float64)
    if sampling.temperature == 0.0:
        return one_hot(x.argmax(axis=-1), x.shape[-1])
    if 0 < sampling.top_k < x.shape[-1]:
        x = np.where(_rank(x) < sampling.top_k, x, -np.inf)
    x -= x.max(axis=-1, keepdims=True)
    x /= sampling.temperature
    np.exp(x, out=x)
    x /= x.sum(axis=-1, keepdims=True)
    if sampling.top_p < 1.0:
        order = np.argsort(-x, axis=-1, kind="stable")
        ordered = np.take_along_axis(x, order, axis=-1)
        # the smallest set whose mass reaches top_p: a token stays while the mass before it is short
        ordered[ordered.cumsum(axis=-1) - ordered >= sampling.top_p] = 0.0
        np.put_along_axis(x, order, ordered, axis=-1)
        x /= x.sum(axis=-1, keepdims=True)
    return x


def draw(probabilities: Floats, u: Floats) -> NDArray[np.int64]:
    """Inverse-CDF draws in token order.

    Args:
        probabilities: [..., V] non-negative, not all zero; need not be normalised.
        u: [...] uniforms in (0, 1).

    Returns:
        [...] tokens, never one of zero probability.
    """
    cumulative = probabilities.cumsum(axis=-1)
    total = cumulative[..., -1:]
    # a token of zero probability repeats its predecessor's sum, so "first sum above u" skips it
    token: NDArray[np.int64] = (cumulative > u[..., None] * total).argmax(axis=-1)
    return token


def one_hot(tokens: NDArray[np.int64], vocab: int) -> Floats:
    """[..., V] with a 1 at each token of [...]."""
    out = np.zeros((*tokens.shape, vocab))
    np.put_along_axis(out, tokens[..., None], 1.0, axis=-1)
    return out


def _rank(x: Floats) -> NDArray[np.int64]:
    """[..., V]: 0 for the largest, ties in token order."""
    order = np.argsort(-x, axis=-1, kind="stable")
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.arange(x.shape[-1]), axis=-1)
    return rank
