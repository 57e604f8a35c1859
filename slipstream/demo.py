"""`slipstream demo`: the shipped planner on a real drive, all decoders, one report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console

import slipstream
from drives.drive import Drive
from drives.fetch import fetch
from drives.open import open_drive
from drives.replay import replay
from drives.report import check_output
from drives.selection import Selection
from drives.windows import Window, windows
from planners.plan import Aggregate
from planners.planner import Planner
from runtime.errors import SlipstreamError
from runtime.settings import DecodeSettings, Method, Sampling
from runtime.tune import check_threads
from slipstream.commands.request import SAMPLED, rollouts_name
from slipstream.commands.screen import Screen
from slipstream.commands.session import replay_and_report

DRIVE = "kitti-00"
ROLLOUTS = 8
METHODS: tuple[Method, ...] = ("ar", "ar-scaffold", "dflash")
RULE: Aggregate = "guarded"
BUDGET_S = 75.0  # of replay
LEAST, MOST = 8, 96  # frames


def run_demo(out: Path, frames: int | None, threads: int | None) -> None:
    """Compare ar, ar-scaffold and dflash with 1 and with 8 rollouts on one drive.

    Raises:
        SlipstreamError: the output folder holds something else, or the bundle is missing.
    """
    console = Screen()
    check_threads(threads)
    check_output(out)
    with console.status("loading the shipped planner"):
        planner = slipstream.load(slipstream.shipped_bundle(), threads)
    drive = demo_drive(console)
    cut = windows(drive)
    settings = {demo_name(each): each for each in demo_settings()}
    count = frames or frame_count(planner, cut.windows, settings)
    console.print(f"{drive.name}: {count} of {len(cut)} windows, {len(settings)} decoders")
    chosen = Selection.parse(str(count)).of(cut.windows, drive.place)
    replay_and_report(
        planner,
        drive,
        chosen,
        settings,
        RULE,
        out,
        skipped=cut.skipped,
        console=console,
    )


def demo_settings() -> list[DecodeSettings]:
    """Greedy with one rollout, sampled with eight; every method under the same conditions.

    Drafts are accepted by the coupled rule, so that all methods must give the same outputs.
    """
    greedy = [DecodeSettings(method=method) for method in METHODS]
    hot = Sampling(SAMPLED)
    forked = [
        DecodeSettings(method=method, accept="coupled", rollouts=ROLLOUTS, sampling=hot)
        for method in METHODS
    ]
    return greedy + forked


def demo_name(settings: DecodeSettings) -> str:
    """The rule is the same for all, so it is not named."""
    return settings.method + rollouts_name(settings)


def demo_drive(console: Console) -> Drive:
    """A real drive, fetched if need be; without a network the computed one, labelled."""
    try:
        with console.status(f"fetching {DRIVE}"):
            fetch(DRIVE)
        return open_drive(DRIVE)
    except SlipstreamError as error:
        console.print(f"{DRIVE} can't be had; the demo takes a SYNTHETIC drive", style="yellow")
        console.print(str(error), style="dim", highlight=False)
        return open_drive("synthetic")


def frame_count(
    planner: Planner, cut: Sequence[Window], settings: Mapping[str, DecodeSettings]
) -> int:
    """As many frames as fit the budget at the speed of the first ones."""
    probe = replay(planner, cut[:2], settings, RULE, warmup=1)
    frame_s = sum(min(plan.latency for plan in plans) for plans in probe.plans.values())
    return min(len(cut), MOST, max(LEAST, int(BUDGET_S / frame_s)))
