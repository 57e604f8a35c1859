"""Drafts that a target makes behind the very rows that it verifies, in one pass.

Fast-dDrive (arXiv 2605.23163) drafts a block in a bidirectional pass and verifies it in a causal
one. Here masks stand behind the rows to be verified: they see those rows and each other, and no row
to be verified sees them. So a pass verifies what it verified anyway, and drafts what follows if all
of that stands. What was drafted behind a refused token is not lost: it is offered again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.bundle import DraftDims
from runtime.marginals import Marginals, sureness
from runtime.propose import Block, known_block
from runtime.script import Rollouts, Script
from runtime.settings import Method

Array = NDArray[Any]
Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
NOWHERE = np.zeros(0, np.int64)


def drafts_ahead(draft: DraftDims, method: Method) -> bool:
    """Whether what a method verifies is drafted in the pass that verifies."""
    return draft.of_target and method == "scaffold-spec"


@dataclass(frozen=True)
class Window:
    """What was drafted for a rollout and is not decided yet.

    Attributes:
        places: [M] positions, in order.
        logits: [M, V] restricted.
        confidence: [M] probability of each place's likeliest token.
        fresh: whether all that was assumed when it was drafted came true.
    """

    places: Ints
    logits: Array
    confidence: Floats
    fresh: bool = True

    @classmethod
    def empty(cls, vocab: int) -> Window:
        return cls(NOWHERE, np.zeros((0, vocab), np.float32), np.zeros(0))

    @classmethod
    def padding(cls, places: Ints, token: int, vocab: int) -> Window:
        """Of places that are surely padding."""
        sure = np.full((1, vocab), -np.inf, np.float32)
        sure[0, token] = 0.0
        logits = np.broadcast_to(sure, (len(places), vocab))
        return cls(places, logits, np.ones(len(places)))

    def behind(self, place: int) -> Window:
        """What is left of it behind a place whose token came otherwise, or was not drafted."""
        left = int(np.searchsorted(self.places, place, side="right"))
        return Window(self.places[left:], self.logits[left:], self.confidence[left:], False)


@dataclass(frozen=True)
class Offer:
    """The drafts at hand for every rollout, as a chain of K tokens behind its anchor.

    Attributes:
        reach: [N] how many of them are known or drafted without a gap, and may be verified.
        drafted: [N, K] which are drafts.
        confidence: [N, K] of the drafts; 0 elsewhere.
        fresh: [N] whether they are.
        rows: that a pass may have, the anchor's among them.
    """

    reach: Ints
    drafted: Bools
    confidence: Floats
    fresh: Bools
    rows: int

    @classmethod
    def of(
        cls, windows: list[Window], rollouts: Rollouts, script: Script, until: int, rows: int
    ) -> Offer:
        """For what stands before position `until`, in a pass of at most so many rows."""
        furthest = np.clip(until - 2 - rollouts.start, 0, rows - 1)
        ahead = rollouts.start[:, None] + np.arange(1, int(furthest.max()) + 1)
        open_ = ~script.fixed[np.minimum(ahead, len(script) - 1)]
        confidence = np.zeros(ahead.shape)
        for row, window in enumerate(windows):
            column = window.places - rollouts.start[row] - 1
            inside = column < ahead.shape[1]
            confidence[row, column[inside]] = window.confidence[inside]
        at_hand = ~open_ | (confidence > 0)
        reach = np.minimum(at_hand.cumprod(axis=1).sum(axis=1), furthest)
        drafted = open_ & (np.arange(ahead.shape[1]) < reach[:, None])
        fresh = np.asarray([window.fresh for window in windows])
        return cls(reach, drafted, np.where(drafted, confidence, 0.0), fresh, rows)


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


def marginals_of(block: Block, windows: list[Window]) -> Marginals:
    """What the windows say of the block's drafts."""
    parts = []
    for positions, drafted, window in zip(block.positions, block.drafted, windows, strict=True):
        parts.append(window.logits[np.searchsorted(window.places, positions[drafted])])
    return Marginals(block, parts[0] if len(parts) == 1 else np.concatenate(parts))


def windows_of(places: Ints, counts: Ints, logits: Array) -> list[Window]:
    """Fresh windows of some rollouts, of so many [n] values each: places [M], logits [M, V]."""
    sure, ends = sureness(logits), counts.cumsum()
    cuts = [slice(end - count, end) for end, count in zip(ends, counts, strict=True)]
    return [Window(places[cut], logits[cut], sure[cut]) for cut in cuts]
