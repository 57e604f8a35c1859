"""How many parameters the networks of a bundle have that make the output."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from runtime.bundle import Bundle
from runtime.errors import SlipstreamError

_COMPUTED = ("constant.", "rope.")  # initializers that no checkpoint holds
_ROWS = 4096  # of the tables that are compared at a time


def parameter_count(bundle: Bundle) -> int:
    """Parameters of the target, as its checkpoint counts them.

    The drafter changes only the time. A head that is the embedding is counted once, though each
    graph stores it.

    Raises:
        SlipstreamError: a graph that can't be read.
    """
    weights = {
        name: [
            each
            for each in _graph(bundle.graph_path(name)).initializer
            if not each.name.startswith(_COMPUTED)
        ]
        for name in ("embed", "target", "head")
    }
    counted = [*weights["embed"], *weights["target"]]
    if not _tied(bundle, weights["embed"], weights["head"]):
        counted += weights["head"]
    return sum(int(math.prod(each.dims)) for each in counted)


def in_words(count: int) -> str:
    """An integer and K, M or B: 7541K."""
    for suffix, unit in (("B", 1e9), ("M", 1e6)):
        if count >= 10 * unit:
            return f"{round(count / unit)}{suffix}"
    return f"{max(1, round(count / 1e3))}K"


def _tied(bundle: Bundle, embed: list[onnx.TensorProto], head: list[onnx.TensorProto]) -> bool:
    """Is the head the embedding? Both graphs hold it, one of them transposed."""
    if len(embed) != 1 or len(head) != 1 or list(embed[0].dims) != list(head[0].dims)[::-1]:
        return False
    table = _values(embed[0], bundle.graph_path("embed"))
    other = _values(head[0], bundle.graph_path("head")).T
    return all(
        np.array_equal(table[at : at + _ROWS], other[at : at + _ROWS])
        for at in range(0, len(table), _ROWS)
    )


def _values(tensor: onnx.TensorProto, path: Path) -> NDArray[np.generic]:
    try:
        return numpy_helper.to_array(tensor, base_dir=str(path.parent))
    except Exception as error:  # onnx raises whatever comes up, without a common base
        raise _unreadable(path, error) from error


def _graph(path: Path) -> onnx.GraphProto:
    try:
        return onnx.load(path, load_external_data=False).graph
    except Exception as error:  # protobuf raises its own, without a common base
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> SlipstreamError:
    return SlipstreamError(
        f"{path} can't be read",
        expected="an ONNX graph",
        found=str(error)[:200],
        fix="give --parameters, or export the bundle again",
    )
