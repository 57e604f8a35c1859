"""The cost gate of a stepwise drafter: every further draft is a pass of its own."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from runtime.gate import LENGTHS, MARGIN, ROWS, Gate
from runtime.propose import Until
from runtime.script import Rollouts, Script
from runtime.step_drafter import StepDrafter
from runtime.step_shapes import Route, route

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

VERIFIED = 4  # rows that a round's first pass typically reads again, with the target's features


@dataclass
class StepGate(Gate):
    """Chooses how many passes a round drafts for, or none.

    Attributes:
        steps: seconds of a pass by rows [0..ROWS], for N rollouts and a cache length.
    """

    steps: dict[tuple[int, int], Floats] = field(default_factory=dict)

    def depth(
        self,
        drafter: StepDrafter,
        rollouts: Rollouts,
        script: Script,
        until: Until,
        sampled: bool,
        tree: bool,
        front: int,
    ) -> int:
        """Passes with the most expected tokens a second, averaged over the rollouts; 0 where plain
        decoding promises as much.

        Args:
            tree: whether what was learnt of trees counts; front: nodes that a pass takes.
        """
        n, length = len(rollouts), int(rollouts.start.max())
        target, _ = self._seconds(n, length)
        run = script.next_value[rollouts.start] - rollouts.start
        plain = run.mean() / (target[min(int(run.max()), ROWS)] + self.host)
        width = drafter.dims.block
        evidence = self._evidence(script, width, sampled, tree)
        best, most, longest = 0, MARGIN * plain, route(drafter, rollouts, script, width - 1, until)
        ahead = self._ahead(rollouts, script, longest.block.width)
        survives = np.where(script.fixed[ahead], 1.0, evidence.rates[ahead - script.prompt])
        survives *= longest.block.real[:, 1:]
        tokens = 1.0 + np.pad(survives.cumprod(axis=1).cumsum(axis=1), ((0, 0), (1, 0)))
        for depth in range(1, longest.depth + 1):
            rows = np.where(longest.open[:, depth - 1], self._rows(longest, script, depth), 1)
            rows = np.minimum(rows, longest.block.width)
            promised = tokens[np.arange(n), rows - 1].mean() / (
                target[min(int(rows.max()), ROWS)]
                + self.draft_seconds(longest, depth, front, n, length)
                + (1 + depth) * self.host
            )
            if promised > most:
                best, most = depth, promised
        if best == 0:
            evidence.drift(ahead - script.prompt)
        return best

    def draft_seconds(self, way: Route, depth: int, front: int, n: int, length: int) -> float:
        """Passes for `depth` drafts with `front` nodes each, and the first."""
        table = self._step_seconds(n, length)
        known = int((way.places[:, 0] - way.block.positions[:, 0]).max())
        rows = np.append(VERIFIED + known - 1, front * way.units[: depth - 1])
        return float(table[np.minimum(rows, ROWS)].sum())

    def verify_seconds(self, rows: int, n: int, length: int) -> float:
        """A target pass."""
        return float(self._seconds(n, length)[0][min(rows, ROWS)])

    def step_budget(self, score: Floats, drafted: float, length: int) -> int:
        """How many of a tree's best nodes [N, n] to verify, for drafts that took `drafted` s."""
        n, most = score.shape
        expected = 1.0 + np.exp(score).mean(axis=0).cumsum()
        target, _ = self._seconds(n, length)
        seconds = target[np.minimum(np.arange(2, most + 2), ROWS)] + drafted + 2 * self.host
        return int((expected / seconds).argmax()) + 1

    def _rows(self, way: Route, script: Script, depth: int) -> Ints:
        """[N] rows of a chain that ends with the fixed tokens behind its depth-th draft."""
        at = np.minimum(way.places[:, depth - 1], len(script) - 1)
        return np.asarray(script.next_value[at] - way.block.positions[:, 0])

    def _step_seconds(self, n: int, length: int) -> Floats:
        key = (n, length // LENGTHS)
        if key not in self.steps:
            self.steps[key] = self.curve.draft_seconds(n, np.arange(ROWS + 1.0), length)
        return self.steps[key]
