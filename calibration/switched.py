"""A graph in which each group of products can be quantized or not, pass by pass.

What a group's quantization costs would otherwise take a quantized graph and a session for every
group and every combination. Here both products are computed, and a switch says which one counts.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import onnx
from onnx import TensorProto, helper

from calibration.products import Product, weight_products
from runtime.errors import SlipstreamError


def switch(group: int) -> str:
    """The graph's input, int32 [], that quantizes a group where it is not 0."""
    return f"switch.{group}"


def switched(
    plain: onnx.ModelProto, quantized: onnx.ModelProto, groups: Mapping[str, Collection[str]]
) -> onnx.ModelProto:
    """The quantized graph, which becomes one with a switch for each group, in their order.

    Args:
        plain: the same graph before it was quantized, folded, its weights in memory.
        quantized: its weights in memory; what products write has its old name.
        groups: names of the quantized products' nodes.

    Raises:
        SlipstreamError: a product's input or output can't be found in the quantized graph.
    """
    group_of = {node: number for number, nodes in enumerate(groups.values()) for node in nodes}
    products = [each for each in weight_products(plain) if each.node in group_of]
    written = {node.name: node.output[0] for node in plain.graph.node}
    by_output = {written[product.node]: product for product in products}
    _check(quantized, products, by_output)
    nodes = [
        helper.make_node("Cast", [switch(i)], [f"{switch(i)}.on"], to=TensorProto.BOOL)
        for i in range(len(groups))
    ]
    for node in list(quantized.graph.node):
        nodes.append(node)
        for place, name in enumerate(node.output):
            if name in by_output:
                node.output[place] = f"{name}.quantized"
                nodes += _choice(by_output[name], name, group_of[by_output[name].node])
    graph = quantized.graph
    del graph.node[:]
    graph.node.extend(nodes)
    needed = {product.weight for product in products}
    for weight in plain.graph.initializer:
        if weight.name in needed:
            graph.initializer.append(weight)
            graph.initializer[-1].name = _plain(weight.name)
    for i in range(len(groups)):
        graph.input.append(helper.make_tensor_value_info(switch(i), TensorProto.INT32, []))
    return quantized


def _choice(product: Product, output: str, group: int) -> list[onnx.NodeProto]:
    exact = f"{output}.plain"
    chosen = [f"{switch(group)}.on", f"{output}.quantized", exact]
    return [
        helper.make_node("MatMul", [product.rows_in, _plain(product.weight)], [exact]),
        helper.make_node("Where", chosen, [output]),
    ]


def _plain(weight: str) -> str:
    return f"plain.{weight}"


def _check(
    quantized: onnx.ModelProto, products: list[Product], by_output: Mapping[str, Product]
) -> None:
    graph = quantized.graph
    known = {value.name for value in graph.input}
    known.update(*(node.output for node in graph.node))
    missing = [each.rows_in for each in products] + list(by_output)
    if lost := [name for name in missing if name not in known]:
        raise SlipstreamError(
            f"the quantized graph {graph.name} has lost tensors of the plain one",
            expected="the products' inputs and outputs under their old names",
            found=", ".join(lost[:5]),
            fix="quantize the bundle's own graph",
        )
