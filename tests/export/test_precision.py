"""Reduced graphs and spelled-out operators against the fp32 graph, in ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper, shape_inference

import slipstream
from export.graphs.precision import Reduced, has_quantization, is_cache, reduce_precision
from export.graphs.spelling import FUSED, spell_out
from runtime.bundle import Bundle, GraphName
from runtime.errors import SlipstreamError

GRAPHS: tuple[GraphName, ...] = ("embed", "target", "draft", "head")
SIZES = {"N": 3, "S": 5, "P": 32, "T": 32, "C": 4, "B": 6, "T+S": 37, "T+C+B": 42}
BUNDLE = Bundle.open(slipstream.shipped_bundle())
Feeds = dict[str, NDArray[Any]]


def load(graph: GraphName) -> onnx.ModelProto:
    return onnx.load(BUNDLE.graph_path(graph))


def run(model: onnx.ModelProto, feeds: Feeds) -> Feeds:
    """Outputs as fp32; feeds are cast to what the graph's inputs are."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    types = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(int32)": np.int32}
    cast = {spec.name: feeds[spec.name].astype(types[spec.type]) for spec in session.get_inputs()}
    names = [spec.name for spec in session.get_outputs()]
    return {
        name: np.asarray(value, np.float32)
        for name, value in zip(names, session.run(names, cast), strict=True)
    }


def feeds_of(model: onnx.ModelProto, scale: float = 1.0) -> Feeds:
    rng = np.random.default_rng(0)
    feeds: Feeds = {}
    for value in model.graph.input:
        dims = value.type.tensor_type.shape.dim
        shape = [SIZES[dim.dim_param] if dim.dim_param else dim.dim_value for dim in dims]
        if value.type.tensor_type.elem_type == TensorProto.INT32:
            feeds[value.name] = rng.integers(0, 100, shape).astype(np.int32)
        else:
            feeds[value.name] = rng.standard_normal(shape).astype(np.float32)
    for name in ("embeddings", "block_embeddings"):
        if name in feeds:
            feeds[name] *= scale
    return feeds


def types_of(model: onnx.ModelProto) -> dict[str, int]:
    inferred = shape_inference.infer_shapes(model, strict_mode=True).graph
    values = [*inferred.value_info, *inferred.input, *inferred.output]
    found = {value.name: value.type.tensor_type.elem_type for value in values}
    return found | {weight.name: weight.data_type for weight in inferred.initializer}


def worst(found: Feeds, wanted: Feeds) -> float:
    """The largest difference of any output, in units of its largest value."""
    return max(
        float(np.abs(found[name] - value).max() / np.abs(value).max())
        for name, value in wanted.items()
    )


@pytest.mark.parametrize("graph", GRAPHS)
def test_fp16_stays_close_to_fp32(graph: GraphName) -> None:
    model = load(graph)
    feeds = feeds_of(model)
    wanted, found = run(model, feeds), run(reduce_precision(model, "fp16"), feeds)
    assert worst(found, wanted) < 0.01
    products = [node for node in model.graph.node if node.op_type == "MatMul"]
    # not bit for bit: products really are in fp16
    assert not products or worst(found, wanted) > 0


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
@pytest.mark.parametrize("graph", GRAPHS)
def test_types_are_written_down_and_norms_stay_in_fp32(
    graph: GraphName, precision: Reduced
) -> None:
    reduced = reduce_precision(load(graph), precision)
    onnx.checker.check_model(reduced, full_check=True)
    low = TensorProto.FLOAT16 if precision == "fp16" else TensorProto.BFLOAT16
    types = types_of(reduced)
    for node in reduced.graph.node:
        kinds = {types[name] for name in node.input if types.get(name) != TensorProto.INT64}
        if node.op_type in ("RMSNormalization", "Softmax", "RotaryEmbedding", "ReduceLogSumExp"):
            assert kinds == {TensorProto.FLOAT}, node.name
        if node.op_type == "MatMul":
            assert kinds == {low}, node.name
    for value in (*reduced.graph.input, *reduced.graph.output):
        kind = value.type.tensor_type.elem_type
        assert (kind == low) == is_cache(value.name), value.name
    original = load(graph)
    assert [v.name for v in reduced.graph.input] == [v.name for v in original.graph.input]
    assert [v.name for v in reduced.graph.output] == [v.name for v in original.graph.output]


def test_no_weight_of_a_product_is_cast_when_the_graph_runs() -> None:
    reduced = reduce_precision(load("target"), "fp16")
    stored = {weight.name for weight in reduced.graph.initializer}
    assert not [
        node.name
        for node in reduced.graph.node
        if node.op_type == "Cast" and node.input[0] in stored
    ]
    large = sum(len(weight.raw_data) for weight in reduced.graph.initializer)
    assert large < 1.05 * sum(len(weight.raw_data) for weight in load("target").graph.initializer)


def test_activations_whose_squares_overflow_fp16_do_no_harm() -> None:
    """A residual stream in the thousands: a norm in fp16 would give infinities."""
    model = load("target")
    feeds = feeds_of(model, scale=2000.0)
    wanted, found = run(model, feeds), run(reduce_precision(model, "fp16"), feeds)
    assert np.abs(wanted["taps"]).max() ** 2 > np.finfo(np.float16).max
    assert worst(found, wanted) < 0.02


def test_a_weight_beyond_fp16_is_refused() -> None:
    weight = numpy_helper.from_array(np.full((4, 4), 1e5, np.float32), "w")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 4])
    node = helper.make_node("MatMul", ["x", "w"], ["y"], name="product")
    model = helper.make_model(helper.make_graph([node], "g", [x], [y], [weight]))
    with pytest.raises(SlipstreamError, match="weight w does not fit fp16") as error:
        reduce_precision(model, "fp16")
    assert error.value.found == "100000"
    assert "bf16" in error.value.fix
    onnx.checker.check_model(reduce_precision(model, "bf16"), full_check=True)


def test_bf16_weights_are_rounded_to_the_nearest() -> None:
    values = np.array([[1.0, 1.0 + 2**-8, 1.0 + 3 * 2**-8, -1.0 - 2**-7]], np.float32)
    weight = numpy_helper.from_array(values.T, "w")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 1])
    node = helper.make_node("MatMul", ["x", "w"], ["y"], name="product")
    model = helper.make_model(helper.make_graph([node], "g", [x], [y], [weight]))
    (stored,) = reduce_precision(model, "bf16").graph.initializer
    bits = np.frombuffer(stored.raw_data, "<u2").astype(np.uint32) << 16
    # ties go to the even one
    np.testing.assert_array_equal(
        bits.view(np.float32), np.array([1.0, 1.0, 1.0 + 2**-6, -1.0 - 2**-7], np.float32)
    )


@pytest.mark.parametrize("graph", ["target", "draft"])
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_spelled_out_operators_compute_the_same(graph: GraphName, precision: str) -> None:
    model = load(graph)
    if precision == "fp16":
        model = reduce_precision(model, "fp16")
    spelled = spell_out(model)
    onnx.checker.check_model(spelled, full_check=True)
    assert spelled.opset_import[0].version == 20
    assert not {node.op_type for node in spelled.graph.node} & set(FUSED)
    feeds = feeds_of(model)
    tolerance = 1e-5 if precision == "fp32" else 5e-3  # fp16 has 10 bits
    assert worst(run(spelled, feeds), run(model, feeds)) < tolerance


def test_quantization_is_seen_where_it_is() -> None:
    model = load("head")
    assert not has_quantization(model)
    model.graph.node.append(helper.make_node("DequantizeLinear", ["a", "b"], ["c"]))
    assert has_quantization(model)
