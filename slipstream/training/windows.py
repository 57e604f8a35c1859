"""Recorded drives as windows to train on and to look at."""

from __future__ import annotations

import os
from pathlib import Path

from drives.fetch import FETCHABLE
from drives.open import open_drive
from drives.windows import windows
from planners.training.data import Recorded
from runtime.errors import SlipstreamError
from slipstream.training.config import Data, Part
from slipstream.training.objects import objects_around


def training_windows(data: Data) -> Recorded:
    """All windows of the training parts, every `step_s`."""
    return Recorded.join([_cut(data, part, guard=data.guard_s) for part in data.training])


def validation_windows(data: Data, count: int) -> Recorded:
    """At most about `count` windows of the validation parts, evenly spread."""
    found = Recorded.join([_cut(data, part, guard=0.0) for part in data.validation])
    return found[:: max(1, len(found) // count)]


def record(drive: str | Path, step_s: float) -> Recorded:
    """All windows of a drive that have a future.

    Raises:
        SlipstreamError: the drive can't be opened, or no window of it has a future.
    """
    opened = open_drive(drive)
    cut = [window for window in windows(opened, step_s) if window.future is not None]
    futures = [window.future for window in cut if window.future is not None]
    if not cut:
        raise SlipstreamError(
            f"{drive} can't be trained on",
            expected="4 s of motion before and 5 s after an instant, without a gap",
            found="no such instant",
            fix="take the drive out of data.training and data.validation",
        )
    observations = [window.observation for window in cut]
    return Recorded.of(observations, futures, objects_around(opened, cut))


def place(drive: str, folder: Path | None) -> str:
    """A drive's name or path, with relative paths from `folder`."""
    if drive in FETCHABLE or drive.partition(":")[0] == "synthetic" or Path(drive).is_absolute():
        return drive
    base = folder or Path(os.environ.get("SLIPSTREAM_DRIVES", "."))
    return str(base / drive)


def _cut(data: Data, part: Part, guard: float) -> Recorded:
    """The windows of a part of a drive."""
    name = place(part.drive, data.folder)
    found = record(name, data.step_s)
    first, last = found.times.min(), found.times.max()
    begin, end = (first + share * (last - first) for share in (part.begin, part.end))
    if part.begin > 0:
        begin += guard
    if part.end < 1:
        chosen = (found.times >= begin) & (found.times < end - guard)
    else:
        chosen = found.times >= begin
    if not chosen.any():
        raise SlipstreamError(
            f"no window is left of {name}",
            expected=f"windows between {part.begin:g} and {part.end:g} of its time, "
            f"{guard:g} s from where it goes on",
            found=f"a drive of {last - first:.0f} s",
            fix="take a larger part of it, or a smaller data.guard_s",
        )
    return found[chosen]
