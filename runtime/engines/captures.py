"""Which passes are worth a captured graph: those that come again, and not too many of them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

Captured = TypeVar("Captured")
WARM = (
    2  # passes before a capture; a first pass of new shapes sets things up that can't be captured
)


class Captures(Generic[Captured]):
    """Captured graphs by what they are valid for, the least recently used dropped first.

    A graph holds addresses and shapes, so its key is all of them. A pass appends to the cache at a
    place of its own, which makes keys many; they come again from frame to frame, since a frame
    starts at the same places.

    Args:
        most: graphs kept. Each holds driver memory of its own.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._held: OrderedDict[Hashable, Captured] = OrderedDict()
        self._seen: OrderedDict[Hashable, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._held)

    def get(self, key: Hashable) -> Captured | None:
        """The graph of a pass, if there is one."""
        if key not in self._held:
            return None
        self._held.move_to_end(key)
        return self._held[key]

    def due(self, key: Hashable) -> bool:
        """Count a pass without a graph; True when it has come often enough to be captured."""
        self._seen[key] = self._seen.pop(key, 0) + 1
        while len(self._seen) > 8 * self.most:
            self._seen.popitem(last=False)
        return self.most > 0 and self._seen[key] > WARM

    def put(self, key: Hashable, captured: Captured) -> None:
        self._seen.pop(key, None)
        self._held[key] = captured
        while len(self._held) > self.most:
            self._held.popitem(last=False)

    def clear(self) -> None:
        """Drop all of them: what they hold addresses of has moved."""
        self._held.clear()
        self._seen.clear()
