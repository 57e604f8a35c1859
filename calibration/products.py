"""The products of a graph with a stored matrix: what quantizers work on."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import onnx
from onnx import TensorProto

from runtime.errors import SlipstreamError


@dataclass(frozen=True)
class Product:
    """A MatMul whose second factor is an fp32 weight [rows, columns].

    Attributes:
        node: its name.
        rows_in: the tensor [..., rows] that is multiplied.
        weight: the weight's name.
    """

    node: str
    rows_in: str
    weight: str
    rows: int
    columns: int


def weight_products(model: onnx.ModelProto) -> list[Product]:
    """Every product with an fp32 matrix, in the graph's order; of a `folded` graph all of them."""
    matrices = {
        weight.name: tuple(weight.dims)
        for weight in model.graph.initializer
        if weight.data_type == TensorProto.FLOAT and len(weight.dims) == 2
    }
    return [
        Product(node.name, node.input[0], node.input[1], *matrices[node.input[1]])
        for node in model.graph.node
        if node.op_type == "MatMul" and node.input[1] in matrices
    ]


def split_kept(
    model: onnx.ModelProto, keep: Collection[str], graph: str
) -> tuple[list[Product], list[Product]]:
    """A folded graph's weight products: those to quantize, and those that stay.

    Args:
        keep: names of nodes; those of products without a weight stay in any case.
        graph: its file, for the error.

    Raises:
        SlipstreamError: `keep` names a node that the graph does not have.
    """
    products, kept = weight_products(model), set(keep)
    if unknown := sorted(kept - {node.name for node in model.graph.node}):
        raise SlipstreamError(
            f"{graph} has no node {unknown[0]!r} that could be kept",
            expected=f"weight products: {', '.join(each.node for each in products) or 'none'}",
            found=", ".join(unknown),
            fix="name nodes of this graph; calibration.groups says what they belong to",
        )
    return (
        [product for product in products if product.node not in kept],
        [product for product in products if product.node in kept],
    )
