"""Gates: their limits, and candidates that are equal, broken, or worse."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from calibration.driven import BOTH, Comparison, Driven, ways_to_drive
from calibration.gates import (
    ADE_GATE,
    DECODES_GATE,
    ERROR_GATE,
    PARSE_GATE,
    TAU_GATE,
    Gates,
    ade_gate,
    error_gate,
    judge,
    parse_gate,
    tau_gate,
)
from calibration.heldout import spread
from calibration.results import Attempt, Change, TensorError
from drives.figures import Figure
from planners.plan import Plan
from runtime.bundle import GraphName
from runtime.errors import SlipstreamError
from tests.calibration.recorded import graph, planner, recording, windows

FRAMES = spread(windows(), 2)


def judged(path: Path, name: GraphName, earlier: Driven | None = None) -> tuple[Attempt, Driven]:
    return judge(planner(), {name: path}, [], FRAMES, recording(), Gates(), earlier=earlier)


@pytest.fixture(scope="module")
def equal() -> tuple[Attempt, Driven]:
    """The planner's own head in place of its head."""
    return judged(graph("head"), "head")


def test_an_equal_candidate_passes_every_gate(equal: tuple[Attempt, Driven]) -> None:
    attempt, driven = equal
    assert [each.gate for each in attempt.gates] == [ERROR_GATE, ADE_GATE, TAU_GATE, PARSE_GATE]
    assert attempt.failed == []
    assert attempt.tokens is not None
    assert (attempt.tokens.identical, attempt.tokens.until_difference) == (2, 1.0)
    assert (attempt.tokens.agreeing, attempt.tokens.log_likelihood) == (1.0, 0.0)
    assert {each.tensor for each in attempt.tensors} == {"top_logits", "logsumexp"}
    assert all(each.relative == each.largest == 0.0 for each in attempt.tensors)
    by_name = {each.name: each for each in attempt.changes}
    assert len(by_name) == 15
    timed = by_name.pop("ms a frame, greedy")
    assert 0.3 < (timed.candidate or 0.0) / (timed.source or 1.0) < 3
    for each in by_name.values():
        assert each.source == each.candidate
        assert each.change.value == 0.0
    assert by_name["ADE@5s, both"].source == pytest.approx(
        (by_name["ADE@5s, greedy"].source or 0) / 2 + (by_name["ADE@5s, rollouts"].source or 0) / 2
    )
    assert sum(each.frames for each in attempt.driving) == len(FRAMES)
    assert set(driven.source) == set(ways_to_drive(planner().bundle.manifest))
    assert all(len(plans) == len(FRAMES) for plans in driven.candidate.values())


def test_sampled_rollouts_use_the_same_random_numbers(equal: tuple[Attempt, Driven]) -> None:
    _, driven = equal
    for own, other in zip(driven.source["rollouts"], driven.candidate["rollouts"], strict=True):
        np.testing.assert_array_equal(own.tokens, other.tokens)
        assert len(own.tokens) == 4


def test_a_candidate_without_numbers_fails_and_is_no_error(
    equal: tuple[Attempt, Driven], tmp_path: Path
) -> None:
    model = onnx.load(graph("head"))
    weight = next(w for w in model.graph.initializer if len(w.dims) == 2)
    values = np.asarray(numpy_helper.to_array(weight), np.float32)
    values[0, 0] = np.nan
    model.graph.initializer.remove(weight)
    half = helper_cast(model, weight.name)
    model.graph.initializer.append(numpy_helper.from_array(values, half))
    onnx.save(model, tmp_path / "head.onnx")
    attempt, driven = judged(tmp_path / "head.onnx", "head", equal[1])
    assert attempt.failed == [ERROR_GATE, DECODES_GATE]
    assert "not numbers" in attempt.broken
    assert "top_logits is not finite" in attempt.gates[0].says
    assert (attempt.tokens, attempt.changes, attempt.driving) == (None, [], [])
    assert driven.source == equal[1].source  # for the next attempt


def helper_cast(model: onnx.ModelProto, name: str) -> str:
    """Take the cast behind a stored weight out; the name that an fp32 weight may have."""
    cast = next((n for n in model.graph.node if n.op_type == "Cast" and n.input[0] == name), None)
    if cast is None:
        return name
    model.graph.node.remove(cast)
    return str(cast.output[0])


def test_a_graph_that_can_not_be_loaded_fails(tmp_path: Path) -> None:
    (tmp_path / "head.onnx").write_bytes(b"no graph")
    attempt, _ = judged(tmp_path / "head.onnx", "head")
    assert attempt.failed == [DECODES_GATE]
    assert "can't be loaded" in attempt.broken


def fine_of(plan: Plan) -> tuple[str, ...]:
    """What a plan says whose rollouts all parse."""
    return ("",) * len(plan.problems)


