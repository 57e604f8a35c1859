"""`slipstream run`: check everything that is cheap to check, then load, replay and report."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import cast

from drives.open import open_drive
from drives.report import check_output
from drives.selection import Selection
from drives.windows import windows
from planners.plan import Aggregate
from runtime.engines.backend import Backend
from runtime.settings import DRAFTING, Accept, DecodeSettings, Method, Sampling
from runtime.tune import check_threads as check_threads
from slipstream.commands.screen import Screen

SAMPLED = 0.5  # temperature of several rollouts; at 0 they would all be the same
DEFAULT = ("ar", "ar-scaffold", "dflash")


@dataclass(frozen=True)
class Request:
    """The options of `slipstream run`, as given."""

    bundle: Path
    drive: str
    out: Path
    decoders: tuple[str, ...]
    accept: str | None
    block: int | None
    nodes: int | None
    paths: int
    rollouts: int
    temperature: float | None
    top_k: int
    top_p: float
    rule: str
    frames: str
    seed: int
    threads: int | None
    provider: str = "cpu"


def run_replay(request: Request) -> None:
    """Replay a drive and write its report.

    Raises:
        SlipstreamError: a bad option, drive, bundle or output folder, all found before an engine
            is loaded.
    """
    console = Screen()
    named = [name.strip() for given in request.decoders for name in given.split(",")]
    check_threads(request.threads)
    Backend.parse(request.provider)
    checked = [settings_for(request, name) for name in named or DEFAULT]
    selection = Selection.parse(request.frames)
    check_output(request.out)
    drive = open_drive(request.drive)
    cut = windows(drive)
    chosen = selection.of(cut.windows, drive.name)

    # only now the engine
    import slipstream
    from slipstream.commands.session import decoder_name, replay_and_report

    with console.status("loading the bundle"):
        planner = slipstream.load(request.bundle, request.threads, request.provider)
    if not named and planner.bundle.manifest.draft is None:
        checked = [settings for settings in checked if settings.method != "dflash"]
    replay_and_report(
        planner,
        drive,
        chosen,
        {decoder_name(settings): settings for settings in checked},
        cast(Aggregate, request.rule),
        request.out,
        skipped=cut.skipped,
        console=console,
    )


def settings_for(request: Request, decoder: str) -> DecodeSettings:
    """Settings of a decoder given as `method` or `method:rule`; they check themselves.

    --accept speaks to the decoders that draft; the others have nothing to accept.
    """
    method, _, rule = decoder.partition(":")
    accept = rule or (request.accept if method in DRAFTING else None)
    temperature = request.temperature
    if temperature is None:
        temperature = SAMPLED if request.rollouts > 1 else 0.0
    return DecodeSettings(
        method=cast(Method, method),
        accept=cast("Accept | None", accept),
        block=request.block,
        nodes=request.nodes,
        paths=request.paths,
        rollouts=request.rollouts,
        sampling=Sampling(temperature, request.top_k, request.top_p),
        seed=request.seed,
    )
