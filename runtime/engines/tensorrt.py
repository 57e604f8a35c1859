"""TensorRT and TensorRT-RTX engines at run time: the same API under two module names.

Never run on a GPU by its authors so far: `make gpu-check` compares it with ONNX Runtime where there
is one. Tested here are what it is made of (`AddressedEngine`, `AddressedDevice`, `Captures`) and
every refusal that needs no GPU.
"""

from __future__ import annotations

import importlib
import mmap
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
from runtime.errors import EngineError

MOST_GRAPHS = 64  # captured passes of each engine
_INSTALL: dict[Flavour, str] = {
    "tensorrt": "JetPack brings it to a Jetson; elsewhere pip install '.[tensorrt]'",
    "tensorrt_rtx": "pip install '.[rtx]' in slipstream's folder",
}


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
        self._trt = tensorrt_module(sidecar.flavour)
        self._engine = _deserialised(self._trt, path, sidecar)
        super().__init__(device, _layout(path, sidecar))
        self._check_tensors()
        device.reserve_scratch(int(self._engine.device_memory_size_v2))
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
            context = self._contexts[profile] = _Context(self, profile)
        context.bind(inputs, tensors)
        context.run()

    def _run_and_capture(
        self,
        profile: int,
        key: Hashable,
        inputs: Mapping[str, DeviceBuffer],
        tensors: Mapping[str, DeviceBuffer],
    ) -> None:
        context = _Context(self, profile)
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

    def _check_tensors(self) -> None:
        """The engine's own word on its inputs and outputs against the sidecar's."""
        trt, engine = self._trt, self._engine
        found = {}
        for i in range(engine.num_io_tensors):
            name = engine.get_tensor_name(i)
            given = engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT
            dtype = str(engine.get_tensor_dtype(name)).rpartition(".")[2].lower()
            found[name] = ("input" if given else "output", _TRT_DTYPES.get(dtype, dtype))
        wanted = {tensor.name: (tensor.mode, tensor.dtype) for tensor in self.sidecar.tensors}
        if found != wanted:
            differing = sorted(set(found.items()) ^ set(wanted.items()))
            raise EngineError(
                f"{self.path} does not fit its sidecar",
                expected=f"{differing[0][0]} as {self.path.with_suffix('.json').name} has it",
                found=f"{differing[0][0]}: {' '.join(differing[0][1])}",
                fix=f"slipstream compile {self.sidecar.bundle} again",
            )


class _Context:
    """An execution context of one profile, and what it is bound to."""

    def __init__(self, owner: TensorRTEngine, profile: int) -> None:
        trt, self._cuda, self._path = owner._trt, owner.cuda, owner.path
        strategy = trt.ExecutionContextAllocationStrategy.USER_MANAGED
        if owner.sidecar.flavour == "tensorrt_rtx":
            config = owner._engine.create_runtime_config()
            config.set_execution_context_allocation_strategy(strategy)
            config.cuda_graph_strategy = trt.CudaGraphStrategy.WHOLE_GRAPH_CAPTURE
            self._context = owner._engine.create_execution_context(config)
        else:
            self._context = owner._engine.create_execution_context(strategy)
        if self._context is None:
            raise self._refused("making a context")
        if not self._context.set_optimization_profile_async(profile, self._cuda.stream):
            raise self._refused(f"choosing profile {profile}")
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
                raise self._refused(f"setting the shape of {name} to {list(buffer.shape)}")
            if address != buffer.address and not self._context.set_tensor_address(
                name, buffer.address
            ):
                raise self._refused(f"setting the address of {name}")
            self._bound[name] = (buffer.address, buffer.shape)

    def run(self) -> None:
        """Queue the pass on the device's stream."""
        if not self._context.execute_async_v3(self._cuda.stream):
            raise self._refused("the pass")

    def _refused(self, doing: str) -> EngineError:
        return EngineError(
            f"{self._path}: TensorRT refused {doing}",
            expected="an engine that was built for this GPU from this bundle",
            found="; ".join(_LOG[-2:]) or "no reason in its log",
            fix="make gpu-check",
        )


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


def tensorrt_module(flavour: Flavour) -> Any:
    """The Python module of a TensorRT.

    Raises:
        EngineError: it is not installed, or its libraries can't be loaded.
    """
    try:
        return importlib.import_module(flavour)
    except (ImportError, OSError) as error:
        raise EngineError(
            f"the module {flavour} can't be loaded",
            expected="TensorRT 10.3 or newer" if flavour == "tensorrt" else "TensorRT-RTX",
            found=(str(error).splitlines() or ["no reason given"])[0][:200],
            fix=_INSTALL[flavour],
        ) from error


_LOG: list[str] = []  # TensorRT's warnings and errors, the last ones
_LOGGERS: dict[str, Any] = {}  # one for each module: TensorRT keeps using the first it was given
_TRT_DTYPES = {
    "float": "float32",
    "half": "float16",
    "bf16": "bfloat16",
}


def _logger(trt: Any) -> Any:
    if trt.__name__ not in _LOGGERS:

        def write(self: Any, severity: Any, message: str) -> None:
            if severity in (trt.ILogger.ERROR, trt.ILogger.INTERNAL_ERROR, trt.ILogger.WARNING):
                _LOG.append(message.strip()[:300])
                del _LOG[:-20]

        def start(self: Any) -> None:
            trt.ILogger.__init__(self)

        kind = type("Log", (trt.ILogger,), {"__init__": start, "log": write})
        _LOGGERS[trt.__name__] = kind()
    return _LOGGERS[trt.__name__]


def _deserialised(trt: Any, path: Path, sidecar: Sidecar) -> Any:
    _LOG.clear()
    runtime = trt.Runtime(_logger(trt))
    # mapped, so that the file is not in memory twice where CPU and GPU share it
    with (
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as plan,
    ):
        engine = runtime.deserialize_cuda_engine(plan)
    if engine is None:
        raise EngineError(
            f"{path} is refused by {trt.__name__} {trt.__version__}",
            expected=f"an engine for this GPU (built for {sidecar.key.sm} by {sidecar.version})",
            found="; ".join(_LOG[-2:]) or "no reason in TensorRT's log",
            fix=f"slipstream compile {sidecar.bundle} --target {sidecar.key.sm} "
            f"--precision {sidecar.precision}",
        )
    return engine


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
