"""Choosing what runs a bundle, and what is said where it can't run here."""

from __future__ import annotations

import sys

import onnxruntime
import pytest

import slipstream
from planners.planner import Planner
from runtime.bundle import Bundle
from runtime.engines import cuda
from runtime.engines.backend import Backend, cache_bytes, onnx_providers
from runtime.errors import EngineError, SlipstreamError
from runtime.tune import Threading

CUDA_HERE = "CUDAExecutionProvider" in onnxruntime.get_available_providers()


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    return Bundle.open(slipstream.shipped_bundle())


@pytest.mark.parametrize(
    ("text", "kind", "precision"),
    [
        ("cpu", "cpu", "fp32"),
        ("cuda", "cuda", "fp32"),
        ("tensorrt", "tensorrt", "fp32"),
        ("tensorrt:fp16", "tensorrt", "fp16"),
        ("tensorrt-rtx:bf16", "tensorrt-rtx", "bf16"),
    ],
)
def test_a_provider_is_named_with_its_precision(text, kind, precision) -> None:
    backend = Backend.parse(text)
    assert (backend.kind, backend.precision) == (kind, precision)
    assert Backend.parse(backend.name) == backend


@pytest.mark.parametrize("text", ["", "gpu", "cuda:fp16", "tensorrt:", "tensorrt:fp12", "cpu:fp32"])
def test_unknown_providers_are_refused(text) -> None:
    with pytest.raises(SlipstreamError, match="provider is unknown") as caught:
        Backend.parse(text)
    assert "tensorrt-rtx" in caught.value.expected


def test_the_cpu_needs_nothing_else(bundle) -> None:
    graphs = Backend().open(bundle, Threading(1))
    assert graphs.nbytes == 0
    limits, target, draft = bundle.manifest.limits, bundle.manifest.target, bundle.manifest.draft
    assert draft is not None
    rows = limits.trunk + limits.rollouts * limits.branch
    row = sum(2 * 4 * each.layers * each.kv_heads * each.head_dim for each in (target, draft))
    assert cache_bytes(graphs) == rows * row


@pytest.mark.skipif(CUDA_HERE, reason="this ONNX Runtime has CUDA")
@pytest.mark.parametrize("provider", ["cuda", "tensorrt-ep"])
def test_an_onnxruntime_without_the_provider_is_named(bundle, provider) -> None:
    with pytest.raises(
        EngineError, match=r"this ONNX Runtime lacks \w+ExecutionProvider"
    ) as caught:
        Planner.load(bundle.folder, provider=provider)
    assert "pip install '.[gpu]'" in caught.value.fix
    assert "Jetson" in caught.value.fix


@pytest.mark.parametrize("flavour", ["tensorrt", "tensorrt_rtx"])
def test_an_absent_tensorrt_is_named(bundle, flavour, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, flavour, None)
    with pytest.raises(EngineError, match=f"the module {flavour} can't be loaded") as caught:
        Backend.parse(flavour.replace("_", "-")).open(bundle, Threading(1))
    assert "pip install" in caught.value.fix


def test_an_absent_cuda_python_is_named(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    cuda.cuda_runtime.cache_clear()
    try:
        with pytest.raises(EngineError, match="cuda-python is not installed") as caught:
            cuda.CudaDevice()
        assert caught.value.fix == cuda.INSTALL
    finally:
        cuda.cuda_runtime.cache_clear()


def gpus() -> int:
    """GPUs of this machine, as cuda-python counts them."""
    runtime = pytest.importorskip("cuda.bindings.runtime", reason="cuda-python is not installed")
    status, count = runtime.cudaGetDeviceCount()
    return 0 if int(status) else int(count)


def test_a_gpu_that_is_not_there_is_named() -> None:
    count = gpus()
    expected = "there is no GPU number" if count else "no CUDA device|driver is too old"
    with pytest.raises(EngineError, match=expected) as caught:
        cuda.CudaDevice(count)
    assert caught.value.fix


def test_the_execution_providers_get_our_stream_and_the_limits(bundle) -> None:
    (name, options), fallback = onnx_providers("cuda", bundle, "target", 0, 1234)
    assert (name, fallback) == ("CUDAExecutionProvider", "CPUExecutionProvider")
    assert options["user_compute_stream"] == "1234"
    tensorrt, cuda_provider, _ = onnx_providers("tensorrt-ep", bundle, "target", 0, 1234)
    assert (tensorrt[0], cuda_provider[0]) == ("TensorrtExecutionProvider", name)
    shapes = {end: tensorrt[1][f"trt_profile_{end}_shapes"].split(",") for end in ("min", "max")}
    dims, limits = bundle.manifest.target, bundle.manifest.limits
    row = f"{dims.kv_heads}x{dims.head_dim}"
    assert f"trunk.past_key_values.0.key:{limits.trunk}x{row}" in shapes["max"]
    largest = f"branch.past_key_values.0.key:{limits.branch}x{limits.rollouts}x{row}"
    assert largest in shapes["max"]
    assert f"trunk.past_key_values.0.key:1x{row}" in shapes["min"]
    inputs = 4 + 4 * dims.layers
    assert len(shapes["max"]) == 2 * inputs  # prefill and decode
