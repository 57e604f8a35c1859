"""Whether feeds fit a graph, and what shapes its outputs then have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from runtime.engines.base import TensorSpec
from runtime.errors import EngineError

Shape = tuple[int, ...]
DTYPES: dict[str, np.dtype[Any]] = {
    "tensor(float)": np.dtype(np.float32),
    "tensor(float16)": np.dtype(np.float16),
    "tensor(int32)": np.dtype(np.int32),
    "tensor(int64)": np.dtype(np.int64),
}


class Layout:
    """A graph's inputs and outputs: dimensions of one name are equal, and `T+S` is their sum.

    Args:
        label: the graph's file, for messages.
    """

    def __init__(
        self, label: str, inputs: dict[str, TensorSpec], outputs: dict[str, TensorSpec]
    ) -> None:
        self.label, self.inputs, self.outputs = label, inputs, outputs

    def check_names(self, feeds: Mapping[str, Any], into: Mapping[str, Any]) -> None:
        """Insist on every input and on known outputs.

        Raises:
            EngineError: an input is missing or unknown, or an output is unknown.
        """
        if feeds.keys() != self.inputs.keys():
            raise self._wrong_names("input", self.inputs, feeds)
        if not into.keys() <= self.outputs.keys():
            raise self._wrong_names("output", self.outputs, {**self.outputs, **into})

    def sizes(self, shapes: Mapping[str, Shape]) -> dict[str, int]:
        """The named dimensions' sizes in these shapes of all inputs.

        Raises:
            EngineError: an input has the wrong rank or shape, or no rows.
        """
        sizes: dict[str, int] = {}
        sums: list[tuple[str, str, int]] = []
        for name, shape in shapes.items():
            wanted = self.inputs[name].shape
            if len(shape) != len(wanted):
                raise self.error(f"input {name} has the wrong rank", list(wanted), list(shape))
            for dim, size in zip(wanted, shape, strict=True):
                if isinstance(dim, str) and "+" in dim:
                    sums.append((name, dim, size))
                elif size != (dim if isinstance(dim, int) else sizes.setdefault(dim, size)):
                    known = dim if isinstance(dim, int) else f"{dim} = {sizes[dim]}"
                    raise self.error(
                        f"input {name} has the wrong shape",
                        f"{list(wanted)} with {known}",
                        list(shape),
                    )
        for name, dim, size in sums:
            if size != sum(sizes[part] for part in dim.split("+")):
                terms = " + ".join(f"{part} = {sizes[part]}" for part in dim.split("+"))
                raise self.error(f"input {name} has the wrong shape", terms, size)
        if 0 in sizes.values():
            raise self.error("an input has no rows", "at least 1 in every dimension", sizes)
        return sizes

    def output_shapes(self, shapes: Mapping[str, Shape]) -> dict[str, Shape]:
        """The outputs' shapes for these shapes of all inputs.

        Raises:
            EngineError: as `sizes`.
        """
        sizes = self.sizes(shapes)
        return {
            name: tuple(dim if isinstance(dim, int) else sizes[dim] for dim in spec.shape)
            for name, spec in self.outputs.items()
        }

    def check_input(self, name: str, dtype: np.dtype[Any]) -> None:
        """Insist on an input's dtype.

        Raises:
            EngineError: it is another one.
        """
        if dtype != self.inputs[name].dtype:
            raise self.error(f"input {name} has the wrong dtype", self.inputs[name].dtype, dtype)

    def check_output(self, name: str, dtype: np.dtype[Any], found: Shape, shape: Shape) -> None:
        """Insist that a buffer for an output has its dtype and shape.

        Raises:
            EngineError: it has not.
        """
        if dtype != self.outputs[name].dtype or found != shape:
            raise self.error(
                f"the array for output {name} does not fit",
                f"{self.outputs[name].dtype} {list(shape)}",
                f"{dtype} {list(found)}",
            )

    def error(self, what: str, expected: object, found: object) -> EngineError:
        return EngineError(
            f"{self.label}: {what}",
            expected=str(expected),
            found=str(found),
            fix="feed what `engine.inputs` and `engine.outputs` describe; if the file comes from "
            "another version: slipstream export TARGET --draft DRAFTER -o BUNDLE",
        )

    def _wrong_names(self, kind: str, wanted: Iterable[str], found: Iterable[str]) -> EngineError:
        missing, unknown = sorted(set(wanted) - set(found)), sorted(set(found) - set(wanted))
        what = f"{kind} {missing[0]} is missing" if missing else f"{kind} {unknown[0]} is unknown"
        return self.error(what, ", ".join(sorted(wanted)), ", ".join(sorted(found)))
