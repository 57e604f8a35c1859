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
Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Reading:
    """What the rows of a pass say of the open tokens behind them.

    Attributes:
        at: [M] rollouts and rows, in row-major order.
        hidden: [1, M, d] these rows, on the engines' device.
        logits: [M, V] restricted to what the scaffold allows.
    """

    at: tuple[Ints, ...]
    hidden: Buffer
    logits: Array

    def among(self, rows: Bools) -> Ints:
        """[m] those of rows [N, W], as numbers of what was read."""
        return np.flatnonzero(rows[self.at])


@dataclass
class Judge:
    """Reads a target pass: the head runs once, on rows whose next token is open, and on no
    others."""

    graphs: Graphs
    script: Script
    draws: Draws
    stats: FrameStats

    def read(self, block: Block, hidden: Buffer) -> Reading:
        """What a pass with hidden [N, W, d] says, of masks behind the block too."""
        rows = block.real if block.ahead is None else block.real | block.ahead
        at = np.nonzero(rows & (self._known(block) < 0))
        with self.stats.stage("head"):
            held = self.graphs.rows_at(hidden, at)
            empty = np.zeros((0, self.script.scaffold.vocab), np.float32)
            logits = self.graphs.head(held)[0] if len(at[0]) else empty
        return Reading(at, held, restrict(logits, self.script.bias_at(block.positions[at] + 1)))

    def choices(
        self, block: Block, reading: Reading, rollouts: Rollouts, sampling: Sampling
    ) -> Ints:
        """[N, W] the target's choice behind each row: argmax, or a draw by position."""
        choices, some = self._known(block), reading.among(block.real)
        if len(some):
            at = reading.at[0][some], reading.at[1][some]
            choices[at] = self._chosen(block, at, reading.logits[some], rollouts, sampling)
        return choices

    def distributions(self, block: Block, reading: Reading, sampling: Sampling) -> Floats:
        """[N, W, V] the target's processed distribution behind each row."""
        p = one_hot(np.maximum(self._known(block), 0), self.script.scaffold.vocab)
        if len(some := reading.among(block.real)):
            at = reading.at[0][some], reading.at[1][some]
            p[at] = distribution(reading.logits[some], sampling)
        return p

    def _chosen(
        self,
        block: Block,
        at: tuple[Ints, ...],
        logits: Array,
        rollouts: Rollouts,
        sampling: Sampling,
    ) -> Ints:
        """[M] for rows that say logits [M, V]."""
        if sampling.temperature == 0:
            return np.asarray(logits.argmax(axis=-1))
        # a digit is one of ten tokens: nothing is computed for the others
        tokens = np.flatnonzero((logits > -np.inf).any(axis=0))
        race = self.draws.at_position(rollouts.ids[at[0]], block.positions[at] + 1).among(tokens)
        return tokens[race.draw(distribution(logits[:, tokens], sampling))]

    def _known(self, block: Block) -> Ints:
        """[N, W] the scaffold's token behind each row, VALUE where it has none."""
        return self.script.tokens[np.minimum(block.positions + 1, len(self.script) - 1)]
