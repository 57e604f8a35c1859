"""Uniform samples of several streams at once, in a bounded amount of memory."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np

from runtime.errors import SlipstreamError

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass
class _Item(Generic[V]):
    """Something kept; `number` counts what was offered, over all streams."""

    number: int
    nbytes: int
    value: V | None = None


@dataclass
class _Stream(Generic[V]):
    """What was kept of one stream, and how much of it went by."""

    random: np.random.Generator
    capacity: int
    seen: int = 0
    items: list[_Item[V]] = field(default_factory=list)

    @property
    def nbytes(self) -> int:
        return sum(item.nbytes for item in self.items)


class Reservoirs(Generic[K, V]):
    """A reservoir for each stream (Vitter, "Random sampling with a reservoir", 1985, algorithm R).

    Every item of a stream is kept with the same probability, whatever comes after it. Where all of
    them together would take too much memory, the stream that holds the most gives up one at random.

    Args:
        capacity: items of each stream at most.
        limit_bytes: of all streams together; never exceeded, not even for a moment.
        seed: the same offers and seed keep the same items.
    """

    def __init__(self, capacity: int, limit_bytes: int, seed: int) -> None:
        self.capacity, self.limit, self.seed = capacity, limit_bytes, seed
        self._streams: dict[K, _Stream[V]] = {}
        self._offered = 0

    def offer(self, stream: K, nbytes: int, make: Callable[[], V]) -> None:
        """Keep an item, or don't.

        Args:
            make: the item, of `nbytes` bytes; called only if it is kept.

        Raises:
            SlipstreamError: one item of each stream is already more than the limit.
        """
        if stream not in self._streams:
            random = np.random.default_rng((self.seed, zlib.crc32(repr(stream).encode())))
            self._streams[stream] = _Stream(random, self.capacity)
        own, item = self._streams[stream], _Item[V](self._offered, nbytes)
        self._offered += 1
        own.seen += 1
        if len(own.items) < own.capacity:
            own.items.append(item)
        elif (place := int(own.random.integers(own.seen))) < own.capacity:
            own.items[place] = item
        else:
            return
        self._make_room(stream)
        if any(kept is item for kept in own.items):
            item.value = make()

    def kept(self) -> dict[K, list[tuple[int, V]]]:
        """What was kept of each stream, in the order of the offers: their number, and the item."""
        found: dict[K, list[tuple[int, V]]] = {}
        for key, stream in self._streams.items():
            ordered = sorted(stream.items, key=lambda item: item.number)
            found[key] = [(i.number, i.value) for i in ordered if i.value is not None]
        return found

    def seen(self) -> dict[K, int]:
        """How many items of each stream were offered."""
        return {key: stream.seen for key, stream in self._streams.items()}

    @property
    def nbytes(self) -> int:
        """Bytes of all that is kept."""
        return sum(stream.nbytes for stream in self._streams.values())

    def _make_room(self, stream: K) -> None:
        while self.nbytes > self.limit:
            many = [each for each in self._streams.values() if len(each.items) > 1]
            if not many:
                raise SlipstreamError(
                    "the memory for recorded passes holds not even one of each kind",
                    expected=f"at least {self.nbytes} bytes",
                    found=f"a limit of {self.limit} bytes, full at {stream}",
                    fix="give `record` a larger limit_bytes, or a shorter prompt",
                )
            largest = max(many, key=lambda each: each.nbytes)
            del largest.items[int(largest.random.integers(len(largest.items)))]
            largest.capacity = len(largest.items)