def test_a_worse_candidate_is_told_by_its_plans(
    equal: tuple[Attempt, Driven],
) -> None:
    """Plans 3 m to the side, two outputs without a plan, and rounds twice as many."""
    _, driven = equal
    worse: dict[str, list[Any]] = {way: [] for way in driven.candidate}
    for way, plans in driven.candidate.items():
        for plan in plans:
            assert plan.trajectory is not None
            stats = replace(plan.stats, rounds=2 * plan.stats.rounds)
            moved = plan.trajectory + np.array([0.0, 3.0])
            problems = ("parse: slot", *fine_of(plan)[1:])
            worse[way].append(replace(plan, trajectory=moved, stats=stats, problems=problems))
    fine = {
        way: [replace(plan, problems=fine_of(plan)) for plan in plans]
        for way, plans in driven.source.items()
    }
    compared = Comparison(replace(driven, source=fine, candidate=worse))
    assert ade_gate(compared.distance("ADE@5s"), 0.02).passed is False
    tau = compared.acceptance_length()
    assert tau is not None
    assert tau.change.value == pytest.approx(-0.5)
    assert tau_gate(tau, 0.03).passed is False
    unusable = [compared.unusable(way) for way in worse]
    assert [each.candidate for each in unusable] == [2.0, 2.0]
    assert unusable[1].change.value == pytest.approx(0.25)  # of four rollouts one
    gate = parse_gate(unusable, 3)
    assert (gate.passed, gate.value) == (False, 4.0)
    assert parse_gate(unusable, 4).passed


def test_a_frame_without_a_plan_is_left_out_of_distances_and_counted(
    equal: tuple[Attempt, Driven],
) -> None:
    _, driven = equal
    lost = {way: [replace(plans[0], trajectory=None), *plans[1:]] for way, plans in
            driven.candidate.items()}  # fmt: skip
    change = Comparison(replace(driven, candidate=lost)).distance("ADE@5s", "greedy")
    other = Comparison(
        replace(
            driven,
            windows=FRAMES[1:],
            source={way: plans[1:] for way, plans in driven.source.items()},
            candidate={way: plans[1:] for way, plans in driven.candidate.items()},
        )
    ).distance("ADE@5s", "greedy")
    assert (change.source, change.candidate) == (other.source, other.candidate)
    none = {way: [replace(plan, trajectory=None) for plan in plans] for way, plans in lost.items()}
    gate = ade_gate(Comparison(replace(driven, candidate=none)).distance("ADE@5s"), 0.02)
    assert (gate.passed, gate.value) == (False, None)


@pytest.mark.parametrize(
    ("name", "low", "counted"),
    [("rollouts", 0.0, 0), ("rollouts", 0.001, 2), ("rollouts", None, 2), ("greedy", 0.0, 2)],
)
def test_drawn_outputs_may_fail_by_chance(name: str, low: float | None, counted: int) -> None:
    high = None if low is None else 0.1
    more = Figure(value=0.04, low=low, high=high)
    found = Change(name=f"unusable outputs, {name}", source=1.0, candidate=3.0, change=more)
    gate = parse_gate([found], 0)
    assert (gate.passed, gate.value) == (counted == 0, counted)
    assert f"{name} 1 -> 3" in gate.says


def change(value: float | None, low: float | None, high: float | None) -> Change:
    figure = Figure(value=value, low=low, high=high)
    return Change(name=f"ADE@5s, {BOTH}", source=2.0, candidate=2.0, change=figure)


@pytest.mark.parametrize(
    ("value", "low", "high", "passes"),
    [
        (0.01, -0.01, 0.03, True),
        (-0.05, -0.09, -0.01, True),  # certainly better
        (0.01, 0.002, 0.02, False),  # small, and certain
        (0.03, -0.05, 0.08, False),  # by chance, perhaps, and beyond the limit
        (0.01, None, None, True),  # too short for an interval: the estimate decides
        (0.03, None, None, False),
        (None, None, None, False),
    ],
)
def test_an_increase_of_ade_must_be_small_and_uncertain(
    value: float | None, low: float | None, high: float | None, passes: bool
) -> None:
    gate = ade_gate(change(value, low, high), 0.02)
    assert (gate.passed, gate.value, gate.limit) == (passes, value, 0.02)
    assert gate.interval == Figure(value=value, low=low, high=high)


@pytest.mark.parametrize(("value", "passes"), [(-0.02, True), (-0.04, False), (0.5, True)])
def test_a_drop_of_tau_has_a_limit(value: float, passes: bool) -> None:
    assert tau_gate(change(value, -0.1, 0.1), 0.03).passed is passes


def error(graph: str, tensor: str, relative: float | None) -> TensorError:
    return TensorError(graph=graph, tensor=tensor, relative=relative, largest=1.0, passes=2)


def test_the_worst_main_output_counts() -> None:
    tensors = [error("target", "hidden", 0.02), error("target", "taps", 0.9)]
    assert error_gate(tensors, 0.1).passed
    tensors.append(error("head", "top_logits", 0.2))
    gate = error_gate(tensors, 0.1)
    assert (gate.passed, gate.value) == (False, 0.2)
    assert gate.says.startswith("head top_logits")
    assert error_gate([*tensors, error("draft", "hidden", None)], 9.0).passed is False


@pytest.mark.parametrize(
    "limits",
    [
        {"max_ade_increase": -0.1},
        {"max_tau_drop": float("nan")},
        {"max_parse_failures": -1},
        {"max_error": float("inf")},
    ],
)
def test_limits_are_numbers_from_zero_on(limits: dict[str, Any]) -> None:
    with pytest.raises(SlipstreamError, match="is out of range") as caught:
        Gates(**limits)
    assert next(iter(limits)).replace("_", "-") in caught.value.what
