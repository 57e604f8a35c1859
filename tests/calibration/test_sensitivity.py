"""What each group of products costs: switches, ranking, and a group that is broken on purpose."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from calibration.cpu import Quantized, quantize_for_cpu
from calibration.fold import folded
from calibration.groups import groups
from calibration.sensitivity import Effect, GroupCost, sensitivity, spread_passes
from calibration.switched import switch, switched
from calibration.tokens import likeliest, log_likelihoods
from export.graphs.storage import save_graph
from runtime.bundle import GraphName
from runtime.errors import SlipstreamError
from tests.calibration.outliers import outlier_bundle
from tests.calibration.passes import difference, run
from tests.calibration.recorded import graph, recording


def quantized(name: GraphName, path: Path, source: Path | None = None) -> Quantized:
    return quantize_for_cpu(source or graph(name), path, "int8", "dynamic")


@pytest.fixture(scope="module")
def drafter(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Quantized]:
    path = tmp_path_factory.mktemp("drafter") / "draft.int8.onnx"
    return path, quantized("draft", path)


def test_a_switch_is_the_difference_between_the_graphs(
    drafter: tuple[Path, Quantized], tmp_path: Path
) -> None:
    path, made = drafter
    model = folded(onnx.load(graph("draft")))
    parts = {
        name: [node for node in nodes if node in made.quantized]
        for name, nodes in groups(model).items()
    }
    both = tmp_path / "both.onnx"
    save_graph(switched(model, onnx.load(path), parts), both)
    feeds = recording().feeds("draft")[0]

    def hidden(*on: bool) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        switches = {switch(i): np.array(each, np.int32) for i, each in enumerate(on)}
        return run(both, {**feeds, **switches})["hidden"]

    plain, reduced = (run(each, feeds)["hidden"] for each in (graph("draft"), path))
    count = len(parts)
    assert difference(hidden(*[False] * count), plain) < 1e-5
    assert difference(hidden(*[True] * count), reduced) < 1e-5
    one = difference(hidden(*[name == "block 2 mlp" for name in parts]), plain)
    assert 1e-4 < one < difference(reduced, plain)


def test_groups_are_ranked_and_every_product_is_in_one(
    drafter: tuple[Path, Quantized], tmp_path: Path
) -> None:
    path, made = drafter
    together, costs = sensitivity(
        "draft",
        graph("draft"),
        path,
        made.quantized,
        recording().passes["draft"],
        graph("head"),
        tmp_path,
    )
    assert not list(tmp_path.iterdir())
    assert sum(cost.products for cost in costs) == len(made.quantized) == 19
    alone = [cost.alone.error for cost in costs]
    assert alone == sorted(alone, reverse=True)
    assert costs[0].group == "block 2 mlp"
    assert 0.005 < together.error < 0.05
    assert all(0 < error <= together.error for error in alone)
    # errors of groups are nearly independent: their squares add up
    assert sum(error**2 for error in alone) ** 0.5 == pytest.approx(together.error, rel=0.3)
    assert costs[0].without.error < 0.85 * together.error
    assert costs[-1].without.error == pytest.approx(together.error, rel=0.1)
    assert all(abs(cost.alone.log_likelihood or 1.0) < 0.1 for cost in costs)


def test_an_outlier_channel_is_found(tmp_path: Path) -> None:
    bundle = outlier_bundle(tmp_path / "outlier", [3])
    source, path = bundle.graph_path("target"), tmp_path / "target.int8.onnx"
    passes = recording().passes["target"]
    for one in spread_passes(passes, 3):
        wanted, found = (run(each, one.feeds)["hidden"] for each in (graph("target"), source))
        np.testing.assert_array_equal(found, wanted)  # in fp32 nothing changed
    made = quantized("target", path, source)
    together, costs = sensitivity(
        "target", source, path, made.quantized, passes, graph("head"), tmp_path
    )
    worst, second = costs[:2]
    assert worst.group == "block 3 mlp"
    assert worst.alone.error > 0.1 > 3 * second.alone.error
    assert worst.without.error < 0.5 * together.error


def test_a_group_that_gives_no_numbers_costs_the_most(tmp_path: Path) -> None:
    made = quantized("head", tmp_path / "head.onnx")
    model = onnx.load(tmp_path / "head.onnx")
    scale = next(w for w in model.graph.initializer if w.name.endswith("_scale"))
    values = np.full(scale.dims, np.nan, np.float32)
    scale.CopyFrom(onnx.numpy_helper.from_array(values, scale.name))
    onnx.save(model, tmp_path / "head.onnx")
    together, costs = sensitivity(
        "head",
        graph("head"),
        tmp_path / "head.onnx",
        made.quantized,
        recording().passes["head"],
        None,
        tmp_path,
    )
    assert together == Effect(float("inf"), None)
    nothing = Effect(0.0, 0.0)
    assert costs == [GroupCost("head", "head", 1, Effect(float("inf"), None), nothing)]


def test_a_graph_that_lost_tensors_is_refused(drafter: tuple[Path, Quantized]) -> None:
    model = folded(onnx.load(graph("draft")))
    lost = onnx.load(drafter[0])
    name = next(node.output[0] for node in model.graph.node if node.op_type == "MatMul")
    for node in lost.graph.node:
        for names in (node.input, node.output):
            names[:] = [f"{each}.other" if each == name else each for each in names]
    parts = {"all": list(drafter[1].quantized)}
    with pytest.raises(SlipstreamError, match="has lost tensors") as caught:
        switched(model, lost, parts)
    assert name in caught.value.found


def test_passes_are_taken_from_every_kind() -> None:
    chosen = spread_passes(recording().passes["target"], 6)
    kinds = [one.kind for one in chosen]
    assert {kind: kinds.count(kind) for kind in kinds} == {"prefill": 2, "single": 2, "verify": 2}
    assert len(spread_passes(recording().passes["target"], 1)) == 3


def test_log_likelihoods_of_a_head_with_few_logits_are_bounded() -> None:
    """Two of many tokens are given: the third counts like the last of them."""
    head = {
        "top_logits": np.array([[3.0, 1.0], [2.0, 2.5]], np.float32),
        "top_tokens": np.array([[7, 4], [1, 9]], np.int32),
        "logsumexp": np.array([3.5, 3.0], np.float32),
    }
    np.testing.assert_array_equal(likeliest(head), [7, 9])
    np.testing.assert_allclose(log_likelihoods(head, np.array([7, 1])), [-0.5, -1.0])
    np.testing.assert_allclose(log_likelihoods(head, np.array([5, 9])), [-2.5, -0.5])
