"""Replays of the synthetic drive by the kinematic planner, and reports on them."""

from __future__ import annotations

from typing import Any

from drives.drive import Drive
from drives.open import open_drive
from drives.replay import Replay, replay
from drives.report import build_report
from drives.results import BundleInfo, Report
from drives.selection import Selection
from drives.summary import OutputLength
from drives.windows import windows
from runtime.settings import DecodeSettings, Sampling
from tests.drives.kinematic_planner import KinematicPlanner

BUNDLE = BundleInfo(name="kinematic", key="0" * 16, target="none", drafter=None, precision={})
DRIVE = open_drive("synthetic")
HOT = Sampling(0.5)
SETTINGS = {
    "ar": DecodeSettings(method="ar"),
    "dflash": DecodeSettings(),
    "ar ×4": DecodeSettings(method="ar", rollouts=4, sampling=HOT),
    "dflash ×4": DecodeSettings(accept="coupled", rollouts=4, sampling=HOT),
}


def replayed(planner: KinematicPlanner, frames: str = "60", **settings: Any) -> Replay:
    cut = windows(DRIVE)
    chosen = Selection.parse(frames).of(cut.windows, DRIVE.name)
    return replay(planner, chosen, settings or SETTINGS, skipped=cut.skipped)


def reported(result: Replay, drive: Drive = DRIVE, bundle: BundleInfo = BUNDLE) -> Report:
    return build_report(
        result,
        drive=drive,
        bundle=bundle,
        output=OutputLength(20, 4),
        text=KinematicPlanner().text,
        wall_s=1.0,
    )
