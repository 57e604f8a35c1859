"""Graphs on disk: one file, or a graph with its weights beside it where protobuf would end."""

from __future__ import annotations

from pathlib import Path

import onnx
from onnx.external_data_helper import convert_model_to_external_data

from runtime.bundle import GraphFile
from runtime.files import sha256

EXTERNAL_ABOVE = 1_500_000_000  # bytes of weights; a protobuf message ends at 2 GB
_SMALL = 1024  # bytes; shapes and scalars stay in the graph


def save_graph(
    model: onnx.ModelProto, path: Path, external_above: int = EXTERNAL_ABOVE
) -> GraphFile:
    """Write a graph; weights of more than `external_above` bytes go to `path` + ".data"."""
    external = {}
    if sum(len(weight.raw_data) for weight in model.graph.initializer) > external_above:
        data = path.with_name(path.name + ".data")
        convert_model_to_external_data(model, location=data.name, size_threshold=_SMALL)
        onnx.save_model(model, path)
        external[data.name] = sha256(data)
    else:
        path.write_bytes(model.SerializeToString(deterministic=True))
    return GraphFile(file=path.name, sha256=sha256(path), external=external)
