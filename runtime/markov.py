"""A light head: a drafted token depends on the one before it (DSpark, arXiv 2607.05147)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file

from runtime.errors import BundleError

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

TABLES = ("markov_w1", "markov_w2")
TABULATED_UP_TO = 1024  # tokens; all pairs of a larger vocabulary would take too much memory


class Markov:
    """B(x, y) = W1[x] . W2[y]: what a token x adds to the logit of y in the next slot.

    Args:
        w1, w2: [V, r]
    """

    def __init__(self, w1: Floats, w2: Floats) -> None:
        self._w1, self._w2 = w1, w2
        self._pairs = w1 @ w2.T if len(w1) <= TABULATED_UP_TO else None

    @classmethod
    def load(cls, path: Path, vocab: int) -> Markov:
        """Read the tables that the export wrote.

        Raises:
            BundleError: not the two tables of one rank for this vocabulary, or not finite.
        """
        try:
            tables = load_file(path)
        except (OSError, SafetensorError) as error:
            raise _damaged(path, str(error)) from error
        shapes = {name: list(table.shape) for name, table in tables.items()}
        if sorted(tables) != list(TABLES) or any(table.ndim != 2 for table in tables.values()):
            raise _damaged(path, str(shapes))
        w1, w2 = (np.asarray(tables[name], np.float32) for name in TABLES)
        if w1.shape != w2.shape or len(w1) != vocab:
            raise _damaged(path, f"{shapes} for {vocab} tokens")
        if not (np.isfinite(w1).all() and np.isfinite(w2).all()):
            raise _damaged(path, "numbers that are not finite")
        return cls(w1, w2)

    def bias(self, previous: Ints, tokens: Ints) -> Floats:
        """What each token before a slot [...] adds to the slot's candidates [..., C]."""
        if self._pairs is not None:
            return np.asarray(self._pairs[previous[..., None], tokens])
        return np.asarray(np.matmul(self._w2[tokens], self._w1[previous][..., None])[..., 0])


def _damaged(path: Path, found: str) -> BundleError:
    return BundleError(
        f"{path} is no Markov head",
        expected=f"the tables {' and '.join(TABLES)}, [V, r] each, finite",
        found=found,
        fix="slipstream export TARGET --draft DRAFTER -o BUNDLE",
    )
