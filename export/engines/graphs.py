"""A bundle's graph made ready for a parser: its types for a precision, its operators known."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import onnx

from export.graphs.precision import has_quantization, reduce_precision
from export.graphs.quantized import cpu_quantization_of
from export.graphs.spelling import FUSED, spell_out
from export.graphs.storage import save_graph
from runtime.bundle import Bundle, GraphName
from runtime.engines.store import Precision
from runtime.errors import EngineError

Shape = list[int | str]


@dataclass(frozen=True)
class ReadyGraph:
    """A graph file to parse: what of it the engine is checked against.

    Attributes:
        path: the file; external weights lie beside it.
        weight_bytes: of its weights as stored.
        shapes: every input and output, with names for dynamic dimensions.
    """

    path: Path
    weight_bytes: int
    shapes: dict[str, Shape]


def weight_bytes(bundle: Bundle, graph: GraphName, precision: Precision) -> int:
    """Bytes of a graph's weights in a precision; stored as bf16, they are twice that in fp32."""
    model = onnx.load(bundle.graph_path(graph), load_external_data=False)
    size = 4 if precision == "fp32" else 2
    return size * sum(math.prod(map(int, weight.dims)) for weight in model.graph.initializer)


@contextmanager
def ready_graph(
    bundle: Bundle, graph: GraphName, precision: Precision, supports: Callable[[str], bool]
) -> Iterator[ReadyGraph]:
    """The bundle's own file where it will do, else a rewritten one that is gone afterwards.

    Args:
        supports: whether the parser knows an operator.

    Raises:
        EngineError: int8 or fp8 of a graph that does not say where to quantize, or a graph that was
            quantized for CPUs.
        SlipstreamError: a weight does not fit the precision.
    """
    path = bundle.graph_path(graph)
    model = onnx.load(path, load_external_data=False)
    if found := cpu_quantization_of(model):
        raise EngineError(
            f"{path} was quantized for CPUs",
            expected="a graph that TensorRT takes: fp32, or quantized for it",
            found=f"{found} nodes",
            fix="compile the bundle that it was quantized from",
        )
    spelled = not all(supports(op) for op in FUSED if _uses(model, op))
    quantized = has_quantization(model)
    kinds = {each.precision for each in bundle.manifest.graphs.values()}
    if precision in ("int8", "fp8") and not quantized and precision not in kinds:
        raise EngineError(
            f"{path} says nowhere what to quantize",
            expected="QuantizeLinear and DequantizeLinear nodes, which a strongly typed "
            f"{precision} build takes its scales and types from",
            found="none",
            fix=f"slipstream calibrate {bundle.folder} --for tensorrt --precision {precision} "
            "writes such a bundle; or compile with --precision fp16",
        )
    reduced = precision != "fp32" and not quantized
    if not (spelled or reduced):
        yield ReadyGraph(path, _weights(model, path), _shapes(model))
        return
    model = onnx.load(path)
    if reduced:  # also what a quantized bundle has besides its quantized graphs
        model = reduce_precision(model, "bf16" if precision == "bf16" else "fp16")
    if spelled:
        model = spell_out(model)
    size = sum(len(weight.raw_data) for weight in model.graph.initializer)
    with TemporaryDirectory(prefix="slipstream-") as folder:
        rewritten = Path(folder) / path.name
        shapes = _shapes(model)
        save_graph(model, rewritten)
        del model  # the parser reads the file: no second copy of the weights while it builds
        yield ReadyGraph(rewritten, size, shapes)


def _uses(model: onnx.ModelProto, kind: str) -> bool:
    return any(node.op_type == kind for node in model.graph.node)


def _weights(model: onnx.ModelProto, path: Path) -> int:
    external = {
        entry.value
        for weight in model.graph.initializer
        for entry in weight.external_data
        if entry.key == "location"
    }
    inline = sum(len(weight.raw_data) for weight in model.graph.initializer)
    return int(inline + sum((path.parent / name).stat().st_size for name in external))


def _shapes(model: onnx.ModelProto) -> dict[str, Shape]:
    values: list[Any] = [*model.graph.input, *model.graph.output]
    return {
        value.name: [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in values
    }
