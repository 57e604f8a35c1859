"""A reduced graph for a CPU, against the same arithmetic in numpy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from calibration.rounded import rounded
from export.graphs.precision import Reduced, reduce_precision
from runtime.bundle import GraphName
from tests.calibration.recorded import graph, recording

HALF = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16}


def run(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [spec.name for spec in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds), strict=True))


def two_products(w: np.ndarray) -> onnx.ModelProto:
    """y = (x w)^2 w: a product, an elementwise node, and a product."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 8]) for name in "xy")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="first"),
        helper.make_node("Mul", ["a", "a"], ["b"], name="square"),
        helper.make_node("MatMul", ["b", "w"], ["y"], name="second"),
    ]
    made = helper.make_graph(nodes, "g", [x], [y], [numpy_helper.from_array(w, "w")])
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_every_stored_value_is_rounded(precision: Reduced) -> None:
    rng = np.random.default_rng(0)
    w, x = (rng.standard_normal(shape).astype(np.float32) for shape in ((8, 8), (5, 8)))

    def half(values: np.ndarray) -> np.ndarray:
        return values.astype(HALF[precision]).astype(np.float32)

    first = half(half(x) @ half(w))
    wanted = half(half(first * first) @ half(w))
    model = rounded(reduce_precision(two_products(w), precision))
    onnx.checker.check_model(model, full_check=True)
    found = run(model, {"x": x})["y"]
    step = 2.0**-10 if precision == "fp16" else 2.0**-7
    # a sum in another order may fall on the other side of a rounding
    np.testing.assert_allclose(found, wanted, rtol=step, atol=step * np.abs(wanted).max() / 4)
    assert (found == wanted).mean() > 0.9
    assert not np.allclose(found, run(two_products(w), {"x": x})["y"], rtol=step / 100)


def test_infinity_appears_where_onnx_runtime_hides_it() -> None:
    w, x = np.eye(8, dtype=np.float32) * 2**-7, np.full((1, 8), 2.0**15 + 2.0**14, np.float32)
    assert ((x @ w) ** 2).max() > 65504
    reduced = reduce_precision(two_products(w), "fp16")
    assert np.isfinite(run(reduced, {"x": x})["y"]).all()  # why `rounded` is there
    # inf times the zeros of w is NaN, as on a GPU
    assert not np.isfinite(run(rounded(reduced), {"x": x})["y"]).any()


@pytest.mark.parametrize("name", ["embed", "target", "draft", "head"])
@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_the_shipped_graphs_stay_close(name: GraphName, precision: Reduced) -> None:
    model = rounded(reduce_precision(onnx.load(graph(name)), precision))
    onnx.checker.check_model(model, full_check=True)
    feeds = recording().feeds(name)[-1]
    found, wanted = run(model, feeds), run(onnx.load(graph(name)), feeds)
    assert list(found) == list(wanted)
    for output, values in wanted.items():
        worst = np.abs(found[output].astype(np.float64) - values).max() / np.abs(values).max()
        assert found[output].dtype == values.dtype
        assert worst < (0.02 if precision == "fp16" else 0.15), output
    if name in ("target", "draft"):
        assert any((found[output] != values).any() for output, values in wanted.items())
