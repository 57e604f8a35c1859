"""TensorRT and TensorRT-RTX engines at run time: the same API under two module names.

Never run on a GPU by its authors so far: `make gpu-check` compares it with ONNX Runtime where there
is one. Tested here are what it is made of (`AddressedEngine`, `AddressedDevice`, `Captures`) and
every refusal that needs no GPU.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from runtime.bundle import Bundle, GraphName
from runtime.engines.addressed import DeviceBuffer
from runtime.engines.addressed_engine import AddressedEngine
from runtime.engines.base import TensorSpec
from runtime.engines.captures import Captures
from runtime.engines.cuda import CapturedGraph, CudaDevice
from runtime.engines.layout import Layout
from runtime.engines.store import (
    EngineStore,
    Flavour,
    Precision,
    Sidecar,
    TensorInfo,
    graph_digest,
)
from runtime.engines.tensorrt_plan import Plan, tensorrt_module
from runtime.errors import EngineError

MOST_GRAPHS = 64  # captured passes of each engine


class TensorRTEngine(AddressedEngine):
    """One engine file, its contexts and its captured passes.

    Keys and values are read and written where they lie in the cache. One context serves each
    profile; a pass that came often enough is captured in a context of its own, since a context must
    not change under its captured graph. Activations of all contexts share the device's scratch
    memory: passes of one stream follow one another. TensorRT-RTX captures by itself, because it
    replaces a shape's kernels while it runs.

    Args:
        path, sidecar: as `EngineStore` found them.
        most_graphs: captured passes that are kept; 0 captures none.

    Raises:
        EngineError: TensorRT is absent or refuses the file, or the sidecar describes another one.
    """

    def __init__(
        self, path: Path, sidecar: Sidecar, device: CudaDevice, most_graphs: int = MOST_GRAPHS
    ) -> None:
        self.path, self.sidecar = path, sidecar
        self.cuda = device
        self._plan = Plan(path, sidecar)
        super().__init__(device, _layout(path, sidecar))
        device.reserve_scratch(self._plan.scratch_bytes)
        device.hold(self, sidecar.size)
        self._contexts: dict[int, _Context] = {}
        own = sidecar.flavour == "tensorrt"
        self.captures: Captures[tuple[_Context, CapturedGraph]] = Captures(most_graphs * own)
        self.capture_problem = ""  # why a pass could not be captured; then none is tried again

    def _execute(
        self, inputs: Mapping[str, DeviceBuffer], outputs: Mapping[str, DeviceBuffer]
    ) -> None:
        tensors = {**inputs, **outputs}
        key: Hashable = (
            self.cuda.scratch.address,
            *((buffer.address, buffer.shape) for buffer in tensors.values()),
        )
        if captured := self.captures.get(key):
            captured[1].launch()
            return
        profile = self._profile(inputs)
        if not self.capture_problem and self.captures.due(key):
            self._run_and_capture(profile, key, inputs, tensors)
            return
        context = self._contexts.get(profile)
        if context is None:
            context = self._contexts[profile] = _Context(self._plan, self.cuda, profile)
        context.bind(inputs, tensors)
        context.run()
        self._plan.passed()

    def _run_and_capture(
        self,
        profile: int,
        key: Hashable,
        inputs: Mapping[str, DeviceBuffer],
        tensors: Mapping[str, DeviceBuffer],
    ) -> None:
        context = _Context(self._plan, self.cuda, profile)
        context.bind(inputs, tensors)
        context.run()  # this pass; a capture needs one of the same shapes before it
        try:
            self.captures.put(key, (context, self.cuda.capture(context.run)))
        except EngineError as error:
            self.capture_problem = error.what

    def _profile(self, inputs: Mapping[str, DeviceBuffer]) -> int:
        """The first profile that the inputs' shapes fit."""
        sizes = self.layout.sizes({name: buffer.shape for name, buffer in inputs.items()})
        for i, profile in enumerate(self.sidecar.profiles):
            if profile.fits(sizes):
                return i
        raise EngineError(
            f"{self.path} has no profile for this pass",
            expected="; ".join(profile.text for profile in self.sidecar.profiles),
            found=", ".join(f"{dim} = {size}" for dim, size in sorted(sizes.items())),
            fix="compile the bundle again; --profile widens a range: slipstream compile --help",
        )


class _Context:
    """An execution context of one profile, and what it is bound to."""

    def __init__(self, plan: Plan, device: CudaDevice, profile: int) -> None:
        self._plan, self._cuda = plan, device
        self._context = plan.new_context()
        if not self._context.set_optimization_profile_async(profile, self._cuda.stream):
            raise self._plan.refused(f"choosing profile {profile}")
        self._scratch: DeviceBuffer | None = None
        self._bound: dict[str, tuple[int, tuple[int, ...]]] = {}

    def bind(self, inputs: Mapping[str, DeviceBuffer], tensors: Mapping[str, DeviceBuffer]) -> None:
        """Set shapes and addresses that changed."""
        if self._scratch is not self._cuda.scratch:
            self._scratch = self._cuda.scratch  # also keeps it alive
            self._context.set_device_memory(self._scratch.address, self._scratch.nbytes)
        for name, buffer in tensors.items():
            address, shape = self._bound.get(name, (0, ()))
            if name in inputs and (
                shape != buffer.shape and not self._context.set_input_shape(name, buffer.shape)
            ):
                raise self._plan.refused(f"setting the shape of {name} to {list(buffer.shape)}")
            if address != buffer.address and not self._context.set_tensor_address(
                name, buffer.address
            ):
                raise self._plan.refused(f"setting the address of {name}")
            self._bound[name] = (buffer.address, buffer.shape)

    def run(self) -> None:
        """Queue the pass on the device's stream."""
        if not self._context.execute_async_v3(self._cuda.stream):
            raise self._plan.refused("the pass")


def open_tensorrt(
    bundle: Bundle,
    graph: GraphName,
    device: CudaDevice,
    flavour: Flavour,
    precision: Precision,
    store: EngineStore,
) -> TensorRTEngine:
    """A graph's engine for this device.

    Raises:
        EngineError: TensorRT is absent; no engine in the store fits, or it is damaged.
    """
    path, sidecar = store.find(
        graph=graph,
        graph_sha256=graph_digest(bundle.manifest.graphs[graph]),
        precision=precision,
        flavour=flavour,
        version=str(tensorrt_module(flavour).__version__),
        compute_capability=device.compute_capability,
    )
    return TensorRTEngine(path, sidecar, device)


def _layout(path: Path, sidecar: Sidecar) -> Layout:
    def specs(tensors: Mapping[str, TensorInfo]) -> dict[str, TensorSpec]:
        return {
            name: TensorSpec(name, _dtype(tensor.dtype), tuple(tensor.shape))
            for name, tensor in tensors.items()
        }

    return Layout(str(path), specs(sidecar.inputs), specs(sidecar.outputs))


def _dtype(name: str) -> np.dtype[Any]:
    if name == "bfloat16":  # comes with onnx; numpy has none
        import ml_dtypes

        bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return bfloat16
    return np.dtype(name)
