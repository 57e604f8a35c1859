"""Reports on fixed plans, and the ratings that a frame of theirs may have."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from drives.drive import Drive
from drives.leaderboard_results import L2Row
from drives.rater import Rated
from drives.replay import Replay, replay
from drives.report import build_report
from drives.results import BundleInfo, Report
from drives.summary import OutputLength
from drives.windows import Window
from runtime.settings import DecodeSettings
from tests.drives.fixed_plans import SPEED, TIMES, Fixed, cut

BUNDLE = BundleInfo(name="fixed", key="0" * 16, target="none", drafter=None, precision={})
NAN = float("nan")
NAME = "aabb-147"
RATED = Rated((np.stack([SPEED * TIMES, 0 * TIMES], axis=1),), (10.0,))


def run(
    which: Drive,
    ahead: Callable[[str, int], Sequence[float]],
    settings: Mapping[str, DecodeSettings] | None = None,
    clusters: Mapping[str, str] | None = None,
    **changes: object,
) -> tuple[Replay, Report]:
    frames: list[Window] = cut(which, **changes)
    asked = settings or {"ar": DecodeSettings("ar")}
    done = replay(Fixed(ahead), frames, asked)
    report = build_report(
        done,
        drive=which,
        bundle=BUNDLE,
        output=OutputLength(20, 4),
        text=Fixed(ahead).text,
        wall_s=1.0,
        clusters=clusters,
    )
    return done, report


def l2(report: Report, name: str) -> L2Row:
    return next(row for row in report.leaderboards.nuscenes.rows if row.name == name)
