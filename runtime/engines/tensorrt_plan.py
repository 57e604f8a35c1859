"""TensorRT itself: its module, a built engine opened with it, and contexts to execute it in.

`tensorrt` and `tensorrt_rtx` are the same API under two names; TensorRT-RTX adds a runtime
configuration, by which it captures CUDA graphs itself and keeps the kernels that it compiles.
"""

from __future__ import annotations

import importlib
import mmap
import weakref
from pathlib import Path
from typing import Any

from runtime.engines.kernels import Kernels
from runtime.engines.messages import logger_of
from runtime.engines.store import EngineStore, Flavour, Sidecar
from runtime.errors import EngineError

_INSTALL: dict[Flavour, str] = {
    "tensorrt": "JetPack brings it to a Jetson; elsewhere pip install '.[tensorrt]'",
    "tensorrt_rtx": "pip install '.[rtx]' in slipstream's folder",
}
_DTYPES = {"float": "float32", "half": "float16", "bf16": "bfloat16"}
_LOG: list[str] = []  # TensorRT's warnings and errors, the last ones


class Plan:
    """A built engine, opened on this GPU.

    Args:
        path, sidecar: as `EngineStore` found them.

    Attributes:
        scratch_bytes: what a pass of any profile computes in.

    Raises:
        EngineError: TensorRT is absent or refuses the file, or the sidecar describes another one.
    """

    def __init__(self, path: Path, sidecar: Sidecar) -> None:
        self.path, self.sidecar = path, sidecar
        self._trt = tensorrt_module(sidecar.flavour)
        self._engine = self._deserialised()
        self._check_tensors()
        self._kernels: Kernels | None = None
        self.scratch_bytes = int(self._engine.device_memory_size_v2)

    def new_context(self) -> Any:
        """An `IExecutionContext` whose memory the caller gives.

        Raises:
            EngineError: TensorRT makes none.
        """
        strategy = self._trt.ExecutionContextAllocationStrategy.USER_MANAGED
        if self.sidecar.flavour == "tensorrt_rtx":
            config = self._engine.create_runtime_config()
            config.set_execution_context_allocation_strategy(strategy)
            config.cuda_graph_strategy = self._trt.CudaGraphStrategy.WHOLE_GRAPH_CAPTURE
            config.set_runtime_cache(self._kernels_for(config).cache)
            context = self._engine.create_execution_context(config)
        else:
            context = self._engine.create_execution_context(strategy)
        if context is None:
            raise self.refused("making a context")
        return context

    def passed(self) -> None:
        """Say that a pass was queued."""
        if self._kernels is not None:
            self._kernels.passed()

    def refused(self, doing: str) -> EngineError:
        """The error for something that TensorRT would not do with this engine."""
        return EngineError(
            f"{self.path}: TensorRT refused {doing}",
            expected="an engine that was built for this GPU from this bundle",
            found=last_words(),
            fix="make gpu-check",
        )

    def _kernels_for(self, config: Any) -> Kernels:
        """All contexts share one runtime cache; it goes to the disk when the engine goes."""
        if self._kernels is None:
            cache = config.create_runtime_cache()
            self._kernels = Kernels(cache, self.path, self.sidecar.sha256)
            weakref.finalize(self, self._kernels.keep)
        return self._kernels

    def _deserialised(self) -> Any:
        _LOG.clear()
        logger = logger_of(self._trt, _note)
        runtime = self._trt.Runtime(logger)
        # mapped, so that the file is not in memory twice where CPU and GPU share it
        with (
            self.path.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as plan,
        ):
            engine = runtime.deserialize_cuda_engine(plan)
        if logger.lost:  # such as Ctrl-C: it can't pass through TensorRT
            raise logger.lost
        if engine is None:
            raise self._unfit(
                f"is refused by {self._trt.__name__} {self._trt.__version__}",
                f"an engine for this GPU (built for {self.sidecar.key.sm} by "
                f"{self.sidecar.version})",
                last_words(),
            )
        return engine

    def _check_tensors(self) -> None:
        """The engine's own word on its inputs and outputs against the sidecar's."""
        found = {}
        for i in range(self._engine.num_io_tensors):
            name = self._engine.get_tensor_name(i)
            given = self._engine.get_tensor_mode(name) == self._trt.TensorIOMode.INPUT
            dtype = str(self._engine.get_tensor_dtype(name)).rpartition(".")[2].lower()
            found[name] = ("input" if given else "output", _DTYPES.get(dtype, dtype))
        wanted = {tensor.name: (tensor.mode, tensor.dtype) for tensor in self.sidecar.tensors}
        if found != wanted:
            name, differing = sorted(set(found.items()) ^ set(wanted.items()))[0]
            raise self._unfit(
                "does not fit its sidecar",
                f"{name} as {self.path.with_suffix('.json').name} has it",
                f"{name}: {' '.join(differing)}",
            )

    def _unfit(self, what: str, expected: str, found: str) -> EngineError:
        return EngineStore(self.path.parent).refused(self.path, what, expected, found)


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


def last_words() -> str:
    """TensorRT's last warnings or errors."""
    return "; ".join(_LOG[-2:]) or "no reason in TensorRT's log"


def _note(severity: str, message: str) -> None:
    if severity in ("INTERNAL_ERROR", "ERROR", "WARNING"):
        _LOG.append(message.strip()[:300])
        del _LOG[:-20]
