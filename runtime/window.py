"""What a target that drafts ahead said of the places behind an anchor, and the drafts chosen of it.

Drafts are chosen once, or again where the token before them came otherwise and a Markov head
(`runtime.markov`) makes them depend on it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from runtime.draws import Draws
from runtime.marginals import Marginals, Said, settle, sureness
from runtime.markov import Markov
from runtime.propose import Block, pad_with_anchor
from runtime.scaffold import VALUE
from runtime.script import Rollouts
from runtime.settings import Sampling

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
NOWHERE = np.zeros(0, np.int64)
# What a draft rests on: all that it has seen stands; that, but places of its window are decided
# since, one mostly otherwise than drafted; it has seen a token that was refused.
FRESH, LEFT, MISLED = 0, 1, 2


@dataclass(frozen=True)
class Drafts:
    """The tokens of a window's places.

    Attributes:
        tokens: [M]
        confidence: [M] how likely each is to be the target's, if those before it are.
    """

    tokens: Ints
    confidence: Floats

    def __getitem__(self, some: slice) -> Drafts:
        return Drafts(self.tokens[some], self.confidence[some])


@dataclass(frozen=True)
class Window:
    """What was drafted for a rollout's places behind its anchor.

    Attributes:
        places: [M] positions, in order.
        said: what was said of these M slots.
        drafts: None where they are still to be chosen.
        rests: [M] FRESH, LEFT or MISLED.
    """

    places: Ints
    said: Said
    rests: Ints
    drafts: Drafts | None = None

    @classmethod
    def empty(cls, vocab: int, markov: Markov | None) -> Window:
        return cls(NOWHERE, Said.surely(0, 0, vocab, markov), NOWHERE)

    @classmethod
    def padding(cls, places: Ints, token: int, vocab: int, markov: Markov | None) -> Window:
        """Of places that are surely padding."""
        said = Said.surely(token, len(places), vocab, markov)
        drafts = Drafts(np.full(len(places), token), np.ones(len(places)))
        return cls(places, said, np.full(len(places), FRESH), drafts)

    def behind(self, place: int, token: int) -> Window:
        """What is left of it behind a place where this token stands.

        Drafts that depend on the token before them are chosen again if that came otherwise.
        """
        left = int(np.searchsorted(self.places, place, side="right"))
        drafts = self.drafts
        if drafts is not None:
            came = left > 0 and self.places[left - 1] == place and drafts.tokens[left - 1] == token
            drafts = drafts[left:] if came or self.said.markov is None else None
        rests = np.maximum(self.rests[left:], LEFT)
        return Window(self.places[left:], self.said[left:], rests, drafts)

    def and_then(self, other: Window) -> Window:
        """This up to where another begins, and that, which has seen a refused token.

        Args:
            other: of one place at least, and no value lies between it and this.
        """
        left = int(np.searchsorted(self.places, other.places[0]))
        return Window(
            np.concatenate([self.places[:left], other.places]),
            Said.joined([self.said[:left], other.said]),
            np.concatenate([self.rests[:left], np.full(len(other.places), MISLED)]),
        )

    @property
    def undecided(self) -> Window:
        """The same without drafts, for who may choose others."""
        return replace(self, drafts=None)


def windows_of(places: Ints, counts: Ints, said: Said) -> list[Window]:
    """Fresh windows of some rollouts, of so many [n] values each: places [M], M slots."""
    ends = counts.cumsum()
    cuts = [slice(end - count, end) for end, count in zip(ends, counts, strict=True)]
    return [Window(places[cut], said[cut], np.full(cut.stop - cut.start, FRESH)) for cut in cuts]


def decided(
    windows: list[Window],
    rollouts: Rollouts,
    sampling: Sampling,
    draws: Draws | None,
) -> list[Window]:
    """The windows with drafts, where the token before the first of them is known.

    Args:
        draws: of the target's own words, where they may be looked at: a draft is then what wins
            that race, and its confidence how likely the target's is to have the same winner. None
            for the likeliest tokens, with their probabilities.
    """
    open_ = [
        row
        for row, window in enumerate(windows)
        if window.drafts is None
        and len(window.places)
        and rollouts.tokens[row, window.places[0] - 1] != VALUE
    ]
    if not open_:
        return windows
    parts = [windows[row] for row in open_]
    counts = [len(window.places) for window in parts]
    at = np.repeat(open_, counts), np.concatenate([window.places for window in parts])
    said, tokens = Said.joined([window.said for window in parts]), rollouts.tokens.copy()
    if draws is None:
        settle(tokens, at, said, said.likeliest)
        confidence = sureness(said.given(slice(None), tokens[at[0], at[1] - 1])[0])
    else:
        race = said.racing(draws.at_position(rollouts.ids[at[0]], at[1]))
        given = said.under(sampling)
        settle(tokens, at, said, lambda some, before: given(some, before).draw(race[some]))
        options = given(slice(None), tokens[at[0], at[1] - 1])
        winners = options.columns_of(tokens[at])
        confidence = race.foreseen(options.q)[np.arange(len(winners)), winners]
    drafts, done, first = Drafts(tokens[at], confidence), list(windows), 0
    for row, count in zip(open_, counts, strict=True):
        done[row] = replace(windows[row], drafts=drafts[first : first + count])
        first += count
    return done


def filled(block: Block, windows: list[Window]) -> Block:
    """The block with the windows' drafts."""
    for row, window in enumerate(windows):
        if window.drafts is not None:
            drafted = block.drafted[row]
            at = np.searchsorted(window.places, block.positions[row, drafted])
            block.tokens[row, drafted] = window.drafts.tokens[at]
    pad_with_anchor(block)
    return block


def marginals_of(block: Block, windows: list[Window]) -> Marginals:
    """What the windows say of the block's drafts, for who draws others."""
    parts = []
    for positions, drafted, window in zip(block.positions, block.drafted, windows, strict=True):
        parts.append(window.said[np.searchsorted(window.places, positions[drafted])])
    return Marginals.of(block, Said.joined(parts))
