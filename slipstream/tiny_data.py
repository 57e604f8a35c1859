"""The recorded drives behind the tiny planner: what it learns from, and what it never sees."""

from __future__ import annotations

import os
from pathlib import Path

from drives.fetch import is_cached
from planners.training.data import Recorded
from runtime.errors import SlipstreamError
from slipstream.training.windows import record

BOREAS = Path("boreas/boreas-2021-08-05-13-34")
COMMA = Path("comma2k19/Example_1/b0c9d2329ad1606b|2018-08-02--08-34-47/40")
KITTI = Path("kitti_odometry/poses")
HELD_OUT = "kitti-00"

SOURCES = (
    "Boreas (Burnett et al., IJRR 2023), drive 2021-08-05-13-34, first 87.3 %, "
    "University of Toronto",
    "comma2k19 (Schafer et al., 2018), one segment of Example_1, comma.ai",
)
LICENCES = ("Boreas: CC BY 4.0", "comma2k19: MIT")

_LOOK = 0.25  # s between windows for evaluation


def drives_folder(given: Path | None) -> Path:
    """Where the recordings lie: as given, in SLIPSTREAM_DRIVES, or beside the repository.

    Raises:
        SlipstreamError: a training drive is not there.
    """
    beside = Path(__file__).resolve().parents[2] / "shared" / "drives"
    folder = given or Path(os.environ.get("SLIPSTREAM_DRIVES", beside))
    for drive in (BOREAS, COMMA):
        if not (folder / drive).is_dir():
            raise SlipstreamError(
                f"{folder / drive} is missing",
                expected="the recordings that the tiny planner is trained on",
                found="no such folder",
                fix="download Boreas and comma2k19, and name their folder in SLIPSTREAM_DRIVES",
            )
    return folder


def load_held_out(folder: Path) -> Recorded | None:
    """KITTI sequence 00, which nothing is trained on or chosen by; None where it is not at hand."""
    poses = folder / KITTI / "00.txt"
    if poses.is_file():
        return record(poses, _LOOK)
    return record(HELD_OUT, _LOOK) if is_cached(HELD_OUT) else None
