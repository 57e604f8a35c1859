"""One recorded drive in memory: where the vehicle was, how it was turned, how fast it went."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from drives.camera import Calibration
from drives.motion import interpolate
from drives.recorded import RecordedWindow
from runtime.errors import SlipstreamError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LONGEST = 30 * 86400.0  # s; more is nanoseconds that were taken for seconds
MAX_GAP = 0.3  # s between samples; nothing is interpolated across more
_ROUNDING = 1e-6  # s


@dataclass(frozen=True, eq=False)
class ImageReferences:
    """Where the camera frames of a drive lie; they are named, not loaded.

    Attributes:
        camera: the camera's name.
        times: [m] s on the drive's clock.
        paths: [m] files.
        calibration: of this camera, or None where the recording has none.
    """

    camera: str
    times: Floats
    paths: tuple[str, ...]
    calibration: Calibration | None = None


@dataclass(frozen=True, eq=False)
class AgentFrame:
    """The road users labelled at one instant, in the drive's world frame.

    Attributes:
        time: s on the drive's clock.
        ids, kinds: [k] track names and classes.
        positions: [k, 3] m, centres of the boxes.
        headings: [k] rad.
        sizes: [k, 3] m, length, width, height.
    """

    time: float
    ids: tuple[str, ...]
    kinds: tuple[str, ...]
    positions: Floats
    headings: Floats
    sizes: Floats


@dataclass(frozen=True, eq=False)
class Drive:
    """A recorded drive, referred to the middle of the rear axle.

    The world frame is local and metric: x and y horizontal, z up, right-handed. A row whose pose is
    not known holds NaN; its time stamp is still there.

    Attributes:
        name: short name.
        source: one line: what it is, from where, and which lever arm was taken.
        licence: of the recording.
        synthetic: True for computed motion.
        times: [n] s, strictly increasing, from 0 at the first sample.
        positions: [n, 2] or [n, 3] m.
        headings: [n] rad from the x axis, left positive, unwrapped.
        speeds: [n] m/s along the heading, negative in reverse.
        clock_start: s, the recorder's clock at time 0.
        dataset, recording: what a record of training data calls it, e.g. Boreas and
            2021-08-05-13-34; "" where that is not known.
        intents: [n] navigation commands (`planners.observation.Intent`), or None.
        images: references to camera frames, or None.
        agents: labelled road users, or None.
        warnings: what the reader found that deserves a look, one sentence each.
        recorded: the windows of a data set that stores them ready cut, or None.
        opened_by: the name or path that `drives.open` found it by; "" of one made in memory.

    Raises:
        SlipstreamError: fewer than two samples, arrays that do not fit together, or time stamps
            that are repeated, reversed or not finite.
    """

    name: str
    source: str
    licence: str
    synthetic: bool
    times: Floats
    positions: Floats
    headings: Floats
    speeds: Floats
    clock_start: float = 0.0
    intents: Ints | None = None
    images: tuple[ImageReferences, ...] | None = None
    agents: tuple[AgentFrame, ...] | None = None
    dataset: str = ""
    recording: str = ""
    warnings: tuple[str, ...] = ()
    recorded: tuple[RecordedWindow, ...] | None = None
    opened_by: str = ""

    def __post_init__(self) -> None:
        for name in ("times", "positions", "headings", "speeds"):
            object.__setattr__(self, name, _floats(self.name, name, getattr(self, name)))
        check_times(self.times, f"drive {self.name}")
        count = len(self.times)
        intents = self.times if self.intents is None else self.intents
        shapes = {
            "headings": self.headings.shape,
            "speeds": self.speeds.shape,
            "intents": intents.shape,
        }
        for label, shape in shapes.items():
            if shape != (count,):
                raise _misfit(self.name, label, f"shape ({count},)", shape)
        if self.positions.shape not in ((count, 2), (count, 3)):
            raise _misfit(self.name, "positions", f"shape ({count}, 2 or 3)", self.positions.shape)

    @property
    def place(self) -> str:
        """What a command calls the drive: its name may be no word that opens it."""
        return self.opened_by or self.name

    @property
    def duration(self) -> float:
        """Seconds from the first to the last sample, gaps included."""
        return float(self.times[-1] - self.times[0])

    @property
    def valid(self) -> NDArray[np.bool_]:
        """[n] True where position, heading and speed are finite."""
        finite = np.isfinite(self.headings) & np.isfinite(self.speeds)
        return np.asarray(finite & np.isfinite(self.positions).all(axis=1))

    @property
    def path_length(self) -> float:
        """Metres along the recorded positions; steps over gaps and unknown poses count as 0."""
        steps = np.linalg.norm(np.diff(self.positions, axis=0), axis=1)
        near = np.diff(self.times) <= MAX_GAP + _ROUNDING
        return float(steps[near & np.isfinite(steps)].sum())

    def resample(self, rate_hz: float) -> Drive:
        """The same drive at instants 1/rate apart, without those that fall into gaps.

        Positions by cubic Hermite with the speeds as tangents (z linearly), headings and speeds
        linearly, intents from the last sample. Instants in a gap over 0.3 s, or next to an unknown
        pose, are left out, so the gap stays a gap.

        Raises:
            SlipstreamError: `rate_hz` is not positive, or nothing is left.
        """
        if not 0.0 < rate_hz < float("inf"):
            raise SlipstreamError(
                f"drive {self.name} can't be resampled",
                expected="a rate above 0 Hz",
                found=f"{rate_hz} Hz",
                fix="give a rate such as 10",
            )
        count = int(np.floor((self.duration + _ROUNDING) * rate_hz)) + 1
        at = np.minimum(self.times[0] + np.arange(count) / rate_hz, self.times[-1])
        below = np.searchsorted(self.times, at, side="right") - 1
        above = np.minimum(below + 1, len(self.times) - 1)
        exact = at == self.times[below]
        near = exact | (self.times[above] - self.times[below] <= MAX_GAP + _ROUNDING)
        known = self.valid
        keep = near & known[below] & (exact | known[above])
        if keep.sum() < 2:
            raise SlipstreamError(
                f"drive {self.name} can't be resampled at {rate_hz:g} Hz",
                expected=f"samples at most {MAX_GAP} s apart with finite poses",
                found=f"{int(keep.sum())} usable instants of {count}",
                fix=f"look at its gaps: slipstream drives info {shlex.quote(self.place)}",
            )
        state = interpolate(
            self.times[known],
            self.positions[known],
            self.headings[known],
            self.speeds[known],
            at[keep],
        )
        return replace(
            self,
            times=at[keep],
            positions=state.positions,
            headings=state.headings,
            speeds=state.speeds,
            intents=None if self.intents is None else self.intents[below[keep]],
        )


def _floats(drive: str, name: str, values: object) -> Floats:
    """Arithmetic of small integers would wrap around, that of short floats overflow."""
    array = np.asarray(values)
    if array.dtype.kind not in "fiu":
        raise SlipstreamError(
            f"drive {drive}: {name} are no numbers",
            expected="an array of floats or integers",
            found=f"an array of {array.dtype}",
            fix="convert the values",
        )
    return array.astype(np.float64, copy=False)


def check_times(times: Floats, where: str, rows: Sequence[int] | None = None) -> None:
    """Insist on finite, strictly increasing time stamps.

    Args:
        times: [n] s.
        where: the file or drive that an error names.
        rows: [n] line numbers to name; by default the samples are counted from 1.

    Raises:
        SlipstreamError: naming the first bad row.
    """
    fix = "remove or repair the rows with bad time stamps; a drive is never reordered silently"
    if times.ndim != 1 or len(times) < 2:
        raise SlipstreamError(
            f"{where} is too short to be a drive",
            expected="at least 2 samples",
            found=f"{times.size} time stamps",
            fix="check that the file is complete",
        )
    with np.errstate(over="ignore", invalid="ignore"):
        length = times[-1] - times[0]
        gaps = np.diff(times)
    if length > LONGEST:
        raise SlipstreamError(
            f"{where} has time stamps in another unit than its format",
            expected=f"a drive of at most {LONGEST:g} s",
            found=f"{length:g} s from the first to the last row",
            fix="store seconds, or remove the rows with bad time stamps",
        )
    bad = ~np.isfinite(times)
    bad[1:] |= ~(gaps > 0.0)
    if not bad.any():
        return
    first = int(np.argmax(bad))
    row = first + 1 if rows is None else rows[first]
    found = f"row {row} has {float(times[first])!r} s"
    if first > 0:
        kind = "repeated" if times[first] == times[first - 1] else "reversed"
        found += (
            f" after {float(times[first - 1])!r} s ({kind})" if np.isfinite(times[first]) else ""
        )
    raise SlipstreamError(
        f"{where} has a bad time stamp in row {row}",
        expected="finite time stamps that increase from row to row",
        found=found,
        fix=fix,
    )


def _misfit(name: str, label: str, expected: str, shape: tuple[int, ...]) -> SlipstreamError:
    return SlipstreamError(
        f"drive {name}: {label} don't fit its time stamps",
        expected=expected,
        found=f"shape {shape}",
        fix="give one row for every time stamp",
    )
