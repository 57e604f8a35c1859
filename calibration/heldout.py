"""Frames that are kept from calibration: the gates judge on them alone."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from drives.drive import Drive
from drives.windows import Window
from planners.observation import FUTURE_STATES, PAST_STATES, RATE_HZ
from runtime.errors import SlipstreamError

SHARE = 0.5
_SPAN = (PAST_STATES + FUTURE_STATES) / RATE_HZ  # s that a window holds, its future included


def held_out(
    windows: Sequence[Window], drive: Drive, share: float
) -> tuple[list[Window], list[Window]]:
    """A drive's windows to calibrate on, and its last share, to judge on.

    No recorded instant is in both: windows that reach into the held-out stretch are in neither.
    Where a data set cuts the windows itself, each is a scene of its own.

    Args:
        windows: of the drive, in the order of time.
        share: of the windows, above 0 and below 1.

    Raises:
        SlipstreamError: `share` is out of range, or nothing is left on one of the sides.
    """
    check_share(share)
    first = len(windows) - max(round(share * len(windows)), 1)
    judged = list(windows[first:])
    before = list(windows[:first])
    if drive.recorded is None and judged:
        until = judged[0].observation.time - _SPAN
        before = [window for window in before if window.observation.time <= until]
    if not judged or not before:
        raise SlipstreamError(
            f"drive {drive.name} is too short to calibrate on one part and judge on another",
            expected=f"windows on both sides of {_SPAN:g} s that belong to neither",
            found=f"{len(windows)} windows, {share:g} of them held out",
            fix="calibrate on this whole drive and judge on another one: --held-out DRIVE"
            if windows
            else f"slipstream drives info {shlex.quote(drive.place)} says what its windows lack",
        )
    return before, judged


def check_share(share: float) -> None:
    """Raises: SlipstreamError: `share` is no part of a drive."""
    if not 0.0 < share < 1.0:
        raise SlipstreamError(
            "--held-out is out of range",
            expected="a share of each drive, above 0 and below 1, or another drive",
            found=f"{share:g}",
            fix=f"--held-out {SHARE:g}",
        )


def spread(windows: Sequence[Window], count: int) -> list[Window]:
    """At most `count` of the windows, evenly spread: as often of each kind as it is driven."""
    count = min(count, len(windows))
    return [windows[(2 * i + 1) * len(windows) // (2 * count)] for i in range(count)]
