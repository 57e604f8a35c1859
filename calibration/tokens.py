"""What a head's output says of tokens: which one is likeliest, and how likely a given one is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Outputs = Mapping[str, NDArray[Any]]


def likeliest(head: Outputs) -> NDArray[np.int64]:
    """[...] the likeliest token of each row.

    Args:
        head: `top_logits`, `top_tokens` [..., k] and `logsumexp` [...], as a head graph gives them.
    """
    best = head["top_logits"].argmax(axis=-1)
    tokens = np.take_along_axis(head["top_tokens"], best[..., None], axis=-1)
    return np.asarray(tokens[..., 0], np.int64)


def log_likelihoods(head: Outputs, tokens: NDArray[np.int64]) -> Floats:
    """[...] natural logarithm of each row's probability of a token.

    A token that is not among the k likeliest counts like the last of them: a bound from above.
    """
    logits = head["top_logits"].astype(np.float64)
    found = head["top_tokens"] == tokens[..., None]
    own = np.where(found, logits, -np.inf).max(axis=-1)
    own = np.where(found.any(axis=-1), own, logits.min(axis=-1))
    return np.asarray(own - head["logsumexp"].astype(np.float64), np.float64)
