"""Counter-based randomness: a uniform number is a pure function of where it is used.

Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011), vectorised.
A rollout's numbers depend on seed, frame, rollout and position, never on its batch.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (0x9E3779B9, 0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)
ROUNDS = 10


def philox4x32(counter: NDArray[np.uint64], key: tuple[int, int]) -> NDArray[np.uint64]:
    """Encrypt counters.

    Args:
        counter: [..., 4], each word below 2**32.
        key: two words below 2**32.

    Returns:
        [..., 4] words below 2**32, uniformly random.
    """
    c0, c1, c2, c3 = (counter[..., i] for i in range(4))
    k0, k1 = key
    for _ in range(ROUNDS):
        product0, product1 = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (
            (product1 >> _32) ^ c1 ^ np.uint64(k0),
            product1 & _LOW,
            (product0 >> _32) ^ c3 ^ np.uint64(k1),
            product0 & _LOW,
        )
        k0, k1 = (k0 + _WEYL[0]) & 0xFFFFFFFF, (k1 + _WEYL[1]) & 0xFFFFFFFF
    return np.stack([c0, c1, c2, c3], axis=-1)


def uniforms(
    seed: int,
    frame: int,
    rollouts: NDArray[np.int64],
    positions: NDArray[np.int64],
    offsets: NDArray[np.int64] | int = 0,
) -> NDArray[np.float64]:
    """Four uniforms in (0, 1) for each place of use.

    Args:
        seed: non-negative; its low 64 bits count.
        frame: non-negative; its low 32 bits count.
        rollouts, positions, offsets: broadcast against each other to [...], below 2**32 each.

    Returns:
        [..., 4]
    """
    rollouts, positions, offset = np.broadcast_arrays(rollouts, positions, offsets)
    counter = np.empty((*rollouts.shape, 4), np.uint64)
    counter[..., 0], counter[..., 1] = positions, rollouts
    counter[..., 2], counter[..., 3] = frame & 0xFFFFFFFF, offset
    words = philox4x32(counter, (seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF))
    return (words.astype(np.float64) + 0.5) * 2.0**-32
