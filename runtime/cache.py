"""The two-part key/value cache: one trunk that all rollouts share, and a branch for each of them.

Time is the leading dimension, so the rows a pass adds are one contiguous slice that the engine
writes in place. Rejected rows are not erased: the bias masks them, and those behind the last row
that any rollout kept are written over by the next pass.

Keys and values stay on the engine's device; the biases, which say what holds, are the host's.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import gcd, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.bundle import AttentionDims
from runtime.engines.device import HOST, Device
from runtime.errors import CacheFullError

MASKED = np.float32(-30000.0)  # a score's bias that softmax turns into 0; finite, and fits fp16
BUCKET = 32  # rows in use are rounded up to this, so that engines see few shapes
Layer = Any  # a buffer of the cache's device
Mark = tuple[int, int]  # rows in use of trunk and branches
FP32: np.dtype[Any] = np.dtype(np.float32)


@dataclass
class Part:
    """Rows with a validity bias: the trunk's are [P, Hkv, D], the branches' [T, N, Hkv, D]."""

    device: Device
    layers: list[Layer]  # key and value of each layer in turn
    bias: NDArray[np.float32]  # [N, rows]: 0 where a rollout sees a row, else MASKED
    used: int = 0
    _views: list[Layer] = field(default_factory=list)

    @property
    def capacity(self) -> int:
        return int(self.bias.shape[1])

    @property
    def bucket(self) -> int:
        """Rows to hand to the engine: those in use, rounded up; at least one bucket."""
        return min(self.capacity, max(BUCKET, -(-self.used // BUCKET) * BUCKET))

    def views(self) -> list[Layer]:
        """The layers' first `bucket` rows: the same arrays while that stays, so that an engine
        need not bind them anew."""
        rows = self.bucket
        if not self._views or self._views[0].shape[0] != rows:
            self._views = [
                self.device.view(layer, 0, (rows, *layer.shape[1:])) for layer in self.layers
            ]
        return self._views


class TwoPartCache:
    """Keys and values of one network, for one trunk and N branches.

    Until `fork` there is one rollout and its rows go to the trunk; afterwards the trunk is frozen.
    A pass reserves rows, has the engine write them, and commits which of them hold.

    A pass's first row lies at an address that the device lets engines write at; the rows left out
    for that are masked like rejected ones. Rows of 256 bytes or a multiple leave none out.

    Args:
        device: where keys and values are kept.
        dtype: theirs, that of the graph's `present` outputs.
        aside: rows of the branch before a fork, for passes that are put aside.
    """

    def __init__(
        self,
        dims: AttentionDims,
        trunk: int,
        branch: int,
        device: Device = HOST,
        dtype: np.dtype[Any] = FP32,
        aside: int = 1,
    ) -> None:
        self.dims, self.device, self.dtype = dims, device, dtype
        self.branch_rows, self.aside_rows = branch, aside
        self._row = (dims.kv_heads, dims.head_dim)
        self.trunk = Part(
            device,
            [device.zeros((trunk, *self._row), dtype) for _ in range(2 * dims.layers)],
            np.full((1, trunk), MASKED),
        )
        self._memory: list[Layer] = []  # the branches', kept for reuse
        # at least a masked row: engines take no empty input
        self.branches = self._open_branches(1, aside)
        self.forked = False

    def reset(self, keep: int = 0) -> None:
        """Forget everything but the trunk's first `keep` rows, which hold; keep the memory."""
        assert keep <= self.leading, "only rows that hold can stay"
        self.trunk.used = keep
        self.trunk.bias[:, keep:] = MASKED
        self.branches = self._open_branches(1, self.aside_rows)
        self.forked = False

    @property
    def rollouts(self) -> int:
        return int(self.branches.bias.shape[0])

    @property
    def nbytes(self) -> int:
        """Bytes of keys and values: trunk + N * branch."""
        return sum(layer.nbytes for part in (self.trunk, self.branches) for layer in part.layers)

    @property
    def leading(self) -> int:
        """Rows at the trunk's begin that hold, without a gap."""
        holds = self.trunk.bias[0, : self.trunk.used] == 0.0
        return len(holds) if holds.all() else int(np.argmin(holds))

    @property
    def room(self) -> int:
        """Rows that a pass may have, wherever it begins."""
        part = self._growing
        held = int((part.bias[:, : part.used] == 0.0).sum(axis=1).max())
        return part.capacity - self._aligned(held)

    def startable(self, rows: int) -> int:
        """The largest number of the trunk's rows, up to `rows`, right behind which a pass of one
        rollout may write."""
        step = self._step(1)
        return rows // step * step

    def fork(self, n: int, rows: int | None = None) -> None:
        """Freeze the trunk and open n branches over it, in place of any before; no key or value is
        copied.

        Args:
            rows: of a branch, where fewer than the most will do.
        """
        self.branches = self._open_branches(n, min(rows or self.branch_rows, self.branch_rows))
        self.forked = True

    @contextmanager
    def alone(self) -> Iterator[None]:
        """For passes that commit nothing, while the branches are empty: one rollout stands for
        all, since they have not parted."""
        branches = self.branches
        assert branches.used == 0, "the rollouts have parted"
        self.branches = self._open_branches(1, branches.capacity)
        try:
            yield
        finally:
            self.branches = branches

    def reserve(self, rows: int, aside: bool = False) -> list[Layer]:
        """The next free rows of every layer's key and value, each [rows, N, Hkv, D].

        Args:
            aside: of the branches even before a fork, for rows that `put_aside`; nothing is moved.
        """
        part = self.branches if aside else self._growing
        first = self._aligned(part.used)
        if first + rows > part.capacity and not aside:
            self._compact(part)
            first = self._aligned(part.used)
        if first + rows > part.capacity:
            name = "trunk" if part is self.trunk else "branch"
            raise CacheFullError(
                f"the cache's {name} is full",
                expected=f"at most {part.capacity} rows (the bundle's limits.{name})",
                found=f"{part.used} in use and {rows} more wanted",
                fix=f"export the bundle with a larger --{name}",
            )
        part.used = first
        shape = (rows, self.rollouts, *self._row)
        start = first * self.rollouts * prod(self._row)
        return [self.device.view(layer, start, shape) for layer in part.layers]

    def commit(self, holds: NDArray[np.bool_], loose: int = 0) -> Mark:
        """Say which of the reserved rows each rollout keeps.

        Args:
            holds: [N, rows]
            loose: how many of the rows, the last ones, are kept for now.

        Returns:
            Where to `rewind` to, to forget the loose rows.
        """
        part = self._growing
        rows = holds.shape[1]
        part.bias[:, part.used : part.used + rows] = np.where(holds, np.float32(0.0), MASKED)
        first, kept = part.used, np.flatnonzero(holds.any(axis=0))
        firm = kept[kept < rows - loose]
        part.used = first + (int(firm[-1]) + 1 if len(firm) else 0)
        mark = self.trunk.used, self.branches.used
        part.used = first + (int(kept[-1]) + 1 if len(kept) else 0)
        return mark

    def put_aside(self, rows: int) -> NDArray[np.int64]:
        """Keep reserved rows of the branches for now, seen only by whom a pass says.

        Returns:
            [rows] their columns in the branches.
        """
        part = self.branches
        columns = part.used + np.arange(rows)
        part.used += rows
        return columns

    def make_room(self, rows: int) -> None:
        """Compact the branches now if that many rows could not be put aside."""
        if self.branches.used + rows > self.branches.capacity:
            self._compact(self.branches)

    def rewind(self, mark: Mark) -> None:
        """Forget every row since `mark`."""
        for part, used in zip((self.trunk, self.branches), mark, strict=True):
            part.bias[:, used : part.used] = MASKED
            part.used = used

    def keep(self, rollouts: NDArray[np.int64]) -> None:
        """Drop all other rollouts (a gather of the branches' rows in use)."""
        part = self.branches
        shape = (part.capacity, len(rollouts), *self._row)
        rows = np.arange(part.used)[:, None] * self.rollouts + rollouts
        layers = []
        for layer in part.layers:
            # the freed memory stays at the buffer's end, so addresses don't move
            layers.append(self.device.view(layer, 0, shape))
            self._overwrite(layers[-1], layer, rows)
        self.branches = Part(
            self.device, layers, np.ascontiguousarray(part.bias[rollouts]), part.used
        )

    def feeds(self) -> tuple[list[Layer], NDArray[np.float32], list[Layer], NDArray[np.float32]]:
        """Trunk layers [P, Hkv, D], trunk bias [P], branch layers [T, N, Hkv, D], bias [N, T]."""
        p, t = self.trunk.bucket, self.branches.bucket
        return (
            self.trunk.views(),
            self.trunk.bias[0, :p],
            self.branches.views(),
            self.branches.bias[:, :t],
        )

    def places(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Positions of the rows in `feeds`, [P] and [N, T], of a cache that holds every position
        once and in order, as a block drafter's does; masked rows have any."""
        trunk = (self.trunk.bias[0] == 0.0).cumsum()
        branches = (self.branches.bias == 0.0).cumsum(axis=1) + trunk[-1]
        p, t = self.trunk.bucket, self.branches.bucket
        found = (np.asarray(rows - 1, np.int32) for rows in (trunk[:p], branches[:, :t]))
        first, second = found
        return np.ascontiguousarray(first), np.ascontiguousarray(second)

    def check_integrity(self) -> None:
        """Assert what must always hold."""
        for part in (self.trunk, self.branches):
            assert 0 <= part.used <= part.capacity
            assert np.isin(part.bias, (np.float32(0.0), MASKED)).all()
            # rows past `used` may be anything, but none may be seen
            assert (part.bias[:, part.used :] == MASKED).all()
            assert all(layer.shape[0] == part.capacity for layer in part.layers)
        assert self.trunk.bias.shape[0] == 1
        assert self.forked or self.branches.used == 0

    @property
    def _growing(self) -> Part:
        return self.branches if self.forked else self.trunk

    def _open_branches(self, n: int, rows: int) -> Part:
        shape = (rows, n, *self._row)
        size = prod(shape)
        if not self._memory or prod(self._memory[0].shape) < size:
            self._memory = [
                self.device.zeros((size,), self.dtype) for _ in range(2 * self.dims.layers)
            ]
        layers = [self.device.view(memory, 0, shape) for memory in self._memory]
        return Part(self.device, layers, np.full((n, rows), MASKED))

    def _compact(self, part: Part) -> None:
        """Gather each rollout's valid rows to the front; rare, when a part has run full."""
        valid = part.bias[:, : part.used] == 0.0
        order = np.argsort(~valid, axis=1, kind="stable")  # [N, used], valid rows first
        lengths = valid.sum(axis=1)
        used = int(lengths.max())
        rows = order[:, :used].T * len(order) + np.arange(len(order))
        for layer in part.layers:
            by_rollout = (part.capacity, len(order), *self._row)  # a trunk has one rollout
            self._overwrite(layer, self.device.view(layer, 0, by_rollout), rows)
        part.bias[:] = np.where(np.arange(part.capacity) < lengths[:, None], np.float32(0), MASKED)
        part.used = used

    def _overwrite(self, target: Layer, source: Layer, rows: NDArray[np.int64]) -> None:
        """Write rows [T, N] of a source [T', N', Hkv, D] over the first of a target that may be
        the same memory."""
        if rows.size:
            kept = self.device.gather([(source, rows)])
            self.device.copy(kept, self.device.view(target, 0, kept.shape))

    def _aligned(self, used: int) -> int:
        """The first row from `used` on that a pass may write at."""
        step = self._step(self.rollouts)
        return -(-used // step) * step

    def _step(self, rollouts: int) -> int:
        """Every how many rows a pass may write."""
        row = rollouts * prod(self._row) * self.dtype.itemsize
        return self.device.alignment // gcd(row, self.device.alignment)
