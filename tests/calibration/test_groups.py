"""Every product of every network's graphs is in the group that its weights name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from calibration.groups import first_and_last, groups, nodes_of
from export.graphs.precision import reduce_precision
from runtime.bundle import GraphName
from runtime.errors import SlipstreamError
from tests.calibration.recorded import graph


def products(model: onnx.ModelProto) -> set[str]:
    return {node.name for node in model.graph.node if node.op_type in ("MatMul", "Gemm")}


def weight_of(model: onnx.ModelProto, node: str) -> str:
    return next(n.input[1] for n in model.graph.node if n.name == node)


@pytest.mark.parametrize(
    ("name", "blocks", "attention", "others"),
    [
        ("target", 5, 8, []),  # qkv, o, and scores and values of trunk, branch and new rows
        ("draft", 3, 11, ["fuse"]),  # the context's, and a segment more
        ("head", 0, 0, ["head"]),
        ("embed", 0, 0, ["embed"]),
    ],
)
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_groups_of_the_shipped_planner(
    name: GraphName, blocks: int, attention: int, others: list[str], precision: str
) -> None:
    model = onnx.load(graph(name))
    if precision == "fp16":
        model = reduce_precision(model, "fp16")
    found = groups(model)
    kinds = [f"block {i} {part}" for i in range(blocks) for part in ("attention", "mlp")]
    assert list(found) == [*others, *kinds]
    listed = [node for nodes in found.values() for node in nodes]
    assert len(listed) == len(set(listed))
    if name != "embed":
        assert set(listed) == products(model)
    for i in range(blocks):
        assert len(found[f"block {i} attention"]) == attention
        parts = [weight_of(model, node).split(".")[2] for node in found[f"block {i} mlp"]]
        assert parts == ["gate", "up", "down"]


def test_groups_of_other_drafters(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from export.source import Source
    from planners.nets.dflare import DFlareConfig
    from tests.export.conftest import graph_models, make_drafter, make_target
    from tests.export.test_eagle3 import make_eagle

    target = make_target(tmp_path / "target")
    dflare = make_drafter(tmp_path / "dflare", DFlareConfig, fusion_fc=True)
    found = groups(graph_models(Source.open(target, dflare))["draft"])
    assert len(found["fuse"]) == 2  # the mixture, whose weight is the first input, and fc
    assert set(found) == {"fuse"} | {f"block {i} {p}" for i in (0, 1) for p in ("attention", "mlp")}
    models = graph_models(Source.open(target, make_eagle(tmp_path / "eagle")))
    assert list(groups(models["fuse"])) == ["fuse"]
    assert list(groups(models["draft"])) == ["block 0 attention", "block 0 mlp"]
    assert list(groups(models["draft_head"])) == ["head"]
    assert first_and_last(groups(models["draft"])) == ()


@pytest.mark.parametrize(("family", "own"), [("qwen2_5_vl", 3), ("qwen3_vl", 2)])
def test_groups_of_vision_towers(family: str, own: int, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from export.graphs.vision import vision_graph
    from tests.export.test_vision import opened
    from tests.vlm_families import make_vlm

    folder = make_vlm(tmp_path / "vlm", family)  # type: ignore[arg-type]
    model = vision_graph(*opened(folder, [("front", 301, 200), ("left", 230, 230)]))
    found = groups(model)
    assert {node for nodes in found.values() for node in nodes} == products(model)
    blocks = [name for name in found if name.endswith("mlp")]
    assert len(blocks) > 1
    for i, name in enumerate(blocks):
        assert name == f"vision block {i} mlp"
        assert len(found[name]) == own
        inner = found[f"vision block {i} attention"]
        names = [weight_of(model, node) for node in inner]
        assert [n.split(".")[3] for n in names if n.startswith("blocks.")] == ["qkv", "proj"]
        assert len(inner) > 2  # scores and values, of each camera's grid
    assert len(found["vision merger"]) == 2
    assert len(found["vision patches"]) == 1
    deep = [name for name in found if name.startswith("vision deepstack")]
    assert bool(deep) == (family == "qwen3_vl")
    assert all(name.startswith("vision") for name in found)


def test_only_names_are_read() -> None:
    """Weights may lie elsewhere, and be gone."""
    whole = onnx.load(graph("target"))
    light = onnx.load(graph("target"))
    for weight in light.graph.initializer:
        weight.ClearField("raw_data")
    assert groups(light) == groups(whole)


def test_a_quantizer_s_additions_to_names_and_nodes_do_no_harm() -> None:
    model = onnx.load(graph("head"))
    weight = next(w for w in model.graph.initializer if w.name.startswith("head"))
    weight.name = "head_quantized"
    cast = next(node for node in model.graph.node if node.op_type == "Cast")
    cast.CopyFrom(helper.make_node("DequantizeLinear", ["head_quantized", "s"], ["head_dq"]))
    model.graph.initializer.append(numpy_helper.from_array(np.array(1.0, np.float32), "s"))
    product = next(node for node in model.graph.node if node.op_type == "MatMul")
    product.input[1] = "head_dq"
    assert groups(model) == {"head": (product.name,)}


def test_an_unknown_weight_is_a_group_by_itself() -> None:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 4]) for name in "xy")
    weights = [numpy_helper.from_array(np.eye(4, dtype=np.float32), w) for w in ("odd.w", "fc2")]
    nodes = [
        helper.make_node("Gemm", ["x", "odd.w"], ["a"], name="first"),
        helper.make_node("MatMul", ["a", "fc2"], ["b"], name="second"),
        helper.make_node("MatMul", ["b", "x"], ["y"], name="third"),
    ]
    model = helper.make_model(helper.make_graph(nodes, "g", [x], [y], weights))
    assert groups(model) == {"odd.w": ("first",), "fc2": ("second", "third")}


def test_what_stays_high_by_default() -> None:
    target = groups(onnx.load(graph("target")))
    assert first_and_last(target) == tuple(
        f"block {i} {part}" for i in (0, 4) for part in ("attention", "mlp")
    )
    names = ["vision patches", "vision block 0 mlp", "vision block 1 mlp", "vision block 2 mlp"]
    names += ["vision merger", "vision deepstack 0", "block 0 mlp", "block 1 mlp", "fuse", "head"]
    assert first_and_last(names) == (
        "vision patches",
        "vision block 0 mlp",
        "vision block 2 mlp",
        "vision merger",
        "head",  # of two blocks nothing would be left
    )


def test_nodes_of_groups() -> None:
    target = groups(onnx.load(graph("target")))
    kept = nodes_of(target, ["block 4 mlp", "block 0 mlp"])
    assert kept == (*target["block 4 mlp"], *target["block 0 mlp"])
    with pytest.raises(SlipstreamError, match="no group 'block 9 mlp'") as caught:
        nodes_of(target, ["block 9 mlp"])
    assert "block 0 attention" in caught.value.expected
