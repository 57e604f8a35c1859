"""`slipstream calibrate`: a bundle in a smaller precision, written if it still drives."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import cast, get_args

from calibration.bundle import check_out, check_plain
from calibration.cache_memory import cache_bytes
from calibration.calibrate import Asked, Calibrated, calibrate, check_asked, write
from calibration.candidate import ENDS, HALVES
from calibration.cpu import WAYS, require_quantizers
from calibration.driven import settings_name, ways_to_drive
from calibration.gates import Gates
from calibration.modelopt import check_format, require_modelopt
from calibration.results import CalibrationResults, Device
from calibration.smooth import check_alpha
from calibration.strata import counts
from drives.machine import this_machine
from drives.report import bundle_info, drive_info
from planners.planner import Planner
from runtime.bundle import Bundle, GraphName
from runtime.calibrated import StoredPrecision
from runtime.errors import SlipstreamError
from runtime.files import check_writable, real_path, work_folder, write_atomic
from runtime.tune import check_threads
from slipstream.commands.about import own_version
from slipstream.commands.calibrate_data import CalibrationData
from slipstream.commands.calibrate_table import show_calibration
from slipstream.commands.screen import Screen
from slipstream.commands.session import own_command, progress_bar

AUTO = "auto"
_FEWEST = 2  # windows or frames


@dataclass(frozen=True)
class Request:
    """The options of `slipstream calibrate`, as given."""

    bundle: Path
    drives: tuple[str, ...]
    precision: str
    out: Path
    graphs: str | None
    how: str
    device: str | None
    keep: tuple[str, ...]
    smooth: float | None
    windows: int
    frames: int
    held_out: tuple[str, ...]
    max_ade_increase: float
    max_tau_drop: float
    max_parse_failures: int
    max_error: float
    threads: int | None
    report: bool
    retry: bool
    force: bool


def run_calibrate(request: Request) -> int:
    """Calibrate, judge, print the tables; write the bundle if it may be, and the figures beside it.

    Returns:
        0 if a bundle was written, 1 if the gates refused it.

    Raises:
        SlipstreamError: a bad option, drive, bundle or output folder, or a quantizer that is not
            installed.
    """
    began, console = time.perf_counter(), Screen()
    asked = asked_for(request)
    check_threads(request.threads)
    bundle = Bundle.open(request.bundle)
    check_writable(request.out, folder=True)
    check_out(bundle, request.out)
    check_writable(results_path(request.out))
    check_plain(bundle)
    check_asked(bundle, asked)
    if asked.device == "tensorrt" and asked.precision not in HALVES:
        require_modelopt()
    data = CalibrationData.of(request.drives, request.held_out)

    # only now the engine
    import slipstream

    with console.status("loading the bundle"):
        planner = slipstream.load(request.bundle, request.threads)
    data = data.looking(planner)
    with work_folder(request.out) as folder:
        done = calibrate(
            planner,
            data.calibrating,
            data.judging,
            asked,
            folder,
            console.status,
            lambda what, total: progress_bar(console, what, total),
        )
        results = _results(planner, data, asked, done, time.perf_counter() - began)
        if done.outcome != "refused":
            made_by = f"slipstream {own_version()}"
            write(planner.bundle, request.out, done, asked, data.names, made_by)
    path = results_path(request.out)
    write_atomic(path, results.model_dump_json(indent=1))
    show_calibration(results, request.out, console, report=request.report)
    console.print(str(path), style="bold", highlight=False, soft_wrap=True)
    return 1 if done.outcome == "refused" else 0


def results_path(out: Path) -> Path:
    """The file of all figures, beside the bundle's folder, whether that is written or not."""
    named = out if out.name not in ("", "..") else real_path(out)  # such as "."
    return named.with_name(f"{named.name}.calibration.json")


