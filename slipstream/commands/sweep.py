"""`slipstream sweep`: accuracy, spread and cost by the number of rollouts, beside greedy."""

from __future__ import annotations

import shlex
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import cast

from drives.bootstrap import RESAMPLES, SEGMENT_S
from drives.cameras import with_cameras
from drives.drive import Drive
from drives.machine import this_machine
from drives.open import open_drive
from drives.replay import Replay
from drives.report import bundle_info, drive_info
from drives.results import Sampling as Intervals
from drives.scaling import GREEDY, Curve
from drives.scaling_results import Scaling
from drives.selection import Selection
from drives.trained_on import training_of
from drives.windows import Window, windows
from planners.plan import Aggregate
from planners.planner import Planner
from runtime.engines.backend import Backend
from runtime.errors import SlipstreamError
from runtime.files import check_writable, write_atomic
from runtime.settings import RULES, Accept, DecodeSettings, Method, Sampling
from runtime.tune import check_threads
from slipstream.commands.request import SAMPLED
from slipstream.commands.screen import Screen
from slipstream.commands.session import with_progress
from slipstream.commands.sweep_table import show_sweep

RESULT, PICTURE = "sweep.json", "sweep.png"
MOST = 1024  # rollouts; more is a slip of the keyboard
DEFAULT = (1, 2, 4, 8, 16, 32)


@dataclass(frozen=True)
class Request:
    """The options of `slipstream sweep`, as given."""

    bundle: Path
    drives: tuple[str, ...]
    out: Path
    rollouts: str | None
    temperature: str | None
    decoder: str
    accept: str | None
    block: int | None
    top_k: int
    top_p: float
    rule: str
    frames: str
    rated: bool
    seed: int
    threads: int | None
    provider: str = "cpu"
    threshold: float = DecodeSettings.threshold
    batch: int | None = None


def run_sweep(request: Request) -> None:
    """Sweep, print the table, write `sweep.json` and `sweep.png`.

    Raises:
        SlipstreamError: a bad option, drive, bundle or output folder, or more rollouts than the
            bundle was made for.
    """
    console = Screen()
    check_threads(request.threads)
    Backend.parse(request.provider)
    counts, heats = rollout_counts(request.rollouts), temperatures(request.temperature)
    settings_of(request, counts or DEFAULT, heats)  # the settings check themselves
    selection = Selection.parse(request.frames)
    _check_out(request.out)
    opened = _opened(request.drives)
    chosen, skipped = _frames(opened, selection, rated=request.rated)

    # only now the engine
    import slipstream
    from drives.scaling_picture import picture

    with console.status("loading the bundle"):
        planner = slipstream.load(request.bundle, request.threads, request.provider)
    counts = _within(counts, planner)
    vision = planner.bundle.manifest.vision
    seen: list[Window] = []
    for drive in opened:
        looking, unseen = with_cameras([w for w in chosen if w.drive == drive.name], drive, vision)
        seen, skipped = seen + looking, skipped + unseen
    began = time.perf_counter()
    settings = settings_of(request, counts, heats)
    result = with_progress(planner, seen, settings, cast(Aggregate, request.rule), skipped, console)
    sweep = _scaling(result, request, planner, opened, time.perf_counter() - began)

    write_atomic(request.out / PICTURE, picture(sweep))
    write_atomic(request.out / RESULT, sweep.model_dump_json(indent=1))
    show_sweep(sweep, console)
    for name in (PICTURE, RESULT):
        console.print(str(request.out / name), style="bold", highlight=False, soft_wrap=True)


def rollout_counts(text: str | None) -> tuple[int, ...]:
    """`1,2,4` to numbers, each once, in order; () for None."""
    if text is None:
        return ()
    parts = [part.strip() for part in text.split(",")]
    if not (text.isascii() and all(part.isdecimal() and len(part) < 6 for part in parts)):
        raise _bad("--rollouts", "whole numbers joined with commas, such as 1,2,4,8", text)
    counts = tuple(sorted({int(part) for part in parts}))
    if not 1 <= counts[0] <= counts[-1] <= MOST:
        raise _bad("--rollouts", f"numbers from 1 to {MOST}", text)
    return counts


def temperatures(text: str | None) -> tuple[float, ...]:
    """`0.3,0.5` to numbers above 0, each once, in order."""
    if text is None:
        return (SAMPLED,)
    try:
        heats = tuple(sorted({float(part) for part in text.split(",")}))
    except ValueError:
        heats = ()
    if not heats or not all(0.0 < heat < float("inf") for heat in heats):
        expected = "numbers above 0 joined with commas; greedy is always part of a sweep"
        raise _bad("--temperature", expected, text)
    return heats


