"""A second device: memory outside of numpy, handles without elements, and a queue like a stream's.

Nothing asked of it happens before somebody waits. So a value that the decoder reads or overwrites
behind the device's back is a wrong value, and memory that is given back turns into NaNs.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping

import numpy as np

from runtime.engines.addressed import AddressedDevice, DeviceBuffer
from runtime.engines.onnx_device import OnnxDeviceEngine
from runtime.graphs import Graphs

LIBC = ctypes.CDLL(None)
LIBC.malloc.restype = ctypes.c_void_p
LIBC.malloc.argtypes = [ctypes.c_size_t]
LIBC.free.argtypes = [ctypes.c_void_p]
POISON = 0xFF  # NaN as float, -1 as integer


class OpaqueDevice(AddressedDevice):
    """Attributes:
    copies: rectangles copied so far; waits: how often the host waited.
    """

    name, kind = "opaque", "cpu"

    def __init__(self) -> None:
        super().__init__()
        self.queue: list[Callable[[], object]] = []
        self.copies = self.waits = 0

    def enqueue(self, work: Callable[[], object]) -> None:
        self.queue.append(work)

    def _allocate(self, nbytes: int) -> int:
        address = LIBC.malloc(nbytes)
        ctypes.memset(address, POISON, nbytes)
        return int(address)

    def _free(self, address: int) -> None:
        self._wait()  # as cudaFree does
        LIBC.free(address)

    def _give_back(self, raw: int, size: int) -> None:
        self.enqueue(lambda: ctypes.memset(raw, POISON, size))
        super()._give_back(raw, size)

    def _zero(self, address: int, nbytes: int) -> None:
        self.enqueue(lambda: ctypes.memset(address, 0, nbytes))

    def _copy(
        self,
        source: int,
        source_pitch: int,
        target: int,
        target_pitch: int,
        width: int,
        height: int,
    ) -> None:
        assert source_pitch >= width
        assert target_pitch >= width
        self.copies += 1

        def move() -> None:
            for i in range(height):
                ctypes.memmove(target + i * target_pitch, source + i * source_pitch, width)

        self.enqueue(move)

    def _wait(self) -> None:
        self.waits += 1
        queue, self.queue = self.queue, []
        for work in queue:
            work()

    def pinned(self, nbytes: int) -> np.ndarray:
        return np.full(nbytes, POISON, np.uint8)


class QueuedEngine(OnnxDeviceEngine):
    """A real ONNX Runtime session whose passes wait in the device's queue."""

    def _execute(
        self, inputs: Mapping[str, DeviceBuffer], outputs: Mapping[str, DeviceBuffer]
    ) -> None:
        for buffer in (*inputs.values(), *outputs.values()):
            assert buffer.address % buffer.dtype.itemsize == 0
        for name, buffer in outputs.items():
            assert buffer.address % self.device.alignment == 0, name
        execute = super()._execute
        assert isinstance(self.device, OpaqueDevice)
        self.device.enqueue(lambda: execute(inputs, outputs))


def opaque_graphs(bundle: object, device: OpaqueDevice) -> Graphs:
    """A bundle's graphs on an opaque device."""
    providers = ("CPUExecutionProvider",)
    return Graphs(bundle, lambda path: QueuedEngine(path, device, providers), device)  # type: ignore[arg-type]