def asked_for(request: Request) -> Asked:
    """The options as the calibration takes them.

    Raises:
        SlipstreamError: one that is unknown or does not go with another.
    """
    precision, device = _what_for(request)
    gates = Gates(
        request.max_ade_increase,
        request.max_tau_drop,
        request.max_parse_failures,
        request.max_error,
    )
    for option, number in (("--windows", request.windows), ("--frames", request.frames)):
        if number < _FEWEST:
            raise SlipstreamError(
                f"{option} is out of range",
                expected=f"at least {_FEWEST}",
                found=str(number),
                fix=f"leave {option} out",
            )
    if request.smooth is not None:
        check_alpha(request.smooth)
    return Asked(
        precision=precision,
        device=device,
        graphs=_graphs(request.graphs),
        how=request.how,
        keep=_keep(request.keep, precision),
        smooth=request.smooth,
        windows=request.windows,
        frames=request.frames,
        gates=gates,
        report=request.report,
        retry=request.retry,
        force=request.force,
    )


def _graphs(given: str | None) -> tuple[GraphName, ...]:
    """Names, each once, that the bundle may not have."""
    if given is None:
        return ()
    named = dict.fromkeys(name.strip() for name in given.split(",") if name.strip())
    if not named:
        raise SlipstreamError(
            "--graphs names no graph",
            expected="some of the bundle's, joined with commas, such as target,draft",
            found=repr(given[:80]),
            fix="leave --graphs out for all",
        )
    return cast("tuple[GraphName, ...]", tuple(named))


def _keep(given: Sequence[str], precision: str) -> tuple[str, ...]:
    """The ends stay in any case, unless it is "none"; in fp16 and bf16 nothing does."""
    first = () if precision in HALVES or "none" in given else (ENDS,)
    return (*first, *given)


def _what_for(request: Request) -> tuple[StoredPrecision, Device]:
    precision, device = request.precision, request.device
    known = [name for name in get_args(StoredPrecision) if name != "fp32"]
    if precision not in known:
        raise SlipstreamError(
            "--precision is unknown",
            expected=" or ".join(known),
            found=precision[:80],
            fix="--precision int8",
        )
    device = device or ("cpu" if precision in WAYS else "tensorrt")
    ways = (AUTO, *WAYS[precision]) if device == "cpu" and precision in WAYS else (AUTO,)
    if device == "cpu" and precision not in WAYS:
        raise SlipstreamError(
            f"--for cpu brings nothing in {precision}",
            expected=f"{' or '.join(WAYS)}; ONNX Runtime's CPU computes {precision} as fp32",
            found=precision,
            fix=f"--for tensorrt, or --precision {next(iter(WAYS))}",
        )
    if request.how not in ways:
        raise SlipstreamError(
            f"--how {request.how[:40]} is no way to {precision} for {device}",
            expected=" or ".join(ways),
            found=request.how[:40],
            fix=f"--how {AUTO}",
        )
    if request.smooth is not None and precision in HALVES:
        raise SlipstreamError(
            f"--smooth does nothing for {precision}",
            expected="a precision whose activations are quantized",
            found=precision,
            fix="leave --smooth out: tensors beyond fp16 stay fp32",
        )
    if device == "cpu":
        require_quantizers()
    elif precision not in HALVES:
        check_format(precision)
    return cast(StoredPrecision, precision), cast(Device, device)


def _results(
    planner: Planner, data: CalibrationData, asked: Asked, done: Calibrated, seconds: float
) -> CalibrationResults:
    ways = ways_to_drive(planner.bundle.manifest)
    last = list(ways.values())[-1]
    paths = {graph: each.path for graph, each in done.made.items()}
    return CalibrationResults(
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        command=own_command(),
        machine=this_machine(planner.threading.threads),
        bundle=bundle_info(planner.bundle),
        drives=[drive_info(drive) for drive in data.drives],
        judged_on=sorted({window.drive for window in done.judged}),
        precision=asked.precision,
        device=asked.device,
        how=asked.how,
        smooth=asked.smooth,
        calibrated={str(kind): n for kind, n in counts(done.calibrated).items()},
        held_out=len(done.judged),
        recorded=_recorded(done),
        decoder=settings_name(last),
        rollouts=last.rollouts,
        attempts=done.attempts,
        sensitivity=done.sensitivity,
        outcome=done.outcome,
        cache_bytes=cache_bytes(planner.bundle, {}),
        candidate_cache_bytes=cache_bytes(planner.bundle, paths),
        seconds=seconds,
    )


def _recorded(done: Calibrated) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    passes: Mapping[GraphName, Sequence[object]] = done.recording.passes
    for graph in passes:
        kinds = [str(one.kind) for one in done.recording.passes[graph]]
        found[graph] = {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}
    return found
