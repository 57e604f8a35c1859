"""What a quantizer wrote, as a graph of the contract: weights stored in few bits, types written.

Quantizers leave a weight in fp32 with QuantizeLinear behind it, which is four or eight times the
bytes. Here it is carried out, with the very scale that the engine will multiply by.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal

import ml_dtypes
import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from calibration.fold import floats, unfolded, with_parts
from export.graphs.precision import reduce_precision

Rest = Literal["fp32", "fp16", "bf16"]
_TYPES: dict[Rest, np.dtype[Any]] = {
    "fp32": np.dtype(np.float32),
    "fp16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
}
_LINEAR = ("QuantizeLinear", "DequantizeLinear")
_LARGEST_FP8 = 448.0  # of E4M3
_LEAST = 2.0**-24  # of a scale: fp16's smallest number


def finished(
    source: onnx.ModelProto,
    quantized: onnx.ModelProto,
    rest: Rest,
    keep: Collection[str] = (),
) -> onnx.ModelProto:
    """The quantized graph with the source's inputs, outputs and operator sets.

    Args:
        source: what was quantized, in fp32, weights in memory.
        quantized: the same with Q/DQ nodes, as the quantizer wrote it.
        rest: of what is not quantized; "fp32" keeps weights in half the bytes where that is exact.
        keep: tensors of the source that stay fp32, see `reduce_precision`; and so does what is
            quantized of them.
    """
    weights = {weight.name: weight for weight in quantized.graph.initializer}
    for name in {node.input[1] for node in quantized.graph.node if node.op_type in _LINEAR}:
        scales = np.maximum(floats(weights[name]), _LEAST).astype(_TYPES[rest])
        weights[name] = numpy_helper.from_array(scales.astype(np.float32), name)
    nodes = []
    for node in quantized.graph.node:
        if node.op_type == "QuantizeLinear" and node.input[0] in weights:
            weights[node.output[0]] = _stored(node, weights)
        else:
            nodes.append(node)
    read = {name for node in nodes for name in node.input}
    model = with_parts(source, nodes, [w for name, w in weights.items() if name in read])
    if rest == "fp32":
        return unfolded(model)
    return reduce_precision(model, rest, _kept(quantized, keep) & _tensors(model))


def _kept(quantized: onnx.ModelProto, keep: Collection[str]) -> set[str]:
    """Those tensors, and what Q/DQ nodes write of them: products read that."""
    kept = set(keep)
    for node in quantized.graph.node:
        if node.op_type in _LINEAR and node.input[0] in kept:
            kept.update(node.output)
    return kept


def _tensors(model: onnx.ModelProto) -> set[str]:
    graph = model.graph
    ends = {value.name for value in (*graph.input, *graph.output, *graph.initializer)}
    return ends | {name for node in graph.node for name in node.output}


def _stored(node: onnx.NodeProto, weights: dict[str, onnx.TensorProto]) -> onnx.TensorProto:
    """A weight as QuantizeLinear writes it: divided by its scale, rounded to even, clipped."""
    weight, scale = floats(weights[node.input[0]]), floats(weights[node.input[1]])
    zero = weights[node.input[2]]
    if scale.ndim == 1:
        axis = next((each.i for each in node.attribute if each.name == "axis"), 1)
        scale = scale.reshape([-1 if i == axis % weight.ndim else 1 for i in range(weight.ndim)])
    divided, kind = weight / scale, helper.tensor_dtype_to_np_dtype(zero.data_type)
    rounded: NDArray[Any]
    if kind == np.int8:
        rounded = np.clip(np.rint(divided), -128, 127).astype(kind)
    else:
        largest = _LARGEST_FP8
        rounded = np.clip(divided, -largest, largest).astype(kind)
    raw = rounded.tobytes()
    return helper.make_tensor(node.output[0], zero.data_type, weight.shape, raw, raw=True)
