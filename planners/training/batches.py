"""Which examples a step takes: whole epochs, each in an order of its own."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray


def batch_rows(count: int, batch: int, seed: int, step: int) -> NDArray[np.int64]:
    """[batch] rows of `count` examples; every example comes once before any comes again.

    Depends on its arguments alone, so that a run can go on from any step.
    """
    places = np.arange(step * batch, (step + 1) * batch)
    epochs = [_order(count, seed, int(epoch)) for epoch in np.unique(places // count)]
    return np.asarray(np.concatenate(epochs)[places - places[0] // count * count])


@lru_cache(maxsize=2)
def _order(count: int, seed: int, epoch: int) -> NDArray[np.int64]:
    return np.random.default_rng((seed, 1, epoch)).permutation(count)
