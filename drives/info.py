"""What a drive holds, in figures, and what in it deserves a second look."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass

import numpy as np

from drives.breaks import JUMP, steps
from drives.drive import MAX_GAP, Drive
from planners.observation import FUTURE_STATES, PAST_STATES, RATE_HZ, Intent

STATIONARY = 0.3  # m/s below which the vehicle counts as standing
_NEEDED = (PAST_STATES + FUTURE_STATES) / RATE_HZ  # s, the shortest drive with a window
_SPEED_MISMATCH = 0.03
_MOSTLY = 0.9  # share of samples
_TURNS = 0.2  # rad
_STRIDE = 0.1  # m


@dataclass(frozen=True)
class DriveInfo:
    """A drive in figures.

    Attributes:
        rate_hz: median sampling rate.
        duration: s from first to last sample.
        distance: m along the recorded positions, gaps left out.
        speed_min, speed_max, speed_mean: m/s along the heading; the mean over time.
        stationary_share: of the samples with a known pose, those below 0.3 m/s.
        gaps: (start s, length s) of each hole over 0.3 s between samples.
        unknown: samples without a known pose.
        jumps: steps that no vehicle makes.
        label_frames: instants with labelled road users.
        commands: navigation command -> samples that carry it, or windows where the data set cut
            them; empty where none is known.
        cameras: camera -> frames that are referred to.
        warnings: what deserves a look, one sentence each.
    """

    name: str
    source: str
    licence: str
    synthetic: bool
    samples: int
    rate_hz: float
    duration: float
    distance: float
    speed_min: float
    speed_max: float
    speed_mean: float
    stationary_share: float
    gaps: tuple[tuple[float, float], ...]
    unknown: int
    jumps: int
    label_frames: int
    commands: dict[str, int]
    cameras: dict[str, int]
    warnings: tuple[str, ...]

    def as_dict(self) -> dict[str, object]:
        """The same as plain values, for JSON."""
        return asdict(self)


def describe(drive: Drive) -> DriveInfo:
    """Look over a drive."""
    across = np.diff(drive.times)
    holes = np.flatnonzero(across > MAX_GAP + 1e-6)
    track = steps(drive)
    speeds = drive.speeds[drive.valid]
    standing = float(np.mean(np.abs(speeds) < STATIONARY)) if len(speeds) else float("nan")
    return DriveInfo(
        name=drive.name,
        source=drive.source,
        licence=drive.licence,
        synthetic=drive.synthetic,
        samples=len(drive.times),
        rate_hz=float(1.0 / np.median(across)),
        duration=drive.duration,
        distance=drive.path_length,
        speed_min=float(speeds.min()) if len(speeds) else float("nan"),
        speed_max=float(speeds.max()) if len(speeds) else float("nan"),
        speed_mean=float(speeds.mean()) if len(speeds) else float("nan"),
        stationary_share=standing,
        gaps=tuple((float(drive.times[i]), float(across[i])) for i in holes),
        unknown=len(drive.times) - len(track.samples),
        jumps=int(np.sum(track.reasons == JUMP)),
        label_frames=len(drive.agents or ()),
        commands=_commands(drive),
        cameras={each.camera: len(each.times) for each in drive.images or ()},
        warnings=tuple(_warnings(drive)),
    )


def _commands(drive: Drive) -> dict[str, int]:
    given: Iterable[int] = () if drive.intents is None else drive.intents
    if drive.recorded is not None:
        given = (window.intent for window in drive.recorded)
    counts = Counter(Intent(int(number)).name.lower() for number in given)
    return {} if set(counts) <= {"unknown"} else dict(counts.most_common())


def _warnings(drive: Drive) -> list[str]:
    warnings = [*drive.warnings]
    across = np.diff(drive.times)
    track = steps(drive)
    if drive.duration < _NEEDED:
        warnings.append(f"lasts {drive.duration:.1f} s; a window needs {_NEEDED:g} s")
    if np.median(across) > 1.0 / RATE_HZ:
        warnings.append(f"sampled at {1.0 / np.median(across):.1f} Hz, below the planner's 4 Hz")
    if holes := int(np.sum(across > MAX_GAP + 1e-6)):
        warnings.append(f"gaps over {MAX_GAP} s: {holes}, the longest {across.max():.1f} s")
    if unknown := len(drive.times) - len(track.samples):
        warnings.append(f"samples without a known pose: {unknown}")
    if jumps := int(np.sum(track.reasons == JUMP)):
        warnings.append(f"steps that no vehicle makes: {jumps}")
    mismatch = _speed_mismatch(drive)
    if abs(mismatch) > _SPEED_MISMATCH:
        warnings.append(f"speeds lead {100 * mismatch:+.1f} % further than the positions")
    return [*warnings, *_quirks(drive)]


def _quirks(drive: Drive) -> list[str]:
    """What recordings often get wrong without breaking anything."""
    quirks = []
    known = drive.valid
    speeds, headings = drive.speeds[known], drive.headings[known]
    if len(speeds) and (standing := np.mean(np.abs(speeds) < STATIONARY)) > _MOSTLY:
        quirks.append(f"stands still in {100 * standing:.0f} % of its samples")
    if len(speeds) > 2 and speeds[-1] == speeds[-2] != speeds[-3] and speeds[-1] != 0.0:
        quirks.append("the last speed repeats the one before it")
    if len(headings) and np.ptp(headings) == 0.0 and (bend := _bend(drive)) > _TURNS:
        quirks.append(f"headings never change, while the path turns by {np.degrees(bend):.0f}°")
    return quirks


def _bend(drive: Drive) -> float:
    """rad between the outermost courses, over steps long enough to have one."""
    moves = np.diff(drive.positions[drive.valid, :2], axis=0)
    moves = moves[np.linalg.norm(moves, axis=1) > _STRIDE]
    return float(np.ptp(np.unwrap(np.arctan2(moves[:, 1], moves[:, 0])))) if len(moves) else 0.0


def _speed_mismatch(drive: Drive) -> float:
    """How much further the integrated speeds lead than the positions, over the sound steps."""
    track = steps(drive)
    sound = ~track.broken
    times, speeds = drive.times[track.samples], np.abs(drive.speeds[track.samples])
    moved = np.linalg.norm(np.diff(drive.positions[track.samples, :2], axis=0), axis=1)
    integral = (0.5 * (speeds[1:] + speeds[:-1]) * np.diff(times))[sound].sum()
    travelled = moved[sound].sum()
    return float(integral / travelled - 1.0) if travelled > 10.0 else 0.0
