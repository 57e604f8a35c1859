"""The blocks of an output's schema in tokens, in which `scaffold-spec` drafts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from runtime.scaffold import Scaffold
from runtime.schema import schema_blocks


@dataclass(frozen=True)
class Blocks:
    """Tokens of each block, fixed ones included.

    Attributes:
        prefix: of those before the fork, the fixed tokens up to the fork among them.
        tail: of those behind it.
        widest: rows of a pass that drafts; a drafter of its own has no more. None: the block's.
    """

    prefix: tuple[int, ...]
    tail: tuple[int, ...]
    widest: int | None = None

    @property
    def longest(self) -> int:
        return max(self.prefix + self.tail)


@dataclass(frozen=True)
class SectionTokens:
    """One section of an output, where no tokenizer is at hand: value and fixed tokens."""

    values: int
    fixed: int

    @property
    def tokens(self) -> int:
        return self.values + self.fixed


def blocks_of(scaffold: Scaffold, first: int, size: int, widest: int | None) -> Blocks:
    """Those of a compiled output.

    Args:
        first: place of the first value behind the fork.
        size: values of a block.
    """
    numbers = schema_blocks(scaffold, size)
    parts = (np.unique(part, return_counts=True)[1] for part in (numbers[:first], numbers[first:]))
    prefix, tail = (tuple(int(count) for count in counts) for counts in parts)
    return Blocks(prefix, tail, widest)


def blocks_of_sections(sections: Sequence[SectionTokens], header: int, size: int) -> Blocks:
    """Those of sections whose fixed tokens lie evenly among the values.

    Args:
        header: fixed tokens of the last section, where the fork is, before its first value.
    """
    *before, last = sections
    prefix = [n for section in before for n in _evenly(section, size)]
    tail = list(_evenly(last, size))
    tail[0] -= header
    return Blocks((*prefix, header), tuple(tail))


def even_blocks(prefix: int, tail: int, size: int, widest: int | None) -> Blocks:
    """Those of so many tokens, where nothing more is known of an output."""
    return Blocks(tuple(_cut(prefix, size)), tuple(_cut(tail, size)), widest)


def _evenly(section: SectionTokens, size: int) -> Iterator[int]:
    done = 0
    for values in np.cumsum(list(_cut(section.values, size))):
        reached = round(section.tokens * values / section.values)
        yield reached - done
        done = reached


def _cut(tokens: int, size: int) -> Iterator[int]:
    for begin in range(0, tokens, size):
        yield min(size, tokens - begin)
