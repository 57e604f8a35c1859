"""Feeds of the shipped planner's graphs, of real tokens over a filled cache."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto

import slipstream
from runtime.bundle import Bundle, GraphName
from runtime.engines.onnx import OnnxEngine

BUNDLE = Bundle.open(slipstream.shipped_bundle())
Arrays = dict[str, NDArray[Any]]


def run(path: Path, feeds: Arrays) -> Arrays:
    """A graph's outputs, as copies."""
    out = OnnxEngine(path, threads=1).run(feeds, {})
    return {name: np.array(value) for name, value in out.items()}


def feeds_of(graph: GraphName, seed: int = 0, *, n: int = 1, s: int = 24) -> Arrays:
    """A pass of n rollouts and s rows: embedded tokens, random keys and values."""
    rng = np.random.default_rng(seed)
    sizes = {"N": n, "S": s, "P": 64, "T": 32, "C": 6, "B": s}
    sizes |= {"T+S": 32 + s, "T+C+B": 38 + s}
    feeds: Arrays = {}
    for value in onnx.load(BUNDLE.graph_path(graph), load_external_data=False).graph.input:
        dims = value.type.tensor_type.shape.dim
        shape = [sizes[dim.dim_param] if dim.dim_param else dim.dim_value for dim in dims]
        if value.type.tensor_type.elem_type == TensorProto.INT32:
            feeds[value.name] = rng.integers(0, 200, shape).astype(np.int32)
        elif value.name.endswith("bias"):
            feeds[value.name] = np.zeros(shape, np.float32)
        elif value.name in ("embeddings", "block_embeddings"):
            tokens = rng.integers(0, BUNDLE.manifest.target.vocab, shape[:2]).astype(np.int32)
            feeds[value.name] = run(BUNDLE.graph_path("embed"), {"tokens": tokens})["embeddings"]
        else:
            feeds[value.name] = rng.standard_normal(shape).astype(np.float32)
    return feeds


def difference(found: NDArray[Any], wanted: NDArray[Any]) -> float:
    """Norm of the difference over the norm."""
    return float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))
