"""The TensorRT engine as far as it goes without a GPU: what it makes of a file and its sidecar."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import cast

import numpy as np
import pytest

import slipstream
from runtime.bundle import Bundle
from runtime.engines import tensorrt_plan
from runtime.engines.cuda import CudaDevice
from runtime.engines.messages import logger_of
from runtime.engines.profiles import default_profiles, text_of
from runtime.engines.store import EngineKey, EngineStore, Sidecar, TensorInfo, graph_digest
from runtime.engines.tensorrt import TensorRTEngine, _layout, open_tensorrt
from runtime.errors import EngineError

trt = pytest.importorskip("tensorrt_rtx", reason="TensorRT-RTX is not installed")
GARBAGE = b"no engine at all" * 64
NO_DEVICE = cast(CudaDevice, None)  # what is tested here comes before a device is needed


class Gpu:
    """What the store is asked for: a GPU that this machine need not have."""

    compute_capability = "8.6"


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    return Bundle.open(slipstream.shipped_bundle())


def stored(bundle: Bundle, store: EngineStore, **changes: str) -> tuple[Path, Sidecar]:
    """A file that passes for the embedding's engine, with a true sidecar."""
    profiles = default_profiles(bundle.manifest, "embed")
    fields = {
        "graph": "embed",
        "graph_sha256": graph_digest(bundle.manifest.graphs["embed"]),
        "profile": text_of(profiles),
        "precision": "bf16",
        "flavour": "tensorrt_rtx",
        "version": str(trt.__version__),
        "compute_capability": "8.6",
    } | changes
    key = EngineKey(**fields)  # type: ignore[arg-type]
    width = bundle.manifest.target.width
    sidecar = Sidecar(
        **fields,  # type: ignore[arg-type]
        flags=[],
        timing_cache_sha256=None,
        size=len(GARBAGE),
        sha256=hashlib.sha256(GARBAGE).hexdigest(),
        built_at="2026-01-01T00:00:00Z",
        builder_seconds=1.0,
        peak_host_bytes=1,
        tensors=[
            TensorInfo(name="tokens", mode="input", dtype="int32", shape=["N", "S"]),
            TensorInfo(name="embeddings", mode="output", dtype="bfloat16", shape=["N", "S", width]),
        ],
        profiles=profiles,
        layers=1,
        python="3.11",
        system="Linux",
        bundle="tiny",
    )
    return store.put(key, GARBAGE, sidecar), sidecar


def test_a_file_that_is_no_engine_is_refused_with_tensorrts_reason(bundle, tmp_path) -> None:
    path, sidecar = stored(bundle, EngineStore(tmp_path))
    with pytest.raises(EngineError, match="is refused by tensorrt_rtx") as caught:
        TensorRTEngine(path, sidecar, NO_DEVICE)
    assert "erialization" in caught.value.found
    assert caught.value.fix == (
        "slipstream compile BUNDLE --target sm86 --precision bf16 --flavour tensorrt-rtx "
        f"--graph embed --engines {tmp_path} --force"
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"compute_capability": "12.0"}, "was built for another GPU"),
        ({"version": "1.0.0.1"}, "was built by another version of TensorRT"),
        ({"graph_sha256": "0" * 64}, "is of another graph"),
        ({"precision": "fp16"}, "has another precision"),
    ],
)
def test_a_foreign_engine_is_never_opened(bundle, tmp_path, changes, message) -> None:
    store = EngineStore(tmp_path, bundle.folder)
    stored(bundle, store, **changes)
    with pytest.raises(EngineError, match=message) as caught:
        open_tensorrt(bundle, "embed", cast(CudaDevice, Gpu()), "tensorrt_rtx", "bf16", store)
    assert "slipstream compile" in caught.value.fix


def test_the_sidecar_tells_shapes_and_dtypes(bundle, tmp_path) -> None:
    path, sidecar = stored(bundle, EngineStore(tmp_path))
    layout = _layout(path, sidecar)
    assert layout.outputs["embeddings"].dtype.name == "bfloat16"
    assert layout.outputs["embeddings"].dtype.itemsize == 2
    width = bundle.manifest.target.width
    assert layout.output_shapes({"tokens": (2, 5)}) == {"embeddings": (2, 5, width)}
    assert layout.inputs["tokens"].dtype == np.int32
    with pytest.raises(EngineError, match="wrong rank"):
        layout.sizes({"tokens": (5,)})


def test_what_interrupts_the_opening_comes_out_of_it(bundle, tmp_path, monkeypatch) -> None:
    """Ctrl-C may be handled inside of TensorRT's own call to the logger."""
    path, sidecar = stored(bundle, EngineStore(tmp_path))

    def interrupt(severity: str, message: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(tensorrt_plan, "_note", interrupt)
    with pytest.raises(KeyboardInterrupt):
        TensorRTEngine(path, sidecar, NO_DEVICE)


def test_a_build_before_does_not_take_the_reasons_away(bundle, tmp_path) -> None:
    """A process has one logger for each TensorRT, whoever made it."""
    heard: list[str] = []
    logger_of(trt, lambda severity, message: heard.append(message))
    path, sidecar = stored(bundle, EngineStore(tmp_path))
    with pytest.raises(EngineError) as caught:
        TensorRTEngine(path, sidecar, NO_DEVICE)
    assert "erialization" in caught.value.found
    assert not heard


def test_every_call_of_tensorrt_exists() -> None:
    """A name that TensorRT does not have would only show on a GPU."""
    known = {
        trt.ICudaEngine: (
            "device_memory_size_v2",
            "create_execution_context",
            "create_runtime_config",
            "num_io_tensors",
            "get_tensor_name",
            "get_tensor_mode",
            "get_tensor_dtype",
        ),
        trt.IExecutionContext: (
            "set_optimization_profile_async",
            "set_device_memory",
            "set_input_shape",
            "set_tensor_address",
            "execute_async_v3",
        ),
        trt.IRuntimeConfig: (
            "set_execution_context_allocation_strategy",
            "cuda_graph_strategy",
            "create_runtime_cache",
            "set_runtime_cache",
        ),
        trt.IRuntimeCache: ("serialize", "deserialize"),
        trt.ExecutionContextAllocationStrategy: ("USER_MANAGED",),
        trt.CudaGraphStrategy: ("WHOLE_GRAPH_CAPTURE",),
        trt.TensorIOMode: ("INPUT",),
    }
    for kind, names in known.items():
        for name in names:
            assert hasattr(kind, name), f"{kind.__name__}.{name}"


def test_every_call_of_cuda_exists() -> None:
    runtime = pytest.importorskip("cuda.bindings.runtime", reason="cuda-python is not installed")
    source = Path(slipstream.__file__).parents[1] / "runtime" / "engines" / "cuda.py"
    import re

    names = set(re.findall(r"(?:runtime|attribute)\.(cuda\w+)", source.read_text()))
    assert len(names) > 15
    for name in names:
        assert hasattr(runtime, name) or hasattr(runtime.cudaDeviceAttr, name), name
