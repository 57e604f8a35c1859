"""What an engine is: a compiled graph with named, typed inputs and outputs that runs on buffers.

Engines read and write buffers of one device (`runtime.engines.device`). Outputs may be bound into a
part of a larger buffer, which is how a pass appends to the cache without a copy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True)
class TensorSpec:
    """Name, dtype and shape of a graph's input or output; a dynamic dimension is its name."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int | str, ...]


class Engine(Protocol):
    """One graph, ready to run."""

    @property
    def inputs(self) -> dict[str, TensorSpec]: ...

    @property
    def outputs(self) -> dict[str, TensorSpec]: ...

    def run(self, feeds: Mapping[str, Any], into: Mapping[str, Any]) -> dict[str, Any]:
        """Run the graph once.

        Args:
            feeds: every input by name, C-contiguous, of the input's dtype: buffers of the engine's
                device, or numpy arrays, which are brought there.
            into: outputs to write in place; each a buffer (or a part of one) of exactly the
                output's dtype and shape. A buffer that is also part of a feed may be a disjoint
                part of the same memory.

        Returns:
            every output by name, those in `into` being the very buffers given; the others are
            valid until the next `run`. On an accelerator they may still be in the making: its
            device's `to_host` waits for them.

        Raises:
            EngineError: a feed is missing, or has the wrong dtype, rank or shape.
        """
        ...
