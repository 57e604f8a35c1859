"""Whether a drafter's embedding or head is a copy of the target's: then a bundle has it once."""

from __future__ import annotations

from math import prod

import numpy as np

from export.checkpoint import Checkpoint, Location
from export.configs import TargetConfig

_STEP = 16 << 20  # bytes compared at once
_BYTES = {"F32": 4, "F16": 2, "BF16": 2}


def shares_embedding(drafter: Checkpoint, target: TargetConfig, weights: Checkpoint | None) -> bool:
    """The drafter has no embedding, or the target's."""
    return _same(drafter.tensors.get("embed_tokens.weight"), _embedding(target, weights))


def shares_head(drafter: Checkpoint, target: TargetConfig, weights: Checkpoint | None) -> bool:
    """The drafter has no head, or the target's."""
    theirs = _named(weights, "lm_head.weight", "language_model.lm_head.weight")
    if target.tied:
        theirs = _embedding(target, weights)
    return _same(drafter.tensors.get("lm_head.weight"), theirs)


def _embedding(target: TargetConfig, weights: Checkpoint | None) -> Location | None:
    return _named(weights, f"{target.prefix}embed_tokens.weight")


def _named(weights: Checkpoint | None, *names: str) -> Location | None:
    tensors = weights.tensors if weights else {}
    return next((tensors[name] for name in names if name in tensors), None)


def _same(own: Location | None, theirs: Location | None) -> bool:
    """Byte for byte; a copy in another precision is another table."""
    if own is None:
        return True
    if theirs is None or (own.dtype, own.shape) != (theirs.dtype, theirs.shape):
        return False
    size = prod(own.shape) * _BYTES.get(own.dtype, 0)
    return all(
        np.array_equal(_bytes(own, first, size), _bytes(theirs, first, size))
        for first in range(0, size, _STEP)
    )


def _bytes(place: Location, first: int, size: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    return np.fromfile(place.path, np.uint8, min(_STEP, size - first), offset=place.start + first)
