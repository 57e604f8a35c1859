"""A device whose memory is known by address only: the part of it that no driver has a say in.

`AddressedDevice` needs five operations of a driver; CUDA's are in `runtime.engines.cuda`. All else
(pooling, alignment, views, gathers, staging, accounting) is here and runs over any memory.
"""

from __future__ import annotations

import math
import threading
import weakref
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from runtime.engines.copies import Rectangle, rectangles
from runtime.engines.device import Array, Buffer, Ints

ALIGNMENT = 256  # bytes: what TensorRT wants of a tensor's address
_BLOCK_ALIGNMENT = 512  # bytes: what it wants of its scratch memory
IDLE_BYTES = 64 << 20  # freed blocks kept for the next allocation of their size


class Block:
    """One allocation; it goes back to its device when nothing refers to it any more."""

    def __init__(self, device: AddressedDevice, raw: int, size: int) -> None:
        self._device, self.raw, self.size = device, raw, size
        self.address = -(-raw // _BLOCK_ALIGNMENT) * _BLOCK_ALIGNMENT

    def __del__(self) -> None:
        self._device._give_back(self.raw, self.size)


@dataclass(frozen=True)
class DeviceBuffer:
    """A handle: an address and what lies there. It has no elements to read or write."""

    block: Block
    address: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


class AddressedDevice(ABC):
    """Buffers over memory that the host can't read; see `runtime.engines.device.Device`.

    Work is queued in one order: a copy sees what was asked for before it. Memory that is given back
    may therefore be handed out again at once.
    """

    name: str
    kind: str  # ONNX Runtime's name of the memory: "cpu" or "cuda"
    index = 0  # of the device among those of its kind
    alignment = ALIGNMENT

    def __init__(self) -> None:
        self._idle: defaultdict[int, list[int]] = defaultdict(list)
        self._idle_bytes = 0
        self._held = self._weights = 0
        self._lock = threading.RLock()  # blocks come back whenever the collector runs
        self._landing: Array = np.empty(0, np.uint8)
        self.epoch = 0  # counts how often all queued work was waited for

    # What a driver does.

    @abstractmethod
    def _allocate(self, nbytes: int) -> int:
        """Address of new memory; EngineError when there is none left."""

    @abstractmethod
    def _free(self, address: int) -> None: ...

    @abstractmethod
    def _zero(self, address: int, nbytes: int) -> None: ...

    @abstractmethod
    def _copy(
        self,
        source: int,
        source_pitch: int,
        target: int,
        target_pitch: int,
        width: int,
        height: int,
    ) -> None:
        """Queue a copy of `height` runs of `width` bytes between addresses of the device or of
        pinned host memory; a pitch is the distance of two runs in bytes."""

    @abstractmethod
    def _wait(self) -> None:
        """Until all that is queued is done."""

    @abstractmethod
    def pinned(self, nbytes: int) -> NDArray[np.uint8]:
        """Host memory [nbytes] that copies may start from and end in."""

    # What follows from that.

    @property
    def nbytes(self) -> int:
        """Bytes taken from the driver, idle blocks among them, and those that engines hold."""
        return self._held + self._weights

    def hold(self, owner: object, nbytes: int) -> None:
        """Count memory that an engine's library took, as long as its owner lives."""
        self._weights += nbytes
        weakref.finalize(owner, self._let_go, nbytes)

    def _let_go(self, nbytes: int) -> None:
        self._weights -= nbytes

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> DeviceBuffer:
        nbytes = max(1, math.prod(shape) * dtype.itemsize)
        size = -(-nbytes // _BLOCK_ALIGNMENT) * _BLOCK_ALIGNMENT
        with self._lock:
            if self._idle[size]:
                raw = self._idle[size].pop()
                self._idle_bytes -= size
            else:
                raw = self._allocate(size + _BLOCK_ALIGNMENT)
                self._held += size + _BLOCK_ALIGNMENT
        block = Block(self, raw, size)
        return DeviceBuffer(block, block.address, shape, dtype)

    def zeros(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> DeviceBuffer:
        buffer = self.empty(shape, dtype)
        self._zero(buffer.address, buffer.nbytes)
        return buffer

    def view(self, buffer: DeviceBuffer, first: int, shape: tuple[int, ...]) -> DeviceBuffer:
        start = first * buffer.dtype.itemsize
        view = DeviceBuffer(buffer.block, buffer.address + start, shape, buffer.dtype)
        assert first >= 0, "a view starts in its buffer"
        assert start + view.nbytes <= buffer.nbytes, "a view ends in its buffer"
        return view

    def gather(self, parts: Sequence[tuple[Buffer, Ints]]) -> DeviceBuffer:
        held = [(self._mine(buffer), rows) for buffer, rows in parts]
        n, total = len(held[0][1]), sum(rows.shape[1] for _, rows in held)
        out = self.empty((n, total, *held[0][0].shape[2:]), held[0][0].dtype)
        row = math.prod(out.shape[2:]) * out.dtype.itemsize
        first = 0
        for buffer, rows in held:
            assert rows.size == 0 or 0 <= rows.min() <= rows.max() < math.prod(buffer.shape[:2])
            places = np.arange(n)[:, None] * total + first + np.arange(rows.shape[1])
            for each in rectangles(rows, places):
                self._copy_rows(each, buffer.address, out.address, row)
            first += rows.shape[1]
        return out

    def copy(self, source: Buffer, target: DeviceBuffer) -> None:
        held = self._mine(source)
        assert held.nbytes == target.nbytes, "a copy keeps its size"
        self._copy(held.address, held.nbytes, target.address, held.nbytes, held.nbytes, 1)

    def to_host(self, buffer: Buffer) -> Array:
        if isinstance(buffer, np.ndarray):
            return buffer
        held, nbytes = self._mine(buffer), buffer.nbytes
        if self._landing.nbytes < nbytes:
            self.synchronise()
            self._landing = self.pinned(nbytes)
        self._copy(held.address, nbytes, _address(self._landing), nbytes, nbytes, 1)
        self.synchronise()
        content: Array = self._landing[:nbytes].copy().view(held.dtype).reshape(held.shape)
        return content

    def to_device(self, array: Array) -> DeviceBuffer:
        staging = Staging(self)
        buffer = staging.put(array, array.dtype)
        self.synchronise()  # the staging memory ends with this call
        return buffer

    def synchronise(self) -> None:
        self._wait()
        self.epoch += 1

    def trim(self) -> None:
        """Give idle blocks back to the driver."""
        with self._lock:
            for size, addresses in self._idle.items():
                for raw in addresses:
                    self._held -= size + _BLOCK_ALIGNMENT
                    self._free(raw)
            self._idle.clear()
            self._idle_bytes = 0

    def __del__(self) -> None:
        if hasattr(self, "_lock"):
            self.trim()

    def _mine(self, buffer: Buffer) -> DeviceBuffer:
        if isinstance(buffer, np.ndarray):
            return self.to_device(buffer)
        return cast(DeviceBuffer, buffer)

    def _copy_rows(self, rows: Rectangle, source: int, target: int, row: int) -> None:
        self._copy(
            source + rows.source * row,
            max(rows.source_stride, rows.width) * row,
            target + rows.target * row,
            max(rows.target_stride, rows.width) * row,
            rows.width * row,
            rows.height,
        )

    def _give_back(self, raw: int, size: int) -> None:
        with self._lock:
            if self._idle_bytes + size <= IDLE_BYTES:
                self._idle[size].append(raw)
                self._idle_bytes += size
            else:
                self._held -= size + _BLOCK_ALIGNMENT
                self._free(raw)


class Staging:
    """One small input's way to the device: pinned host memory and a buffer, both kept."""

    def __init__(self, device: AddressedDevice) -> None:
        self._device = device
        self._pinned: NDArray[np.uint8] = np.empty(0, np.uint8)
        self._buffer: DeviceBuffer | None = None
        self._epoch = -1  # the device's when the last copy was queued

    def put(self, array: Array, dtype: np.dtype[Any]) -> DeviceBuffer:
        """Queue an array's copy to the device, as `dtype`; the array is free at once."""
        nbytes = max(1, array.size * dtype.itemsize)
        if self._epoch == self._device.epoch:
            self._device.synchronise()  # the last copy may not have left the pinned memory yet
        if self._buffer is None or self._buffer.nbytes < nbytes:
            self._pinned = self._device.pinned(nbytes)
            self._buffer = self._device.empty((nbytes,), np.dtype(np.uint8))
        if array.size:
            self._pinned[:nbytes].view(dtype).reshape(array.shape)[...] = array
        self._device._copy(_address(self._pinned), nbytes, self._buffer.address, nbytes, nbytes, 1)
        self._epoch = self._device.epoch
        return DeviceBuffer(self._buffer.block, self._buffer.address, array.shape, dtype)


def _address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])
