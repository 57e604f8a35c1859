"""Graphs read from disk: whole ones, or one clear error."""

from __future__ import annotations

from pathlib import Path

import onnx

from runtime.errors import EngineError

_NO_MEMORY = ("Arena alloc failed", "bad_alloc", "bad allocation", "Failed to allocate memory")


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


def check_memory(error: Exception) -> None:
    """Raises: MemoryError: a library says in words of its own that there was none to be had."""
    if isinstance(error, MemoryError) or any(word in str(error) for word in _NO_MEMORY):
        raise MemoryError(str(error)[:300]) from error


def _damaged(path: Path, found: str) -> EngineError:
    return EngineError(
        f"{path} can't be read",
        expected="a whole ONNX graph",
        found=found,
        fix="copy the bundle again, or export it again with slipstream export",
    )
