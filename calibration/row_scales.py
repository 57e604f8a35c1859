"""Products whose rows are scaled one by one, so that one scale for all of them fits every pass.

A row x [C] is divided by its largest magnitude before a product and the result multiplied by it.
What is quantized then lies in -1..1 whatever the pass. No row depends on the others, as it does
where a pass has one scale: the rows of a draft that is verified get what each would get alone,
which is what makes drafting lossless.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

from calibration.fold import with_parts
from calibration.products import Product

_LEAST = np.float32(1e-12)  # of a magnitude: a row of zeros stays one
_AXIS, _SMALLEST = "rows.axis", "rows.least"


def unit_rows(tensor: str) -> str:
    """The tensor that products read instead of `tensor`: its rows over their largest magnitude."""
    return f"{tensor}.unit"


def with_row_scales(model: onnx.ModelProto, products: Sequence[Product]) -> onnx.ModelProto:
    """The same graph, equal in fp32 to rounding.

    Args:
        model: folded.
        products: those to change; of one tensor's readers some may stay.
    """
    changed = {product.node for product in products}
    wanted = {product.rows_in for product in products}
    made = [value.name for value in model.graph.input if value.name in wanted]
    nodes = [node for name in made for node in _unit(name)]
    for node in model.graph.node:
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        nodes.append(copy)
        if node.name in changed:
            rows, out = node.input[0], node.output[0]
            copy.input[0], copy.output[0] = unit_rows(rows), f"{out}.unit"
            nodes.append(_node("Mul", [f"{out}.unit", f"{rows}.largest"], out))
        for name in node.output:
            nodes += _unit(name) if name in wanted else []
    axis = numpy_helper.from_array(np.array([-1], np.int64), _AXIS)
    least = numpy_helper.from_array(np.asarray(_LEAST), _SMALLEST)
    return with_parts(model, nodes, [*model.graph.initializer, axis, least])


def _unit(tensor: str) -> list[onnx.NodeProto]:
    largest = f"{tensor}.largest"
    return [
        _node("Abs", [tensor], f"{tensor}.abs"),
        _node("ReduceMax", [f"{tensor}.abs", _AXIS], f"{tensor}.most"),
        _node("Max", [f"{tensor}.most", _SMALLEST], largest),
        _node("Div", [tensor, largest], unit_rows(tensor)),
    ]


def _node(kind: str, inputs: list[str], output: str) -> onnx.NodeProto:
    return helper.make_node(kind, inputs, [output], name=f"{kind}.{output}")
