"""`slipstream bench`: what INT8 and INT4 bring on this machine, pass by pass and frame by frame."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import cast, get_args

from calibration.bundle import check_plain, write_bundle
from calibration.cpu import require_quantizers
from calibration.fastest import PLAIN
from calibration.recording import record, usual_settings
from calibration.smooth import check_alpha
from calibration.strata import stratified
from calibration.ways import Compared, Reduced, compare_ways, ends
from drives.cameras import with_cameras
from drives.machine import this_machine
from drives.open import open_drive
from drives.report import bundle_info, drive_info
from drives.selection import Selection
from drives.windows import windows
from planners.planner import Planner
from runtime.bundle import Bundle, GraphName, Manifest
from runtime.errors import SlipstreamError
from runtime.files import check_writable, work_folder, write_atomic
from runtime.settings import DecodeSettings, Method, Sampling
from runtime.tune import check_threads
from slipstream.commands.bench_frames import BenchFrames
from slipstream.commands.bench_results import Bench, GraphTimes, PassTimes
from slipstream.commands.bench_table import show_bench
from slipstream.commands.request import SAMPLED
from slipstream.commands.screen import Screen
from slipstream.commands.session import own_command, progress_bar

RESULT = "bench.json"
RECORDED = 5  # frames, of all kinds of driving
_PASSES = 4  # of each graph and kind


@dataclass(frozen=True)
class Request:
    """The options of `slipstream bench`, as given."""

    bundle: Path
    precisions: str
    drive: str
    frames: str
    out: Path
    threads: int | None
    rollouts: int
    keep: str
    smooth: float | None


def run_bench(request: Request) -> None:
    """Measure, print the tables, write `bench.json`.

    Raises:
        SlipstreamError: a bad option, drive, bundle or output folder, a bundle that is quantized
            already, or a quantizer that is not installed.
    """
    console = Screen()
    precisions = precisions_of(request.precisions)
    check_threads(request.threads)
    if request.smooth is not None:
        check_alpha(request.smooth)
    selection = Selection.parse(request.frames)
    check_writable(request.out / RESULT)
    require_quantizers()
    bundle = Bundle.open(request.bundle)
    check_plain(bundle)
    settings = _settings(bundle.manifest, request.rollouts)
    drive = open_drive(request.drive)
    cut = windows(drive)
    chosen = selection.of(cut.windows, drive.place)

    # only now the engine
    import slipstream

    with console.status("loading the bundle"):
        planner = slipstream.load(request.bundle, request.threads)
    vision = planner.bundle.manifest.vision
    seen, _ = with_cameras(chosen, drive, vision)
    calibrating, _ = with_cameras(stratified(cut.windows, RECORDED, 0), drive, vision)
    keep = ends(planner.bundle) if request.keep == "ends" else {}
    with work_folder(request.out / RESULT) as folder:
        with console.status("recording passes"):
            ways = usual_settings(planner.bundle.manifest)
            recording = record(planner, calibrating, ways, passes=_PASSES)
        with console.status("quantizing, and timing the passes"):
            compared = compare_ways(
                planner.bundle,
                recording,
                precisions,
                folder,
                keep=keep,
                threads=planner.threading.threads,
                smooth=request.smooth,
            )
        planners = {PLAIN: planner}
        for precision in precisions:
            with console.status(f"loading {precision}"):
                planners[precision] = _quantized(planner, compared, precision, folder)
        with progress_bar(console, "frames, each in every precision", len(seen)) as done:
            frames = BenchFrames(planners, seen, settings, done)
        bytes_of = {name: _graph_bytes(each.bundle) for name, each in planners.items()}
        graphs = _graph_times(planner.bundle, compared)
    result = Bench(
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        command=own_command(),
        machine=this_machine(planner.threading.threads),
        bundle=bundle_info(planner.bundle),
        drive=drive_info(drive),
        decoder=settings.method,
        frames=len(seen),
        recorded=recording.frames,
        keep=request.keep,
        smooth=request.smooth,
        graphs=graphs,
        precisions=[
            frames.times(name, bytes_of[name], _ways_of(compared, name)) for name in planners
        ],
    )
    write_atomic(request.out / RESULT, result.model_dump_json(indent=1))
    show_bench(result, console)
    console.print(str(request.out / RESULT), style="bold", highlight=False, soft_wrap=True)


def precisions_of(text: str) -> tuple[Reduced, ...]:
    """`fp32,int8,int4` to those besides fp32, which is always measured, each once.

    Raises:
        SlipstreamError: another precision, or none besides fp32.
    """
    named = [part.strip() for part in text.split(",")]
    known = get_args(Reduced)
    if not set(named) <= {PLAIN, *known} or not set(named) & set(known):
        raise SlipstreamError(
            "--precisions can't be measured on a CPU",
            expected=f"some of {', '.join(known)}, joined with commas; {PLAIN} is always measured",
            found=text[:80],
            fix="--precisions fp32,int8,int4; other precisions are TensorRT's: slipstream compile",
        )
    return tuple(cast(Reduced, name) for name in known if name in named)


def _settings(manifest: Manifest, rollouts: int) -> DecodeSettings:
    """As a bundle is driven: with its drafter, where it has one, and the cost gate.

    Raises:
        SlipstreamError: more rollouts than the bundle was made for.
    """
    limit = manifest.limits.rollouts
    if not 1 <= rollouts <= limit:
        raise SlipstreamError(
            "--rollouts is out of range",
            expected=f"1 to {limit}, the limit of {manifest.name}",
            found=str(rollouts),
            fix=f"--rollouts {min(max(rollouts, 1), limit)}",
        )
    usual = usual_settings(manifest)[0]
    method: Method = "ar-scaffold" if usual.method == "ar" else usual.method
    sampling = Sampling(temperature=SAMPLED if rollouts > 1 else 0.0)
    return replace(usual, method=method, block=None, rollouts=rollouts, sampling=sampling)


def _quantized(
    planner: Planner, compared: Mapping[GraphName, Compared], precision: Reduced, folder: Path
) -> Planner:
    """The planner with every graph in its fastest way."""
    chosen = {graph: each.chosen(precision) for graph, each in compared.items()}
    paths = {graph: way.path for graph, way in chosen.items() if way is not None}
    out = folder / precision
    write_bundle(planner.bundle, out, paths, dict.fromkeys(paths, precision))
    return Planner.load(out, planner.threading.threads)


def _ways_of(compared: Mapping[GraphName, Compared], precision: str) -> dict[str, str]:
    if precision == PLAIN:
        return dict.fromkeys(compared, PLAIN)
    chosen = {graph: each.chosen(cast(Reduced, precision)) for graph, each in compared.items()}
    return {graph: way.name if way else PLAIN for graph, way in chosen.items()}


def _graph_times(bundle: Bundle, compared: Mapping[GraphName, Compared]) -> list[GraphTimes]:
    found = []
    for graph, each in compared.items():
        made = next((way.made for way in each.ways.values()), None)
        sizes = {name: way.made.bytes for name, way in each.ways.items()}
        found.append(
            GraphTimes(
                graph=graph,
                passes=[
                    PassTimes(
                        kind=kind,
                        per_frame=each.counts[kind],
                        ms=1e3 * timing.seconds,
                        ratios=timing.ratios,
                    )
                    for kind, timing in each.timings.items()
                ],
                shares=each.shares,
                bytes={PLAIN: _bytes_of(bundle, graph), **sizes},
                products=len(made.quantized) + len(made.kept) if made else 0,
                quantized=len(made.quantized) if made else 0,
            )
        )
    return found


def _bytes_of(bundle: Bundle, graph: GraphName) -> int:
    file = bundle.manifest.graphs[graph]
    return sum((bundle.folder / name).stat().st_size for name in (file.file, *file.external))


def _graph_bytes(bundle: Bundle) -> int:
    return sum(_bytes_of(bundle, graph) for graph in bundle.manifest.graphs)
