"""What an engine is: a compiled graph with named, typed inputs and outputs that runs on buffers.

The decode loop binds numpy arrays (host memory; on a CPU that is device memory too). Outputs may be
bound into a slice of a larger array, which is how a pass appends to the cache without a copy.
"""

from __future__ import annotations

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

    def run(self, feeds: dict[str, Array], into: dict[str, Array]) -> dict[str, Array]:
        """Run the graph once.

        Args:
            feeds: every input by name, C-contiguous, of the input's dtype.
            into: outputs to write in place; each a C-contiguous array (or leading-axis slice of
                one) of exactly the output's dtype and shape. An array that is also part of a
                feed may be a disjoint slice of the same memory.

        Returns:
            every output by name, those in `into` being the very arrays given; the others are
            valid until the next `run`.

        Raises:
            EngineError: a feed is missing, or has the wrong dtype, rank or shape.
        """
        ...
