"""SmoothQuant (arXiv 2211.10438): large channels of activations are moved into the weights.

Channel j of a product's input is divided by s_j = max|X_j|^alpha / max|W_j|^(1 - alpha) and row j
of the weight multiplied by it (eq. 4). The division goes into what writes the channel: the weight
of the norm before, or, in front of an MLP's last product, the columns of `up`, which the channel is
linear in. So the graph computes the same, with not one node more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from calibration.channels import Channels
from calibration.fold import floats, with_parts
from calibration.products import Product, weight_products
from runtime.errors import SlipstreamError

Floats = NDArray[np.float32]
_LEAST = 1e-5  # of a scale, as in the paper's code: a channel that was never seen stays finite


@dataclass(frozen=True)
class Place:
    """A tensor whose channels can be scaled.

    Attributes:
        tensor: its name; every reader is a product with a weight.
        readers: those products.
        scaled: the weight that takes 1/s along its last dimension.
    """

    tensor: str
    readers: tuple[Product, ...]
    scaled: str


def places(model: onnx.ModelProto) -> list[Place]:
    """Where a folded graph can be smoothed."""
    graph = model.graph
    weights = {weight.name: tuple(weight.dims) for weight in graph.initializer}
    written = {name: node for node in graph.node for name in node.output}
    readers: dict[str, list[onnx.NodeProto]] = defaultdict(list)
    for node in graph.node:
        for name in node.input:
            readers[name].append(node)
    by_input: dict[str, list[Product]] = defaultdict(list)
    for product in weight_products(model):
        by_input[product.rows_in].append(product)
    outputs = {value.name for value in graph.output}
    found = []
    for tensor, products in by_input.items():
        alone = len(products) == len(readers[tensor]) and tensor not in outputs
        scaled = _scaled_by(written.get(tensor), written, weights, readers) if alone else None
        shared = scaled is not None and len(readers[scaled]) > 1
        unique = all(len(readers[product.weight]) == 1 for product in products)
        if scaled is not None and unique and not shared:
            found.append(Place(tensor, tuple(products), scaled))
    return found


def smoothed(
    model: onnx.ModelProto, ranges: Mapping[str, Channels], alpha: float
) -> onnx.ModelProto:
    """The same graph, equal in fp32 to rounding, with the scales moved.

    Args:
        model: folded.
        ranges: of every `Place.tensor`, from recorded passes.
        alpha: how much of the difficulty goes to the weights, 0 to 1; 0.5 is usual.

    Raises:
        SlipstreamError: alpha is out of range.
    """
    check_alpha(alpha)
    weights = {weight.name: weight for weight in model.graph.initializer}
    values: dict[str, Floats] = {}
    for place in places(model):
        s = _scales(ranges[place.tensor].largest, (weights[p.weight] for p in place.readers), alpha)
        for product in place.readers:
            values[product.weight] = _of(product.weight, weights, values) * s[:, None]
        values[place.scaled] = _of(place.scaled, weights, values) / s
    changed = [
        numpy_helper.from_array(values[name], name) if name in values else weight
        for name, weight in weights.items()
    ]
    return with_parts(model, list(model.graph.node), changed)


def check_alpha(alpha: float) -> None:
    """Raises: SlipstreamError: alpha is no number from 0 to 1."""
    if not 0.0 <= alpha <= 1.0:
        raise SlipstreamError(
            "smooth is out of range",
            expected="SmoothQuant's alpha, 0 (weights stay) to 1; 0.5 is usual",
            found=repr(alpha)[:80],
            fix="pass a number from 0 to 1, or leave it out",
        )


def _scales(largest: Floats, weights: Iterable[onnx.TensorProto], alpha: float) -> Floats:
    """[C]; one for all products that read the tensor."""
    rows = np.max([np.abs(floats(weight)).max(axis=1) for weight in weights], axis=0)
    x, w = np.maximum(largest, _LEAST), np.maximum(rows, _LEAST)
    scales: Floats = np.maximum(x**alpha / w ** (1.0 - alpha), _LEAST).astype(np.float32)
    return scales


def _of(name: str, weights: Mapping[str, onnx.TensorProto], values: Mapping[str, Floats]) -> Floats:
    """A weight as it is by now: `up` may have been smoothed itself."""
    return values[name] if name in values else floats(weights[name])


def _scaled_by(
    node: onnx.NodeProto | None,
    written: Mapping[str, onnx.NodeProto],
    weights: Mapping[str, tuple[int, ...]],
    readers: Mapping[str, list[onnx.NodeProto]],
) -> str | None:
    """The weight that the channels of a node's output are linear in, if there is one."""
    if node is None:
        return None
    if node.op_type == "RMSNormalization" and node.input[1] in weights:
        return str(node.input[1])
    if node.op_type != "Mul":
        return None
    for name in node.input:  # the linear factor of SwiGLU, read here alone
        factor = written.get(name)
        if factor is None or factor.op_type != "MatMul" or len(readers[name]) != 1:
            continue
        if len(weights.get(factor.input[1], ())) == 2:
            return str(factor.input[1])
    return None
