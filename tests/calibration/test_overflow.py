"""Graphs that overflow fp16 on purpose: what plain fp16 makes of them, and the guarded graph.

A weight times a power of two, and its inverse behind it, change nothing in fp32.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper, shape_inference

from calibration.overflow import guarded
from calibration.ranges import ranges
from calibration.rounded import rounded
from export.graphs.precision import is_cache, reduce_precision
from export.graphs.spelling import spell_out
from runtime.decode import Decoder
from runtime.engines.base import Engine
from runtime.engines.onnx import OnnxEngine
from runtime.errors import EngineError, SlipstreamError
from runtime.graphs import Graphs
from runtime.settings import DecodeSettings
from tests.calibration.recorded import graph, planner, recording, scaled, windows

Feeds = dict[str, NDArray[Any]]
PRODUCT = "Mul.204.0"  # of gate and up, in block 2


def mlp_overflows() -> onnx.ModelProto:
    """The target with a product of gate and up beyond fp16 in block 2."""
    model = scaled(onnx.load(graph("target")), "layers.2.up", 2.0**14)
    return scaled(model, "layers.2.down", 2.0**-14)


def values_overflow() -> onnx.ModelProto:
    """The target with values beyond fp16 in the cache of block 1."""
    dims = planner().bundle.manifest.target
    own = slice((dims.heads + dims.kv_heads) * dims.head_dim, None)
    model = scaled(onnx.load(graph("target")), "layers.1.qkv", 2.0**18, own)
    return scaled(model, "layers.1.o", 2.0**-18)


@dataclass(frozen=True)
class Hot:
    """A graph that overflows, what it is fed, and what its guard makes of it."""

    path: Path
    feeds: list[Feeds]
    model: onnx.ModelProto
    kept: tuple[str, ...]


@pytest.fixture(scope="module")
def mlp(tmp_path_factory: pytest.TempPathFactory) -> Hot:
    return guarded_at(tmp_path_factory.mktemp("mlp") / "mlp.onnx", "mlp")


@pytest.fixture(scope="module")
def values(tmp_path_factory: pytest.TempPathFactory) -> Hot:
    return guarded_at(tmp_path_factory.mktemp("values") / "values.onnx", "values")


@pytest.fixture(params=["mlp", "values"])
def hot(request: pytest.FixtureRequest) -> Hot:
    found: Hot = request.getfixturevalue(request.param)
    return found


def guarded_at(path: Path, kind: str) -> Hot:
    onnx.save(mlp_overflows() if kind == "mlp" else values_overflow(), path)
    feeds = feeds_of(kind)
    return Hot(path, feeds, *guarded(path, "fp16", feeds))


def feeds_of(kind: str) -> list[Feeds]:
    """Recorded passes, with the cached values of block 1 as the graph itself would write them."""
    found = [dict(feeds) for feeds in recording().feeds("target")]
    for feeds in found if kind == "values" else ():
        for part in ("trunk", "branch"):
            name = f"{part}.past_key_values.1.value"
            feeds[name] = feeds[name] * np.float32(2.0**18)
    return found


def run(model: onnx.ModelProto | Path, feeds: Feeds, folder: Path) -> Feeds:
    path = model if isinstance(model, Path) else folder / "run.onnx"
    if not isinstance(model, Path):
        onnx.save(model, path)
    return {name: np.array(x) for name, x in OnnxEngine(path, threads=1).run(feeds, {}).items()}


def worst(found: Feeds, wanted: Feeds) -> float:
    """The largest difference of any output, in units of its largest value; inf where one is not
    finite."""
    return max(
        float(np.abs(found[name] - values).max() / np.abs(values).max())
        if np.isfinite(found[name]).all()
        else np.inf
        for name, values in wanted.items()
    )


def test_a_graph_that_overflows_is_guarded(hot: Hot, tmp_path: Path) -> None:
    onnx.checker.check_model(hot.model, full_check=True)
    plain = rounded(reduce_precision(onnx.load(hot.path), "fp16"))
    for feeds in hot.feeds[:: len(hot.feeds) // 2]:
        wanted = run(hot.path, feeds, tmp_path)
        assert worst(run(plain, feeds, tmp_path), wanted) == np.inf
        assert worst(run(rounded(hot.model), feeds, tmp_path), wanted) < 0.02


def test_nothing_of_a_graph_that_fits_is_kept() -> None:
    feeds = recording().feeds("target")
    model, kept = guarded(graph("target"), "fp16", feeds)
    assert kept == ()
    plain = reduce_precision(onnx.load(graph("target")), "fp16")
    assert model.SerializeToString() == plain.SerializeToString()


def test_what_stays_fp32_anyway_may_be_of_any_size() -> None:
    """Masks of -30000 and what they are added to need no headroom; products do."""
    feeds = recording().feeds("target")[:3]
    headroom = 65504 / 100
    _, kept = guarded(graph("target"), "fp16", feeds, headroom)
    beyond = [n for n, one in ranges(graph("target"), feeds).items() if one.absmax > 100]
    assert {"trunk_bias", "branch_bias", "taps"} <= set(beyond)
    assert kept
    assert set(kept) < set(beyond)
    assert {name.split(".")[0] for name in kept} <= {"MatMul", "Mul"}


def test_what_is_kept_is_what_overflows_and_what_touches_it(mlp: Hot) -> None:
    model, kept = mlp.model, mlp.kept
    found = ranges(mlp.path, mlp.feeds)
    assert PRODUCT in kept
    assert kept == tuple(name for name, one in found.items() if one.absmax > 65504 / 2)
    assert all(name.split(".")[0] in ("MatMul", "Mul") for name in kept)
    types = types_of(model)
    assert all(types[name] == TensorProto.FLOAT for name in kept)
    for node in model.graph.node:
        if node.op_type == "MatMul":
            near = not set(kept).isdisjoint((*node.input, *node.output))
            wanted = TensorProto.FLOAT if near else TensorProto.FLOAT16
            assert {types[name] for name in node.input} == {wanted}, node.name
    products = [node for node in model.graph.node if node.op_type == "MatMul"]
    assert sum(types[node.input[1]] == TensorProto.FLOAT for node in products) <= 3
    # caches are reduced all the same
    assert all(types[v.name] == TensorProto.FLOAT16 for v in model.graph.input if is_cache(v.name))


def test_a_cache_that_overflows_stays_fp32_in_all_layers(values: Hot) -> None:
    model, kept = values.model, values.kept
    assert "present.1.value" in kept
    assert not any(name.startswith("present.2") for name in kept)
    boundary = [v for v in (*model.graph.input, *model.graph.output) if is_cache(v.name)]
    assert {v.type.tensor_type.elem_type for v in boundary} == {TensorProto.FLOAT}
    assert "Sum" in {name.split(".")[0] for name in kept}  # attention's sum over the segments
    types = types_of(model)
    reduced = [n for n in model.graph.node if n.op_type == "MatMul" and types[n.input[1]] == 10]
    assert len(reduced) > 40  # of 55; all other blocks


def test_a_planner_plans_with_the_guarded_graph_alone(hot: Hot, tmp_path: Path) -> None:
    """Rounds, forks and all: plain fp16 gives NaN, the guarded graph the fp32 graph's plan."""
    made = planner()
    models = {
        "plain": rounded(reduce_precision(onnx.load(hot.path), "fp16")),
        "guarded": rounded(hot.model),
    }

    def decoded(path: Path) -> NDArray[np.int64]:
        def opened(each: Path) -> Engine:
            return OnnxEngine(path if each.name == "target.onnx" else each, threads=1)

        decoder = Decoder(Graphs(made.bundle, opened), None)
        prompt = made.prompt(windows()[300].observation)
        how = DecodeSettings(method="dflash", block=24, rollouts=2)
        return decoder.decode(prompt, made.scaffold, how, made.language.fork_section).tokens

    for name, model in models.items():
        onnx.save(model, tmp_path / f"{name}.onnx")
    with pytest.raises(EngineError, match="logits of head are not numbers"):
        decoded(tmp_path / "plain.onnx")
    np.testing.assert_array_equal(decoded(tmp_path / "guarded.onnx"), decoded(hot.path))


