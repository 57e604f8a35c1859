"""What values a graph's tensors take on recorded feeds: the least and the greatest of each.

Extra nodes reduce every tensor to a few numbers inside the graph, right behind the node that writes
it, so that no tensor outlives its use and only scalars leave the session.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, shape_inference

from calibration.stored import read_graph
from runtime.engines.onnx import require_providers
from runtime.errors import EngineError, SlipstreamError, check_memory

Feeds = Mapping[str, NDArray[Any]]

_FP16_LARGEST = float(np.finfo(np.float16).max)  # 65504
_CAST_FIRST = (TensorProto.FLOAT16, TensorProto.BFLOAT16)  # a CPU reduces fp32 and fp64 alone
_FLOATS = (TensorProto.FLOAT, TensorProto.DOUBLE, *_CAST_FIRST)
_REDUCTIONS = ("ReduceMin", "ReduceMax", "ReduceSum")  # the sum alone carries NaN along


@dataclass(frozen=True)
class Range:
    """The least and the greatest value that a tensor took; NaN where it held one."""

    least: float
    greatest: float

    @property
    def absmax(self) -> float:
        """The greatest magnitude; NaN where there was one."""
        return float(np.maximum(abs(self.least), abs(self.greatest)))

    def __or__(self, other: Range) -> Range:
        """The range over both."""
        least = np.minimum(self.least, other.least)
        return Range(float(least), float(np.maximum(self.greatest, other.greatest)))


def ranges(path: Path, feeds: Iterable[Feeds]) -> dict[str, Range]:
    """The range of every float tensor that a graph reads as an input or that a node writes.

    Args:
        path: a graph of standard operators; external weights lie beside it.
        feeds: of each pass, every input by name.

    Returns:
        Tensor name -> range over all passes, in the order in which a pass meets them.

    Raises:
        EngineError: the graph is missing or damaged, ONNX Runtime is absent, or a pass fails.
        SlipstreamError: there are no feeds, or a node's type can't be told.
    """
    model = read_graph(path)
    measured = _float_tensors(model, path)
    outputs = _reduce(model, measured)
    session = _session(model, path)
    found: dict[str, Range] = {}
    for each in feeds:
        reduced = {name: _ends(array) for name, array in each.items() if name in measured}
        values = dict(zip(outputs, _run(session, outputs, each, path), strict=True))
        for name in measured:
            ends = reduced.get(name) or [float(values[f"{name}.{op}"]) for op in _REDUCTIONS]
            least, greatest, total = ends
            one = Range(total, total) if np.isnan(total) else Range(least, greatest)
            found[name] = found[name] | one if name in found else one
    if not found:
        raise SlipstreamError(
            f"no ranges of {path} can be taken",
            expected="the feeds of at least one pass",
            found="none",
            fix="record at least one window of a drive",
        )
    return found


def overflowing(ranges: Mapping[str, Range], headroom: float = 2.0) -> set[str]:
    """The tensors that fp16 can't hold: beyond 65504 / headroom, infinite or not a number.

    Args:
        headroom: how much further values may reach on the road than on the recorded windows.
    """
    limit = _FP16_LARGEST / headroom
    return {name for name, found in ranges.items() if not found.absmax <= limit}


def _float_tensors(model: onnx.ModelProto, path: Path) -> dict[str, int]:
    """Name -> type of every float tensor: inputs, then what the nodes write, in their order."""
    inferred = shape_inference.infer_shapes(model).graph
    kinds = {
        value.name: int(value.type.tensor_type.elem_type)
        for value in (*inferred.input, *inferred.value_info, *inferred.output)
    }
    names = [value.name for value in model.graph.input]
    for node in model.graph.node:
        if unknown := [name for name in node.output if name and not kinds.get(name)]:
            raise SlipstreamError(
                f"ranges of {path} can't be taken",
                expected="operators of the ONNX standard",
                found=f"{node.op_type} ({node.name}), which writes {unknown[0]}",
                fix="take the ranges of the graph as it was exported",
            )
        names += [name for name in node.output if name]
    return {name: kinds[name] for name in names if kinds[name] in _FLOATS}


def _reduce(model: onnx.ModelProto, measured: Mapping[str, int]) -> list[str]:
    """Put the reductions behind each node, instead of the graph's outputs; returns theirs."""
    nodes: list[onnx.NodeProto] = []
    outputs: list[str] = []
    for node in model.graph.node:
        nodes.append(node)
        for name in node.output:
            if name in measured:
                nodes += _reductions(name, measured[name])
                outputs += [f"{name}.{op}" for op in _REDUCTIONS]
    del model.graph.node[:], model.graph.output[:]
    model.graph.node.extend(nodes)
    for name in outputs:
        model.graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, []))
    return outputs


def _reductions(name: str, kind: int) -> Iterator[onnx.NodeProto]:
    source = name
    if kind != TensorProto.FLOAT:
        source = f"{name}.as.fp32"
        yield helper.make_node("Cast", [name], [source], to=TensorProto.FLOAT)
    for op in _REDUCTIONS:
        yield helper.make_node(op, [source], [f"{name}.{op}"], keepdims=0)


def _session(model: onnx.ModelProto, path: Path) -> Any:
    ort = require_providers(["CPUExecutionProvider"])
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4  # errors come as exceptions
    # fusing nodes would hide the tensors between them
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    # nodes as soon as they can run: in the usual order reductions wait, and hold their tensors
    options.execution_order = ort.ExecutionOrder.PRIORITY_BASED
    options.add_session_config_entry(
        "session.model_external_initializers_file_folder_path", str(path.resolve().parent)
    )
    try:
        return ort.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:
        check_memory(error)
        raise EngineError(
            f"{path} can't be loaded",
            expected="a whole ONNX graph, its weights beside it",
            found=str(error).strip().splitlines()[0][:300] or type(error).__name__,
            fix="copy the bundle again, or export it again with slipstream export",
        ) from error


def _run(session: Any, outputs: list[str], feeds: Feeds, path: Path) -> list[NDArray[Any]]:
    try:
        values: list[NDArray[Any]] = session.run(outputs, dict(feeds))
    except Exception as error:
        check_memory(error)
        wanted = ", ".join(f"{spec.name} {spec.type} {spec.shape}" for spec in session.get_inputs())
        raise EngineError(
            f"a pass of {path} failed",
            expected=f"feeds that fit its inputs: {wanted}",
            found=str(error).strip()[:300],
            fix="record the feeds with the same bundle",
        ) from error
    return values


def _ends(array: NDArray[Any]) -> list[float]:
    """As the reductions give them."""
    return [float(array.min()), float(array.max()), float(array.sum(dtype=np.float64))]
