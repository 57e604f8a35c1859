"""What runs a bundle's graphs: ONNX Runtime with one of its providers, or TensorRT."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast, get_args

from runtime.bundle import Bundle, GraphName
from runtime.engines.base import Engine
from runtime.engines.device import Device
from runtime.engines.onnx import OnnxEngine, Provider, require_providers
from runtime.engines.profiles import Profile, default_profiles
from runtime.engines.store import EngineStore, Flavour, Precision
from runtime.errors import EngineError, SlipstreamError
from runtime.graphs import Graphs
from runtime.tune import Threading

Kind = Literal["cpu", "cuda", "tensorrt-ep", "tensorrt", "tensorrt-rtx"]
_EXECUTION: dict[str, tuple[str, ...]] = {
    "cuda": ("CUDAExecutionProvider",),
    "tensorrt-ep": ("TensorrtExecutionProvider", "CUDAExecutionProvider"),
}
_MEANING = (
    "cpu, cuda or tensorrt-ep (ONNX Runtime), tensorrt or tensorrt-rtx (engines that "
    "`slipstream compile` built), the last two with :fp16 or another precision than fp32"
)


@dataclass(frozen=True)
class Backend:
    """What runs a bundle.

    Attributes:
        kind: "cpu", "cuda" and "tensorrt-ep" are ONNX Runtime's execution providers, "tensorrt"
            and "tensorrt-rtx" run engines from the engine store.
        precision: of those engines.
    """

    kind: Kind = "cpu"
    precision: Precision = "fp32"

    @classmethod
    def parse(cls, text: str) -> Backend:
        """A backend given as `kind` or, for TensorRT, `kind:precision`.

        Raises:
            SlipstreamError: there is none of that name.
        """
        text = text if isinstance(text, str) else repr(text)[:80]
        kind, colon, precision = text.partition(":")
        takes_precision = kind in ("tensorrt", "tensorrt-rtx")
        if kind not in get_args(Kind) or (
            colon and not (takes_precision and precision in get_args(Precision))
        ):
            raise SlipstreamError(
                "provider is unknown", expected=_MEANING, found=text, fix="--provider cpu"
            )
        return cls(cast(Kind, kind), cast(Precision, precision or "fp32"))

    @property
    def name(self) -> str:
        """As `parse` takes it."""
        return f"{self.kind}:{self.precision}" if self.flavour else self.kind

    @property
    def flavour(self) -> Flavour | None:
        """The TensorRT whose engines it runs."""
        known: dict[str, Flavour] = {"tensorrt": "tensorrt", "tensorrt-rtx": "tensorrt_rtx"}
        return known.get(self.kind)

    def open(
        self, bundle: Bundle, threading: Threading, engines: str | Path | None = None
    ) -> Graphs:
        """A bundle's graphs, ready to run.

        Args:
            threading: of the CPU's engines.
            engines: the engine store's folder; None takes the user's.

        Raises:
            EngineError: what it needs is not installed or not at hand; no engine fits; the GPU's
                memory holds the engines but not the caches.
        """
        if self.kind == "cpu":
            return Graphs(
                bundle,
                lambda path: OnnxEngine(
                    path, threads=threading.threads, spinning=threading.spinning
                ),
            )
        self._check_installed()
        from runtime.engines.cuda import CudaDevice

        device = CudaDevice()
        graphs = Graphs(bundle, self._opener(bundle, device, threading, engines), device)
        _check_memory(graphs, device.free_bytes(), device.name)
        return graphs

    def _check_installed(self) -> None:
        """What can be told without a GPU, first: it has the plainer remedy."""
        if flavour := self.flavour:
            from runtime.engines.tensorrt_plan import tensorrt_module

            tensorrt_module(flavour)
        else:
            require_providers(_EXECUTION[self.kind])

    def _opener(
        self, bundle: Bundle, device: Device, threading: Threading, engines: str | Path | None
    ) -> Callable[[Path], Engine]:
        from runtime.engines.cuda import CudaDevice

        assert isinstance(device, CudaDevice)
        names = {bundle.graph_path(name): name for name in bundle.manifest.graphs}
        if flavour := self.flavour:
            from runtime.engines.tensorrt import open_tensorrt

            store = EngineStore(engines, bundle.folder)
            return lambda path: open_tensorrt(
                bundle, names[path], device, flavour, self.precision, store
            )
        from runtime.engines.onnx_device import OnnxDeviceEngine

        def open_onnx(path: Path) -> Engine:
            options = onnx_providers(self.kind, bundle, names[path], device.index, device.stream)
            return OnnxDeviceEngine(path, device, options, threading.threads)

        return open_onnx


def onnx_providers(
    kind: Kind, bundle: Bundle, graph: GraphName, index: int, stream: int
) -> Sequence[Provider]:
    """ONNX Runtime's providers for "cuda" and "tensorrt-ep", by preference, with their options.

    Args:
        index, stream: of the GPU, and the stream that everything is queued on.
    """
    ours = {"device_id": str(index), "user_compute_stream": str(stream)}
    cuda = ("CUDAExecutionProvider", {**ours, "use_tf32": "0", "do_copy_in_default_stream": "1"})
    if kind == "cuda":
        return [cuda, "CPUExecutionProvider"]
    cache = EngineStore().folder / "onnxruntime" / bundle.key
    tensorrt = (
        "TensorrtExecutionProvider",
        {
            **ours,
            "trt_engine_cache_enable": "1",
            "trt_engine_cache_path": str(cache),
            "trt_timing_cache_enable": "1",
            "trt_timing_cache_path": str(cache),
            **_profile_options(bundle, graph),
        },
    )
    return [tensorrt, cuda, "CPUExecutionProvider"]


def _profile_options(bundle: Bundle, graph: GraphName) -> dict[str, str]:
    """The shapes that the provider builds for: without them each new one would cost a build."""
    import onnx

    model = onnx.load(bundle.graph_path(graph), load_external_data=False)
    profiles = default_profiles(bundle.manifest, graph)
    ends: dict[str, list[str]] = {"min": [], "opt": [], "max": []}
    for value in model.graph.input:
        dims = value.type.tensor_type.shape.dim
        shape = [dim.dim_param or dim.dim_value for dim in dims]
        for profile in profiles:
            _add(ends, value.name, profile, shape)
    return {f"trt_profile_{end}_shapes": ",".join(texts) for end, texts in ends.items()}


def _add(
    ends: dict[str, list[str]], name: str, profile: Profile, shape: Sequence[int | str]
) -> None:
    for end, sizes in zip(ends, profile.shapes(shape), strict=True):
        ends[end].append(f"{name}:{'x'.join(map(str, sizes))}")


def cache_bytes(graphs: Graphs) -> int:
    """Bytes of both caches with all rollouts: trunk + N * branch of each."""
    manifest = graphs.manifest
    limits = manifest.limits
    rows = limits.trunk + limits.rollouts * limits.branch
    total = 0
    for dims in manifest.networks:
        itemsize = graphs.cache_dtype(dims).itemsize
        total += rows * 2 * dims.layers * dims.kv_heads * dims.head_dim * itemsize
    return total


def _check_memory(graphs: Graphs, free: int, device: str) -> None:
    if (wanted := cache_bytes(graphs)) > free:
        raise EngineError(
            f"the caches don't fit the memory of {device}",
            expected=f"{wanted / 1e6:.0f} MB for the bundle's limits, besides the engines",
            found=f"{free / 1e6:.0f} MB free",
            fix="export with a smaller --rollouts, --trunk or --branch",
        )


CPU = Backend()
