"""Section diffusion: the target fills the schema's blocks itself, and nothing verifies them.

Fast-dDrive's first decoder (arXiv 2605.23163): fast, and not lossless. What stands is what a
bidirectional pass was sure of, not what the target says from left to right.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from runtime.bundle import DraftDims
from runtime.cache import TwoPartCache
from runtime.draws import Draws
from runtime.graphs import Graphs
from runtime.sampling import distribution, restrict
from runtime.schema import block_ends
from runtime.script import Rollouts, Script
from runtime.settings import DecodeSettings, Sampling
from runtime.telemetry import FrameStats

Array = NDArray[np.float32]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]

SURE = Sampling(1.0)  # confidence is a probability of the model, whatever heat is drawn at


@dataclass(frozen=True)
class Filling:
    """A block of the schema, in places of the sequence: the anchor is the token before its first
    value, and `last` its last token. Fixed tokens in front of its first value are known."""

    anchor: int
    last: int
    section: str


class SectionDiffusion:
    """Fills one frame's blocks, all rollouts beside each other.

    A pass reads the anchor and the block: fixed tokens and filled values as themselves, masks
    elsewhere. Its rows see each other and every cached row; slot k is read from row k - 1. Its keys
    and values are dropped: a causal pass caches the block when the next one begins, so that what is
    read from the cache is what the target was trained on.
    """

    def __init__(
        self,
        graphs: Graphs,
        cache: TwoPartCache,
        script: Script,
        settings: DecodeSettings,
        draws: Draws,
        stats: FrameStats,
    ) -> None:
        draft = graphs.manifest.draft
        assert draft is not None
        self.graphs, self.cache, self.script, self.draws = graphs, cache, script, draws
        self.stats, self.threshold, self.mask = stats, settings.threshold, draft.mask_token
        self._blocks = fillings(script, settings, draft)

    def open_blocks(self, rollouts: Rollouts, until: int) -> list[Filling]:
        """Those before position `until` that nothing stands in yet, in order."""
        first = rollouts.tokens[0]
        return [b for b in self._blocks if b.anchor + 1 < until and first[b.anchor + 1] < 0]

    def passes(self, rollouts: Rollouts, block: Filling, sampling: Sampling) -> Iterator[None]:
        """Fill a block in place; every step is a pass.

        A rollout that is done waits for the others, and nothing of it changes: what it holds does
        not depend on its batch.
        """
        positions = np.arange(block.anchor, block.last + 1)
        tokens = rollouts.tokens[:, positions]
        while (open_ := tokens < 0).any():
            logits, at = self._pass(tokens, open_, positions)
            stands = self._stands(logits, at, open_)
            row, slot = at[0][stands], at[1][stands]
            tokens[row, slot] = self._drawn(
                logits[stands], rollouts, row, positions[slot], sampling
            )
            self.stats.count_filling(block.section, int(open_.any(axis=1).sum()), 0)
            rollouts.tokens[:, positions] = tokens
            yield

    def _pass(self, tokens: Ints, open_: Bools, positions: Ints) -> tuple[Array, tuple[Ints, ...]]:
        """[M, V] restricted logits of the open places, and where they are."""
        n, width = tokens.shape
        with self.stats.stage("embed"):
            inputs = self.graphs.embed(np.where(open_, self.mask, tokens))
        turned = self.script.turned(np.tile(positions, (n, 1)))
        everything = np.zeros((width, width), np.float32)
        with self.stats.stage("draft"):
            hidden, _ = self.graphs.target(inputs, turned, everything, self.cache)
        self.stats.target_passes += 1
        row, slot = np.nonzero(open_)
        with self.stats.stage("head"):
            logits = self.graphs.head_at(hidden, (row, slot - 1))
        return restrict(logits, self.script.bias_at(positions[slot])), (row, slot)

    def _stands(self, logits: Array, at: tuple[Ints, ...], open_: Bools) -> Bools:
        """[M] places that are filled now: the sure ones of each rollout, or its surest one."""
        confidence = np.full(open_.shape, -1.0)
        confidence[at] = distribution(logits, SURE).max(axis=-1)
        stands = confidence > self.threshold
        none = ~stands.any(axis=1) & open_.any(axis=1)
        stands[none, confidence[none].argmax(axis=1)] = True
        return np.asarray(stands[at])

    def _drawn(
        self, logits: Array, rollouts: Rollouts, row: Ints, positions: Ints, sampling: Sampling
    ) -> Ints:
        """[m] what fills each place: a place has one race, in whichever pass it is filled."""
        if sampling.temperature == 0:
            return np.asarray(logits.argmax(axis=-1))
        race = self.draws.at_position(rollouts.ids[row], positions)
        return race.draw(distribution(logits, sampling))


def fillings(script: Script, settings: DecodeSettings, draft: DraftDims) -> list[Filling]:
    """The blocks of an output that hold values, in order."""
    scaffold = script.scaffold
    ends = block_ends(scaffold, settings.block or draft.block)
    values = np.flatnonzero(scaffold.is_value)
    _, first = np.unique(ends[values], return_index=True)
    return [
        Filling(script.prompt + v - 1, script.prompt + int(ends[v]), scaffold.section_of(v).name)
        for v in values[first].tolist()
    ]
