"""An engine that is given addresses: what a pass does before and after the engine proper runs."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np

from runtime.engines.addressed import AddressedDevice, DeviceBuffer, Staging
from runtime.engines.base import TensorSpec
from runtime.engines.layout import Layout, Shape


class AddressedEngine(ABC):
    """Runs a graph on buffers of an `AddressedDevice`; see `runtime.engines.base.Engine`.

    Small inputs come as numpy arrays and go through pinned memory; floats are cast to the graph's
    precision on that way. Outputs without a buffer in `into` go to one of the engine's for each
    name, as large as the largest pass so far needed: so their addresses settle.
    """

    def __init__(self, device: AddressedDevice, layout: Layout) -> None:
        self.device, self.layout = device, layout
        self._staging = {name: Staging(device) for name in layout.inputs}
        self._results: dict[str, DeviceBuffer] = {}

    @property
    def inputs(self) -> dict[str, TensorSpec]:
        """Every input by name."""
        return self.layout.inputs

    @property
    def outputs(self) -> dict[str, TensorSpec]:
        """Every output by name."""
        return self.layout.outputs

    def run(self, feeds: Mapping[str, Any], into: Mapping[str, Any]) -> dict[str, Any]:
        """See `runtime.engines.base.Engine.run`."""
        self.layout.check_names(feeds, into)
        shapes = self.layout.output_shapes({name: feeds[name].shape for name in self.inputs})
        fed = {name: self._input(name, feeds[name]) for name in self.inputs}
        results = {}
        for name, shape in shapes.items():
            results[name] = into[name] if name in into else self._own(name, shape)
            self.layout.check_output(name, results[name].dtype, results[name].shape, shape)
        self._execute(fed, results)
        return results

    @abstractmethod
    def _execute(
        self, inputs: Mapping[str, DeviceBuffer], outputs: Mapping[str, DeviceBuffer]
    ) -> None:
        """Queue the graph; dtypes and shapes have been checked."""

    def _input(self, name: str, value: Any) -> DeviceBuffer:
        if isinstance(value, DeviceBuffer):
            self.layout.check_input(name, value.dtype)
            return value
        dtype = self.inputs[name].dtype
        if not (is_float(value.dtype) and is_float(dtype)):
            self.layout.check_input(name, value.dtype)
        return self._staging[name].put(value, dtype)

    def _own(self, name: str, shape: Shape) -> DeviceBuffer:
        held, dtype = self._results.get(name), self.outputs[name].dtype
        size = math.prod(shape)
        if held is None or held.shape[0] < size:
            held = self._results[name] = self.device.empty((size,), dtype)
        return self.device.view(held, 0, shape)


def is_float(dtype: np.dtype[Any]) -> bool:
    """Whether a dtype is a float, bfloat16 too, which numpy counts as something else."""
    return bool(np.issubdtype(dtype, np.floating)) or dtype.name == "bfloat16"
