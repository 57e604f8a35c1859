"""What a drafter says of slots, and the one place where a slot's distribution is asked for.

A drafter alone gives every slot a distribution of its own. With a Markov head (DSpark, arXiv
2607.05147) a slot's distribution depends on the token before it: `settle` fills slots as a loop
from left to right would. This is all on the host, between two passes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
Some = Ints | slice  # numbers of slots
Choose = Callable[[Ints, Ints], Ints]  # slots [m], the tokens before them -> tokens [m]


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

    def columns_of(self, tokens: Ints) -> Ints:
        """The columns of possible tokens [...]."""
        if self.tokens is None:
            return tokens
        return np.asarray((self.tokens == tokens[..., None]).argmax(axis=-1))


class Slots:
    """What a drafter says of M slots.

    Attributes:
        logits: [M, V] restricted.
        markov: what the token before a slot adds to its logits; None where slots are independent.
        gates: [M, r] how the states that slots are read from gate that; None without a gate.
    """

    logits: Array
    markov: Markov | None
    gates: Array | None

    def likeliest(self, some: Some, previous: Ints) -> Ints:
        """[m] the likeliest token of each slot behind a token [m]."""
        logits, tokens = self.given(some, previous)
        return Options(logits, tokens).of_columns(logits.argmax(axis=-1))

    def under(self, sampling: Sampling) -> Conditionals:
        """The slots' processed distributions."""
        return Conditionals(self, sampling)

    def racing(self, race: Race) -> Race:
        """[M] the race of these slots, for the columns of their distributions."""
        return race if self.markov is None else race.over(self._candidates[1])

    def given(self, some: Some, previous: Ints) -> tuple[Array, Ints | None]:
        """Logits of slots [m] behind tokens [m, ...], and the tokens of their columns."""
        if self.markov is None:
            return self.logits[some], None
        logits, tokens = (table[some] for table in self._candidates)
        between = (len(tokens), *[1] * (previous.ndim - 1), tokens.shape[-1])
        logits, tokens = logits.reshape(between), tokens.reshape(between)
        gates = None if self.gates is None else self.gates[some]
        return logits + self.markov.bias(previous, tokens, gates), tokens

    @cached_property
    def _candidates(self) -> tuple[Array, Ints]:
        """[M, C] logits of the tokens that each slot may hold, and these tokens, in token order.

        Few are: an allowed set, or the head's top k. Nothing is computed for the others.
        """
        allowed = self.logits > -np.inf
        counts = allowed.sum(axis=1)
        slot, token = np.nonzero(allowed)
        column = np.arange(len(slot)) - np.repeat(counts.cumsum() - counts, counts)
        logits = np.full((len(counts), int(counts.max(initial=1))), -np.inf, self.logits.dtype)
        tokens = np.zeros(logits.shape, np.int64)
        logits[slot, column], tokens[slot, column] = self.logits[slot, token], token
        return logits, tokens


def settle(tokens: Ints, at: tuple[Ints, ...], slots: Slots, choose: Choose) -> None:
    """Fill slots of rows of tokens [N, W], each behind the token before it.

    All slots are filled at once behind guesses, and those whose guess was wrong again, until none
    is: what a loop from left to right gives, in a few steps. A slot is right after as many steps as
    there are slots before it in its row, at the latest.

    Args:
        tokens: filled in place.
        at: [M] rows and columns of the slots, in row-major order.
        choose: the tokens of some slots behind tokens.
    """
    row, column = at
    if slots.markov is not None:
        tokens[at] = slots.logits.argmax(axis=-1)
    previous = tokens[row, column - 1]
    some = np.arange(len(row))
    while len(some):
        tokens[row[some], column[some]] = choose(some, previous[some])
        if slots.markov is None:
            return
        now = tokens[row, column - 1]
        some, previous = np.flatnonzero(now != previous), now


