"""The blocks of an output's schema, in which Fast-dDrive drafts and fills (arXiv 2605.23163)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from runtime.bundle import DraftDims
from runtime.propose import Until
from runtime.scaffold import Scaffold
from runtime.script import Rollouts, Script
from runtime.settings import BY_SCHEMA, DecodeSettings

Ints = NDArray[np.int64]


def schema_blocks(scaffold: Scaffold, size: int) -> Ints:
    """[L] number of each position's block, counted over the output; -1 in a section of no value.

    The values of a section are taken `size` at a time, so that no block crosses a section. A fixed
    token belongs to the block of its section's nearest value, at equal distance the following one.
    """
    blocks, first = np.full(len(scaffold), -1), 0
    for span in scaffold.sections:
        values = span.start + np.flatnonzero(scaffold.is_value[span.start : span.stop])
        if len(values) == 0:
            continue
        places = np.arange(span.start, span.stop)
        following = np.minimum(np.searchsorted(values, places), len(values) - 1)
        before = np.maximum(following - 1, 0)
        nearest = np.where(
            np.abs(places - values[before]) < np.abs(values[following] - places), before, following
        )
        blocks[places] = first + nearest // size
        first += -(-len(values) // size)
    return np.asarray(blocks, np.int64)


def block_ends(scaffold: Scaffold, size: int) -> Ints:
    """[L] the last position of each position's block; its own in a section of no value."""
    blocks, places = schema_blocks(scaffold, size), np.arange(len(scaffold))
    ends = places.copy()
    inside = blocks >= 0
    # blocks are numbered in order, so the last place of a number is its block's end
    last = np.searchsorted(blocks[inside], blocks[inside], side="right") - 1
    ends[inside] = places[inside][last]
    return np.asarray(ends, np.int64)


@dataclass(frozen=True)
class Reach:
    """How far a round's drafts may go: to the end of the stretch, or of the schema's block.

    Attributes:
        ends: [L] see `block_ends`; None where blocks are not the schema's.
    """

    script: Script
    ends: Ints | None

    @classmethod
    def of(cls, settings: DecodeSettings, script: Script, draft: DraftDims | None) -> Reach:
        if settings.method not in BY_SCHEMA or draft is None:
            return cls(script, None)
        return cls(script, block_ends(script.scaffold, settings.block or draft.block))

    def __call__(self, rollouts: Rollouts, until: int) -> Until:
        """The position that each rollout's drafts end before, with the token that the target adds.

        The block is that of the next value: fixed tokens in front of it need no draft.
        """
        if self.ends is None:
            return until
        script = self.script
        value = np.minimum(script.next_value[rollouts.start], len(script) - 1)
        last = script.prompt + self.ends[value - script.prompt]
        return np.asarray(np.minimum(until, last + 2))
