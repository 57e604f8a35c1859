"""A CUDA device through cuda-python: memory, one stream, captured graphs.

Never run on a GPU by its authors so far. All but the driver's calls is `AddressedDevice`'s, which
the tests run over host memory.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
import weakref
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.engines.addressed import AddressedDevice
from runtime.errors import EngineError

INSTALL = "pip install '.[gpu]' in slipstream's folder"


class CudaDevice(AddressedDevice):
    """Memory and one stream of a GPU. All passes and copies are queued on that stream.

    Args:
        index: of the GPU among those that this process sees.

    Attributes:
        stream: its handle.
        compute_capability: such as "8.7".

    Raises:
        EngineError: no cuda-python, no GPU, or a driver that is too old.
    """

    kind = "cuda"

    def __init__(self, index: int = 0) -> None:
        runtime = cuda_runtime()
        count = device_count()
        if index >= count:
            raise EngineError(
                f"there is no GPU number {index}",
                expected=f"0 to {count - 1}",
                found=str(index),
                fix="nvidia-smi -L",
            )
        super().__init__()
        self.index, self.name = index, f"cuda:{index}"
        self._runtime = runtime
        _call("choosing the GPU", runtime.cudaSetDevice, index)
        # a stream that waits for no other, such as the legacy default one
        self.stream = int(
            _call(
                "opening a stream",
                runtime.cudaStreamCreateWithFlags,
                runtime.cudaStreamNonBlocking,
            )
        )
        attribute = runtime.cudaDeviceAttr
        major, minor = (
            _call("asking for the compute capability", runtime.cudaDeviceGetAttribute, each, index)
            for each in (
                attribute.cudaDevAttrComputeCapabilityMajor,
                attribute.cudaDevAttrComputeCapabilityMinor,
            )
        )
        self.compute_capability = f"{major}.{minor}"
        self.scratch = self.empty((1,), np.dtype(np.uint8))

    def reserve_scratch(self, nbytes: int) -> None:
        """Make the memory that all engines' passes compute in at least this large.

        One is enough: they run one after another. Whoever bound the old one has to bind it anew.
        """
        if nbytes > self.scratch.nbytes:
            self.scratch = self.empty((nbytes,), np.dtype(np.uint8))

    def free_bytes(self) -> int:
        """Device memory that is left; on a Jetson that is the machine's."""
        free, _ = _call("asking for free memory", self._runtime.cudaMemGetInfo)
        return int(free)

    def capture(self, work: Callable[[], None]) -> CapturedGraph:
        """What `work` queues on the stream, as a graph; nothing of it runs now.

        Raises:
            EngineError: the work can't be captured.
        """
        # relaxed: blocks may be freed meanwhile, whenever the collector runs
        mode = self._runtime.cudaStreamCaptureMode.cudaStreamCaptureModeRelaxed
        _call("beginning a capture", self._runtime.cudaStreamBeginCapture, self.stream, mode)
        try:
            work()
        except BaseException:
            with contextlib.suppress(EngineError):
                _call("leaving a capture", self._runtime.cudaStreamEndCapture, self.stream)
            raise
        graph = _call("ending a capture", self._runtime.cudaStreamEndCapture, self.stream)
        try:
            run = _call("making a graph", self._runtime.cudaGraphInstantiate, graph, 0)
        finally:
            _call("dropping a capture", self._runtime.cudaGraphDestroy, graph)
        return CapturedGraph(self, run)

    def _allocate(self, nbytes: int) -> int:
        try:
            return int(_call("allocating", self._runtime.cudaMalloc, nbytes))
        except EngineError as error:
            raise EngineError(
                f"{self.name} has no memory left",
                expected=f"{nbytes / 1e6:.1f} MB more",
                found=f"{self.nbytes / 1e6:.1f} MB held, {self.free_bytes() / 1e6:.1f} MB free",
                fix="fewer rollouts, or export with a smaller --trunk and --branch",
            ) from error

    def _free(self, address: int) -> None:
        if not sys.is_finalizing():  # the driver frees all when the process ends
            self._runtime.cudaFree(address)

    def _zero(self, address: int, nbytes: int) -> None:
        _call("zeroing", self._runtime.cudaMemsetAsync, address, 0, nbytes, self.stream)

    def _copy(
        self,
        source: int,
        source_pitch: int,
        target: int,
        target_pitch: int,
        width: int,
        height: int,
    ) -> None:
        kind = self._runtime.cudaMemcpyKind.cudaMemcpyDefault  # by the addresses
        if height == 1:
            _call(
                "copying", self._runtime.cudaMemcpyAsync, target, source, width, kind, self.stream
            )
            return
        _call(
            "copying rows",
            self._runtime.cudaMemcpy2DAsync,
            target,
            target_pitch,
            source,
            source_pitch,
            width,
            height,
            kind,
            self.stream,
        )

    def _wait(self) -> None:
        _call("waiting for the GPU", self._runtime.cudaStreamSynchronize, self.stream)

    def pinned(self, nbytes: int) -> NDArray[np.uint8]:
        address = int(
            _call(
                "allocating pinned memory",
                self._runtime.cudaHostAlloc,
                nbytes,
                self._runtime.cudaHostAllocDefault,
            )
        )
        memory = (ctypes.c_uint8 * nbytes).from_address(address)
        weakref.finalize(memory, _free_pinned, self._runtime, address)  # arrays keep `memory`
        return np.ctypeslib.as_array(memory)


