"""`slipstream run`: check everything that is cheap to check, then load, replay and report."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from drives.cameras import with_cameras
from drives.clusters import clusters_key
from drives.open import open_drive, with_topics
from drives.report import check_output
from drives.results import REPORT, Asked, read_report
from drives.selection import Selection
from drives.windows import windows
from planners.plan import Aggregate
from runtime.engines.backend import Backend
from runtime.errors import SlipstreamError
from runtime.tune import check_threads
from slipstream.commands.metered import Meter, metered
from slipstream.commands.request import DEFAULT, Request, decoder_name, settings_for
from slipstream.commands.screen import Screen


def run_drives(request: Request) -> int:
    """Replay one drive, or many: those that are listed, or that workers are asked for.

    Returns:
        The exit code.
    """
    from slipstream.fleet.drives import is_several

    many = len(request.drives) > 1 or any(is_several(name) for name in request.drives)
    if many or request.workers is not None or request.ray is not None:
        from slipstream.commands.fleet import run_fleet

        if request.metrics is not None:
            raise SlipstreamError(
                "--metrics is for one drive",
                expected="one --drive, without --workers and --ray: one process has one port",
                found="several drives or workers",
                fix="leave --metrics out, or run one drive",
            )
        return run_fleet(request)
    with metered(request.metrics, Screen()) as meter:
        run_replay(request, meter)
    return 0


def run_replay(request: Request, meter: Meter) -> None:
    """Replay one drive and write its report.

    Args:
        meter: counts the plans.

    Raises:
        SlipstreamError: a bad option, drive, bundle or output folder, all found before an engine
            is loaded.
    """
    console = Screen()
    named = request.named_decoders()
    check_threads(request.threads)
    Backend.parse(request.provider)
    checked = [settings_for(request, name) for name in named or DEFAULT]
    selection = Selection.parse(request.frames)
    check_output(request.out)
    announce(request.out, console)
    request.recordings.check()
    clusters = request.scenario_clusters()
    drive = open_drive(with_topics(request.drives[0], request.topics))
    cut = windows(drive)
    chosen = selection.of(cut.windows, drive.place)

    # only now the engine
    import slipstream
    from slipstream.commands.session import replay_and_report

    with console.status("loading the bundle"):
        planner = slipstream.load(request.bundle, request.threads, request.provider)
    if not named and planner.bundle.manifest.draft is None:
        checked = [settings for settings in checked if settings.method != "dflash"]
    seen, unseen = with_cameras(chosen, drive, planner.bundle.manifest.vision)
    result = replay_and_report(
        planner,
        drive,
        seen,
        {decoder_name(settings): settings for settings in checked},
        cast(Aggregate, request.rule),
        request.out,
        skipped=cut.skipped + unseen,
        console=console,
        asked=Asked(
            frames=request.frames, provider=request.provider, clusters=clusters_key(clusters)
        ),
        clusters=clusters,
        meter=meter,
    )
    for path in request.recordings.write(result, drive):
        console.print(str(path), style="bold", highlight=False, soft_wrap=True)


def announce(out: Path, console: Screen) -> None:
    """Say what the new report will replace, while the run can still be stopped."""
    try:
        earlier = read_report(out / REPORT)
    except SlipstreamError:  # none, or one that nobody can read any more
        return
    names = ", ".join(decoder.name for decoder in earlier.decoders)
    told = f"the report of {earlier.drive.name} in {out} ({earlier.frames} frames: {names})"
    console.print(f"at the end {told} is replaced", style="dim", highlight=False, soft_wrap=True)
