"""From windows to a judged candidate: outlier channels, kept groups, fp16, the manifest."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import onnx
import pytest

from calibration.attempts import to_blame
from calibration.cache_memory import cache_bytes
from calibration.calibrate import Asked, Calibrated, calibrate, write
from calibration.candidate import kept_groups
from calibration.gates import ADE_GATE, DECODES_GATE, ERROR_GATE, PARSE_GATE, TAU_GATE, Gates
from calibration.groups import groups
from calibration.results import Attempt, GateResult, GroupEffect
from planners.planner import Planner
from runtime.bundle import Bundle
from runtime.engines.onnx import OnnxEngine
from runtime.errors import SlipstreamError
from tests.calibration.outliers import outlier_planner
from tests.calibration.recorded import graph, planner, windows

BEFORE, BEHIND = windows()[:400], windows()[460:]
# a frame says nothing of plans; what quantization does to a pass does not depend on them
PLANS_AS_THEY_COME = Gates(max_ade_increase=9.0, max_tau_drop=1.0, max_parse_failures=99)
ASKED = Asked(
    precision="int8",
    device="cpu",
    graphs=("target",),
    how="dynamic",
    keep=("ends",),
    smooth=None,
    windows=1,
    frames=1,
    gates=PLANS_AS_THEY_COME,
)


@pytest.fixture(scope="module")
def outlier(tmp_path_factory: pytest.TempPathFactory) -> Planner:
    """One block's MLP reads an outlier channel."""
    folder = tmp_path_factory.mktemp("outlier")
    return outlier_planner(folder / "bundle", [3])


def test_the_group_to_blame_is_named_and_kept(outlier: Planner, tmp_path: Path) -> None:
    done = calibrate(outlier, BEFORE, BEHIND, ASKED, tmp_path)
    first, second = done.attempts
    assert (first.failed, first.blamed) == ([ERROR_GATE], "target:block 3 mlp")
    assert "target hidden" in first.gates[0].says
    assert (first.gates[0].value or 0.0) > 0.1 > (second.gates[0].value or 1.0)
    assert (second.failed, second.blamed, done.outcome) == ([], "", "passed")
    assert done.sensitivity[0].group == "block 3 mlp"
    kept = ["block 0 attention", "block 0 mlp", "block 4 attention", "block 4 mlp"]
    assert first.graphs[0].kept_groups == kept
    assert second.graphs[0].kept_groups == [*kept, "block 3 mlp"]
    assert (first.graphs[0].quantized, second.graphs[0].quantized) == (15, 12)
    assert len(done.made["target"].quantized) == 12
    # what the source planned the first time stands for the second, but for what is timed
    for name in ("ADE@5s, both", "tau, both"):
        one, other = (next(c for c in each.changes if c.name == name) for each in (first, second))
        assert one.source == other.source


@pytest.mark.parametrize(
    ("smooth", "keep"), [(0.5, ("ends",)), (None, ("ends", "target:block 3 mlp"))]
)
def test_smoothed_or_kept_it_passes_at_once(
    outlier: Planner, smooth: float | None, keep: tuple[str, ...], tmp_path: Path
) -> None:
    asked = replace(ASKED, smooth=smooth, keep=keep)
    done = calibrate(outlier, BEFORE, BEHIND, asked, tmp_path)
    assert (len(done.attempts), done.outcome, done.sensitivity) == (1, "passed", [])


@pytest.mark.slow
def test_two_outliers_are_refused_and_forced(tmp_path: Path) -> None:
    two = outlier_planner(tmp_path / "two", [1, 3])
    bundle = two.bundle
    done = calibrate(two, BEFORE, BEHIND, ASKED, tmp_path)
    assert [each.blamed for each in done.attempts] == ["target:block 3 mlp", "target:block 1 mlp"]
    assert (done.outcome, done.attempts[-1].failed) == ("refused", [ERROR_GATE])
    manifest = write(
        bundle, tmp_path / "out", replace(done, outcome="forced"), ASKED, ["a drive"], "test"
    )
    record = Bundle.open(tmp_path / "out").manifest.provenance.calibration
    assert record is not None
    assert record == manifest.provenance.calibration
    assert (record.gates, record.failed, record.drives) == ("forced", [ERROR_GATE], ["a drive"])
    assert (record.graphs["target"].way, record.source) == ("dynamic", bundle.key)
    assert set(record.figures) == {ERROR_GATE, ADE_GATE, TAU_GATE, PARSE_GATE}
    assert record.figures[ERROR_GATE] > 0.1
    assert manifest.graphs["target"].precision == "int8"
    assert manifest.graphs["draft"].precision == "fp32"


