"""Q/DQ graphs by NVIDIA Model Optimizer: what is checked beforehand, and what comes back."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from calibration import modelopt
from calibration.modelopt import PYTHON, Format, modelopt_python, quantize_for_tensorrt
from calibration.qdq import finished
from export.graphs.precision import is_cache
from runtime.errors import SlipstreamError
from tests.calibration.passes import BUNDLE, Arrays, difference, feeds_of, run

HEAD = BUNDLE.graph_path("head")
QUANTIZER = pytest.mark.skipif(
    not os.environ.get(PYTHON) and find_spec("modelopt") is None,
    reason=f"NVIDIA Model Optimizer is not installed: pip install '.[quant]', or set {PYTHON}",
)


@pytest.mark.parametrize(
    ("precision", "feeds", "what"),
    [
        ("nvfp4", [{}], "can't be quantized to nvfp4"),
        ("int3", [{}], "no such format"),
        ("int8", [], "without passes"),
    ],
)
def test_what_can_t_be_done_is_told_before_the_work(
    tmp_path: Path, precision: Any, feeds: list[Arrays], what: str
) -> None:
    with pytest.raises(SlipstreamError, match=what) as error:
        quantize_for_tensorrt(HEAD, tmp_path / "head.onnx", precision, feeds=feeds)
    assert error.value.fix
    assert not list(tmp_path.iterdir())


def test_an_unknown_node_is_named(tmp_path: Path) -> None:
    feeds = [feeds_of("head")]
    with pytest.raises(SlipstreamError, match="no node 'elsewhere'"):
        quantize_for_tensorrt(HEAD, tmp_path / "h.onnx", "int8", feeds=feeds, keep=["elsewhere"])


def test_the_quantizer_s_python_is_the_named_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(PYTHON, sys.executable)
    assert modelopt_python() == Path(sys.executable)
    other = tmp_path / "python"
    with pytest.raises(SlipstreamError, match="is no Python"):
        modelopt_python(other)
    other.touch()
    assert modelopt_python(other) == other
    monkeypatch.delenv(PYTHON)
    monkeypatch.setattr(modelopt, "find_spec", lambda name: None)
    with pytest.raises(SlipstreamError, match="is not installed") as error:
        modelopt_python()
    assert error.value.fix.startswith("pip install '.[quant]'")


def test_what_the_quantizer_said_is_told(tmp_path: Path) -> None:
    """A Python without it, or no Python at all."""
    failing = tmp_path / "python"
    failing.write_text("#!/bin/sh\necho 'no module of that name' >&2\nexit 1\n")
    failing.chmod(0o755)
    out = tmp_path / "out" / "head.onnx"
    with pytest.raises(SlipstreamError, match="could not be quantized") as error:
        quantize_for_tensorrt(HEAD, out, "int8", feeds=[feeds_of("head")], python=failing)
    assert error.value.found == "no module of that name"
    assert not out.parent.exists()  # it was made for this graph


def test_nothing_to_quantize_needs_no_quantizer_to_run(tmp_path: Path) -> None:
    (product,) = [n for n in onnx.load(HEAD).graph.node if n.op_type == "MatMul"]
    feeds, out = feeds_of("head"), tmp_path / "head.onnx"
    failing = tmp_path / "python"
    failing.touch()
    made = quantize_for_tensorrt(
        HEAD, out, "int8", feeds=[feeds], keep=[product.name], rest="fp32", python=failing
    )
    assert made.quantized == ()
    assert made.kept == (product.name,)
    found, wanted = run(out, feeds), run(HEAD, feeds)
    np.testing.assert_array_equal(found["top_tokens"], wanted["top_tokens"])
    np.testing.assert_array_equal(found["top_logits"], wanted["top_logits"])


@pytest.mark.parametrize("kind", [TensorProto.INT8, TensorProto.FLOAT8E4M3FN])
@pytest.mark.parametrize("rest", ["fp32", "fp16", "bf16"])
def test_weights_are_stored_quantized_by_the_scale_that_the_engine_uses(
    kind: int, rest: Any
) -> None:
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((64, 8)).astype(np.float32)
    weight[:, 7] *= 1e-4  # its scale is no normal fp16 number
    largest = 127 if kind == TensorProto.INT8 else 448
    scale = np.abs(weight).max(axis=0) / largest
    source, quantized = models(weight, scale, kind)
    made = finished(source, quantized, rest)
    kinds = [node.op_type for node in made.graph.node]
    assert "QuantizeLinear" not in kinds
    stored = {w.name: w for w in made.graph.initializer}
    (linear,) = [node for node in made.graph.node if node.op_type == "DequantizeLinear"]
    assert stored[linear.input[0]].data_type == kind
    values = np.asarray(numpy_helper.to_array(stored[linear.input[0]]), np.float32)
    used = np.asarray(numpy_helper.to_array(stored[linear.input[1]]), np.float32)
    step = used if kind == TensorProto.INT8 else np.abs(weight) / 8
    assert (np.abs(values * used - weight) <= 0.51 * np.maximum(step, used * 2**-9)).all()
    assert [value.name for value in made.graph.input] == ["x"]


def test_what_is_beyond_fp16_stays_fp32_behind_its_quantization() -> None:
    weight = np.full((32, 8), 1e5, np.float32)
    source, quantized = models(weight, np.full(8, 1e5 / 127, np.float32), TensorProto.INT8)
    made = finished(source, quantized, "fp16", ["w"])
    onnx.checker.check_model(made, full_check=True)
    assert not [w.name for w in made.graph.initializer if w.data_type == TensorProto.FLOAT16]
    (product,) = [node for node in made.graph.node if node.op_type == "MatMul"]
    assert list(product.input) == ["x", "dq"]  # no cast between
    lower = finished(source, quantized, "fp16")
    assert [w.name for w in lower.graph.initializer if w.data_type == TensorProto.FLOAT16]


def models(
    weight: NDArray[np.float32], scale: NDArray[np.float32], kind: int
) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """x @ weight, plain and as a quantizer writes it."""
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", size])
        for name, size in (("x", weight.shape[0]), ("y", weight.shape[1]))
    ]
    plain = helper.make_node("MatMul", ["x", "w"], ["y"], name="product")
    zero = helper.make_tensor("zero", kind, scale.shape, bytes(scale.size), raw=True)
    nodes = [
        helper.make_node("QuantizeLinear", ["w", "scale", "zero"], ["q"], axis=1),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["dq"], axis=1),
        helper.make_node("MatMul", ["x", "dq"], ["y"], name="product"),
    ]
    w, s = numpy_helper.from_array(weight, "w"), numpy_helper.from_array(scale, "scale")
    graphs = [
        helper.make_graph([plain], "g", ends[:1], ends[1:], initializer=[w]),
        helper.make_graph(nodes, "g", ends[:1], ends[1:], initializer=[w, s, zero]),
    ]
    opset = [helper.make_opsetid("", 23)]
    one, two = (helper.make_model(graph, opset_imports=opset) for graph in graphs)
    return one, two


@QUANTIZER
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("precision", "most"), [("int8", 0.12), ("fp8", 0.12), ("int4", 0.3)])
def test_a_graph_comes_back_quantized_and_near(
    tmp_path: Path, precision: Format, most: float
) -> None:
    """The drafter, two rollouts among its passes, one product kept."""
    source, out = BUNDLE.graph_path("draft"), tmp_path / "draft.onnx"
    feeds = [feeds_of("draft", seed, n=n, s=12) for seed, n in ((0, 1), (1, 2))]
    plain = onnx.load(source)
    weights = {node.output[0] for node in plain.graph.node if node.op_type == "Cast"}
    first = next(
        n for n in plain.graph.node if n.op_type == "MatMul" and weights.intersection(n.input)
    )
    made = quantize_for_tensorrt(source, out, precision, feeds=feeds, keep=[first.name])
    assert made.kept == (first.name,)
    assert made.bytes == out.stat().st_size < source.stat().st_size * 0.75
    found = onnx.load(out)
    onnx.checker.check_model(found, full_check=True)
    for kind in ("input", "output"):
        ours, its = getattr(found.graph, kind), getattr(plain.graph, kind)
        assert [value.name for value in ours] == [value.name for value in its]
        for one, other in zip(ours, its, strict=True):
            assert one.type.tensor_type.shape == other.type.tensor_type.shape
            low = TensorProto.FLOAT16 if is_cache(one.name) else other.type.tensor_type.elem_type
            assert one.type.tensor_type.elem_type == low
    written = {name: node for node in found.graph.node for name in node.output}
    products = {node.name: node for node in found.graph.node if node.op_type == "MatMul"}
    for name, product in products.items():
        read = {written[each].op_type for each in product.input if each in written}
        assert ("DequantizeLinear" in read) == (name in made.quantized)
    halves = {k: v.astype(np.float16) if is_cache(k) else v for k, v in feeds[1].items()}
    error = difference(run(out, halves)["hidden"], run(source, feeds[1])["hidden"])
    assert 1e-4 < error < most
