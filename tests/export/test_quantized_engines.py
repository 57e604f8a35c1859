"""Real TensorRT-RTX builds of graphs that NVIDIA Model Optimizer quantized, here, without a GPU."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import onnx
import pytest

from calibration.bundle import write_bundle
from calibration.cpu import Quantized
from calibration.modelopt import PYTHON, Format, quantize_for_tensorrt
from export.engines.builder import capabilities_in
from export.engines.flavours import parse_target
from export.graphs.precision import is_cache
from runtime.bundle import Bundle
from runtime.engines.profiles import default_profiles
from runtime.engines.store import EngineStore
from tests.calibration.passes import BUNDLE, feeds_of

pytest.importorskip("tensorrt_rtx", reason="TensorRT-RTX is not installed: pip install '.[rtx]'")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(
        not os.environ.get(PYTHON) and find_spec("modelopt") is None,
        reason=f"NVIDIA Model Optimizer is not installed: pip install '.[quant]', or set {PYTHON}",
    ),
]
FORMATS: tuple[Format, ...] = ("int8", "fp8")
NAMES = {"int8": "Int8", "fp8": "FP8"}  # as TensorRT-RTX lists types
Made = dict[str, tuple[Bundle, Quantized]]


@pytest.fixture(scope="module", params=FORMATS)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The shipped bundle with its target quantized, and what was quantized of it."""
    precision: Format = request.param
    folder = tmp_path_factory.mktemp(precision)
    feeds = [feeds_of("target", seed, n=n) for seed, n in ((0, 1), (1, 2))]
    quantized = quantize_for_tensorrt(
        BUNDLE.graph_path("target"), folder / "target.onnx", precision, feeds=feeds
    )
    write_bundle(
        BUNDLE, folder / "bundle", {"target": folder / "target.onnx"}, {"target": precision}
    )
    return precision, Bundle.open(folder / "bundle"), quantized


@pytest.mark.parametrize("sm", ["sm89", "sm120"])
def test_a_quantized_graph_builds_and_its_products_are_quantized(
    made: tuple[Format, Bundle, Quantized], sm: str, tmp_path: Path
) -> None:
    precision, bundle, quantized = made
    words = ["compile", bundle.folder, "--target", sm, "--precision", precision]
    slipstream(*words, "--graph", "target", "--graph", "head", "--engines", tmp_path)
    entries = EngineStore(tmp_path).entries()
    found = {entry.sidecar.graph: (entry.path, entry.sidecar) for entry in entries if entry.sidecar}
    assert found["head"][1].precision == precision  # it is fp16, and found by the bundle's
    path, sidecar = found["target"]
    assert sidecar.compute_capability == parse_target(sm)
    assert capabilities_in(path) == {sm}
    graph = onnx.load(bundle.graph_path("target"), load_external_data=False).graph
    assert list(sidecar.inputs) == [value.name for value in graph.input]
    assert list(sidecar.outputs) == [value.name for value in graph.output]
    for tensor in sidecar.tensors:
        assert (tensor.dtype == "float16") == is_cache(tensor.name)

    layers = json.loads(EngineStore(tmp_path).layers(path) or "{}")["layers"]
    read: dict[str, set[str]] = {}
    for layer in layers:
        if layer["type"] == "gemm":
            for node in re.findall(r"MatMul\.\d+", layer["name"]):
                read.setdefault(node, set()).update(each["dtype"] for each in layer["inputs"])
    assert set(quantized.quantized) == {
        node for node, kinds in read.items() if kinds == {NAMES[precision]}
    }
    others = {
        kind for node, kinds in read.items() if node not in quantized.quantized for kind in kinds
    }
    assert others == {"Half"}

    shown = slipstream("engines", "inspect", path.name, "--engines", tmp_path)
    profiles = len(default_profiles(bundle.manifest, "target"))
    products = Counter(layer["inputs"][0]["dtype"] for layer in layers if layer["type"] == "gemm")
    assert products[NAMES[precision]] >= profiles * len(quantized.quantized) * 0.7  # some are fused
    assert f"{products[NAMES[precision]]} {NAMES[precision]}" in next(
        line for line in shown.splitlines() if line.startswith("products read: ")
    )


def slipstream(*words: Any) -> str:
    """What the command prints."""
    done = subprocess.run(
        [sys.executable, "-m", "slipstream", *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
