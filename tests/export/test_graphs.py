"""The graph contract: names, dtypes, shapes, how weights are stored, what a session runs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch

from export.graphs.storage import save_graph
from export.source import Source
from runtime.bundle import GraphName
from runtime.engines.onnx import OnnxEngine
from tests.export.conftest import graph_models, make_target

CACHES = {
    f"{part}.past_key_values.{layer}.{kind}": (rows, layer)
    for layer in range(5)
    for part, rows in (("trunk", ["P"]), ("branch", ["T", "N"]))
    for kind in ("key", "value")
}


@pytest.fixture(scope="module")
def graphs(target: Path, drafter: Path) -> dict[GraphName, onnx.ModelProto]:
    return graph_models(Source.open(target, drafter))


def signature(values: list[onnx.ValueInfoProto]) -> dict[str, tuple[str, list[int | str]]]:
    found = {}
    for value in values:
        kind = value.type.tensor_type
        dims = [dim.dim_param or dim.dim_value for dim in kind.shape.dim]
        found[value.name] = (onnx.TensorProto.DataType.Name(kind.elem_type), dims)
    return found


def caches(layers: int) -> dict[str, tuple[str, list[int | str]]]:
    return {
        name: ("FLOAT", [*rows, 2, 16]) for name, (rows, layer) in CACHES.items() if layer < layers
    }


def presents(layers: int, rows: str) -> dict[str, tuple[str, list[int | str]]]:
    return {
        f"present.{layer}.{kind}": ("FLOAT", [rows, "N", 2, 16])
        for layer in range(layers)
        for kind in ("key", "value")
    }


def test_signatures_are_the_contract(graphs: dict[GraphName, onnx.ModelProto]) -> None:
    assert signature(graphs["embed"].graph.input) == {"tokens": ("INT32", ["N", "S"])}
    assert signature(graphs["embed"].graph.output) == {"embeddings": ("FLOAT", ["N", "S", 64])}
    assert signature(graphs["target"].graph.input) == {
        "embeddings": ("FLOAT", ["N", "S", 64]),
        "positions": ("INT32", ["N", "S"]),
        "trunk_bias": ("FLOAT", ["P"]),
        "branch_bias": ("FLOAT", ["N", "S", "T+S"]),
        **caches(5),
    }
    assert signature(graphs["target"].graph.output) == {
        "hidden": ("FLOAT", ["N", "S", 64]),
        "taps": ("FLOAT", ["N", "S", 192]),
        **presents(5, "S"),
    }
    assert signature(graphs["draft"].graph.input) == {
        "block_embeddings": ("FLOAT", ["N", "B", 64]),
        "block_positions": ("INT32", ["N", "B"]),
        "taps": ("FLOAT", ["N", "C", 192]),
        "tap_positions": ("INT32", ["N", "C"]),
        "trunk_bias": ("FLOAT", ["P"]),
        "branch_bias": ("FLOAT", ["N", "B", "T+C+B"]),
        **caches(2),
    }
    assert signature(graphs["draft"].graph.output) == {
        "hidden": ("FLOAT", ["N", "B", 64]),
        **presents(2, "C"),
    }
    assert signature(graphs["head"].graph.output) == {
        "top_logits": ("FLOAT", ["N", "S", 300]),
        "top_tokens": ("INT32", ["N", "S", 300]),
        "logsumexp": ("FLOAT", ["N", "S"]),
    }


def test_graphs_are_valid_and_standard(graphs: dict[GraphName, onnx.ModelProto]) -> None:
    for model in graphs.values():
        onnx.checker.check_model(model, full_check=True)
        assert [(entry.domain, entry.version) for entry in model.opset_import] == [("", 23)]
        assert {node.domain for node in model.graph.node} == {""}


def test_keys_and_values_are_never_concatenated(
    graphs: dict[GraphName, onnx.ModelProto],
) -> None:
    for name in ("target", "draft"):
        nodes = {out: node for node in graphs[name].graph.node for out in node.output}
        moved = {"Transpose", "Reshape"}
        for node in graphs[name].graph.node:
            if node.op_type == "Concat":
                for source in node.input:
                    while source in nodes and nodes[source].op_type in moved:
                        source = nodes[source].input[0]
                    assert "past_key_values" not in source


def test_bf16_weights_take_half_the_file(tmp_path: Path, target: Path) -> None:
    full = make_target(tmp_path / "fp32", dtype=torch.float32)
    sizes = []
    for folder in (target, full):
        graphs = graph_models(Source.open(folder, None))
        sizes.append(graphs["target"].ByteSize())
        kinds = {weight.data_type for weight in graphs["embed"].graph.initializer}
        assert (onnx.TensorProto.BFLOAT16 in kinds) == (folder == target)
    assert sizes[0] < 0.7 * sizes[1]


def test_a_session_folds_the_casts_and_fuses_the_transposes(
    graphs: dict[GraphName, onnx.ModelProto], tmp_path: Path
) -> None:
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    ort.InferenceSession(
        graphs["target"].SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    optimized = onnx.load(tmp_path / "optimized.onnx")
    kinds = Counter(node.op_type for node in optimized.graph.node)
    assert kinds["Cast"] == 0
    assert kinds["FusedMatMul"] == 6 * 5  # three products of scores and three of values a layer
    caches = {value.name for value in optimized.graph.input if "past_key" in value.name}
    readers = {n.op_type for n in optimized.graph.node if caches & set(n.input)}
    assert readers <= {"FusedMatMul", "Shape"}, "a cache is copied before its product"


def test_large_weights_go_beside_the_graph(
    graphs: dict[GraphName, onnx.ModelProto], tmp_path: Path
) -> None:
    (tmp_path / "split").mkdir()
    whole = save_graph(graphs["head"], tmp_path / "head.onnx")
    copy = onnx.ModelProto()
    copy.CopyFrom(graphs["head"])
    split = save_graph(copy, tmp_path / "split" / "head.onnx", external_above=1000)
    assert whole.external == {}
    assert list(split.external) == ["head.onnx.data"]
    assert (tmp_path / "split" / "head.onnx").stat().st_size < 5000
    hidden = np.random.default_rng(0).standard_normal((1, 2, 64), np.float32)
    logits = [
        OnnxEngine(tmp_path / name, threads=1).run({"hidden": hidden}, {})["top_logits"]
        for name in ("head.onnx", "split/head.onnx")
    ]
    np.testing.assert_array_equal(*logits)
