"""Where an engine's memory lies: buffers, and everything that is done to them outside of engines.

Keys, values, hidden states and taps stay on the device; only tokens, positions and biases go there
and only logits come back. The decode loop touches a buffer through its device and in no other way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Ints = NDArray[np.int64]


class Buffer(Protocol):
    """C-contiguous memory of a device; on a CPU a numpy array, elsewhere a handle."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype[Any]: ...

    @property
    def nbytes(self) -> int: ...


# buffer [A, B, *row], and rows of it [N, C], counted over A * B
Rows = tuple[Buffer, Ints]
B = TypeVar("B", bound=Buffer)


class Device(Protocol):
    """Memory that engines read and write.

    Attributes:
        name: as in messages, "cpu" or "cuda:0".
        alignment: bytes; engines write only at addresses that are a multiple of it.
    """

    @property
    def name(self) -> str: ...

    @property
    def alignment(self) -> int: ...

    @property
    def nbytes(self) -> int:
        """Bytes held on an accelerator; 0 where that is the machine's own memory."""
        ...

    def zeros(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """New memory, zeroed, its start aligned."""
        ...

    def view(self, buffer: Any, first: int, shape: tuple[int, ...]) -> Any:
        """The elements of a buffer from number `first` on, in this shape; nothing is copied."""
        ...

    def gather(self, parts: Sequence[Rows]) -> Any:
        """A new buffer [N, sum of C, *row] of the parts' rows side by side."""
        ...

    def copy(self, source: Any, target: Any) -> None:
        """Overwrite `target` with `source` of the same size; the two don't overlap."""
        ...

    def to_host(self, buffer: Any) -> Array:
        """The content, complete. On a CPU the array itself, elsewhere a copy."""
        ...

    def to_device(self, array: Array) -> Any:
        """A buffer with an array's content. On a CPU the array itself, elsewhere a copy."""
        ...

    def synchronise(self) -> None:
        """Wait until everything asked of the device is done."""
        ...


class HostDevice:
    """The machine's own memory: buffers are numpy arrays."""

    name = "cpu"
    alignment = 1
    nbytes = 0

    def zeros(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        return np.zeros(shape, dtype)

    def view(self, buffer: Array, first: int, shape: tuple[int, ...]) -> Array:
        size = 1
        for dim in shape:
            size *= dim
        return buffer.reshape(-1)[first : first + size].reshape(shape)

    def gather(self, parts: Sequence[tuple[Any, Ints]]) -> Array:
        taken = [buffer.reshape(-1, *buffer.shape[2:]).take(rows, axis=0) for buffer, rows in parts]
        gathered: Array = taken[0] if len(taken) == 1 else np.concatenate(taken, axis=1)
        return gathered

    def copy(self, source: Array, target: Array) -> None:
        target[...] = source

    def to_host(self, buffer: Array) -> Array:
        return buffer

    def to_device(self, array: Array) -> Array:
        return array

    def synchronise(self) -> None:
        pass


HOST: Device = HostDevice()
