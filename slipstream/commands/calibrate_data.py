"""The drives of a calibration, and which of their windows calibrate and which judge."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from calibration.heldout import SHARE, check_share, held_out
from calibration.overlap import check_apart
from drives.cameras import with_cameras
from drives.drive import Drive
from drives.open import open_drive
from drives.windows import Window, windows
from planners.planner import Planner
from runtime.errors import SlipstreamError


@dataclass(frozen=True)
class CalibrationData:
    """Drives, and their windows to calibrate on and to judge on."""

    drives: list[Drive]
    others: list[Drive]
    calibrating: list[Window]
    judging: list[Window]

    @classmethod
    def of(cls, names: Sequence[str], held: Sequence[str]) -> CalibrationData:
        """Open the drives and part their windows.

        Args:
            names: drives to calibrate on.
            held: drives to judge on, or one share of each drive.
        """
        share = _share(held)
        drives = [open_drive(name) for name in names]
        others = [] if share is not None else [open_drive(name) for name in held]
        _check_once("--drive", drives)
        _check_once("--held-out", others)
        for drive in others:
            if drive.name in {each.name for each in drives}:
                raise SlipstreamError(
                    f"--held-out {drive.name} is calibrated on as well",
                    expected="another drive than those of --drive, or a share",
                    found=drive.name,
                    fix=f"--held-out {SHARE:g} holds the last half of each drive out",
                )
        check_apart([*drives, *others])
        calibrating: list[Window] = []
        judging: list[Window] = []
        for drive in drives:
            cut = windows(drive).windows
            if share is None:
                calibrating += cut
            else:
                before, behind = held_out(cut, drive, share)
                calibrating, judging = calibrating + before, judging + behind
        for drive in others:
            judging += windows(drive).windows
        for what, found in (("calibrate", calibrating), ("judge", judging)):
            if not found:
                lacking = shlex.quote((others if what == "judge" and others else drives)[0].place)
                raise SlipstreamError(
                    f"there are no windows to {what} on",
                    expected="drives with 4 s of history and 5 s of future somewhere",
                    found=", ".join(each.name for each in (*drives, *others)),
                    fix=f"slipstream drives info {lacking} says what its windows lack",
                )
        return cls(drives, others, calibrating, judging)

    def looking(self, planner: Planner) -> CalibrationData:
        """With the pictures that the bundle looks at."""
        vision = planner.bundle.manifest.vision

        def seen(cut: Sequence[Window]) -> list[Window]:
            found: list[Window] = []
            for drive in (*self.drives, *self.others):
                own = [window for window in cut if window.drive == drive.name]
                found += with_cameras(own, drive, vision)[0] if own else []
            return found

        return CalibrationData(self.drives, self.others, seen(self.calibrating), seen(self.judging))

    @property
    def names(self) -> list[str]:
        """Drives calibrated on, then those judged on alone."""
        return [drive.name for drive in (*self.drives, *self.others)]


def _check_once(option: str, drives: Sequence[Drive]) -> None:
    """Windows know their drive by its name, and one that is given twice counts twice."""
    called = Counter(drive.name for drive in drives)
    if twice := [name for name, count in called.items() if count > 1]:
        raise SlipstreamError(
            f"{option} names {twice[0]} twice",
            expected="drives of different names, each once",
            found=", ".join(drive.place for drive in drives if drive.name == twice[0]),
            fix=f"leave one {option} out, or rename a copy in its .json file",
        )


def _share(held: Sequence[str]) -> float | None:
    """A share, or None where drives are named."""
    if not held:
        return SHARE
    try:
        share = float(held[0])
    except ValueError:
        return None
    if len(held) > 1:
        raise SlipstreamError(
            "--held-out is given as a share and again",
            expected="one share, or drives",
            found=", ".join(held),
            fix=f"--held-out {held[0]}",
        )
    check_share(share)
    return share
