"""Weights as quantizers see them, and as files hold them.

Graphs store a weight as bf16 or fp16 with a cast to fp32 behind it (`export.graphs.builder`).
Quantizers look for fp32 initializers, so the cast is carried out first, and put back where a weight
was left alone.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from export.graphs.builder import halved

_HALVES = {TensorProto.FLOAT16, TensorProto.BFLOAT16}
_NAMES = {np.dtype(np.float16): "fp16", np.dtype(ml_dtypes.bfloat16): "bf16"}
_SMALL = 1024  # bytes, below which a cast costs more than it saves


def folded(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same graph with each cast of a stored weight to fp32 carried out.

    A weight that is also read in its own type (an embedding's table) stays as well.

    Args:
        model: with its weights in memory.
    """
    graph = model.graph
    stored = {w.name: w for w in graph.initializer if w.data_type in _HALVES}
    casts = [node for node in graph.node if _is_weight_cast(node, stored)]
    made = {node.output[0] for node in casts}
    nodes = [node for node in graph.node if not made.intersection(node.output)]
    read = {name for node in nodes for name in node.input}
    weights = [w for w in graph.initializer if w.name not in stored or w.name in read]
    for node in casts:
        weights.append(numpy_helper.from_array(floats(stored[node.input[0]]), node.output[0]))
    return with_parts(model, nodes, weights)


def unfolded(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same graph with fp32 weights stored in half the bytes where that is exact: the opposite
    of `folded` for weights that no quantizer took."""
    casts: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []
    for weight in model.graph.initializer:
        values = floats(weight) if weight.data_type == TensorProto.FLOAT else None
        less = halved(values) if values is not None and values.nbytes > _SMALL else None
        if less is None or less.dtype == np.float32:
            weights.append(weight)
            continue
        name = f"{weight.name}.{_NAMES[less.dtype]}"
        kind = helper.np_dtype_to_tensor_dtype(less.dtype)
        weights.append(helper.make_tensor(name, kind, less.shape, less.tobytes(), raw=True))
        casts.append(
            helper.make_node(
                "Cast", [name], [weight.name], name=f"Cast.{weight.name}", to=TensorProto.FLOAT
            )
        )
    return with_parts(model, [*casts, *model.graph.node], weights)


def floats(weight: onnx.TensorProto) -> NDArray[np.float32]:
    """An fp32, fp16 or bf16 weight as fp32, of its own shape."""
    return np.asarray(numpy_helper.to_array(weight), np.float32)


def with_parts(
    model: onnx.ModelProto, nodes: list[onnx.NodeProto], weights: list[onnx.TensorProto]
) -> onnx.ModelProto:
    """A model of the same inputs, outputs and operator sets with other nodes and weights."""
    graph = helper.make_graph(
        nodes,
        model.graph.name,
        list(model.graph.input),
        list(model.graph.output),
        initializer=weights,
    )
    return helper.make_model(
        graph,
        opset_imports=list(model.opset_import),
        ir_version=model.ir_version,
        producer_name=model.producer_name,
    )


def _is_weight_cast(node: onnx.NodeProto, stored: dict[str, onnx.TensorProto]) -> bool:
    if node.op_type != "Cast" or node.input[0] not in stored:
        return False
    return any(each.name == "to" and each.i == TensorProto.FLOAT for each in node.attribute)
