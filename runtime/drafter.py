"""The block drafter: one bidirectional pass gives a distribution for every place of a block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.cache import MASKED, TwoPartCache
from runtime.engines.device import Buffer
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


@dataclass(frozen=True)
class _Seen:
    """Verified rows [N, C].

    Attributes:
        taps: on the device; `places` are their rows, counted over its first two dimensions.
    """

    taps: Buffer
    places: Ints
    positions: Ints
    holds: Bools

    def columns(self, some: slice) -> _Seen:
        """Some of the C rows."""
        return _Seen(self.taps, self.places[:, some], self.positions[:, some], self.holds[:, some])

    @property
    def in_order(self) -> bool:
        """The taps are [N, C, K*d] as they lie."""
        return self.places.shape == self.taps.shape[:2] and bool(
            (self.places.ravel() == np.arange(self.places.size)).all()
        )


class BlockDrafter:
    """DFlash: a block of masks is filled in one pass, conditioned on the target's taps.

    arXiv 2602.06036. Slot 0 of a block is the anchor; the context is every verified position
    strictly before it. The drafter's cache holds the context's keys and values, never the block's.
    """

    def __init__(self, graphs: Graphs, cache: TwoPartCache) -> None:
        draft = graphs.manifest.draft
        assert draft is not None
        self.graphs, self.cache, self.dims = graphs, cache, draft
        # verified rows whose taps the drafter has not seen
        self.pending: list[_Seen] = []

    def observe(self, taps: Buffer, positions: Ints, holds: Bools) -> None:
        """Take the taps [N, S, K*d] of a target pass; `holds` [N, S] says which rows stand."""
        n, most = len(holds), int(holds.sum(axis=1).max())
        rows = np.arange(most)[None] + np.zeros((n, 1), np.int64)
        if holds[:, :most].sum() != holds.sum():  # not a chain: gaps
            rows = np.argsort(~holds, axis=1, kind="stable")[:, :most]
        of_rollout = np.arange(n)[:, None]
        # the engine's own buffer is written over by the next pass
        kept = self.graphs.device.gather([(taps, of_rollout * holds.shape[1] + rows)])
        at = of_rollout, rows
        places = np.arange(n * most).reshape(n, most)
        self.pending.append(_Seen(kept, places, positions[at], holds[at]))

    def absorb(self, rollouts: Rollouts, script: Script, stats: FrameStats) -> None:
        """Before a fork: put what waits into the trunk, unless it is about what a round leaves.

        Behind the fork every branch would take its own copy, and a prompt need not fit a branch.
        The last row goes on waiting: a draft needs one.
        """
        if sum(each.positions.shape[1] for each in self.pending) <= self.dims.block:
            return
        newest = self.pending.pop()
        if newest.positions.shape[1] > 1:
            self.pending.append(newest.columns(slice(None, -1)))
        anchor = known_block(rollouts, script, 1, len(script))
        with stats.stage("embed"):
            inputs = self.graphs.embed(anchor.tokens)
        self._pass(inputs, anchor, stats)
        self.pending = [newest.columns(slice(-1, None))]

    def fork(self, n: int) -> None:
        self.cache.fork(n)
        self._keep_pending(np.zeros(n, np.int64))

    def keep(self, rows: Ints) -> None:
        self.cache.keep(rows)
        self._keep_pending(rows)

    def _keep_pending(self, rows: Ints) -> None:
        """One rollout for each of `rows`; the taps stay where they are."""
        self.pending = [
            _Seen(each.taps, each.places[rows], each.positions[rows], each.holds[rows])
            for each in self.pending
        ]

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
            logits = self.graphs.head_at(hidden, at)
        return Marginals(block, restrict(logits, script.bias_at(block.positions[at])))

    def _pass(self, inputs: Buffer, block: Block, stats: FrameStats) -> Buffer:
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

    def _take_pending(self) -> tuple[Buffer, Ints, Bools]:
        parts, self.pending = self.pending, []
        if len(parts) == 1 and parts[0].in_order:
            return parts[0].taps, parts[0].positions, parts[0].holds
        return (
            self.graphs.device.gather([(part.taps, part.places) for part in parts]),
            np.concatenate([part.positions for part in parts], axis=1),
            np.concatenate([part.holds for part in parts], axis=1),
        )
