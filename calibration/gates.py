"""Gates: whether a candidate still drives like its source, on windows that it never saw."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from calibration.driven import BOTH, SAMPLED, Comparison, Driven, drive_both, ways_to_drive
from calibration.output_error import output_errors, token_agreement
from calibration.recording import Recording
from calibration.results import Attempt, Change, GateResult, GraphMade, TensorError, TokenFigures
from calibration.sensitivity import MAIN
from drives.figures import Figure, known
from drives.windows import Window
from planners.planner import Planner
from runtime.bundle import GraphName
from runtime.engines.base import Engine
from runtime.engines.onnx import OnnxEngine
from runtime.errors import EngineError, SlipstreamError

ADE_GATE, TAU_GATE = "ADE@5s", "acceptance length"
METRICS = ("ADE@3s", "ADE@5s", "FDE@5s")
ERROR_GATE, PARSE_GATE, DECODES_GATE = "output error", "parse failures", "decodes"


@dataclass(frozen=True)
class Gates:
    """The limits.

    Attributes:
        max_ade_increase: of ADE@5s, relative, greedy plans and those of rollouts together. The
            estimate must be below it, and the paired 95 % interval must hold zero or lie below it:
            an increase that is certain fails, however small. Without an interval (fewer than 5
            stretches of 20 s) the estimate decides.
        max_tau_drop: of the acceptance length, relative, of both; the estimate decides.
        max_parse_failures: outputs that make no plan, more than the source has, over all frames:
            greedy ones, and rollouts where their increase is beyond chance.
        max_error: of every replaced graph's main output on recorded passes: norm of the difference
            over the norm.

    Raises:
        SlipstreamError: a limit that is negative or not finite.
    """

    max_ade_increase: float = 0.02
    max_tau_drop: float = 0.03
    max_parse_failures: int = 0
    max_error: float = 0.1

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not 0.0 <= value < math.inf:
                option = f"--{name.replace('_', '-')}"
                raise SlipstreamError(
                    f"{option} is out of range",
                    expected="a number of at least 0",
                    found=f"{value}",
                    fix=f"{option} {getattr(Gates, name)}",
                )


def standing_in(planner: Planner, graphs: Mapping[GraphName, Path]) -> Planner:
    """The planner with other graphs in place of some of its own, on the CPU.

    Both must not be at work at once: what was not replaced is the same engine.

    Raises:
        EngineError: a graph can't be loaded.
    """

    def engine(name: GraphName, own: Engine) -> Engine:
        if name not in graphs:
            return own
        threading = planner.threading
        return OnnxEngine(graphs[name], threads=threading.threads, spinning=threading.spinning)

    wrapped = planner.decoder.graphs.wrapped(engine)
    return Planner(planner.bundle, wrapped, planner.threading, planner.backend)


def judge(
    planner: Planner,
    graphs: Mapping[GraphName, Path],
    made: Sequence[GraphMade],
    windows: Sequence[Window],
    recording: Recording,
    gates: Gates,
    *,
    timed: bool = True,
    earlier: Driven | None = None,
    done: Callable[[int], None] = lambda frames: None,
) -> tuple[Attempt, Driven]:
    """Measure a candidate against its source and pass a verdict on each gate.

    Args:
        planner: the source.
        graphs: what stands for the candidate's graphs on this CPU.
        made: what is known of them, for the record.
        windows: held out, with their futures.
        recording: passes of the source on held-out windows.
        timed: whether its time on this CPU means anything.
        earlier: another candidate's frames, whose source's plans are taken from there.
        done: is told the number of planned frames.
    """
    ways = ways_to_drive(planner.bundle.manifest)
    try:
        candidate = standing_in(planner, graphs)
        both = planner.decoder.graphs, candidate.decoder.graphs
        tensors = output_errors(*both, graphs, recording)
    except EngineError as error:  # a graph that this engine can't load, or run
        return _broken(made, [], f"{error.what}: {error.found}"), Driven(windows, {}, {}, {})
    driven = drive_both(planner, candidate, windows, ways, done, earlier=earlier)
    if driven.broken:
        return _broken(made, tensors, driven.broken, error_gate(tensors, gates.max_error)), driven
    verdicts = [error_gate(tensors, gates.max_error)]
    comparison = Comparison(driven)
    shown = (*ways, BOTH) if len(ways) > 1 else (BOTH,)
    distances = [comparison.distance(metric, way) for metric in METRICS for way in shown]
    lengths = [length for way in shown if (length := comparison.acceptance_length(way))]
    unusable = [comparison.unusable(way) for way in ways]
    ade, tau = comparison.distance("ADE@5s"), comparison.acceptance_length()
    verdicts.append(ade_gate(ade, gates.max_ade_increase))
    verdicts += [tau_gate(tau, gates.max_tau_drop)] if tau else []
    verdicts.append(parse_gate(unusable, gates.max_parse_failures))
    changes = [*distances, *lengths, *unusable]
    changes += [comparison.latency()] if timed else []
    agreement = token_agreement(*both, graphs, recording)
    identical, until = comparison.same_tokens(planner.scaffold.is_value)
    tokens = TokenFigures(
        frames=len(windows),
        identical=identical,
        until_difference=until,
        rows=agreement.rows if agreement else 0,
        agreeing=agreement.agreeing / agreement.rows if agreement else None,
        log_likelihood=known(agreement.log_likelihood) if agreement else None,
    )
    attempt = Attempt(
        graphs=list(made),
        tensors=tensors,
        tokens=tokens,
        changes=changes,
        driving=comparison.by_driving(),
        gates=verdicts,
    )
    return attempt, driven


def _broken(
    made: Sequence[GraphMade], tensors: list[TensorError], why: str, *verdicts: GateResult
) -> Attempt:
    says = f"it can't be decoded: {why}"
    decodes = GateResult(gate=DECODES_GATE, passed=False, says=says)
    gates = [*verdicts, decodes]
    return Attempt(graphs=list(made), tensors=tensors, gates=gates, broken=why)


def error_gate(tensors: Sequence[TensorError], limit: float) -> GateResult:
    """The worst main output; one that is not finite fails."""
    main = [each for each in tensors if each.tensor == MAIN[each.graph]]  # type: ignore[index]
    worst = max(
        main, key=lambda each: math.inf if each.relative is None else each.relative, default=None
    )
    if worst is None:
        return _result(ERROR_GATE, True, 0.0, limit, None, "no replaced graph was recorded")
    value = worst.relative
    what = f"{worst.graph} {worst.tensor}"
    says = f"{what} is not finite" if value is None else f"{what}: {value:.3f} of its norm"
    return _result(ERROR_GATE, value is not None and value <= limit, value, limit, None, says)


def ade_gate(ade: Change, limit: float) -> GateResult:
    """An increase beyond the limit fails, and so does one that is certain, however small."""
    value, low = ade.change.value, ade.change.low
    if value is None:
        return _result(ADE_GATE, False, None, limit, ade.change, "no frame has both plans")
    certain = low is not None and low > 0
    says = f"{ade.source:.3f} m -> {ade.candidate:.3f} m, {100 * value:+.2f} %"
    if certain:
        says += ", an increase beyond chance"
    elif low is None:
        says += "; too few stretches of 20 s for an interval"
    return _result(ADE_GATE, value <= limit and not certain, value, limit, ade.change, says)


def tau_gate(tau: Change, limit: float) -> GateResult:
    """A drop beyond the limit fails."""
    value = tau.change.value
    if value is None:
        return _result(TAU_GATE, False, None, limit, tau.change, "nothing was drafted")
    says = f"{tau.source:.2f} -> {tau.candidate:.2f} tokens a round, {100 * value:+.2f} %"
    return _result(TAU_GATE, -value <= limit, value, limit, tau.change, says)


def parse_gate(unusable: Sequence[Change], limit: int) -> GateResult:
    """More outputs without a plan than the limit fail; of rollouts, which are drawn, an increase
    counts only where the interval says that it is none of chance."""
    counted, said = 0, []
    for each in unusable:
        before, after = int(each.source or 0), int(each.candidate or 0)
        said.append(f"{each.name.rpartition(', ')[2]} {before} -> {after}")
        low = each.change.low
        by_chance = each.name.endswith(SAMPLED) and low is not None and low <= 0
        counted += 0 if by_chance else max(after - before, 0)
    says = f"outputs without a plan: {', '.join(said)}"
    return _result(PARSE_GATE, counted <= limit, float(counted), limit, None, says)


def _result(
    gate: str, passed: bool, value: float | None, limit: float, interval: Figure | None, says: str
) -> GateResult:
    return GateResult(
        gate=gate,
        passed=passed,
        value=value,
        limit=limit,
        interval=interval,
        says=says,
    )
