"""`slipstream verify`: prove on this machine's engine that drafting changes nothing."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import cast

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from drives.cameras import with_cameras
from drives.drive import Drive
from drives.fetch import is_cached
from drives.machine import this_machine
from drives.open import open_drive
from drives.selection import Selection
from drives.windows import Window, windows
from planners.planner import Planner
from runtime.engines.backend import Backend
from runtime.errors import SlipstreamError
from runtime.files import check_writable, write_atomic
from runtime.proof.cases import Case
from runtime.proof.results import PROOF, Check, Control, Proof
from runtime.proof.suite import ALPHA, Options, Suite
from runtime.settings import DRAFTING, UNVERIFIED, Method
from runtime.tune import check_threads
from slipstream.commands.proof_table import show_proof
from slipstream.commands.screen import Screen

DRIVE = "kitti-00"
LEAST_SAMPLES = 64


@dataclass(frozen=True)
class Request:
    """The options of `slipstream verify`, as given."""

    bundle: Path
    out: Path
    drive: str | None
    frames: str
    methods: str
    temperature: float
    samples: int
    seed: int
    threads: int | None
    provider: str = "cpu"


def run_verify(request: Request) -> int:
    """Run the proof, print its table, write `verify.json`.

    Returns:
        0 if everything passed and every planted fault was caught, else 1.

    Raises:
        SlipstreamError: a bad option, drive, bundle or output folder, or a bundle without drafter.
    """
    console = Screen()
    check_threads(request.threads)
    Backend.parse(request.provider)
    options = _options(request)
    selection = Selection.parse(request.frames)
    _check_out(request.out)
    drive = open_drive(request.drive or (DRIVE if is_cached(DRIVE) else "synthetic"))
    chosen = selection.of(windows(drive).windows, drive.place)

    # only now the engine
    import slipstream

    with console.status("loading the bundle"):
        planner = slipstream.load(request.bundle, request.threads, request.provider)
    if planner.bundle.manifest.draft is None:
        raise SlipstreamError(
            f"{request.bundle} has no drafter, so there is nothing to verify",
            expected="a bundle with a draft graph",
            found="none",
            fix="slipstream export TARGET --draft DRAFTER -o BUNDLE",
        )
    seen, _ = with_cameras(chosen, drive, planner.bundle.manifest.vision)
    proof = _prove(planner, drive, seen, options, request, console)
    write_atomic(request.out / PROOF, proof.model_dump_json(indent=1))
    show_proof(proof, console)
    path = Text.assemble("\nproof: ", (str(request.out / PROOF), "bold"))
    console.print(path, soft_wrap=True)
    return 0 if proof.passed else 1


def cases_of(planner: Planner, chosen: Sequence[Window]) -> list[Case]:
    """The prompts that the planner would see, with its scaffold."""
    return [
        Case(
            window.observation.frame,
            planner.prompt(window.observation),
            planner.scaffold,
            planner.language.fork_section,
        )
        for window in chosen
    ]


def _prove(
    planner: Planner,
    drive: Drive,
    chosen: Sequence[Window],
    options: Options,
    request: Request,
    console: Console,
) -> Proof:
    began = time.perf_counter()
    decoder = planner.decoder
    columns = (
        BarColumn(20),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.description}", markup=False),
    )
    with Progress(
        *columns, console=console, transient=True, speed_estimate_period=float("inf")
    ) as progress:
        task = progress.add_task("")
        suite = Suite(
            decoder.graphs,
            decoder.curve,
            cases_of(planner, chosen),
            options,
            lambda what: progress.update(task, description=what),
        )
        efforts = suite.efforts
        progress.update(task, total=sum(efforts))
        checks: list[Check] = []
        controls: list[Control] = []
        for step, found in enumerate(suite.run()):
            progress.advance(task, efforts[step])
            if not console.is_terminal:  # a log has no bar
                spent = _duration(time.perf_counter() - began)
                console.print(f"step {step + 1} of {len(efforts)}: {spent}", style="dim")
            if isinstance(found, Control):
                controls.append(found)
            else:
                checks += found
    machine = this_machine(request.threads)
    return Proof(
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        command=" ".join(["slipstream", *(shlex.quote(word) for word in sys.argv[1:])]),
        versions=machine.versions,
        bundle=planner.bundle.manifest.name,
        bundle_key=planner.bundle.key,
        drive=drive.name,
        engine_threads=request.threads,
        seed=options.seed,
        frames=len(chosen),
        windows=len(windows(drive)),
        temperature=options.temperature,
        samples=options.samples,
        alpha=ALPHA,
        threshold=suite.threshold,
        blunted=suite.blunted,
        probes=[probe.point for probe in suite.probes],
        checks=checks,
        controls=controls,
        seconds=time.perf_counter() - began,
    )


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def _options(request: Request) -> Options:
    methods = tuple(dict.fromkeys(name.strip() for name in request.methods.split(",")))
    if lossy := [name for name in methods if name in UNVERIFIED]:
        raise SlipstreamError(
            f"{lossy[0]} has nothing to verify: it is not lossless",
            expected=" or ".join(DRAFTING) + ", joined with commas",
            found=request.methods,
            fix=f"compare it by its errors: slipstream run BUNDLE --decoder ar,{lossy[0]}",
        )
    if not set(methods) <= set(DRAFTING):
        raise _bad("--methods", " or ".join(DRAFTING) + ", joined with commas", request.methods)
    if not 0.0 < request.temperature < float("inf"):
        raise _bad("--temperature", "a number above 0", str(request.temperature))
    if request.samples < LEAST_SAMPLES:
        raise _bad("--samples", f"at least {LEAST_SAMPLES}", str(request.samples))
    if not 0 <= request.seed < 1 << 64:
        raise _bad("--seed", "at least 0, below 2^64", str(request.seed))
    return Options(
        methods=cast("tuple[Method, ...]", methods),
        temperature=request.temperature,
        samples=request.samples,
        seed=request.seed,
    )


def _check_out(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise SlipstreamError(
            f"{out} can't hold {PROOF}",
            expected="a folder, or a new name",
            found="a file",
            fix="name another folder with -o",
        )
    check_writable(out / PROOF)


def _bad(argument: str, expected: str, found: str) -> SlipstreamError:
    return SlipstreamError(
        f"{argument} is out of range",
        expected=expected,
        found=found,
        fix="see `slipstream verify --help`",
    )
