"""Drives that hold the same recording under two names: one would judge what the other taught."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from drives.drive import Drive
from runtime.errors import SlipstreamError

_MOVING = 0.5  # m/s; a slower vehicle stays in its place, which another drive may start in
_SHARE = 0.05  # of a drive's places; the same lane on another day has none to a millimetre


def check_apart(drives: Sequence[Drive]) -> None:
    """Insist on drives that share no recording: no two were in the same places, to 1 mm.

    Raises:
        SlipstreamError: naming two that were.
    """
    first: dict[tuple[int, int], str] = {}  # place in mm -> the drive that was there first
    for drive in drives:
        places = _places(drive)
        shared = Counter(first[place] for place in places if place in first)
        for other, count in shared.most_common(1):
            if count > _SHARE * len(places):
                raise SlipstreamError(
                    f"drives {other} and {drive.name} hold the same recording",
                    expected="no instant that is calibrated and judged on",
                    found=f"{count} of {len(places)} places of {drive.name} are in {other}",
                    fix=f"leave {drive.place} out; a share of each drive is held out by itself",
                )
        first |= dict.fromkeys(places, drive.name)


def _places(drive: Drive) -> set[tuple[int, int]]:
    moving = drive.valid & (np.abs(drive.speeds) > _MOVING)
    millimetres = np.round(1e3 * drive.positions[moving, :2]).astype(np.int64)
    return {(x, y) for x, y in millimetres.tolist()}
