"""Ranges that a graph reduces itself, against every tensor fetched and reduced by numpy."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, shape_inference

from calibration.ranges import Range, overflowing, ranges
from export.graphs.precision import reduce_precision
from export.graphs.storage import save_graph
from runtime.bundle import GraphName
from runtime.errors import EngineError, SlipstreamError
from tests.calibration.recorded import graph, recording

Feeds = dict[str, NDArray[Any]]
GRAPHS: tuple[GraphName, ...] = ("embed", "target", "draft", "head")


def every_tensor(model: onnx.ModelProto, feeds: Feeds) -> Feeds:
    """What a pass reads and writes, fp32, as ONNX Runtime gives it when all of it is an output."""
    inferred = shape_inference.infer_shapes(model).graph
    kinds = {v.name: v.type.tensor_type.elem_type for v in (*inferred.value_info, *inferred.output)}
    floats = (TensorProto.FLOAT, TensorProto.BFLOAT16)
    kinds = {name: kind for name, kind in kinds.items() if kind in floats}
    del model.graph.output[:]
    wanted = []
    for name, kind in kinds.items():
        if kind == TensorProto.BFLOAT16:  # numpy has none
            cast = helper.make_node("Cast", [name], [f"{name}.fp32"], to=TensorProto.FLOAT)
            model.graph.node.append(cast)
        wanted.append(f"{name}.fp32" if kind == TensorProto.BFLOAT16 else name)
        model.graph.output.append(
            helper.make_tensor_value_info(wanted[-1], TensorProto.FLOAT, None)
        )
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    written = dict(zip(kinds, session.run(wanted, feeds), strict=True))
    return {n: x for n, x in feeds.items() if x.dtype == np.float32} | written


def small(*nodes: onnx.NodeProto, kind: int = TensorProto.FLOAT) -> onnx.ModelProto:
    """A graph x [N, 4] -> y [N, 4]."""
    x, y = (helper.make_tensor_value_info(name, kind, ["N", 4]) for name in "xy")
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)]
    made = helper.make_graph(list(nodes), "small", [x], [y])
    return helper.make_model(made, opset_imports=opsets, ir_version=11)


@pytest.mark.parametrize("name", GRAPHS)
def test_ranges_are_those_of_every_tensor(name: GraphName) -> None:
    feeds = recording().feeds(name)[-3:]
    found = ranges(graph(name), feeds)
    wanted: dict[str, Range] = {}
    for each in feeds:
        for tensor, values in every_tensor(onnx.load(graph(name)), each).items():
            one = Range(float(values.min()), float(values.max()))
            wanted[tensor] = wanted[tensor] | one if tensor in wanted else one
    assert set(found) == set(wanted)
    for tensor, one in wanted.items():
        ends = [found[tensor].least, found[tensor].greatest]
        np.testing.assert_allclose(ends, [one.least, one.greatest], rtol=1e-4, atol=1e-5)


def test_tensors_come_in_the_order_of_a_pass() -> None:
    names = list(ranges(graph("target"), recording().feeds("target")[:1]))
    model = onnx.load(graph("target"))
    order = [v.name for v in model.graph.input] + [o for n in model.graph.node for o in n.output]
    assert names == sorted(names, key=order.index)


def test_weights_beside_the_graph_are_found(tmp_path: Path) -> None:
    feeds = recording().feeds("target")[:2]
    save_graph(onnx.load(graph("target")), tmp_path / "target.onnx", external_above=0)
    assert (tmp_path / "target.onnx.data").stat().st_size > 10_000_000
    before = sorted(path.name for path in tmp_path.iterdir())
    assert ranges(tmp_path / "target.onnx", feeds) == ranges(graph("target"), feeds)
    assert sorted(path.name for path in tmp_path.iterdir()) == before  # no file is left


def test_fp16_tensors_have_ranges_too(tmp_path: Path) -> None:
    onnx.save(reduce_precision(onnx.load(graph("head")), "fp16"), tmp_path / "head.onnx")
    feeds = recording().feeds("head")[:2]
    reduced, whole = ranges(tmp_path / "head.onnx", feeds), ranges(graph("head"), feeds)
    assert reduced["hidden.as.fp16"].absmax == pytest.approx(whole["hidden"].absmax, rel=1e-3)
    assert reduced["top_logits"].absmax == pytest.approx(whole["top_logits"].absmax, rel=1e-2)


@pytest.mark.parametrize("at", [0, 5, 11])  # a CPU's maximum loses NaN in most places
def test_nan_and_infinity_are_not_lost(at: int, tmp_path: Path) -> None:
    path = tmp_path / "small.onnx"
    onnx.save(
        small(helper.make_node("Neg", ["x"], ["n"]), helper.make_node("Abs", ["n"], ["y"])), path
    )
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert ranges(path, [{"x": x}])["n"] == Range(-11.0, 0.0)
    x.flat[at] = np.inf
    assert ranges(path, [{"x": x}])["n"].least == -np.inf
    x.flat[at] = np.nan
    one, after = ranges(path, [{"x": x}]), ranges(path, [{"x": x}, {"x": np.ones_like(x)}])
    for name in ("x", "n", "y"):
        assert np.isnan(one[name].absmax), name
        assert np.isnan(after[name].absmax), name
    assert overflowing(after) == {"x", "n", "y"}


def test_overflowing_leaves_headroom() -> None:
    found = {
        "fits": Range(-30000.0, 32000.0),
        "near": Range(-40000.0, 1.0),
        "far": Range(0.0, 65505.0),
        "infinite": Range(-np.inf, 0.0),
    }
    assert overflowing(found) == {"near", "far", "infinite"}
    assert overflowing(found, headroom=1.0) == {"far", "infinite"}


def test_memory_is_that_of_a_pass_not_of_all_tensors() -> None:
    """200 rows of 8 rollouts make tensors of 700 MB; a pass holds a few of them at a time."""
    code = (
        "import resource, sys\n"
        "from calibration.ranges import ranges\n"
        "from tests.calibration.passes import BUNDLE, feeds_of\n"
        "feeds = feeds_of('target', n=8, s=200)\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "ranges(BUNDLE.graph_path('target'), [feeds])\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(run.stdout) < 300_000  # kB


def test_what_can_not_be_measured_is_said(tmp_path: Path) -> None:
    path = tmp_path / "small.onnx"
    with pytest.raises(EngineError, match=r"small\.onnx can't be read"):
        ranges(path, [])
    path.write_bytes(b"no graph")
    with pytest.raises(EngineError, match=r"small\.onnx can't be read"):
        ranges(path, [])
    onnx.save(
        small(
            helper.make_node("Gelu", ["x"], ["g"], domain="com.microsoft"),
            helper.make_node("Neg", ["g"], ["y"]),
        ),
        path,
    )
    with pytest.raises(SlipstreamError, match="ranges of") as caught:
        ranges(path, [{"x": np.ones((1, 4), np.float32)}])
    assert "Gelu" in caught.value.found
    onnx.save(small(helper.make_node("Neg", ["x"], ["y"])), path)
    with pytest.raises(SlipstreamError, match="no ranges"):
        ranges(path, [])
    with pytest.raises(EngineError, match="a pass of") as fed:
        ranges(path, [{"z": np.ones((1, 4), np.float32)}])
    assert "x tensor(float) ['N', 4]" in fed.value.expected
