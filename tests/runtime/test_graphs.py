"""Graphs that don't fit their manifest are refused, at loading or at the first pass."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from runtime.bundle import Bundle
from runtime.engines.base import TensorSpec
from runtime.engines.onnx import OnnxEngine
from runtime.errors import EngineError
from runtime.graphs import Graphs
from tests.runtime.tabular import WIDTH, TabularEngine, tabular_graphs

VOCAB = 5
Edit = Callable[[TabularEngine], object]


def graphs_with(folder: Path, graph: str, edit: Edit) -> Graphs:
    """Tabular graphs of which one says something else of its outputs."""
    manifest = tabular_graphs(folder, vocab=VOCAB).manifest

    def opened(path: Path) -> TabularEngine:
        engine = TabularEngine(path.name, VOCAB, 0, 0.7)
        if path.name == graph:
            edit(engine)
        return engine

    return Graphs(Bundle(folder, manifest), opened)


def lacks(output: str) -> Edit:
    return lambda engine: engine.outputs.pop(output)


def has(output: str, *shape: int | str) -> Edit:
    spec = TensorSpec(output, np.dtype(np.float32), shape)
    return lambda engine: engine.outputs.update({output: spec})


def test_graphs_that_fit_are_taken(tmp_path: Path) -> None:
    found = graphs_with(tmp_path, "embed", lambda engine: None).embed(np.array([[1, 2]]))
    assert found.shape == (1, 2, WIDTH)


@pytest.mark.parametrize(
    ("graph", "edit", "expected", "found"),
    [
        ("embed", lacks("embeddings"), f"embeddings whose shape ends in [{WIDTH}]", "no such"),
        ("embed", has("embeddings", "N", "S", 4), f"[{WIDTH}]", "4"),
        ("target", lacks("hidden"), "hidden", "no such"),
        ("target", has("hidden", "N", "S", WIDTH + 1), "hidden", str(WIDTH + 1)),
        ("target", lacks("taps"), "taps", "no such"),
        ("target", has("taps", "N", "S", 2 * WIDTH), f"[{WIDTH}]", str(2 * WIDTH)),
        ("target", has("present.0.key", "S", "N", 2, WIDTH), f"[1, {WIDTH}]", f"2, {WIDTH}"),
        ("target", has("present.0.value", "S", "N", 1, 4), f"[1, {WIDTH}]", "1, 4"),
        ("target", lacks("present.0.value"), "present.0.value", "no such"),
        ("target", has("present.1.key", "S", "N", 1, WIDTH), "two a layer", "3"),
        ("draft", lacks("hidden"), "hidden", "no such"),
        ("draft", has("present.0.key", "S", "N", 1, 4), f"[1, {WIDTH}]", "1, 4"),
        ("draft", has("present.7.key", "S", "N", 1, WIDTH), "two a layer", "3"),
        ("head", has("top_logits", "N", "S", VOCAB - 1), f"[{VOCAB}]", str(VOCAB - 1)),
        ("head", has("top_logits"), f"[{VOCAB}]", "[]"),
    ],
)
def test_outputs_that_do_not_fit_the_manifest_are_named(
    graph: str, edit: Edit, expected: str, found: str, tmp_path: Path
) -> None:
    with pytest.raises(EngineError, match=r"does not fit .*bundle\.json") as caught:
        graphs_with(tmp_path, graph, edit)
    assert f"{graph} does not fit" in caught.value.what
    assert expected in caught.value.expected
    assert found in caught.value.found
    assert "slipstream export" in caught.value.fix


def embed_graph(path: Path, name: str, kind: int, shape: list[str | int]) -> Path:
    """An embedding of VOCAB rows as an ONNX file, with an input of another name, type or rank."""
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", name], ["embeddings"])],
        "embed",
        [value(name, kind, shape)],
        [value("embeddings", TensorProto.FLOAT, [*shape, WIDTH])],
        initializer=[
            helper.make_tensor("table", TensorProto.FLOAT, [VOCAB, WIDTH], [0.5] * VOCAB * WIDTH)
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)
    onnx.save_model(model, path)
    return path


@pytest.mark.parametrize(
    ("name", "kind", "shape", "says"),
    [
        ("ids", TensorProto.INT32, ["N", "S"], "input ids is missing"),
        ("tokens", TensorProto.INT64, ["N", "S"], "input tokens has the wrong dtype"),
        ("tokens", TensorProto.INT32, ["S"], "input tokens has the wrong rank"),
        ("tokens", TensorProto.INT32, ["N", 7], "input tokens has the wrong shape"),
    ],
)
def test_inputs_that_do_not_fit_are_named_by_the_first_pass(
    name: str, kind: int, shape: list[str | int], says: str, tmp_path: Path
) -> None:
    path = embed_graph(tmp_path / "embed.onnx", name, kind, shape)
    manifest = tabular_graphs(tmp_path, vocab=VOCAB).manifest

    def opened(file: Path) -> OnnxEngine | TabularEngine:
        if file.name == "embed":
            return OnnxEngine(path, threads=1)
        return TabularEngine(file.name, VOCAB, 0, 0.7)

    graphs = Graphs(Bundle(tmp_path, manifest), opened)
    with pytest.raises(EngineError, match=says) as caught:
        graphs.embed(np.array([[1, 2]]))
    assert str(path) in caught.value.what
    assert caught.value.fix


def test_tokens_of_any_integer_type_are_fed_as_int32(tmp_path: Path) -> None:
    path = embed_graph(tmp_path / "embed.onnx", "tokens", TensorProto.INT32, ["N", "S"])
    manifest = tabular_graphs(tmp_path, vocab=VOCAB).manifest
    graphs = Graphs(
        Bundle(tmp_path, manifest),
        lambda file: (
            OnnxEngine(path, threads=1)
            if file.name == "embed"
            else TabularEngine(file.name, VOCAB, 0, 0.7)
        ),
    )
    for kind in (np.int32, np.int64, np.uint8):
        assert graphs.embed(np.array([[1, 2], [3, 4]], kind)[:, ::-1]).shape == (2, 2, WIDTH)
