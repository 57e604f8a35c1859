"""The target as its own drafter: it fills masks over its own cache, in a pass of its own or behind
the rows that a pass verifies."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.accept import Accepted
from runtime.ahead import Offer, Outlook, Split, lay_out
from runtime.cache import TwoPartCache
from runtime.drafter import block_bias, masked_block
from runtime.draws import Draws
from runtime.engines.device import Buffer
from runtime.fits import ALONE, MAX_NODES
from runtime.gate import Width
from runtime.graphs import Graphs
from runtime.judge import Reading
from runtime.marginals import Marginals, Said, Some, empty_marginals
from runtime.propose import Block, Until
from runtime.sampling import restrict
from runtime.scaffold import VALUE, Padding
from runtime.script import Rollouts, Script
from runtime.settings import Sampling
from runtime.telemetry import FrameStats
from runtime.window import NOWHERE, Window, decided, filled, marginals_of, windows_of

Array = NDArray[Any]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


class SelfDrafter:
    """Self-speculation with one set of weights (Fast-dDrive, arXiv 2605.23163, section 3).

    Blocks of the schema are drafted behind the rows that a pass verifies: `offer`, `ahead`, `look`.
    Other shapes take a pass of their own, `marginals`: row 0 is the anchor, which is not cached
    yet, and its rows see every committed row and each other. The token of slot k is read from row
    k - 1 (token shift). Keys and values of masks are never committed: the rows that a later pass
    verifies are written over them.
    """

    cache = None  # none of its own

    def __init__(self, graphs: Graphs, target_cache: TwoPartCache) -> None:
        draft = graphs.manifest.draft
        assert draft is not None
        self.graphs, self.target_cache, self.dims = graphs, target_cache, draft
        self.windows = [Window.empty(graphs.manifest.target.vocab, graphs.markov)]
        self._sampling = Sampling()  # that the windows' drafts were chosen for
        self._stem: list[Window] | None = None  # that of the rollout that parted

    def offer(
        self,
        rollouts: Rollouts,
        script: Script,
        until: int,
        sampling: Sampling,
        draws: Draws | None,
    ) -> Offer:
        """The drafts at hand for tokens before position `until`.

        Args:
            draws: see `runtime.window.decided`.
        """
        if sampling != self._sampling:
            self.windows = [window.undecided for window in self.windows]
            self._sampling = sampling
        self.windows = decided(self.windows, rollouts, sampling, draws)
        # as many rows as engines are built for and the cache has room for; it says when it is full
        widest = 1 + MAX_NODES if self.target_cache.forked else ALONE
        rows = max(1, min(widest, self.target_cache.room))
        return Offer.of(self.windows, rollouts, script, until, rows)

    def ahead(
        self, rollouts: Rollouts, outlook: Outlook, split: Split, until: int, rows: int
    ) -> Block:
        """The part of the offer that is to be verified, with masks behind it."""
        return filled(lay_out(rollouts, split, outlook, until, rows), self.windows)

    def said(self, block: Block) -> Marginals:
        """What was said of the drafts of a block that is part of an offer, for who draws others."""
        block.tokens[block.drafted] = VALUE
        return marginals_of(block, self.windows)

    def look(
        self,
        reading: Reading,
        block: Block,
        accepted: Accepted,
        rollouts: Rollouts,
        script: Script,
    ) -> None:
        """Keep what the pass drafted. Of rollouts whose rows did not all stand, and where it
        drafted nothing, what is left of earlier drafts is kept, too.

        Args:
            reading: of the pass over the block.
            rollouts: at their new anchors.
        """
        starts = rollouts.start
        tokens = rollouts.tokens[np.arange(len(rollouts)), starts]
        self.windows = [
            window.behind(at, token)
            for window, at, token in zip(self.windows, starts, tokens, strict=True)
        ]
        self._take(reading, block, accepted)
        if script.scaffold.padding:
            self._pad(rollouts, script, script.scaffold.padding)

    def _take(self, reading: Reading, block: Block, accepted: Accepted) -> None:
        assert block.ahead is not None
        stood = accepted.length == block.limit
        rows = block.ahead.copy()
        fell = np.flatnonzero(~stood & block.ahead.any(axis=1))
        rows[fell, block.limit[fell]] = True  # the last row of the chain says what follows it
        some = reading.among(rows)
        if len(some) == 0:
            return
        row, mask = reading.at[0][some], reading.at[1][some]
        said = self.read(reading.logits[some], reading.hidden, some)
        counts = np.bincount(row, minlength=len(self.windows))
        fresh = windows_of(block.positions[row, mask] + 1, counts, said)
        self.windows = [
            (new if whole else old.and_then(new)) if len(new.places) else old
            for new, old, whole in zip(fresh, self.windows, stood, strict=True)
        ]

    def _pad(self, rollouts: Rollouts, script: Script, padding: Padding) -> None:
        """Where padding has begun, its slot is full of it."""
        said = rollouts.tokens[np.arange(len(rollouts)), rollouts.start]
        for row in np.flatnonzero(said == padding.token):
            at = int(rollouts.start[row]) - script.prompt
            places = np.arange(at + 1, padding.ends[at] + 1) if at >= 0 else NOWHERE
            if len(places):
                self.windows[row] = Window.padding(
                    script.prompt + places,
                    padding.token,
                    script.scaffold.vocab,
                    self.graphs.markov,
                )

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
        bias = script.bias_at(block.positions[row, slot])
        with stats.stage("head"):
            held = self.graphs.rows_at(hidden, (row, slot - 1))
            logits = restrict(self.graphs.head(held)[0], bias)
        return Marginals.of(block, self.read(logits, held, slice(None)))

    def read(self, logits: Array, hidden: Buffer, some: Some) -> Said:
        """What restricted logits [m, V] say of slots, with the head's gates where it has them.

        Args:
            hidden: [1, M, d] states; `some` [m] are those that the slots are read from.
        """
        markov, gates = self.graphs.markov, None
        if markov is not None and markov.gate is not None:
            states = self.graphs.device.to_host(hidden)[0][some]
            gates = markov.gates(np.asarray(states, np.float32))
        return Said(logits, markov, gates)

    # What a drafter with a cache of its own has to follow, the target's cache goes through anyway.

    def observe(self, taps: Buffer, positions: Ints, holds: Bools) -> None:
        """Nothing: what stands is in the target's cache."""

    def absorb(self, rollouts: Rollouts, script: Script, stats: FrameStats) -> None:
        """Nothing waits."""

    def fork(self, n: int) -> None:
        """The target's cache has forked; what was said holds for every branch, and each chooses
        its own drafts."""
        if self._stem is None:
            self._stem = [window.undecided for window in self.windows]
        self.windows = self._stem * n

    def keep(self, rows: Ints) -> None:
        self.windows = [self.windows[row] for row in rows]