@dataclass
class Said(Slots):
    """Slots by themselves."""

    logits: Array
    markov: Markov | None = None
    gates: Array | None = None

    def __getitem__(self, some: Some) -> Said:
        gates = None if self.gates is None else self.gates[some]
        return Said(self.logits[some], self.markov, gates)

    @classmethod
    def surely(cls, token: int, count: int, vocab: int, markov: Markov | None) -> Said:
        """Of so many slots that hold this token, whatever stands before them."""
        sure = np.full((1, vocab), -np.inf, np.float32)
        sure[0, token] = 0.0
        gates = None if markov is None else markov.ungated(count)
        return cls(np.broadcast_to(sure, (count, vocab)), markov, gates)

    @classmethod
    def joined(cls, parts: list[Said]) -> Said:
        """The slots of all parts in turn, which are of one drafter."""
        if len(parts) == 1:
            return parts[0]
        gates = [part.gates for part in parts if part.gates is not None]
        logits = np.concatenate([part.logits for part in parts])
        return cls(logits, parts[0].markov, np.concatenate(gates) if gates else None)


@dataclass
class Marginals(Slots):
    """What a drafter says of a block: its slots are the drafted places.

    Attributes:
        block: the chain with its known tokens; VALUE where `drafted`.
        logits: [M, V] in row-major order of `drafted`.
    """

    block: Block
    logits: Array
    markov: Markov | None = None
    gates: Array | None = None

    @classmethod
    def of(cls, block: Block, said: Said) -> Marginals:
        """A block whose slots a drafter said this of."""
        return cls(block, said.logits, said.markov, said.gates)

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
        gates = None if self.gates is None else np.tile(self.gates, (n, 1))
        logits = np.tile(self.logits, (n, 1))
        return Marginals(self.block.repeated(n), logits, self.markov, gates)

    def in_order(self, depth: Ints) -> Iterator[Some]:
        """Which of some places at these depths [P] to fill one after another: all at once, or those
        of a depth when all before them are known."""
        if self.markov is None:
            yield slice(None)
            return
        for each in range(1, self.block.width):
            if len(places := np.flatnonzero(depth == each)):
                yield places

    def raced(self, race: Race) -> Race:
        """[M] that of the slots, for the columns of their distributions; `race` is of [N, W]."""
        return self.racing(race[np.nonzero(self.block.drafted)])


def sureness(logits: Array) -> Floats:
    """[M] probability of the likeliest token under logits [M, V]."""
    above = logits - logits.max(axis=1, keepdims=True)
    return np.asarray(1.0 / np.exp(above, dtype=np.float64).sum(axis=1))


def empty_marginals(block: Block, vocab: int) -> Marginals:
    """Of a block in which nothing is left to draft."""
    return Marginals(block, np.zeros((0, vocab), np.float32))


class Conditionals:
    """The distribution of each slot given the token before it, processed like the target's."""

    def __init__(self, slots: Slots, sampling: Sampling) -> None:
        self.slots, self.sampling = slots, sampling
        # independent slots are processed once, however often they are asked for
        self._fixed = distribution(slots.logits, sampling) if slots.markov is None else None

    def __call__(self, some: Some, previous: Ints) -> Options:
        """Of slots [m], each behind a token [m], or behind several [m, k]: q is [m, k or 1, C]."""
        if self._fixed is not None:
            q = self._fixed[some]
            return Options(q[:, None] if previous.ndim > 1 else q, None)
        logits, tokens = self.slots.given(some, previous)
        return Options(distribution(logits, self.sampling), tokens)

    def along_the_likeliest(self, block: Block) -> Floats:
        """[M, C] of every slot of a block behind the likeliest chain's tokens."""
        if self._fixed is not None:
            return self._fixed
        tokens, at = block.tokens.copy(), np.nonzero(block.drafted)
        settle(tokens, at, self.slots, self.slots.likeliest)
        return self(slice(None), tokens[at[0], at[1] - 1]).q

    def drawn_from(self, block: Block, numbers: Ints) -> Floats:
        """[N, W, V] what each row of a filled block was drawn from: one-hot for a known token.

        Args:
            numbers: [N, D] the slot of each depth.
        """
        q = np.zeros((*block.tokens.shape, self.slots.logits.shape[-1]))
        at = np.nonzero(block.drafted)
        slots = numbers[at[0], block.depth[at]]
        if self._fixed is not None:
            # a chain's slots are all, in order
            q[at] = self._fixed if block.parents is None else self._fixed[slots]
        else:
            options = self(slots, block.tokens[at[0], block.above[at]])
            assert options.tokens is not None
            some = np.nonzero(options.q)
            q[at[0][some[0]], at[1][some[0]], options.tokens[some]] = options.q[some]
        row, place = np.nonzero(~block.drafted)
        q[row, place, block.tokens[row, place]] = 1.0
        return q
