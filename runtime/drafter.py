"""The block drafter: one bidirectional pass gives a distribution for every place of a block."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.bundle import DraftDims
from runtime.cache import MASKED, TwoPartCache
from runtime.engines.device import Buffer
from runtime.gate import Width
from runtime.graphs import Graphs
from runtime.marginals import Marginals, empty_marginals
from runtime.propose import Block, Until, known_block
from runtime.sampling import restrict
from runtime.script import Rollouts, Script
from runtime.taps import PendingTaps
from runtime.telemetry import FrameStats

Array = NDArray[Any]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


class BlockDrafter:
    """DFlash: a block of masks is filled in one pass, conditioned on the target's taps.

    arXiv 2602.06036. Slot 0 of a block is the anchor; the context is every verified position
    strictly before it. The drafter's cache holds the context's keys and values, never the block's.
    """

    def __init__(self, graphs: Graphs, cache: TwoPartCache) -> None:
        draft = graphs.manifest.draft
        assert draft is not None
        self.graphs, self.cache, self.dims = graphs, cache, draft
        self.pending = PendingTaps(graphs.device)

    def observe(self, taps: Buffer, positions: Ints, holds: Bools) -> None:
        """Take the taps [N, S, K*d] of a target pass; `holds` [N, S] says which rows stand."""
        self.pending.observe(taps, positions, holds)

    def absorb(self, rollouts: Rollouts, script: Script, stats: FrameStats) -> None:
        """Before a fork: put what waits into the trunk, unless it is about what a round leaves.

        Behind the fork every branch would take its own copy, and a prompt need not fit a branch.
        The last row goes on waiting: a draft needs one.
        """
        if len(self.pending) <= self.dims.block:
            return
        newest = self.pending.hold_back()
        anchor = known_block(rollouts, script, 1, len(script))
        with stats.stage("embed"):
            inputs = self.graphs.embed_draft(anchor.tokens)
        self._pass(inputs, anchor, stats)
        self.pending.put_back(newest)

    def fork(self, n: int) -> None:
        self.cache.fork(n)
        self.pending.fork(n)

    def keep(self, rows: Ints) -> None:
        self.cache.keep(rows)
        self.pending.keep(rows)

    def marginals(
        self, rollouts: Rollouts, script: Script, width: Width, until: Until, stats: FrameStats
    ) -> Marginals:
        """Draft a block, and keep the rows to be verified; known tokens are left as they are."""
        block, tokens = masked_block(rollouts, script, self.dims, width.draft, until)
        with stats.stage("embed"):
            inputs = self.graphs.embed_draft(tokens)
        hidden = self._pass(inputs, block, stats)
        block = block.first(width.verify)
        at = np.nonzero(block.drafted)
        if len(at[0]) == 0:
            return empty_marginals(block, script.scaffold.vocab)
        with stats.stage("head"):
            logits = self.graphs.draft_head_at(hidden, at)
        logits = restrict(logits, script.bias_at(block.positions[at]))
        return Marginals(block, logits, self.graphs.markov)

    def _pass(self, inputs: Buffer, block: Block, stats: FrameStats) -> Buffer:
        taps, positions, holds = self.pending.take()
        n, b = block.tokens.shape
        c = taps.shape[1]
        bias = np.empty((n, b, c + b), np.float32)
        bias[:, :, :c] = np.where(holds, np.float32(0.0), MASKED)[:, None]
        bias[:, :, c:] = block_bias(block)
        with stats.stage("draft"):
            hidden = self.graphs.draft(inputs, block.positions, taps, positions, bias, self.cache)
        self.cache.commit(holds)
        stats.draft_passes += 1
        return hidden


def masked_block(
    rollouts: Rollouts, script: Script, dims: DraftDims, width: int, until: Until
) -> tuple[Block, Ints]:
    """A block to draft, and the tokens [N, W] that its pass reads: masks where it drafts."""
    block = known_block(rollouts, script, width, until)
    block.draft_width = width
    masked = block.tokens < 0
    if not dims.scaffold_in_block:
        masked[:, 1:] = True
    return block, np.where(masked, dims.mask_token, block.tokens)


def block_bias(block: Block) -> NDArray[np.float32]:
    """[N, W, W] every row sees the block's real rows; padding sees itself as well."""
    n, width = block.real.shape
    bias = np.empty((n, width, width), np.float32)
    bias[:] = np.where(block.real, np.float32(0.0), MASKED)[:, None]
    if not block.real.all():
        every = np.arange(width)
        bias[:, every, every] = 0.0
    return bias
