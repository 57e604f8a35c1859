"""Ways of quantizing are compared in pairs, and none is taken that is not faster."""

from __future__ import annotations

import time
from pathlib import Path

import onnx
import pytest
from onnx import helper

import calibration.fastest as fastest
from calibration.cpu import quantize_for_cpu
from calibration.fastest import MARGIN, WORTH, Timing, choose, measure, share_of_plain
from runtime.engines.onnx import OnnxEngine
from runtime.errors import SlipstreamError
from tests.calibration.passes import BUNDLE, feeds_of

TARGET = BUNDLE.graph_path("target")


def twice(path: Path, out: Path) -> Path:
    """The target graph with its work done twice: a way that is surely slower."""
    model = onnx.load(path)
    # other numbers, or the engine would find out that it is the same work
    louder = helper.make_node("Add", ["embeddings", "embeddings"], ["louder"], name="louder")
    copies, renamed = [louder], {"embeddings": "louder"}
    for node in model.graph.node:
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        copy.name += ".again"
        del copy.input[:], copy.output[:]
        copy.input.extend(renamed.get(name, name) for name in node.input)
        for name in node.output:
            renamed[name] = f"{name}.again"
            copy.output.append(renamed[name])
        copies.append(copy)
    model.graph.node.extend(copies)
    for node in [node for node in model.graph.node if "hidden" in node.output]:
        node.output[0] = "hidden.once"
    model.graph.node.append(
        helper.make_node("Max", ["hidden.once", renamed["hidden"]], ["hidden"], name="both")
    )
    onnx.save_model(model, out)
    return out


def test_a_slower_way_is_measured_as_slower_and_not_taken(tmp_path: Path) -> None:
    paths = {"fp32": TARGET, "twice": twice(TARGET, tmp_path / "twice.onnx")}
    feeds = {
        "verify": [feeds_of("target", s=8)],
        "prefill": [feeds_of("target", s=64)],
        "draft": [],
    }
    timings = measure(paths, feeds, threads=1, repeats=7)
    assert set(timings) == {"verify", "prefill"}
    for timing in timings.values():
        assert timing.ratios["fp32"] == 1.0
        assert timing.ratios["twice"] > 1.3
        assert 1e-4 < timing.seconds < 1.0
    assert timings["prefill"].seconds > timings["verify"].seconds
    assert choose(timings, {"verify": 10, "prefill": 1}) == "fp32"


def test_ways_take_turns_and_waiting_is_not_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[Path] = []
    own = OnnxEngine.run

    def held_up(engine: OnnxEngine, *given: object) -> object:
        order.append(engine.path)
        if engine.path == TARGET:  # as if another process had the core
            time.sleep(0.05)
        return own(engine, *given)  # type: ignore[arg-type]

    quantize_for_cpu(TARGET, tmp_path / "q.onnx", "int8", "dynamic")
    monkeypatch.setattr(OnnxEngine, "run", held_up)
    paths = {"fp32": TARGET, "dynamic": tmp_path / "q.onnx"}
    feeds = {"verify": [feeds_of("target", s=2)]}
    order.clear()
    timing = measure(paths, feeds, threads=1, repeats=7)["verify"]
    runs = [path.name for path in order]
    assert runs[:6] == ["target.onnx", "q.onnx", "target.onnx", "q.onnx", "q.onnx", "target.onnx"]
    assert timing.seconds < 0.05
    assert 0.2 < timing.ratios["dynamic"] < 1.2
    waited = measure(paths, feeds, threads=2, repeats=3)["verify"]  # by the clock on the wall
    assert waited.seconds > 0.05


def test_the_choice_weighs_passes_by_how_often_they_occur() -> None:
    timings = {
        "prefill": Timing(0.100, {"fp32": 1.0, "dynamic": 0.4, "weights": 0.9}),
        "verify": Timing(0.020, {"fp32": 1.0, "dynamic": 0.6, "weights": 0.3}),
    }
    often = share_of_plain(timings, {"prefill": 1, "verify": 20})
    assert often["dynamic"] == pytest.approx((0.1 * 0.4 + 0.4 * 0.6) / 0.5)
    assert choose(timings, {"prefill": 1, "verify": 20}) == "weights"
    assert choose(timings, {"prefill": 1, "verify": 1}) == "dynamic"
    assert choose(timings, {"prefill": 0, "verify": 0}) == "fp32"  # a graph that never runs


def test_a_way_has_to_win_by_more_than_the_noise() -> None:
    def among(**ratios: float) -> str:
        return choose({"verify": Timing(0.01, {"fp32": 1.0, **ratios})}, {"verify": 1})

    assert among(dynamic=1 - 0.9 * MARGIN) == "fp32"
    assert among(dynamic=1 - 1.1 * MARGIN) == "dynamic"
    assert among(dynamic=1.2, static=1.3) == "fp32"
    assert among(dynamic=0.50, static=0.49) == "dynamic"  # alike: the one with less error
    assert among(dynamic=0.50, static=0.50 - 0.9 * WORTH) == "dynamic"
    assert among(dynamic=0.50, static=0.50 - 1.1 * WORTH) == "static"


@pytest.mark.parametrize(
    ("paths", "feeds", "repeats"),
    [
        ({"dynamic": TARGET}, {"verify": [{}]}, 1),
        ({"fp32": TARGET}, {"verify": []}, 1),
        ({"fp32": TARGET}, {}, 1),
        ({"fp32": TARGET}, {"verify": [{}]}, 0),
    ],
)
def test_what_cannot_be_compared_is_refused(
    paths: dict[str, Path], feeds: dict[str, list[fastest.Feeds]], repeats: int
) -> None:
    with pytest.raises(SlipstreamError, match="can't be compared"):
        measure(paths, feeds, threads=1, repeats=repeats)