def test_bf16_needs_no_guard(hot: Hot, tmp_path: Path) -> None:
    model, kept = guarded(hot.path, "bf16", [])
    assert kept == ()
    feeds = hot.feeds[-1]
    assert worst(run(rounded(model), feeds, tmp_path), run(hot.path, feeds, tmp_path)) < 0.1


def test_a_guarded_graph_stays_so_when_it_is_reduced_and_spelled_out(hot: Hot) -> None:
    """What a build does with a bundle's graph."""
    given = hot.model.SerializeToString()
    again = reduce_precision(onnx.ModelProto.FromString(given), "fp16")
    assert again.SerializeToString() == given
    onnx.checker.check_model(spelled := spell_out(again), full_check=True)
    weights = {weight.name.rpartition(".bf16")[0] for weight in again.graph.initializer}
    types = types_of(spelled)
    assert all(types[name] == TensorProto.FLOAT for name in set(hot.kept) - weights)


@pytest.mark.parametrize("stored", [np.float32, "bf16"])
def test_a_weight_beyond_fp16_is_kept(stored: Any, tmp_path: Path) -> None:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 4]) for name in "xy")
    big = np.eye(4, dtype=np.float32) * 2.0**17
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], name="product")]
    weight = numpy_helper.from_array(big, "w")
    if stored == "bf16":
        raw = (big.view(np.uint32) >> 16).astype("<u2").tobytes()
        weight = helper.make_tensor("w.bf16", TensorProto.BFLOAT16, (4, 4), raw, raw=True)
        nodes.insert(0, helper.make_node("Cast", ["w.bf16"], ["w"], to=TensorProto.FLOAT))
    made = helper.make_graph(nodes, "g", [x], [y], [weight])
    opsets = [helper.make_opsetid("", 23)]
    path = tmp_path / "g.onnx"
    onnx.save(helper.make_model(made, opset_imports=opsets, ir_version=11), path)
    with pytest.raises(SlipstreamError, match="does not fit fp16"):
        reduce_precision(onnx.load(path), "fp16")
    feeds = {"x": np.full((2, 4), 2.0**-4, np.float32)}
    model, kept = guarded(path, "fp16", [feeds])
    assert weight.name in kept
    np.testing.assert_array_equal(run(model, feeds, tmp_path)["y"], np.full((2, 4), 2.0**13))
    # by the stored weight's name alone as well
    onnx.checker.check_model(reduce_precision(onnx.load(path), "fp16", {weight.name}))


def test_a_name_that_is_no_tensor_is_refused() -> None:
    with pytest.raises(SlipstreamError, match="no tensor to keep") as caught:
        reduce_precision(onnx.load(graph("head")), "fp16", {"hidden", "layers.9.up"})
    assert caught.value.found == "layers.9.up"


def types_of(model: onnx.ModelProto) -> dict[str, int]:
    inferred = shape_inference.infer_shapes(model, strict_mode=True).graph
    values = [*inferred.value_info, *inferred.input, *inferred.output]
    found = {value.name: value.type.tensor_type.elem_type for value in values}
    return found | {weight.name: weight.data_type for weight in inferred.initializer}
