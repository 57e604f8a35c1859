"""Comparing engines on recorded passes: equal ones agree, a changed graph is found."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import slipstream
from runtime.bundle import Bundle
from runtime.engines.compare import Difference, Pass, compare
from runtime.engines.device import HOST
from runtime.engines.onnx import OnnxEngine
from runtime.errors import EngineError
from slipstream.gpu_passes import record
from tests.runtime.engines.opaque import OpaqueDevice, QueuedEngine

GRAPHS = ("embed", "target", "draft", "head")


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    return Bundle.open(slipstream.shipped_bundle())


@pytest.fixture(scope="module")
def passes(bundle) -> list[Pass]:
    return record(bundle, "synthetic", count=1, most=4)


def perturbed(path: Path, folder: Path, share: float) -> Path:
    """The graph with a share of its largest weight's values moved by as much as they are large."""
    model = onnx.load(path)
    weight = max(model.graph.initializer, key=lambda each: int(np.prod(each.dims)))
    values = numpy_helper.to_array(weight).copy()
    rng = np.random.default_rng(0)
    moved = rng.random(values.shape) < share
    values[moved] = -values[moved]
    weight.CopyFrom(numpy_helper.from_array(values, weight.name))
    onnx.save_model(model, folder / path.name)
    return folder / path.name


def test_every_graph_is_recorded_with_its_inputs_as_they_were(bundle, passes) -> None:
    for graph in GRAPHS:
        mine = [each for each in passes if each.graph == graph]
        assert 3 <= len(mine) <= 12
    kinds = {each.feeds["embeddings"].shape[0] for each in passes if each.graph == "target"}
    assert kinds == {1, 4}  # before the fork and behind it


@pytest.mark.parametrize("graph", GRAPHS)
def test_an_engine_agrees_with_itself(bundle, passes, graph) -> None:
    engine = OnnxEngine(bundle.graph_path(graph), threads=1)
    found = compare(graph, passes, engine, HOST, "fp32")
    assert {each.tensor for each in found} == set(engine.outputs)
    assert all(each.passed for each in found), found


@pytest.mark.parametrize("graph", GRAPHS)
def test_it_agrees_through_an_opaque_device(bundle, passes, graph) -> None:
    device = OpaqueDevice()
    engine = QueuedEngine(bundle.graph_path(graph), device, ["CPUExecutionProvider"])
    found = compare(graph, passes, engine, device, "fp32")
    assert all(each.passed for each in found), found


@pytest.mark.parametrize("graph", GRAPHS)
def test_a_changed_weight_is_found(bundle, passes, graph, tmp_path) -> None:
    engine = OnnxEngine(perturbed(bundle.graph_path(graph), tmp_path, 0.02), threads=1)
    found = compare(graph, passes, engine, HOST, "fp32")
    failed = {each.tensor for each in found if not each.passed}
    expected = {"embed": "embeddings", "head": "top_logits"}.get(graph, "hidden")
    assert expected in failed, found


def test_nan_and_nothing_compared_do_not_pass() -> None:
    assert not Difference("head", "top_logits", 3, float("nan"), 1.0).passed
    assert not Difference("head", "top_logits", 0, 0.0, 1.0).passed
    assert Difference("head", "top_logits", 1, 0.5, 1.0).passed


class Fixed:
    """An engine that always says the same."""

    def __init__(self, **outputs: np.ndarray) -> None:
        self.said = outputs
        self.inputs = self.outputs = {}

    def run(self, feeds, into):
        return self.said


def head(logits, tokens) -> Pass:
    outputs = {"top_logits": np.asarray([[logits]], np.float32)}
    return Pass("head", {}, outputs | {"top_tokens": np.asarray([[tokens]], np.int32)})


@pytest.mark.parametrize(
    ("logits", "tokens", "passed"),
    [
        ([3.0, 2.0, 1.0], [7, 5, 3], True),
        ([2.0, 2.0, 1.0], [5, 7, 3], True),  # the first two tie
        ([3.0, 2.0, 1.0], [7, 5, 4], True),  # the last may fall out of the top k
        ([3.0, 2.0, 1.0], [5, 7, 3], False),
        ([3.0, 2.0, 1.0], [6, 5, 3], False),
    ],
)
def test_tokens_may_only_trade_places_where_logits_tie(logits, tokens, passed) -> None:
    wanted = head(logits, [7, 5, 3])
    engine = Fixed(
        top_logits=wanted.outputs["top_logits"], top_tokens=np.asarray([[tokens]], np.int32)
    )
    by_name = {each.tensor: each for each in compare("head", [wanted], engine, HOST, "fp32")}
    assert by_name["top_logits"].passed
    assert by_name["top_tokens"].passed == passed


def test_a_pass_that_the_engine_does_not_take_is_an_error(bundle, passes) -> None:
    engine = OnnxEngine(bundle.graph_path("embed"), threads=1)
    bad = [Pass("embed", {"tokens": np.zeros((1, 2), np.int64)}, {})]
    with pytest.raises(EngineError, match="wrong dtype"):
        compare("embed", bad, engine, HOST, "fp32")