@cache
def halved(folder: Path) -> Calibrated:
    asked = replace(ASKED, precision="fp16", device="tensorrt", how="auto", keep=())
    return calibrate(planner(), BEFORE, BEHIND, asked, folder)


def test_fp16_is_judged_as_an_accelerator_computes_it(tmp_path: Path) -> None:
    done = halved(tmp_path)
    made = done.made["target"]
    assert (made.way, made.precision, made.kept_tensors) == ("cast", "fp16", ())
    half, stands_in = (OnnxEngine(path).inputs for path in (made.path, made.runs))
    assert half["trunk.past_key_values.0.key"].dtype == "float16"
    assert stands_in["trunk.past_key_values.0.key"].dtype == "float32"
    (attempt,) = done.attempts
    assert attempt.failed == []
    errors = {each.tensor: each.relative for each in attempt.tensors}
    assert 1e-5 < (errors["hidden"] or 0.0) < 0.01
    assert not any(change.name.startswith("ms") for change in attempt.changes)
    source = planner().bundle
    both, target = cache_bytes(source, {}), cache_bytes(source, {"target": made.path})
    own = planner().decoder.cache
    assert both - target == both * own.dims.layers // (2 * (own.dims.layers + 3))


def parts() -> dict[str, dict[str, tuple[str, ...]]]:
    return {
        name: groups(onnx.load(graph(name), load_external_data=False))
        for name in ("target", "draft", "head")
    }


def test_groups_are_kept_by_name_in_all_graphs_or_in_one() -> None:
    ends = kept_groups(parts(), ["ends"])  # type: ignore[arg-type]
    assert ends["head"] == ("head",)
    assert set(ends["draft"]) == {f"block {i} {kind}" for i in (0, 2) for kind in MODULES}
    both = kept_groups(parts(), ["none", "block 1 mlp", "target:block 2 mlp"])  # type: ignore[arg-type]
    assert both == {
        "target": ("block 1 mlp", "block 2 mlp"),
        "draft": ("block 1 mlp",),
        "head": (),
    }
    for unknown in ("block 9 mlp", "head:block 1 mlp", "nowhere:head", ""):
        with pytest.raises(SlipstreamError, match="is no group") as caught:
            kept_groups(parts(), [unknown])  # type: ignore[arg-type]
        assert "target:block 3 mlp" in caught.value.expected


MODULES = ("attention", "mlp")


def effect(graph: str, group: str, alone: float | None, quantized: bool = True) -> GroupEffect:
    return GroupEffect(
        graph=graph,
        group=group,
        products=1,
        quantized=quantized,
        alone=alone,
        without=0.0,
        all=alone,
        log_likelihood=None,
    )


def failing(*names: str, broken: str = "") -> Attempt:
    gates = [GateResult(gate=name, passed=False, says="") for name in names]
    return Attempt(graphs=[], tensors=[], gates=gates, broken=broken)


EFFECTS = [
    effect("target", "a", 0.5, quantized=False),
    effect("target", "b", 0.04),
    effect("head", "head", 0.01),
    effect("draft", "c", 0.07),
]


@pytest.mark.parametrize(
    ("attempt", "blamed"),
    [
        (failing(TAU_GATE), "draft:c"),  # plans do not depend on the drafter
        (failing(ADE_GATE), "target:b"),
        (failing(PARSE_GATE), "target:b"),
        (failing(ADE_GATE, TAU_GATE), "target:b"),
        (failing(ERROR_GATE), "draft:c"),
        (failing(ERROR_GATE, DECODES_GATE, broken="NaN"), "draft:c"),
    ],
)
def test_the_worst_group_that_can_be_the_cause_is_blamed(attempt: Attempt, blamed: str) -> None:
    assert to_blame(attempt, EFFECTS) == blamed
    assert to_blame(attempt, []) == ""
    nan = [*EFFECTS, effect("target", "no numbers", None)]
    assert to_blame(failing(ERROR_GATE, DECODES_GATE, broken="NaN"), nan) == "target:no numbers"


def test_nothing_to_quantize_is_an_error(tmp_path: Path) -> None:
    asked = replace(ASKED, graphs=("head",))
    with pytest.raises(SlipstreamError, match="would be int8") as caught:
        calibrate(planner(), BEFORE[:2], BEHIND[:1], asked, tmp_path)
    assert "--keep none" in caught.value.fix
    with pytest.raises(SlipstreamError, match="--graphs names none"):
        calibrate(planner(), BEFORE, BEHIND, replace(ASKED, graphs=("eye",)), tmp_path)  # type: ignore[arg-type]
