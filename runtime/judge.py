"""What the target says of a verified block: its choices, or its distributions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.draws import Draws
from runtime.engines.device import Buffer
from runtime.graphs import Graphs
from runtime.propose import Block
from runtime.sampling import distribution, one_hot, restrict
from runtime.script import Rollouts, Script
from runtime.settings import Sampling
from runtime.telemetry import FrameStats

Array = NDArray[Any]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass
class Judge:
    """Reads a target pass. The head runs on rows whose next token is open, and on no others."""

    graphs: Graphs
    script: Script
    draws: Draws
    stats: FrameStats

    def choices(self, block: Block, hidden: Buffer, rollouts: Rollouts, sampling: Sampling) -> Ints:
        """[N, W] the target's choice behind each row: argmax, or a draw by position."""
        choices, at = self._open(block)
        if len(at[0]) == 0:
            return choices
        following = block.positions[at] + 1
        logits = self._logits(hidden, at, following)
        if sampling.temperature > 0:
            race = self.draws.at_position(rollouts.ids[at[0]], following)
            choices[at] = race.draw(distribution(logits, sampling))
        else:
            choices[at] = logits.argmax(axis=-1)
        return choices

    def distributions(self, block: Block, hidden: Buffer, sampling: Sampling) -> Floats:
        """[N, W, V] the target's processed distribution behind each row."""
        fixed, at = self._open(block)
        p = one_hot(np.maximum(fixed, 0), self.script.scaffold.vocab)
        if len(at[0]):
            logits = self._logits(hidden, at, block.positions[at] + 1)
            p[at] = distribution(logits, sampling)
        return p

    def _open(self, block: Block) -> tuple[Ints, tuple[Ints, ...]]:
        """[N, W] the scaffold's token behind each row, and where it has none."""
        following = np.minimum(block.positions + 1, len(self.script) - 1)
        fixed = self.script.tokens[following]
        return fixed, np.nonzero((fixed < 0) & block.real)

    def _logits(self, hidden: Buffer, at: tuple[Ints, ...], positions: Ints) -> Array:
        """[M, V] restricted logits of M rows of hidden [N, W, d] that predict `positions` [M]."""
        with self.stats.stage("head"):
            logits = self.graphs.head_at(hidden, at)
        return restrict(logits, self.script.bias_at(positions))
