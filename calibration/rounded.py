"""What a graph in fp16 or bf16 computes on an accelerator, for a CPU: fp32 with every rounding.

ONNX Runtime's CPU provider has hardly any kernel for half precision. It computes such nodes in fp32
and drops the casts in between, so that a value beyond fp16 passes from node to node unharmed, which
on an accelerator becomes an infinity. Here each value is rounded wherever it is stored.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, shape_inference

_HALVES = {TensorProto.FLOAT16, TensorProto.BFLOAT16}
_SMALL = 1024  # bytes; shapes are among them, weights are not


def rounded(model: onnx.ModelProto) -> onnx.ModelProto:
    """An fp32 graph that gives what a reduced one does, products summed up in fp32.

    Names and shapes of inputs and outputs stay; all of them are fp32.

    Args:
        model: with types written down (`export.graphs.precision`), its weights in memory.
    """
    kinds, graph = _types(model), model.graph
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        nodes.append(copy)
        for i, name in enumerate(node.output):
            if kinds.get(name) not in _HALVES:
                continue
            if node.op_type == "Cast":
                _set_to_fp32(copy)
            copy.output[i] = f"{name}.exact"
            nodes += _rounding(f"{name}.exact", name, kinds[name])
    made = helper.make_graph(
        nodes,
        graph.name,
        [_in_fp32(value) for value in graph.input],
        [_in_fp32(value) for value in graph.output],
        initializer=[_weight(weight) for weight in graph.initializer],
    )
    return helper.make_model(
        made,
        opset_imports=list(model.opset_import),
        ir_version=model.ir_version,
        producer_name=model.producer_name,
    )


def _types(model: onnx.ModelProto) -> dict[str, int]:
    """Tensor name -> type."""
    light = onnx.ModelProto()
    light.CopyFrom(model)
    for weight in light.graph.initializer:  # a message of all weights may be beyond 2 GB
        if len(weight.raw_data) > _SMALL:
            weight.ClearField("raw_data")
            weight.data_location = TensorProto.EXTERNAL
            weight.external_data.add(key="location", value="elsewhere")
    inferred = shape_inference.infer_shapes(light).graph
    return {
        value.name: int(value.type.tensor_type.elem_type)
        for value in (*inferred.value_info, *inferred.output)
    }


def _rounding(name: str, out: str, kind: int) -> list[onnx.NodeProto]:
    return [
        helper.make_node("Cast", [name], [f"{out}.half"], name=f"Round.{out}", to=kind),
        helper.make_node("Cast", [f"{out}.half"], [out], name=f"Widen.{out}", to=TensorProto.FLOAT),
    ]


def _set_to_fp32(cast: onnx.NodeProto) -> None:
    next(each for each in cast.attribute if each.name == "to").i = TensorProto.FLOAT


def _in_fp32(value: onnx.ValueInfoProto) -> onnx.ValueInfoProto:
    copy = onnx.ValueInfoProto()
    copy.CopyFrom(value)
    if copy.type.tensor_type.elem_type in _HALVES:
        copy.type.tensor_type.elem_type = TensorProto.FLOAT
    return copy


def _weight(weight: onnx.TensorProto) -> onnx.TensorProto:
    if weight.data_type not in _HALVES:
        return weight
    values = np.asarray(numpy_helper.to_array(weight), np.float32)
    return numpy_helper.from_array(values, weight.name)
