"""From a bundle and recorded windows to a candidate that the gates have judged.

Windows to calibrate on, drawn evenly from all kinds of driving, are planned and their passes
recorded. From those the graphs are made. The gates judge them on other windows. Where they fail and
one group of products is to blame, that group stays as it was and the gates judge once more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from calibration.attempts import Bar, Say, Trial
from calibration.bundle import write_bundle
from calibration.candidate import Made, Maker, kept_groups
from calibration.gates import Gates
from calibration.groups import PRODUCTS, groups, nodes_of
from calibration.heldout import spread
from calibration.recording import Recording, record, usual_settings
from calibration.results import Attempt, Device, GroupEffect, Outcome
from calibration.stored import read_graph
from calibration.strata import stratified
from drives.windows import Window
from planners.planner import Planner
from runtime.bundle import Bundle, GraphName, Manifest
from runtime.calibrated import CalibratedGraph, Calibration, StoredPrecision
from runtime.errors import SlipstreamError

PASSES = 8  # of each graph and kind
LIMIT_BYTES = 256 << 20  # of recorded passes
JUDGED_FRAMES = 6  # held-out ones, whose passes are recorded for the output error


@dataclass(frozen=True)
class Asked:
    """What is to be made.

    Attributes:
        precision, device: what the graphs are to be.
        graphs: names; none for all that have products with a weight.
        how: "auto", or one of `calibration.cpu.WAYS`.
        keep: see `calibration.candidate.kept_groups`.
        smooth: SmoothQuant's alpha, or None.
        windows: to calibrate on; frames: to judge on.
        gates: the limits.
        report: measure what every group costs, also where the gates pass.
        retry: where a gate fails, keep the group that is to blame and judge once more.
        force: a candidate that fails is good enough.
    """

    precision: StoredPrecision
    device: Device
    graphs: tuple[GraphName, ...]
    how: str
    keep: tuple[str, ...]
    smooth: float | None
    windows: int
    frames: int
    gates: Gates
    report: bool = False
    retry: bool = True
    force: bool = False


@dataclass(frozen=True)
class Calibrated:
    """The outcome; graphs lie in the folder that `calibrate` was given.

    Attributes:
        made: the candidate's graphs.
        attempts: what the gates said, the last one of `made`.
        sensitivity: what groups cost; empty where it was not measured.
        calibrated, judged: windows.
        recording: of the former.
    """

    made: dict[GraphName, Made]
    attempts: list[Attempt]
    sensitivity: list[GroupEffect]
    calibrated: list[Window]
    judged: list[Window]
    recording: Recording
    outcome: Outcome


def calibrate(
    planner: Planner,
    calibrating: Sequence[Window],
    judging: Sequence[Window],
    asked: Asked,
    folder: Path,
    say: Say = lambda what: nullcontext(),
    bar: Bar = lambda what, total: nullcontext(lambda done: None),
) -> Calibrated:
    """Make a candidate and judge it.

    Args:
        planner: the source, on the CPU.
        calibrating, judging: windows with pictures where the bundle looks through cameras; no
            instant is in both.
        folder: for the graphs.

    Raises:
        SlipstreamError: a graph or group that is not there, nothing to quantize, no way that is
            faster, or see `calibration.cpu.quantize_for_cpu`.
    """
    manifest = planner.bundle.manifest
    check_graphs(manifest, asked.graphs)
    windows, frames = stratified(calibrating, asked.windows, 0), spread(judging, asked.frames)
    ways = usual_settings(manifest)
    with say("recording passes"):
        recording = record(planner, windows, ways, passes=PASSES, limit_bytes=LIMIT_BYTES)
        unseen = record(
            planner,
            spread(judging, min(JUDGED_FRAMES, asked.frames)),
            ways,
            passes=PASSES,
            limit_bytes=LIMIT_BYTES,
        )
    maker = Maker(
        planner.bundle,
        recording,
        tuple(graph for graph in asked.graphs or manifest.graphs if graph in recording.passes),
        asked.precision,
        asked.device,
        asked.how,
        asked.smooth,
        planner.threading.threads,
        folder,
    )
    keep = kept_groups({graph: maker.parts(graph) for graph in maker.graphs}, asked.keep)
    with say(f"making {asked.precision} graphs"):
        made = maker.first(keep)
    _check_made(made, maker)
    trial = Trial(planner, maker, frames, unseen, asked.gates, say, bar)
    made, attempts, effects = trial.run(made, keep, retry=asked.retry, report=asked.report)
    outcome: Outcome = "passed"
    if attempts[-1].failed:
        outcome = "forced" if asked.force else "refused"
    return Calibrated(made, attempts, effects, windows, frames, recording, outcome)


def write(
    source: Bundle, out: Path, done: Calibrated, asked: Asked, drives: Sequence[str], made_by: str
) -> Manifest:
    """Write the candidate as a bundle whose manifest says how it was made and judged."""
    last = done.attempts[-1]
    record = Calibration(
        precision=asked.precision,
        graphs={
            graph: CalibratedGraph(way=each.way, quantized=len(each.quantized), kept=len(each.kept))
            for graph, each in done.made.items()
        },
        smooth=asked.smooth,
        source=source.key,
        drives=list(drives),
        windows=len(done.calibrated),
        gates="forced" if done.outcome == "forced" else "passed",
        failed=last.failed,
        figures={each.gate: each.value for each in last.gates if each.value is not None},
        made_by=made_by,
    )
    paths = {graph: each.path for graph, each in done.made.items()}
    precisions = {graph: each.precision for graph, each in done.made.items()}
    return write_bundle(source, out, paths, precisions, record)


def check_graphs(manifest: Manifest, graphs: Sequence[str]) -> None:
    """Raises: SlipstreamError: the bundle has no graph of a name."""
    if unknown := [graph for graph in graphs if graph not in manifest.graphs]:
        raise SlipstreamError(
            f"--graphs names none of {manifest.name}: {unknown[0]}",
            expected=f"some of {', '.join(manifest.graphs)}, joined with commas",
            found=", ".join(graphs),
            fix=f"--graphs {','.join(manifest.graphs)}",
        )


def check_asked(bundle: Bundle, asked: Asked) -> None:
    """Insist, before the work, on graphs and groups that are there and leave something to quantize.

    Raises:
        SlipstreamError: see above.
    """
    check_graphs(bundle.manifest, asked.graphs)
    graphs = asked.graphs or tuple(bundle.manifest.graphs)
    models = {graph: read_graph(bundle.graph_path(graph)) for graph in graphs}
    parts = {graph: groups(model) for graph, model in models.items()}
    keep = kept_groups(parts, asked.keep)
    for graph, model in models.items():
        kept = nodes_of(parts[graph], keep[graph])
        if any(node.op_type in PRODUCTS and node.name not in kept for node in model.graph.node):
            return
    raise SlipstreamError(
        f"nothing of {bundle.folder} would be {asked.precision}",
        expected=f"products to quantize in {', '.join(graphs)}",
        found="every product is kept, or there are none",
        fix="name other groups with --keep (none keeps nothing), or other graphs with --graphs",
    )


def _check_made(made: Mapping[GraphName, Made], maker: Maker) -> None:
    if made:
        return
    raise SlipstreamError(
        f"nothing of {maker.bundle.folder} would be {maker.precision}",
        expected=f"products to quantize in {', '.join(maker.graphs)}, in a way that is faster",
        found="no way is faster than fp32 on this machine, or every product is kept",
        fix="--how dynamic takes a way whatever it brings; --keep none keeps nothing; "
        "slipstream bench shows what each way takes",
    )