def settings_of(
    request: Request, counts: Sequence[int], heats: Sequence[float]
) -> dict[str, DecodeSettings]:
    """Greedy, then every temperature with every number of rollouts.

    The rule is coupled where the decoder has it: then the first rollouts are the same whatever
    their number, and a curve shows what more of them bring rather than luck.
    """
    accept = request.accept
    if accept is None and "coupled" in RULES.get(request.decoder, ()):
        accept = "coupled"

    def one(rollouts: int, sampling: Sampling) -> DecodeSettings:
        return DecodeSettings(
            method=cast(Method, request.decoder),
            accept=cast("Accept | None", accept),
            block=request.block,
            threshold=request.threshold,
            rollouts=rollouts,
            batch=request.batch,
            sampling=sampling,
            seed=request.seed,
        )

    settings = {GREEDY: one(1, Sampling())}
    for heat in heats:
        sampling = Sampling(heat, request.top_k, request.top_p)
        settings |= {f"T={heat:g} ×{count}": one(count, sampling) for count in counts}
    return settings


def _opened(names: Sequence[str]) -> list[Drive]:
    opened = [open_drive(name) for name in names]
    called = Counter(drive.name for drive in opened)
    if twice := [name for name, count in called.items() if count > 1]:
        raise SlipstreamError(
            "--drive names a drive twice",
            expected="different drives: frames that count twice make intervals too narrow",
            found=", ".join(drive.place for drive in opened if drive.name in twice)[:200],
            fix="name each drive once",
        )
    return opened


def _frames(
    opened: Sequence[Drive], selection: Selection, *, rated: bool
) -> tuple[list[Window], Counter[str]]:
    chosen: list[Window] = []
    skipped: Counter[str] = Counter()
    for drive in opened:
        cut = windows(drive)
        skipped.update(cut.skipped)
        if rated:
            chosen += [window for window in cut if window.rated is not None]
        else:
            chosen += selection.of(cut.windows, drive.place)
    if not chosen:
        raise SlipstreamError(
            "--rated leaves no frame",
            expected="drives with frames that raters scored, such as the validation split of "
            "WOD-E2E",
            found=f"none in {', '.join(drive.name for drive in opened)}"[:300],
            fix="leave --rated away, or name other drives",
        )
    return chosen, skipped


def _within(counts: tuple[int, ...], planner: Planner) -> tuple[int, ...]:
    """Numbers of rollouts that the bundle was made for; asked for by default, fewer may do."""
    limit = planner.bundle.manifest.limits.rollouts
    if not counts:
        return tuple(count for count in DEFAULT if count <= limit)
    if counts[-1] > limit:
        raise _bad(
            "--rollouts",
            f"at most {limit}, the limit of {planner.bundle.manifest.name}",
            str(counts[-1]),
            f"slipstream export TARGET --draft DRAFTER -o BUNDLE --rollouts {counts[-1]}",
        )
    return counts


def _scaling(
    result: Replay, request: Request, planner: Planner, opened: Sequence[Drive], wall_s: float
) -> Scaling:
    curve, bundle = Curve(result), bundle_info(planner.bundle)
    training = {}
    for drive in opened:
        own = [window for window in result.windows if window.drive == drive.name]
        if found := training_of(drive, own, bundle.data):
            training[drive.name] = found
    decoding = result.settings[GREEDY]
    return Scaling(
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        command=" ".join(["slipstream", *(shlex.quote(word) for word in sys.argv[1:])]),
        machine=this_machine(planner.threading.threads),
        bundle=bundle,
        drives=[drive_info(drive) for drive in opened],
        training=training,
        method=decoding.method,
        accept=decoding.rule,
        rule=result.rule,
        top_k=request.top_k,
        top_p=request.top_p,
        seed=request.seed,
        frames=len(result.windows),
        compared=int(curve.compared.sum()),
        rated_frames=curve.rated_frames,
        skipped=dict(result.skipped.most_common()),
        intervals=Intervals(
            segment_s=SEGMENT_S, segments=curve.bootstrap.segments, resamples=RESAMPLES, seed=0
        ),
        wall_s=wall_s,
        greedy=curve.point(GREEDY),
        points=[curve.point(name) for name in result.settings if name != GREEDY],
        kinematic=curve.kinematic(),
    )


def _check_out(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise SlipstreamError(
            f"{out} can't hold {RESULT}",
            expected="a folder, or a new name",
            found="a file",
            fix="name another folder with -o",
        )
    for name in (RESULT, PICTURE):
        check_writable(out / name)


def _bad(argument: str, expected: str, found: str, fix: str = "") -> SlipstreamError:
    return SlipstreamError(
        f"{argument} is out of range",
        expected=expected,
        found=found[:80],
        fix=fix or "see `slipstream sweep --help`",
    )
