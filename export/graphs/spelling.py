"""Opset 23's fused operators spelled out in older ones, for parsers that don't know them yet.

TensorRT parses them from 10.15 on; JetPack 6 has 10.3 and JetPack 7 10.13. Types stay as they are,
so a norm that was in fp32 still is.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper

FUSED = ("RMSNormalization", "RotaryEmbedding")
OPSET, IR_VERSION = 20, 9


def spell_out(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same graph without RMSNormalization and RotaryEmbedding, in opset 20."""
    spelled = onnx.ModelProto()
    spelled.CopyFrom(model)
    del spelled.graph.node[:], spelled.opset_import[:]
    constants = _Constants(spelled.graph)
    for node in model.graph.node:
        match node.op_type:
            case "RMSNormalization":
                spelled.graph.node.extend(_rms_norm(node, constants))
            case "RotaryEmbedding":
                spelled.graph.node.extend(_rotary(node, constants))
            case _:
                spelled.graph.node.append(node)
    spelled.opset_import.append(helper.make_opsetid("", OPSET))
    spelled.ir_version = IR_VERSION
    return spelled


class _Constants:
    """Small constants of a graph, each stored once."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        self.graph, self.known = graph, {weight.name for weight in graph.initializer}

    def __call__(self, name: str, values: object, kind: type[np.generic]) -> str:
        if name not in self.known:
            self.known.add(name)
            self.graph.initializer.append(numpy_helper.from_array(np.array(values, kind), name))
        return name


def _rms_norm(node: onnx.NodeProto, constants: _Constants) -> list[onnx.NodeProto]:
    """x / sqrt(mean(x^2) + eps) * scale over the last dimension (arXiv 1910.07467, eq. 4)."""
    x, scale = node.input
    eps = next((a.f for a in node.attribute if a.name == "epsilon"), 1e-5)
    at = f"{node.output[0]}.rms"
    last = constants("spelled.last", [-1], np.int64)
    small = constants(f"spelled.epsilon.{eps:g}", eps, np.float32)
    return [
        helper.make_node("Mul", [x, x], [f"{at}.square"], name=f"{at}.Mul"),
        helper.make_node("ReduceMean", [f"{at}.square", last], [f"{at}.mean"], name=f"{at}.Mean"),
        helper.make_node("Add", [f"{at}.mean", small], [f"{at}.sum"], name=f"{at}.Add"),
        helper.make_node("Sqrt", [f"{at}.sum"], [f"{at}.root"], name=f"{at}.Sqrt"),
        helper.make_node("Div", [x, f"{at}.root"], [f"{at}.normed"], name=f"{at}.Div"),
        helper.make_node("Mul", [f"{at}.normed", scale], list(node.output), name=node.name),
    ]


def _rotary(node: onnx.NodeProto, constants: _Constants) -> list[onnx.NodeProto]:
    """RoPE (arXiv 2104.09864) by halves: x [R, heads, 1, D], cos and sin [R, 1, D/2]."""
    x, cos, sin = node.input
    at = f"{node.output[0]}.rope"
    heads = constants("spelled.heads", [1], np.int64)
    nodes = [
        helper.make_node("Unsqueeze", [table, heads], [f"{at}.{name}"], name=f"{at}.{name}")
        for name, table in (("cos", cos), ("sin", sin))
    ]
    nodes.append(
        helper.make_node(
            "Split", [x], [f"{at}.a", f"{at}.b"], name=f"{at}.Split", axis=-1, num_outputs=2
        )
    )
    for out, kind, (left, right) in (("first", "Sub", "ab"), ("second", "Add", "ba")):
        for part, table in ((left, "cos"), (right, "sin")):
            product = f"{at}.{out}.{part}.{table}"
            nodes.append(
                helper.make_node("Mul", [f"{at}.{part}", f"{at}.{table}"], [product], name=product)
            )
        products = [f"{at}.{out}.{left}.cos", f"{at}.{out}.{right}.sin"]
        nodes.append(helper.make_node(kind, products, [f"{at}.{out}"], name=f"{at}.{out}"))
    halves = [f"{at}.first", f"{at}.second"]
    nodes.append(helper.make_node("Concat", halves, list(node.output), name=node.name, axis=-1))
    return nodes
