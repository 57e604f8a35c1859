"""Caches for parity checks: rows out of order and among garbage, as after a long decode."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from runtime.engines.base import Array, Engine

MASKED = np.float32(-30000.0)

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]


class CacheRows:
    """One network's trunk or branch: valid rows at random places, garbage everywhere else."""

    def __init__(self, engine: Engine, part: str, rows: int, rollouts: int) -> None:
        self.rng = np.random.default_rng(rows)
        self.free = self.rng.permutation(rows)
        self.arrays = {}
        for name, spec in engine.inputs.items():
            if name.startswith(f"{part}.past_key_values"):
                sizes = {"P": rows, "T": rows, "N": rollouts}
                shape = [dim if isinstance(dim, int) else sizes[dim] for dim in spec.shape]
                self.arrays[name] = self.rng.standard_normal(shape, np.float32)
        self.part = part
        self.bias = np.full((rollouts, rows), MASKED)

    def append(self, present: dict[str, Array], valid: Ints) -> None:
        """Keep rows of a pass; valid [N] says how many of each rollout hold."""
        count = max(valid)
        places, self.free = self.free[:count], self.free[count:]
        for name, array in self.arrays.items():
            rows = present[name.replace(f"{self.part}.past_key_values", "present")][:count]
            array[places] = rows[:, 0] if self.part == "trunk" else rows
        for rollout, kept in enumerate(valid):
            self.bias[rollout, places[:kept]] = 0.0


def causal(n: int, rows: int) -> Floats:
    return np.broadcast_to(np.triu(np.full((rows, rows), MASKED), 1), (n, rows, rows))


def lineage(parents: list[int], node: int) -> list[int]:
    """A node's ancestors and itself, root first."""
    line = [node]
    while parents[line[0]] >= 0:
        line.insert(0, parents[line[0]])
    return line
