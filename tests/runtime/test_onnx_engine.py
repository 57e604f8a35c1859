"""The ONNX Runtime engine: binding in place, reuse, and errors that say which argument."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from runtime.engines.base import Array
from runtime.engines.onnx import OnnxEngine
from runtime.errors import EngineError


def write_graph(path: Path) -> Path:
    """total = x + sums of y [N, S, T+S]; kept [S, N] = x transposed; twice = 2 * rows."""
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [
            helper.make_node("ReduceSum", ["y", "last"], ["sums"], keepdims=0),
            helper.make_node("Add", ["x", "sums"], ["total"]),
            helper.make_node("Transpose", ["x"], ["kept"], perm=[1, 0]),
            helper.make_node("Add", ["rows", "rows"], ["twice"]),
        ],
        "small",
        [
            value("x", TensorProto.FLOAT, ["N", "S"]),
            value("y", TensorProto.FLOAT, ["N", "S", "T+S"]),
            value("rows", TensorProto.INT32, ["T", 2]),
        ],
        [
            value("total", TensorProto.FLOAT, ["N", "S"]),
            value("kept", TensorProto.FLOAT, ["S", "N"]),
            value("twice", TensorProto.INT32, ["T", 2]),
        ],
        initializer=[helper.make_tensor("last", TensorProto.INT64, [1], [-1])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)
    onnx.save_model(model, path)
    return path


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> OnnxEngine:
    return OnnxEngine(write_graph(tmp_path_factory.mktemp("graph") / "small.onnx"), threads=1)


def feeds(n: int = 2, s: int = 3, t: int = 4, seed: int = 0) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {
        "x": rng.standard_normal((n, s), np.float32),
        "y": rng.standard_normal((n, s, t + s), np.float32),
        "rows": rng.integers(0, 9, (t, 2), np.int32),
    }


def check(found: dict[str, Array], fed: dict[str, Array]) -> None:
    np.testing.assert_allclose(found["total"], fed["x"] + fed["y"].sum(-1), rtol=1e-5)
    np.testing.assert_array_equal(found["kept"], fed["x"].T)
    np.testing.assert_array_equal(found["twice"], 2 * fed["rows"])


def test_specs_name_dtypes_and_dynamic_dimensions(engine: OnnxEngine) -> None:
    assert engine.inputs["y"].shape == ("N", "S", "T+S")
    assert engine.inputs["rows"].dtype == np.int32
    assert engine.inputs["rows"].shape == ("T", 2)
    assert list(engine.outputs) == ["total", "kept", "twice"]


def test_shapes_may_change_from_run_to_run(engine: OnnxEngine) -> None:
    for shape in [(2, 3, 4), (1, 1, 1), (2, 3, 4), (5, 2, 9), (1, 1, 1)]:
        fed = feeds(*shape, seed=sum(shape))
        check(engine.run(fed, {}), fed)


def test_inputs_are_bound_not_copied(engine: OnnxEngine) -> None:
    fed = feeds()
    engine.run(fed, {})
    fed["x"][:] = 7.0
    fed["rows"][:] = 1
    check(engine.run(fed, {}), fed)


def test_buffers_are_reused_for_the_same_shapes(engine: OnnxEngine) -> None:
    first = engine.run(feeds(seed=1), {})
    fed = feeds(seed=2)
    second = engine.run(fed, {})
    assert all(second[name] is first[name] for name in first)
    check(second, fed)


def test_outputs_are_written_into_slices(engine: OnnxEngine) -> None:
    cache = np.full((10, 2), np.nan, np.float32)
    for row in (0, 3, 6):
        fed = feeds(seed=row)
        target = cache[row : row + 3]
        found = engine.run(fed, {"kept": target})
        assert found["kept"] is target
        check(found, fed)
        np.testing.assert_array_equal(cache[row : row + 3], fed["x"].T)
    assert np.isnan(cache[9]).all()
    fed = feeds(seed=11)
    check(engine.run(fed, {}), fed)  # back to the engine's own buffer
    np.testing.assert_array_equal(cache[6:9], feeds(seed=6)["x"].T)


def test_an_output_may_be_a_slice_of_a_fed_array(engine: OnnxEngine) -> None:
    rows = np.arange(16, dtype=np.int32).reshape(8, 2)
    fed = feeds() | {"rows": rows[:4]}
    engine.run(fed, {"twice": rows[4:]})
    np.testing.assert_array_equal(rows[4:], 2 * np.arange(8).reshape(4, 2))


def test_wrong_feeds_are_named(engine: OnnxEngine) -> None:
    good = feeds()
    cases: list[tuple[str, dict[str, Array]]] = [
        ("input rows is missing", {name: good[name] for name in ("x", "y")}),
        ("input z is unknown", good | {"z": good["x"]}),
        ("input x has the wrong dtype", good | {"x": good["x"].astype(np.float64)}),
        ("input rows has the wrong dtype", good | {"rows": good["rows"].astype(np.int64)}),
        ("input x has the wrong rank", good | {"x": good["x"][0]}),
        ("input rows has the wrong shape", good | {"rows": np.zeros((4, 3), np.int32)}),
        ("input y has the wrong shape", good | {"y": np.zeros((3, 3, 7), np.float32)}),
        ("input y has the wrong shape", good | {"y": np.zeros((2, 3, 8), np.float32)}),
        ("input x is not C-contiguous", good | {"x": np.zeros((3, 2), np.float32).T}),
        ("has no rows", feeds(t=0)),
    ]
    for message, fed in cases:
        with pytest.raises(EngineError, match=message) as caught:
            engine.run(fed, {})
        assert caught.value.expected
        assert caught.value.found
    check(engine.run(good, {}), good)  # a refused feed leaves nothing behind


def test_wrong_outputs_are_named(engine: OnnxEngine) -> None:
    fed = feeds()
    held = np.zeros((3, 2), np.float32)
    engine.run(fed, {"kept": held})
    with pytest.raises(EngineError, match="output kept does not fit"):
        engine.run(feeds(s=2), {"kept": held})
    locked = np.zeros((3, 2), np.float32)
    locked.flags.writeable = False
    cases: list[tuple[str, dict[str, Array]]] = [
        ("output kept does not fit", {"kept": np.zeros((2, 2), np.float32)}),
        ("output kept does not fit", {"kept": np.zeros((3, 2), np.float64)}),
        ("output kept can't be written in place", {"kept": np.zeros((2, 3), np.float32).T}),
        ("output kept can't be written in place", {"kept": locked}),
        ("output other is unknown", {"other": np.zeros(1, np.float32)}),
    ]
    for message, into in cases:
        with pytest.raises(EngineError, match=message):
            engine.run(fed, into)
    check(engine.run(fed, {}), fed)


def test_a_missing_graph_is_named(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"target\.onnx is missing"):
        OnnxEngine(tmp_path / "target.onnx")


@pytest.mark.parametrize("keep", [0, 10, 200])
def test_a_cut_graph_is_named(tmp_path: Path, keep: int) -> None:
    path = write_graph(tmp_path / "target.onnx")
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(EngineError, match=r"target\.onnx can't be loaded") as caught:
        OnnxEngine(path)
    assert "slipstream export" in caught.value.fix


def test_a_graph_without_its_weights_is_named(tmp_path: Path) -> None:
    model = onnx.load(write_graph(tmp_path / "small.onnx"))
    weight = helper.make_tensor(
        "weight", TensorProto.FLOAT, [256], np.ones(256, "<f4").tobytes(), raw=True
    )
    model.graph.initializer.append(weight)
    model.graph.node.append(helper.make_node("Identity", ["weight"], ["out"]))
    model.graph.output.append(helper.make_tensor_value_info("out", TensorProto.FLOAT, [256]))
    onnx.save_model(model, tmp_path / "split.onnx", save_as_external_data=True, location="w")
    OnnxEngine(tmp_path / "split.onnx")
    (tmp_path / "w").unlink()
    with pytest.raises(EngineError, match=r"split\.onnx can't be loaded"):
        OnnxEngine(tmp_path / "split.onnx")


def test_an_absent_provider_is_named(tmp_path: Path) -> None:
    path = write_graph(tmp_path / "small.onnx")
    with pytest.raises(EngineError, match="lacks NoSuchExecutionProvider"):
        OnnxEngine(path, providers=["NoSuchExecutionProvider"])


def test_an_absent_runtime_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(EngineError, match="not installed") as caught:
        OnnxEngine(write_graph(tmp_path / "small.onnx"))
    assert caught.value.fix == "pip install '.[cpu]' in slipstream's folder"


def test_a_type_that_the_provider_does_not_compute_is_told_as_that(tmp_path: Path) -> None:
    kind = TensorProto.BFLOAT16
    sides = [helper.make_tensor_value_info(name, kind, [2, 2]) for name in ("a", "b", "c")]
    node = helper.make_node("MatMul", ["a", "b"], ["c"])
    graph = helper.make_graph([node], "product", sides[:2], sides[2:])
    opsets = [helper.make_opsetid("", 20)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), tmp_path / "bf16.onnx")
    with pytest.raises(EngineError, match="CPUExecutionProvider can't compute") as said:
        OnnxEngine(tmp_path / "bf16.onnx")
    assert "--provider tensorrt" in said.value.fix


def test_memory_that_is_not_there_is_told_as_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: object, **options: object) -> None:
        raise RuntimeError("std::bad_alloc")

    monkeypatch.setattr("onnxruntime.InferenceSession", full)
    (tmp_path / "big.onnx").touch()
    with pytest.raises(MemoryError, match="bad_alloc"):
        OnnxEngine(tmp_path / "big.onnx")
