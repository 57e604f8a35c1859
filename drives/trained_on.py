"""Whether a bundle was trained on the drive that it is replayed on, by the bundle's own record.

An entry of the record (`provenance.data` of bundle.json) is a line for people. It names the data
set and the recording, and "first 80 %" where only that part was trained on.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from drives.drive import Drive
from drives.results import Training
from drives.windows import Window
from planners.observation import PAST_STATES, RATE_HZ

_PART = re.compile(r"\bfirst (\d+(?:\.\d+)?) ?%")
_HISTORY = (PAST_STATES - 1) / RATE_HZ  # s


def training_of(drive: Drive, windows: Sequence[Window], data: Sequence[str]) -> Training | None:
    """What the record says of these windows of a drive.

    Args:
        data: the record's entries.

    Returns:
        None where no entry names the drive's data set.
    """
    family = [entry for entry in data if drive.dataset and _names(entry, drive.dataset)]
    own = [entry for entry in family if drive.recording and _names(entry, drive.recording)]
    if not family:
        return None
    if not own:
        return Training(match="data set", entry="; ".join(family), frames=0)
    until = max(_share(entry) for entry in own) * drive.duration
    trained = sum(window.observation.time - _HISTORY < until for window in windows)
    return Training(match="recording", entry="; ".join(own), frames=trained)


def _names(entry: str, word: str) -> bool:
    """Is it there as a word of its own? 00 is not in 2000-01-00."""
    return re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", entry, re.IGNORECASE) is not None


def _share(entry: str) -> float:
    part = _PART.search(entry)
    return min(float(part[1]) / 100, 1.0) if part else 1.0
