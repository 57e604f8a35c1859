"""What keys and values take in a candidate, by the types of its graphs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import onnx
from onnx import helper

from runtime.bundle import Bundle, GraphName


def cache_bytes(bundle: Bundle, graphs: Mapping[GraphName, Path]) -> int:
    """Bytes of both caches with all rollouts: trunk + N * branch of the target's and the drafter's.

    Args:
        graphs: what takes the place of the bundle's own.
    """
    limits, total = bundle.manifest.limits, 0
    rows = limits.trunk + limits.rollouts * limits.branch
    names: tuple[GraphName, GraphName] = "target", "draft"
    for name, dims in zip(names, bundle.manifest.networks, strict=False):
        path = graphs.get(name, bundle.graph_path(name))
        total += rows * 2 * dims.layers * dims.kv_heads * dims.head_dim * _itemsize(path)
    return total


def _itemsize(path: Path) -> int:
    graph = onnx.load(path, load_external_data=False).graph
    present = next(value for value in graph.output if value.name == "present.0.key")
    return helper.tensor_dtype_to_np_dtype(present.type.tensor_type.elem_type).itemsize