class CapturedGraph:
    """Work that was captured from a stream, ready to be launched again and again."""

    def __init__(self, device: CudaDevice, graph: Any) -> None:
        self._device, self._graph = device, graph

    def launch(self) -> None:
        """Queue it on the device's stream."""
        device = self._device
        _call("launching a graph", device._runtime.cudaGraphLaunch, self._graph, device.stream)

    def __del__(self) -> None:
        if not sys.is_finalizing():
            self._device._runtime.cudaGraphExecDestroy(self._graph)


@cache
def cuda_runtime() -> Any:
    """cuda-python's runtime module.

    Raises:
        EngineError: it is not installed.
    """
    try:
        from cuda.bindings import runtime
    except ImportError as error:
        raise EngineError(
            "cuda-python is not installed",
            expected="the package cuda-python 12.6 or newer",
            found=str(error),
            fix=INSTALL,
        ) from error
    return runtime


def device_count() -> int:
    """GPUs that this process sees, at least one.

    Raises:
        EngineError: there is none, or the driver is too old for cuda-python.
    """
    runtime = cuda_runtime()
    status, count = runtime.cudaGetDeviceCount()
    if status == runtime.cudaError_t.cudaErrorInsufficientDriver:
        _, driver = runtime.cudaDriverGetVersion()
        _, wanted = runtime.cudaRuntimeGetVersion()
        if driver == 0:
            raise _no_device("no NVIDIA driver")
        raise EngineError(
            "the NVIDIA driver is too old",
            expected=f"one for CUDA {_version(wanted)} or newer",
            found=f"one for CUDA {_version(driver)}",
            fix="a newer driver (on a Jetson a newer JetPack), or an older cuda-python",
        )
    if status != runtime.cudaError_t.cudaSuccess or not count:
        raise _no_device(_reason(runtime, status) if int(status) else "no GPU is visible")
    return int(count)


def _no_device(found: str) -> EngineError:
    return EngineError(
        "no CUDA device",
        expected="an NVIDIA GPU and its driver",
        found=found,
        fix="run on the GPU's machine (nvidia-smi shows it), or --provider cpu",
    )


def _version(number: int) -> str:
    """12060 -> "12.6" """
    return f"{number // 1000}.{number % 1000 // 10}"


def _call(doing: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """A driver call's result.

    Raises:
        EngineError: the driver reports an error.
    """
    status, *results = function(*arguments)
    if int(status):
        raise EngineError(
            f"{doing} failed on the GPU",
            expected="cudaSuccess",
            found=_reason(cuda_runtime(), status),
            fix="make gpu-check",
        )
    return results[0] if len(results) == 1 else tuple(results)


def _reason(runtime: Any, status: Any) -> str:
    _, text = runtime.cudaGetErrorString(status)
    return f"{status.name}: {text.decode() if isinstance(text, bytes) else text}"


def _free_pinned(runtime: Any, address: int) -> None:
    if not sys.is_finalizing():
        runtime.cudaFreeHost(address)
