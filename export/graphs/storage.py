"""Graphs on disk: one file, or a graph with its weights beside it where protobuf would end."""

from __future__ import annotations

from pathlib import Path

import onnx
from onnx import TensorProto
from onnx.external_data_helper import convert_model_to_external_data

from runtime.bundle import GraphFile
from runtime.files import sha256

# bytes of weights; a protobuf message ends at 2 GB, and is twice in memory when it is written
EXTERNAL_ABOVE = 100_000_000
_SMALL = 1024  # bytes; shapes and scalars stay in the graph


def beside(path: Path) -> Path:
    """Where a graph's weights go that aren't in its file."""
    return path.with_name(path.name + ".data")


def save_graph(
    model: onnx.ModelProto, path: Path, external_above: int = EXTERNAL_ABOVE
) -> GraphFile:
    """Write a graph; weights of more than `external_above` bytes go to `path` + ".data".

    A graph that was built `weights_beside` that file keeps it, or takes the weights in.
    """
    data = beside(path)
    size = sum(_bytes(weight) for weight in model.graph.initializer)
    streamed = any(_is_external(weight) for weight in model.graph.initializer)
    if size > external_above:
        if not streamed:
            convert_model_to_external_data(model, location=data.name, size_threshold=_SMALL)
        onnx.save_model(model, path)
        return GraphFile(file=path.name, sha256=sha256(path), external={data.name: sha256(data)})
    if streamed:
        onnx.load_external_data_for_model(model, str(path.parent))
    data.unlink(missing_ok=True)
    path.write_bytes(model.SerializeToString(deterministic=True))
    return GraphFile(file=path.name, sha256=sha256(path))


def _is_external(weight: onnx.TensorProto) -> bool:
    return bool(weight.data_location == TensorProto.EXTERNAL)


def _bytes(weight: onnx.TensorProto) -> int:
    if not _is_external(weight):
        return len(weight.raw_data)
    return next(int(entry.value) for entry in weight.external_data if entry.key == "length")
