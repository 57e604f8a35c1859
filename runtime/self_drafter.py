"""The target as its own drafter: one bidirectional pass over its own cache fills a block."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from runtime.cache import TwoPartCache
from runtime.drafter import block_bias, masked_block
from runtime.engines.device import Buffer
from runtime.gate import Width
from runtime.graphs import Graphs
from runtime.marginals import Marginals, empty_marginals
from runtime.propose import Until
from runtime.sampling import restrict
from runtime.script import Rollouts, Script
from runtime.telemetry import FrameStats

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


class SelfDrafter:
    """Self-speculation with one set of weights (Fast-dDrive, arXiv 2605.23163, section 3).

    Row 0 of the pass is the anchor, which is not cached yet. Its rows see every committed row and
    each other; the token of slot k is read from row k - 1 (token shift). The pass's keys and values
    are never committed, so that the causal pass that verifies the block writes over them.
    """

    cache = None  # none of its own

    def __init__(self, graphs: Graphs, target_cache: TwoPartCache) -> None:
        draft = graphs.manifest.draft
        assert draft is not None
        self.graphs, self.target_cache, self.dims = graphs, target_cache, draft

    def marginals(
        self, rollouts: Rollouts, script: Script, width: Width, until: Until, stats: FrameStats
    ) -> Marginals:
        """Draft a block, and keep the rows to be verified; known tokens are left as they are."""
        n = len(rollouts)
        if n == 1 or self.target_cache.branches.used > 0:
            return self._pass(rollouts, script, width, until, stats)
        with self.target_cache.alone():  # right behind the fork
            end = np.broadcast_to(until, n)[:1]
            return self._pass(rollouts.first, script, width, end, stats).repeated(n)

    def _pass(
        self, rollouts: Rollouts, script: Script, width: Width, until: Until, stats: FrameStats
    ) -> Marginals:
        block, tokens = masked_block(rollouts, script, self.dims, width.draft, until)
        if not block.drafted[:, : width.verify].any():
            return empty_marginals(block.first(width.verify), script.scaffold.vocab)
        with stats.stage("embed"):
            inputs = self.graphs.embed(tokens)
        with stats.stage("draft"):
            bias = block_bias(block)
            hidden, _ = self.graphs.target(
                inputs, script.turned(block.positions), bias, self.target_cache
            )
        stats.draft_passes += 1
        block = block.first(width.verify)
        row, slot = np.nonzero(block.drafted)
        with stats.stage("head"):
            logits = self.graphs.head_at(hidden, (row, slot - 1))
        return Marginals(block, restrict(logits, script.bias_at(block.positions[row, slot])))

    # What a drafter with a cache of its own has to follow, the target's cache goes through anyway.

    def observe(self, taps: Buffer, positions: Ints, holds: Bools) -> None:
        """Nothing: what stands is in the target's cache."""

    def absorb(self, rollouts: Rollouts, script: Script, stats: FrameStats) -> None:
        """Nothing waits."""

    def fork(self, n: int) -> None:
        """Nothing: the target's cache has forked."""

    def keep(self, rows: Ints) -> None:
        """Nothing: the target's cache keeps these rollouts."""
