"""The target's taps of verified rows that a drafter has not seen yet."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from runtime.engines.device import Buffer, Device

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Seen:
    """Verified rows [N, C].

    Attributes:
        taps: on the device; `places` are their rows, counted over its first two dimensions.
    """

    taps: Buffer
    places: Ints
    positions: Ints
    holds: Bools

    def columns(self, some: slice) -> Seen:
        """Some of the C rows."""
        return Seen(self.taps, self.places[:, some], self.positions[:, some], self.holds[:, some])

    @property
    def in_order(self) -> bool:
        """The taps are [N, C, K*d] as they lie."""
        return self.places.shape == self.taps.shape[:2] and bool(
            (self.places.ravel() == np.arange(self.places.size)).all()
        )


@dataclass
class PendingTaps:
    """Verified rows in the order of their passes."""

    device: Device
    parts: list[Seen] = field(default_factory=list)
    _stem: list[Seen] | None = None  # what waited at the first fork

    def __len__(self) -> int:
        """Rows of a rollout that wait, gaps included."""
        return sum(part.positions.shape[1] for part in self.parts)

    def observe(self, taps: Buffer, positions: Ints, holds: Bools) -> None:
        """Take the taps [N, S, K*d] of a target pass; `holds` [N, S] says which rows stand."""
        n, most = len(holds), int(holds.sum(axis=1).max())
        rows = np.arange(most)[None] + np.zeros((n, 1), np.int64)
        if holds[:, :most].sum() != holds.sum():  # not a chain: gaps
            rows = np.argsort(~holds, axis=1, kind="stable")[:, :most]
        of_rollout = np.arange(n)[:, None]
        # the engine's own buffer is written over by the next pass
        kept = self.device.gather([(taps, of_rollout * holds.shape[1] + rows)])
        at = of_rollout, rows
        places = np.arange(n * most).reshape(n, most)
        self.parts.append(Seen(kept, places, positions[at], holds[at]))

    def fork(self, n: int) -> None:
        """What waits at the first fork waits for each of n rollouts, at every fork anew."""
        self._stem = self.parts if self._stem is None else self._stem
        self.parts = self._stem
        self.keep(np.zeros(n, np.int64))

    def keep(self, rows: Ints) -> None:
        """One rollout for each of `rows`; the taps stay where they are."""
        self.parts = [
            Seen(each.taps, each.places[rows], each.positions[rows], each.holds[rows])
            for each in self.parts
        ]

    def hold_back(self) -> Seen:
        """Take the newest row out, which goes on waiting; give it to `put_back` later."""
        newest = self.parts.pop()
        if newest.positions.shape[1] > 1:
            self.parts.append(newest.columns(slice(None, -1)))
        return newest.columns(slice(-1, None))

    def put_back(self, row: Seen) -> None:
        self.parts.append(row)

    def take(self) -> tuple[Buffer, Ints, Bools]:
        """Everything that waits: taps [N, C, K*d], positions [N, C] and which rows stand."""
        parts, self.parts = self.parts, []
        if len(parts) == 1 and parts[0].in_order:
            return parts[0].taps, parts[0].positions, parts[0].holds
        return (
            self.device.gather([(part.taps, part.places) for part in parts]),
            np.concatenate([part.positions for part in parts], axis=1),
            np.concatenate([part.holds for part in parts], axis=1),
        )
