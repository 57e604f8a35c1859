"""Graphs read from disk: whole ones, or one clear error."""

from __future__ import annotations

from pathlib import Path

import onnx

from runtime.errors import EngineError, check_memory


def read_graph(path: Path) -> onnx.ModelProto:
    """A graph; weights that lie beside it stay there.

    Raises:
        EngineError: it is missing or damaged.
        MemoryError: there is no room for it.
    """
    try:
        model = onnx.load(path, load_external_data=False)
    except Exception as error:
        check_memory(error)
        raise _damaged(path, str(error).strip()[:300] or type(error).__name__) from error
    if not model.graph.node:  # no bytes at all are a valid message
        raise _damaged(path, "a graph without nodes")
    return model


def _damaged(path: Path, found: str) -> EngineError:
    return EngineError(
        f"{path} can't be read",
        expected="a whole ONNX graph",
        found=found,
        fix="copy the bundle again, or export it again with slipstream export",
    )
