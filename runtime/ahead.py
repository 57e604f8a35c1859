"""Drafts that a target makes behind the very rows that it verifies, in one pass.

Fast-dDrive (arXiv 2605.23163) drafts a block in a bidirectional pass and verifies it in a causal
one. Here masks stand behind the rows to be verified: they see those rows and each other, and no row
to be verified sees them. So a pass verifies what it verified anyway, and drafts what follows if all
of that stands. What was drafted behind a refused token is not lost: it is offered again, and so is
what the pass drafted behind it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from runtime.bundle import DraftDims
from runtime.propose import Block, known_block
from runtime.script import Rollouts, Script
from runtime.settings import Method
from runtime.window import FRESH, NOWHERE, Window

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def drafts_ahead(draft: DraftDims, method: Method) -> bool:
    """Whether what a method verifies is drafted in the pass that verifies."""
    return draft.of_target and method == "scaffold-spec"


@dataclass(frozen=True)
class Offer:
    """The drafts at hand for every rollout, as a chain of K tokens behind its anchor.

    Attributes:
        reach: [N] how many of them are known or drafted without a gap, and may be verified.
        drafted: [N, K] which are drafts.
        confidence: [N, K] of the drafts; 0 elsewhere.
        rests: [N, K] what they rest on; FRESH elsewhere.
        rows: that a pass may have, the anchor's among them.
    """

    reach: Ints
    drafted: Bools
    confidence: Floats
    rests: Ints
    rows: int

    @classmethod
    def of(
        cls, windows: list[Window], rollouts: Rollouts, script: Script, until: int, rows: int
    ) -> Offer:
        """For what stands before position `until`, in a pass of at most so many rows."""
        furthest = np.clip(until - 2 - rollouts.start, 0, rows - 1)
        ahead = rollouts.start[:, None] + np.arange(1, int(furthest.max()) + 1)
        open_ = ~script.fixed[np.minimum(ahead, len(script) - 1)]
        confidence, rests = np.zeros(ahead.shape), np.full(ahead.shape, FRESH)
        for row, window in enumerate(windows):
            if window.drafts is not None:
                column = window.places - rollouts.start[row] - 1
                inside = column < ahead.shape[1]
                confidence[row, column[inside]] = window.drafts.confidence[inside]
                rests[row, column[inside]] = window.rests[inside]
        at_hand = ~open_ | (confidence > 0)
        reach = np.minimum(at_hand.cumprod(axis=1).sum(axis=1), furthest)
        drafted = open_ & (np.arange(ahead.shape[1]) < reach[:, None])
        confidence, rests = np.where(drafted, confidence, 0.0), np.where(drafted, rests, FRESH)
        return cls(reach, drafted, confidence, rests, rows)

    @property
    def fresh(self) -> Bools:
        """[N] whether all drafts are."""
        return np.asarray((self.rests == FRESH).all(axis=1))


@dataclass(frozen=True)
class Split:
    """What the rows of a pass are for.

    Attributes:
        chain: [N] tokens to verify behind the anchor, of those that are offered.
        masks: [N] values to draft behind them, at most.
    """

    chain: Ints
    masks: Ints

    @classmethod
    def whole(cls, offer: Offer) -> Split:
        """All that is offered, and what follows. What is left of a refused draft is drafted
        again."""
        known = np.minimum((~offer.drafted).cumprod(axis=1).sum(axis=1), offer.reach)
        chain = np.where(offer.fresh, offer.reach, known)
        return cls(chain, offer.rows - 1 - chain)


@dataclass(frozen=True)
class Outlook:
    """Which values may be drafted behind a place.

    Attributes:
        ends: [L] the last position of each position's block; see `runtime.schema.block_ends`.
    """

    script: Script
    dims: DraftDims
    ends: Ints

    def places(self, last: int, most: int) -> Ints:
        """[M] positions of values to draft when tokens up to `last` are verified.

        Not the next token, which the target then says itself, and nothing behind the schema's block
        of the first.
        """
        script = self.script
        if most <= 0 or last + 1 >= len(script):
            return NOWHERE
        first = int(script.next_value[last + 1])
        if first >= len(script):
            return NOWHERE
        end = script.prompt + int(self.ends[first - script.prompt])
        places = np.arange(first, end + 1)
        return places[~script.fixed[places]][:most]

    def rows(self, places: Ints, last: int) -> Ints:
        """[R] positions of the rows that a draft of `places` passes: a value is read from the row
        before its own (token shift). Published checkpoints have seen the rows between, too."""
        if self.dims.value_rows or len(places) == 0:
            return places - 1
        return np.arange(last + 1, int(places[-1]))

    def shown(self, rows: Ints) -> Ints:
        """[R] what stands in these rows: fixed tokens, and masks."""
        tokens = self.script.tokens[rows]
        known = (tokens >= 0) & self.dims.scaffold_in_block
        return np.where(known, tokens, self.dims.mask_token)


def lay_out(rollouts: Rollouts, split: Split, outlook: Outlook, until: int, most: int) -> Block:
    """Every rollout's chain behind its anchor, and its masks behind that, in up to `most` rows."""
    masks = []
    for start, chain, count in zip(rollouts.start, split.chain, split.masks, strict=True):
        last = int(start + chain)
        rows = outlook.rows(outlook.places(last, int(count)), last)
        masks.append(rows[: most - 1 - int(chain)])
    ends = 1 + split.chain
    width = int(np.max(ends + [len(rows) for rows in masks]))
    block = known_block(rollouts, outlook.script, width, until).padded(width)
    block.real &= np.arange(width) < ends[:, None]
    block.drafted &= block.real
    block.ahead = np.zeros_like(block.real)
    for row, (end, positions) in enumerate(zip(ends, masks, strict=True)):
        here = slice(int(end), int(end) + len(positions))
        block.ahead[row, here] = True
        block.positions[row, here] = positions
        block.tokens[row, here] = outlook.shown(positions)
    return block
