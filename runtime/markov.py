"""A light head: a drafted token depends on the one before it.

DSpark's Markov head (arXiv 2607.05147), and its form in DFlash 2, gated by the state that a slot is
read from.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file

from runtime.errors import BundleError

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

MARKOV = "markov.safetensors"  # of a bundle, and beside a target that drafts for itself
TABLES = ("markov_w1", "markov_w2")
GATE = "markov_gate"
TABULATED_UP_TO = 1024  # tokens; all pairs of a larger vocabulary would take too much memory
FEW = 8  # gathering rows for a candidate costs about as much as multiplying so many


class Markov:
    """B(x, y) = (W1[x] * g) . W2[y]: what a token x adds to the logit of y in the next slot.

    Args:
        w1, w2: [V, r]
        gate: [r, d]; g = 1 + G h with the hidden state h that the slot is read from. None: g = 1.
    """

    def __init__(self, w1: Floats, w2: Floats, gate: Floats | None = None) -> None:
        self._w1, self._w2, self.gate = w1, w2, gate
        tabulated = gate is None and len(w1) <= TABULATED_UP_TO
        self._pairs = w1 @ w2.T if tabulated else None

    @classmethod
    def load(cls, path: Path, vocab: int, width: int | None = None) -> Markov:
        """Read the tables that the export wrote.

        Args:
            width: d of the hidden states that gate it; None for a head without a gate.

        Raises:
            BundleError: not tables of one rank for these sizes, or not finite.
        """
        try:
            tables = load_file(path)
        except (OSError, SafetensorError) as error:
            raise _damaged(path, str(error)) from error
        shapes = {name: list(table.shape) for name, table in tables.items()}
        wanted = TABLES if width is None else (*TABLES, GATE)
        if set(tables) != set(wanted) or any(table.ndim != 2 for table in tables.values()):
            raise _damaged(path, str(shapes))
        w1, w2 = (np.asarray(tables[name], np.float32) for name in TABLES)
        gate = None if width is None else np.asarray(tables[GATE], np.float32)
        if w1.shape != w2.shape or len(w1) != vocab:
            raise _damaged(path, f"{shapes} for {vocab} tokens")
        if gate is not None and gate.shape != (w1.shape[1], width):
            raise _damaged(path, f"{shapes} for states of {width}")
        if not all(np.isfinite(table).all() for table in tables.values()):
            raise _damaged(path, "numbers that are not finite")
        return cls(w1, w2, gate)

    def gates(self, hidden: Floats) -> Floats | None:
        """[M, r] of the slots that are read from hidden states [M, d]; None without a gate."""
        return None if self.gate is None else np.asarray(1.0 + hidden @ self.gate.T)

    def ungated(self, count: int) -> Floats | None:
        """[M, r] of so many slots that no state gates; None without a gate."""
        return None if self.gate is None else np.ones((count, self._w1.shape[1]), np.float32)

    def bias(self, previous: Ints, tokens: Ints, gates: Floats | None = None) -> Floats:
        """What each token before a slot [m, ...] adds to the slot's candidates [m, ..., C].

        Args:
            gates: [m, r] of the slots; None for a head without a gate.
        """
        if self._pairs is not None:
            return np.asarray(self._pairs[previous[..., None], tokens])
        before = self._w1[previous]
        if gates is not None:
            before = before * gates.reshape(-1, *[1] * (previous.ndim - 1), gates.shape[-1])
        if tokens.shape[-1] * FEW < len(self._w2):
            return np.asarray(np.matmul(self._w2[tokens], before[..., None])[..., 0])
        every = before @ self._w2.T
        wanted = np.broadcast_to(tokens, (*every.shape[:-1], tokens.shape[-1]))
        return np.asarray(np.take_along_axis(every, wanted, axis=-1))


def _damaged(path: Path, found: str) -> BundleError:
    return BundleError(
        f"{path} is no Markov head",
        expected=f"the tables {' and '.join(TABLES)}, [V, r] each, finite; {GATE}, [r, d], too, "
        "where bundle.json says that it is gated",
        found=found,
        fix="slipstream export TARGET [--draft DRAFTER] -o BUNDLE",
    )
