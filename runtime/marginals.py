"""What a block drafter says of a block, and the one place where a slot's distribution is asked for.

A drafter alone gives every slot a distribution of its own. With a Markov head (DSpark, arXiv
2607.05147) a slot's distribution depends on the token before it, so that tokens are drafted from
left to right; this is all on the host, between two passes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.markov import Markov
from runtime.propose import Block
from runtime.race import Race, drawn
from runtime.sampling import distribution
from runtime.settings import Sampling

Array = NDArray[Any]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Slots = Ints | slice  # drafted places of a block in row-major order


@dataclass(frozen=True)
class Options:
    """Distributions over what some slots may hold.

    Attributes:
        q: [..., C]
        tokens: [..., C] the token of each column, in token order; None where C = V.
    """

    q: Floats
    tokens: Ints | None

    def draw(self, numbers: Floats | Race) -> Ints:
        """A token for each number [...], or the winner of each race."""
        return self.of_columns(drawn(self.q, numbers))

    def of_columns(self, columns: Ints) -> Ints:
        """The tokens of columns [...]."""
        if self.tokens is None:
            return columns
        # one slot may be drawn from several times: [m, 1, C] under columns [m, k]
        tokens = np.broadcast_to(self.tokens, (*columns.shape, self.tokens.shape[-1]))
        return np.asarray(np.take_along_axis(tokens, columns[..., None], axis=-1)[..., 0])


@dataclass
class Marginals:
    """What a block drafter says of a block.

    Attributes:
        block: the chain with its known tokens; VALUE where `drafted`.
        logits: [M, V] restricted logits of the M drafted places, in row-major order of `drafted`.
        markov: what the token before a slot adds to its logits; None where slots are independent.
    """

    block: Block
    logits: Array
    markov: Markov | None = None

    @property
    def vocab(self) -> int:
        return int(self.logits.shape[-1])

    @cached_property
    def slots(self) -> Ints:
        """[N, W] the slot of each drafted place of the block, -1 elsewhere."""
        slots = np.full(self.block.drafted.shape, -1)
        slots[self.block.drafted] = np.arange(len(self.logits))
        return slots

    def repeated(self, n: int) -> Marginals:
        """The same of n rollouts that have not parted; this is of one."""
        return Marginals(self.block.repeated(n), np.tile(self.logits, (n, 1)), self.markov)

    def in_order(self, depth: Ints) -> Iterator[Slots]:
        """Which of some places at these depths [P] to fill one after another: all at once, or those
        of a depth when all before them are known."""
        if self.markov is None:
            yield slice(None)
            return
        for each in range(1, self.block.width):
            if len(places := np.flatnonzero(depth == each)):
                yield places

    def likeliest(self, slots: Slots, previous: Ints) -> Ints:
        """[m] the likeliest token of each slot behind a token [m]."""
        logits, tokens = self._logits(slots, previous)
        return Options(logits, tokens).of_columns(logits.argmax(axis=-1))

    def under(self, sampling: Sampling) -> Conditionals:
        """The slots' processed distributions."""
        return Conditionals(self, sampling)

    def raced(self, race: Race) -> Race:
        """[M] that of the slots, for the columns of their distributions; `race` is of [N, W]."""
        of_slots = race[np.nonzero(self.block.drafted)]
        return of_slots if self.markov is None else of_slots.over(self._candidates[1])

    def _logits(self, slots: Slots, previous: Ints) -> tuple[Array, Ints | None]:
        """Logits of slots [m] behind tokens [m, ...], and the tokens of their columns."""
        if self.markov is None:
            return self.logits[slots], None
        logits, tokens = (table[slots] for table in self._candidates)
        between = (len(tokens), *[1] * (previous.ndim - 1), tokens.shape[-1])
        logits, tokens = logits.reshape(between), tokens.reshape(between)
        return logits + self.markov.bias(previous, tokens), tokens

    @cached_property
    def _candidates(self) -> tuple[Array, Ints]:
        """[M, C] logits of the tokens that each slot may hold, and these tokens, in token order.

        Few are: an allowed set, or the head's top k. Nothing is computed for the others.
        """
        allowed = self.logits > -np.inf
        counts = allowed.sum(axis=1)
        slot, token = np.nonzero(allowed)
        column = np.arange(len(slot)) - np.repeat(counts.cumsum() - counts, counts)
        logits = np.full((len(counts), int(counts.max())), -np.inf, self.logits.dtype)
        tokens = np.zeros(logits.shape, np.int64)
        logits[slot, column], tokens[slot, column] = self.logits[slot, token], token
        return logits, tokens


def sureness(logits: Array) -> Floats:
    """[M] probability of the likeliest token under logits [M, V]."""
    above = logits - logits.max(axis=1, keepdims=True)
    return np.asarray(1.0 / np.exp(above, dtype=np.float64).sum(axis=1))


def empty_marginals(block: Block, vocab: int) -> Marginals:
    """Of a block in which nothing is left to draft."""
    return Marginals(block, np.zeros((0, vocab), np.float32))


class Conditionals:
    """The distribution of each slot given the token before it, processed like the target's."""

    def __init__(self, marginals: Marginals, sampling: Sampling) -> None:
        self.marginals, self.sampling = marginals, sampling
        # independent slots are processed once, however often they are asked for
        self._fixed = distribution(marginals.logits, sampling) if marginals.markov is None else None

    def __call__(self, slots: Slots, previous: Ints) -> Options:
        """Of slots [m], each behind a token [m], or behind several [m, k]: q is [m, k or 1, C]."""
        if self._fixed is not None:
            q = self._fixed[slots]
            return Options(q[:, None] if previous.ndim > 1 else q, None)
        logits, tokens = self.marginals._logits(slots, previous)
        return Options(distribution(logits, self.sampling), tokens)

    def along_the_likeliest(self) -> Floats:
        """[M, C] of every slot behind the likeliest chain's tokens."""
        if self._fixed is not None:
            return self._fixed
        block = self.marginals.block
        tokens, at = block.tokens.copy(), np.nonzero(block.drafted)
        for some in self.marginals.in_order(at[1]):
            row, column = at[0][some], at[1][some]
            tokens[row, column] = self.marginals.likeliest(some, tokens[row, column - 1])
        return self(slice(None), tokens[at[0], at[1] - 1]).q

    def drawn_from(self, block: Block) -> Floats:
        """[N, W, V] what each row of a filled block was drawn from: one-hot for a known token."""
        q = np.zeros((*block.tokens.shape, self.marginals.vocab))
        at = np.nonzero(block.drafted)
        slots = self.marginals.slots[at[0], block.depth[at]]
        if self._fixed is not None:
            q[at] = (
                self._fixed if block.parents is None else self._fixed[slots]
            )  # a chain's are all
        else:
            options = self(slots, block.tokens[at[0], block.above[at]])
            assert options.tokens is not None
            some = np.nonzero(options.q)
            q[at[0][some[0]], at[1][some[0]], options.tokens[some]] = options.q[some]
        row, place = np.nonzero(~block.drafted)
        q[row, place, block.tokens[row, place]] = 1.0
        return q
