"""Proposals that need no drafter, and what a proposal is: a tree of tokens behind the anchor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.script import Rollouts, Script

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Until = int | Ints  # a position that drafts end before, for all rollouts or [N] for each


@dataclass
class Block:
    """A tree for one verification pass; a chain is a tree whose rows follow one another.

    Attributes:
        tokens: [N, W]; row 0 is the anchor, then fixed tokens and drafts.
        positions: [N, W]; start + depth. Padding has a real position.
        real: [N, W]; False for padding.
        drafted: [N, W]; value tokens that a drafter proposed.
        parents: [N, W] row of each row's parent, -1 for the anchor and padding; None for a chain.
        q: [N, W, V] the distribution each row's token was drawn from, where the rule wants it.
        ahead: [N, W] rows of masks that draft what follows if all else stands (see
            `runtime.ahead`); not `real`. None without them.
        kinds: [N, K] which kind of draft the gate takes each row behind the anchor for (see
            `runtime.gate`), at least of the drafted ones. None where it does not ask.
        draft_width: rows of the drafter's block that this came from, 0 without a drafter.
        paths: [N, k, D] row of each independent path's node, for `spectr`; -1 past the end.
    """

    tokens: Ints
    positions: Ints
    real: Bools
    drafted: Bools
    parents: Ints | None = None
    q: Floats | None = None
    paths: Ints | None = None
    ahead: Bools | None = None
    kinds: Ints | None = None
    draft_width: int = 0

    @property
    def width(self) -> int:
        return int(self.tokens.shape[1])

    def first(self, rows: int) -> Block:
        """The first rows of a chain whose tokens are not drafted yet."""
        return self._each(lambda part: part[:, :rows])

    def repeated(self, n: int) -> Block:
        """A chain of one rollout whose tokens are not drafted yet, for each of n."""
        return self._each(lambda part: np.repeat(part, n, axis=0))

    def padded(self, width: int) -> Block:
        """The same of `width` rows; those behind the last one are padding."""
        if width == self.width:
            return self
        last = np.minimum(np.arange(width), self.width - 1)
        grown = self._each(lambda part: part[:, last])
        grown.real[:, self.width :] = False
        grown.drafted[:, self.width :] = False
        return grown

    def _each(self, change: Callable[[NDArray[Any]], NDArray[Any]]) -> Block:
        return Block(
            change(self.tokens),
            change(self.positions),
            change(self.real),
            change(self.drafted),
            draft_width=self.draft_width,
        )

    @property
    def depth(self) -> Ints:
        """[N, W] distance from the anchor."""
        return self.positions - self.positions[:, :1]

    @property
    def above(self) -> Ints:
        """[N, W] row of each row's parent, -1 for the anchor."""
        if self.parents is not None:
            return self.parents
        return np.broadcast_to(np.arange(-1, self.width - 1), self.tokens.shape)

    @property
    def limit(self) -> Ints:
        """[N] how deep each rollout's block reaches."""
        return np.asarray(np.where(self.real, self.depth, 0).max(axis=1))


def known_block(rollouts: Rollouts, script: Script, width: int, until: Until) -> Block:
    """A chain of up to `width` tokens from each anchor on, VALUE where one is still to be drafted.

    The last row is at until-2: it predicts the last token that the round may commit.
    """
    limit = np.clip(until - 2 - rollouts.start, 0, width - 1)
    offsets = np.arange(int(limit.max()) + 1)
    positions = rollouts.start[:, None] + np.minimum(offsets, limit[:, None])
    tokens = rollouts.tokens[np.arange(len(rollouts))[:, None], positions]
    real = offsets <= limit[:, None]
    drafted = real & ~script.fixed[positions]
    drafted[:, 0] = False
    return Block(tokens, positions, real, drafted)


def root_only(rollouts: Rollouts, script: Script, until: int) -> Block:
    """Autoregressive decoding: the anchor alone."""
    return known_block(rollouts, script, 1, until)


def scaffold_run(rollouts: Rollouts, script: Script, until: int) -> Block:
    """The anchor and the fixed tokens that follow it, which need no pass of their own."""
    runs = script.next_value[rollouts.start] - rollouts.start
    block = known_block(rollouts, script, int(runs.max()), until)
    block.real &= np.arange(block.width) < runs[:, None]
    block.drafted[:] = False
    pad_with_anchor(block)
    return block


def pad_with_anchor(block: Block) -> None:
    """Padding must be some token; what it is changes nothing, since no real row sees it."""
    block.tokens = np.where(block.tokens < 0, block.tokens[:, :1], block.tokens)
