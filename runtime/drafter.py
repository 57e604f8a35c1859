"""The block drafter: one bidirectional pass gives a distribution for every place of a block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.cache import MASKED, TwoPartCache
from runtime.gate import Width
from runtime.graphs import Graphs
from runtime.propose import Block, known_block
from runtime.sampling import restrict
from runtime.script import Rollouts, Script
from runtime.telemetry import FrameStats

Array = NDArray[Any]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


@dataclass
class Marginals:
    """What a block drafter says of a block.

    Attributes:
        block: the chain with its known tokens; VALUE where `drafted`.
        logits: [M, V] restricted logits of the M drafted places, in row-major order of `drafted`.
    """

    block: Block
    logits: Array


class BlockDrafter:
    """DFlash: a block of masks is filled in one pass, conditioned on the target's taps.

    arXiv 2602.06036. Slot 0 of a block is the anchor; the context is every verified position
    strictly before it. The drafter's cache holds the context's keys and values, never the block's.
    """

    def __init__(self, graphs: Graphs, cache: TwoPartCache) -> None:
        draft = graphs.manifest.draft
        assert draft is not None
        self.graphs, self.cache, self.dims = graphs, cache, draft
        # verified rows whose taps the drafter has not seen: taps, positions, holds
        self.pending: list[tuple[Array, Ints, Bools]] = []

    def observe(self, taps: Array, positions: Ints, holds: Bools) -> None:
        """Take the taps [N, S, K*d] of a target pass; `holds` [N, S] says which rows stand."""
        most = int(holds.sum(axis=1).max())
        if holds[:, :most].sum() == holds.sum():  # a chain: no gaps
            self.pending.append((taps[:, :most].copy(), positions[:, :most], holds[:, :most]))
            return
        rows = np.argsort(~holds, axis=1, kind="stable")[:, :most]
        at = np.arange(len(rows))[:, None], rows
        self.pending.append((taps[at], positions[at], holds[at]))

    def fork(self, n: int) -> None:
        self.cache.fork(n)
        self.pending = [
            (taps.repeat(n, axis=0), at.repeat(n, axis=0), holds.repeat(n, axis=0))
            for taps, at, holds in self.pending
        ]

    def keep(self, rows: Ints) -> None:
        self.cache.keep(rows)
        self.pending = [(taps[rows], at[rows], holds[rows]) for taps, at, holds in self.pending]

    def marginals(
        self, rollouts: Rollouts, script: Script, width: Width, until: int, stats: FrameStats
    ) -> Marginals:
        """Draft a block, and keep the rows to be verified; known tokens are left as they are."""
        block = known_block(rollouts, script, width.draft, until)
        block.draft_width = width.draft
        masked = block.tokens < 0
        if not self.dims.scaffold_in_block:
            masked[:, 1:] = True
        with stats.stage("embed"):
            inputs = self.graphs.embed(np.where(masked, self.dims.mask_token, block.tokens))
        hidden = self._pass(inputs, block, stats)
        block = block.first(width.verify)
        at = np.nonzero(block.drafted)
        if len(at[0]) == 0:
            return Marginals(block, np.zeros((0, script.scaffold.vocab), np.float32))
        with stats.stage("head"):
            logits = self.graphs.head(hidden[at][None])[0]
        return Marginals(block, restrict(logits, script.bias_at(block.positions[at])))

    def _pass(self, inputs: Array, block: Block, stats: FrameStats) -> Array:
        taps, positions, holds = self._take_pending()
        n, b = block.tokens.shape
        c = taps.shape[1]
        bias = np.zeros((n, b, c + b), np.float32)
        bias[:, :, :c] = np.where(holds, np.float32(0.0), MASKED)[:, None]
        if not block.real.all():
            bias[:, :, c:] = np.where(block.real, np.float32(0.0), MASKED)[:, None]
            bias[:, np.arange(b), c + np.arange(b)] = 0.0
        with stats.stage("draft"):
            hidden = self.graphs.draft(inputs, block.positions, taps, positions, bias, self.cache)
        self.cache.commit(holds)
        stats.draft_passes += 1
        return hidden

    def _take_pending(self) -> tuple[Array, Ints, Bools]:
        parts, self.pending = self.pending, []
        if len(parts) == 1:
            return parts[0]
        return (
            np.concatenate([part[0] for part in parts], axis=1),
            np.concatenate([part[1] for part in parts], axis=1),
            np.concatenate([part[2] for part in parts], axis=1),
        )
