"""Whether a graph is quantized, and for what."""

from __future__ import annotations

from pathlib import Path

import onnx
from onnx import TensorProto

from runtime.errors import SlipstreamError

_FOR_ANY = {"QuantizeLinear", "DequantizeLinear"}
_FOR_CPU = {"DynamicQuantizeLinear", "MatMulInteger", "MatMulNBits"}


def quantization_of(model: onnx.ModelProto) -> str:
    """The first operator of a graph that quantizes, or ''."""
    kinds = _FOR_ANY | _FOR_CPU
    return next((str(node.op_type) for node in model.graph.node if node.op_type in kinds), "")


def check_unquantized(model: onnx.ModelProto, source: Path) -> None:
    """Insist on a graph that can be quantized; raises SlipstreamError."""
    if found := quantization_of(model):
        raise SlipstreamError(
            f"{source} is quantized already",
            expected="the graph of an exported bundle, in fp32",
            found=f"{found} nodes",
            fix="start from the bundle that `slipstream export` wrote",
        )


def cpu_quantization_of(model: onnx.ModelProto) -> str:
    """What of a graph no GPU engine takes: '' or, for messages, an operator.

    TensorRT multiplies int8 with int8 around zero; graphs for CPUs have uint8 activations, scales
    that each pass finds anew, or ONNX Runtime's own operator.
    """
    unsigned = {w.name for w in model.graph.initializer if w.data_type == TensorProto.UINT8}
    for node in model.graph.node:
        if node.op_type in _FOR_CPU:
            return str(node.op_type)
        if node.op_type == "QuantizeLinear" and unsigned.intersection(node.input):
            return "QuantizeLinear to uint8"
    return ""
