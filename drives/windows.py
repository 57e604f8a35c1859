"""Cut a drive into what a planner saw at an instant and what then happened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drives.breaks import GAP, UNKNOWN, steps
from drives.drive import MAX_GAP, Drive
from drives.frames import to_ego
from drives.motion import causal_derivative, interpolate, linear, segment_starts
from drives.rater import Rated
from planners.observation import FUTURE_STATES, PAST_STATES, RATE_HZ, Intent, Observation
from runtime.errors import SlipstreamError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

NO_HISTORY = "less than 4 s of history"
NO_FUTURE = "less than 5 s of future"

_HISTORY = PAST_STATES / RATE_HZ  # s; the oldest state is a step later, its derivatives reach back
_PAST = (PAST_STATES - 1) / RATE_HZ  # s from the oldest state to the instant
_FUTURE = FUTURE_STATES / RATE_HZ  # s
_DERIVATIVE_SPAN = 0.5  # s of samples behind an acceleration or a yaw rate
_ROUNDING = 1e-6  # s
_SHORTEST_STEP = 1e-3  # s


@dataclass(frozen=True, eq=False)
class Window:
    """One instant of a drive.

    Attributes:
        observation: the past, from samples up to the instant alone.
        future: [20, 2] m, 0.25 s to 5 s ahead, in the observation's ego frame; None where the drive
            does not hold it.
        drive_index: the drive's sample at the instant.
        drive: the drive's name.
        pose: [3] x, y (m) and heading (rad) of the ego frame in the drive's world.
        name: what the data set calls the instant; "" where it names none.
        rated: what raters said about the instant, or None.
    """

    observation: Observation
    future: Floats | None
    drive_index: int
    drive: str
    pose: Floats
    name: str = ""
    rated: Rated | None = None


@dataclass(frozen=True)
class WindowSet:
    """The windows of a drive, and how many instants were skipped for which reason."""

    windows: tuple[Window, ...]
    skipped: Counter[str]

    def __repr__(self) -> str:
        return f"WindowSet({len(self)} windows, skipped={dict(self.skipped)})"

    def __len__(self) -> int:
        return len(self.windows)

    def __iter__(self) -> Iterator[Window]:
        return iter(self.windows)

    def __getitem__(self, index: int) -> Window:
        return self.windows[index]


def windows(drive: Drive, step_s: float = 0.25, *, without_future: bool = False) -> WindowSet:
    """All windows of a drive, one every `step_s`.

    An instant is always a sample (the one nearest to each multiple of the step), so that nothing
    after it takes part in the observation: past positions, headings and speeds are interpolated
    between earlier samples; accelerations and yaw rates are slopes of the 0.5 s before each state.
    Skipped are instants with less than 4 s before or 5 s after them, and those whose 9 s hold a
    gap, an unknown pose or a jump.

    A drive whose data set stores its windows ready cut gives those, all of them, whatever the step.

    Args:
        step_s: s between windows.
        without_future: keep windows whose future is missing or broken, with `future` None.

    Raises:
        SlipstreamError: `step_s` is below 1 ms.
    """
    if not _SHORTEST_STEP <= step_s < float("inf"):
        raise SlipstreamError(
            "step_s can't cut windows",
            expected=f"a step of at least {_SHORTEST_STEP} s",
            found=f"{step_s} s",
            fix="give a step such as 0.25",
        )
    if drive.recorded is not None:
        return _recorded(drive, without_future)
    track = steps(drive)
    if len(track.samples) < 2:
        return WindowSet((), Counter({UNKNOWN: int(drive.duration / step_s + _ROUNDING) + 1}))
    times = drive.times[track.samples]
    instants, skipped = _instants(drive, times, step_s)
    behind = _reasons(times, track.reasons, times[instants] - _HISTORY, times[instants])
    ahead = _reasons(times, track.reasons, times[instants], times[instants] + _FUTURE)
    # a drive may begin or end with unknown poses, where there is no step to judge
    behind = np.where(times[instants] - _HISTORY < times[0] - _ROUNDING, UNKNOWN, behind)
    ahead = np.where(times[instants] + _FUTURE > times[-1] + _ROUNDING, UNKNOWN, ahead)
    behind = np.where(times[instants] - _HISTORY < drive.times[0] - _ROUNDING, NO_HISTORY, behind)
    ahead = np.where(times[instants] + _FUTURE > drive.times[-1] + _ROUNDING, NO_FUTURE, ahead)
    reasons = behind if without_future else np.where(behind != "", behind, ahead)
    skipped.update(str(reason) for reason in reasons if reason)
    kept = reasons == ""
    chosen = track.samples[instants[kept]]
    return WindowSet(_cut(drive, track.samples, track.broken, chosen, ahead[kept] == ""), skipped)


def last_window(drive: Drive) -> Window:
    """The window at a drive's last sample, without a future.

    Raises:
        SlipstreamError: the last sample has no known pose, less than 3.75 s lie before it, or
            those hold a gap, an unknown pose or a jump.
    """
    track = steps(drive)
    last = len(drive.times) - 1
    if not len(track.samples) or track.samples[-1] != last:
        raise _no_window(drive, f"{UNKNOWN} at the last instant")
    times = drive.times[track.samples]
    begin = times[-1] - _PAST
    if begin < drive.times[0] - _ROUNDING:
        raise _no_window(drive, f"{drive.duration:.2f} s")
    if begin < times[0] - _ROUNDING:
        raise _no_window(drive, f"{UNKNOWN} at its begin")
    (reason,) = _reasons(times, track.reasons, np.array([begin]), times[-1:])
    if reason:
        broken = [i for i in np.flatnonzero(track.broken) if times[i + 1] > begin + _ROUNDING]
        ago = times[-1] - times[broken[0]]
        raise _no_window(drive, f"{reason}, {ago:.2f} s before the last instant")
    chosen = np.array([last])
    return _cut(drive, track.samples, track.broken, chosen, np.array([False]))[0]


def _recorded(drive: Drive, without_future: bool) -> WindowSet:
    """The windows that the data set itself cut."""
    kept: list[Window] = []
    skipped: Counter[str] = Counter()
    for window in drive.recorded or ():
        if window.future is None and not without_future:
            skipped[NO_FUTURE] += 1
            continue
        x, y = drive.positions[window.sample, :2]
        kept.append(
            Window(
                observation=window.observation(len(kept)),
                future=window.future,
                drive_index=window.sample,
                drive=drive.name,
                pose=np.array([x, y, drive.headings[window.sample]]),
                name=window.name,
                rated=window.rated,
            )
        )
    return WindowSet(tuple(kept), skipped)


def _no_window(drive: Drive, found: str) -> SlipstreamError:
    return SlipstreamError(
        f"drive {drive.name} can't be planned from",
        expected=f"{_PAST} s before the last instant, samples at most {MAX_GAP} s apart, each "
        "where the speed before leads",
        found=found,
        fix="wait until there is an unbroken history, or mend the localisation",
    )


def _instants(drive: Drive, times: Floats, step_s: float) -> tuple[Ints, Counter[str]]:
    """Known samples nearest to multiples of the step, and how many found none and why."""
    count = int((drive.duration + _ROUNDING) / step_s) + 1
    wanted = drive.times[0] + np.arange(count) * step_s
    nearest = _nearest(drive.times, wanted)
    near = np.abs(drive.times[nearest] - wanted) <= 0.5 * MAX_GAP + _ROUNDING
    chosen = np.unique(nearest[near])
    known = drive.valid[chosen]
    lost = {GAP: int((~near).sum()), UNKNOWN: int((~known).sum())}
    skipped = Counter({reason: count for reason, count in lost.items() if count})
    return np.searchsorted(times, drive.times[chosen[known]]), skipped


def _nearest(times: Floats, wanted: Floats) -> Ints:
    above = np.clip(np.searchsorted(times, wanted), 1, len(times) - 1)
    earlier = wanted - times[above - 1] <= times[above] - wanted
    return np.where(earlier, above - 1, above)


def _reasons(
    times: Floats, reasons: NDArray[np.str_], begin: Floats, end: Floats
) -> NDArray[np.str_]:
    """The reason of the first broken step that overlaps each span, "" where all is sound."""
    broken = np.flatnonzero(reasons != "")
    if len(broken) == 0:
        return np.full(len(begin), "", dtype=reasons.dtype)
    # A step from sample b to b + 1 overlaps the span if it ends after its begin and starts before
    # its end.
    first = np.searchsorted(times[broken + 1], begin + _ROUNDING)
    step = broken[np.minimum(first, len(broken) - 1)]
    hit = (first < len(broken)) & (times[step] < end - _ROUNDING)
    return np.where(hit, reasons[step], "")


def _cut(
    drive: Drive,
    samples: Ints,
    broken: NDArray[np.bool_],
    chosen: Ints,
    complete: NDArray[np.bool_],
) -> tuple[Window, ...]:
    times, speeds = drive.times[samples], drive.speeds[samples]
    positions, headings = drive.positions[samples, :2], drive.headings[samples]
    starts = segment_starts(broken)
    accelerations = causal_derivative(times, speeds, starts, _DERIVATIVE_SPAN)
    yaw_rates = causal_derivative(times, headings, starts, _DERIVATIVE_SPAN)
    now = drive.times[chosen]
    origins, directions = drive.positions[chosen, :2], drive.headings[chosen]
    past_at = now[:, None] - np.arange(PAST_STATES - 1, -1, -1) / RATE_HZ
    past = interpolate(times, positions, headings, speeds, past_at)
    past_positions = to_ego(past.positions, origins, directions)
    past_headings = past.headings - directions[:, None]
    past_accelerations = linear(times, accelerations, past_at)
    past_yaw_rates = linear(times, yaw_rates, past_at)
    future_at = now[:, None] + np.arange(1, FUTURE_STATES + 1) / RATE_HZ
    future = interpolate(times, positions, headings, speeds, future_at)
    futures = to_ego(future.positions, origins, directions)
    poses = np.column_stack([origins, directions])
    intents = np.zeros(len(chosen), int) if drive.intents is None else drive.intents[chosen]
    return tuple(
        Window(
            observation=Observation(
                positions=past_positions[i],
                headings=past_headings[i],
                speeds=past.speeds[i],
                accelerations=past_accelerations[i],
                yaw_rates=past_yaw_rates[i],
                intent=Intent(int(intents[i])),
                time=float(now[i]),
                frame=i,
            ),
            future=futures[i] if complete[i] else None,
            drive_index=int(chosen[i]),
            drive=drive.name,
            pose=poses[i],
        )
        for i in range(len(chosen))
    )
