"""The scaffold: an output's fixed tokens, its value positions, and what each value may be."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

VALUE = -1  # at a position of `Scaffold.tokens`: the model decides


@dataclass(frozen=True)
class Span:
    """A section's positions: start..stop-1, relative to the output's first token."""

    name: str
    start: int
    stop: int


@dataclass(frozen=True)
class Padding:
    """What fills a slot that a value is too short for.

    Attributes:
        token: behind which nothing else follows in its slot.
        ends: [L] the last position of the padded slot that a position is in; -1 outside.
    """

    token: int
    ends: NDArray[np.int64]


@dataclass(frozen=True)
class Scaffold:
    """One output of fixed length: position i is a fixed token or a value.

    Attributes:
        tokens: [L] int64; the fixed token, or VALUE.
        allowed_id: [L] int64; row of `allowed_sets` that a value position may choose from.
        allowed_sets: [A, V] bool; row 0 is conventionally the everything-goes set.
        sections: spans that cover 0..L-1 in order.
        padding: None where no slot is padded.
    """

    tokens: NDArray[np.int64]
    allowed_id: NDArray[np.int64]
    allowed_sets: NDArray[np.bool_]
    sections: tuple[Span, ...]
    padding: Padding | None = None

    def __post_init__(self) -> None:
        assert self.tokens.ndim == 1
        assert self.tokens.shape == self.allowed_id.shape
        assert self.allowed_sets.any(axis=1).all(), "an allowed set is empty"
        assert self.sections[0].start == 0
        assert self.sections[-1].stop == len(self.tokens)

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def is_value(self) -> NDArray[np.bool_]:
        """[L]"""
        return np.equal(self.tokens, VALUE)

    def bias_at(self, positions: NDArray[np.int64]) -> NDArray[np.float32]:
        """[...] positions -> [..., V]: 0 where a token may stand, -inf elsewhere."""
        rows, table = self._bias_rows
        return table[rows[positions]]

    @cached_property
    def _bias_rows(self) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """[L] row of each position, and the rows: an allowed set or a single fixed token."""
        singles, which = np.unique(self.tokens[~self.is_value], return_inverse=True)
        rows = self.allowed_id.copy()
        rows[~self.is_value] = len(self.allowed_sets) + which
        allowed = np.zeros((len(self.allowed_sets) + len(singles), self.vocab), np.bool_)
        allowed[: len(self.allowed_sets)] = self.allowed_sets
        allowed[len(self.allowed_sets) + np.arange(len(singles)), singles] = True
        return rows, np.where(allowed, np.float32(0.0), np.float32(-np.inf))

    @property
    def vocab(self) -> int:
        return int(self.allowed_sets.shape[1])

    def section(self, name: str) -> Span:
        return next(span for span in self.sections if span.name == name)

    def section_of(self, position: int) -> Span:
        return next(span for span in self.sections if span.start <= position < span.stop)


def free_scaffold(length: int, vocab: int) -> Scaffold:
    """A scaffold without fixed tokens: plain text of `length` tokens."""
    return Scaffold(
        tokens=np.full(length, VALUE, np.int64),
        allowed_id=np.zeros(length, np.int64),
        allowed_sets=np.ones((1, vocab), np.bool_),
        sections=(Span("text", 0, length),),
    )
