"""A clip's frames laid over one another: one track, and each frame's own window beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drives.frames import to_world
from drives.motion import interpolate
from drives.readers.wod_e2e_frame import ClipFrame
from drives.recorded import RecordedWindow, along_the_way
from planners.observation import PAST_STATES, RATE_HZ, Intent

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

FRAME_PERIOD = 0.1  # s from a frame number to the next
_STEP = 1.0 / RATE_HZ
_TURN_NEEDS = 2.0  # m of common path below which no turn is read from it
_DISAGREE = 1.0  # m between two frames' versions of one stretch
_ROUNDING = 1e-6  # s


@dataclass(frozen=True, eq=False)
class Track:
    """A clip's motion in the ego frame of its first frame.

    Attributes:
        times: [n] s, 0 at frame number 0.
        positions: [n, 2] m; headings: [n] rad; speeds: [n] m/s; intents: [n].
        instants: [f] the sample at each frame.
        warnings: where frames don't fit together.
    """

    times: Floats
    positions: Floats
    headings: Floats
    speeds: Floats
    intents: Ints
    instants: Ints
    warnings: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class _Piece:
    """One frame's own motion, past and future, in its ego frame; the instant is sample `now`."""

    times: Floats
    positions: Floats
    headings: Floats
    speeds: Floats
    accelerations: Floats
    now: int


def joined(frames: Sequence[ClipFrame]) -> Track:
    """Lay frames over one another, each by a turn and a shift onto the one before.

    Between two frames stands the earlier one's future and, where that ends, the later one's past;
    before the first frame its past.

    Args:
        frames: of one clip, by rising index.
    """
    shifted = _shifted(frames)
    pieces = [_piece(frame, shifted) for frame in frames]
    rows: list[Floats] = []
    instants, warnings = [], []
    origin, heading = np.zeros(2), 0.0
    for number, (frame, piece) in enumerate(zip(frames, pieces, strict=True)):
        if number:
            step, turn, problem = _onto(pieces[number - 1], piece)
            origin, heading = to_world(step, origin, heading), heading + turn
            if problem:
                warnings.append(f"{frames[number - 1].name} and {frame.name} {problem}")
        first = int(np.searchsorted(piece.times, rows[-1][-1, 0] + _ROUNDING)) if rows else 0
        last = len(piece.times)
        if number + 1 < len(pieces):
            until = pieces[number + 1].times[pieces[number + 1].now] - _ROUNDING
            last = int(np.searchsorted(piece.times, until))
        instants.append(sum(map(len, rows)) + piece.now - first)
        taken = slice(first, last)
        world = to_world(piece.positions[taken], origin, heading)
        intents = np.where(np.arange(first, last) < piece.now, Intent.UNKNOWN, frame.intent)
        columns = [piece.times[taken], *world.T, piece.headings[taken] + heading]
        rows.append(np.column_stack([*columns, piece.speeds[taken], intents]))
    table = np.concatenate(rows)
    return Track(
        times=table[:, 0],
        positions=table[:, 1:3],
        headings=table[:, 3],
        speeds=table[:, 4],
        intents=table[:, 5].astype(np.int64),
        instants=np.array(instants),
        warnings=tuple(warnings),
    )


def windows_of(frames: Sequence[ClipFrame], track: Track) -> tuple[RecordedWindow, ...]:
    """Each frame's own window; its headings and speeds are read from the recorded velocities."""
    shifted = _shifted(frames)
    return tuple(
        _window(frame, shifted, float(track.times[instant] - track.times[0]), int(instant))
        for frame, instant in zip(frames, track.instants, strict=True)
    )


def lone_window(frame: ClipFrame) -> RecordedWindow:
    """A frame's own window without the rest of its clip; `time` is that of its number."""
    return _window(frame, _shifted([frame]), frame.index * FRAME_PERIOD, 0)


def _window(frame: ClipFrame, shifted: bool, time: float, sample: int) -> RecordedWindow:
    piece = _piece(frame, shifted)
    return RecordedWindow(
        name=frame.name,
        time=time,
        sample=sample,
        positions=frame.past,
        headings=piece.headings[:PAST_STATES],
        speeds=piece.speeds[:PAST_STATES],
        accelerations=piece.accelerations,
        future=frame.future,
        intent=frame.intent,
        rated=frame.rated,
    )


def _shifted(frames: Sequence[ClipFrame]) -> bool:
    """Is each velocity that of the next state, as the repeated last one shows?"""
    return all((frame.velocities[-1] == frame.velocities[-2]).all() for frame in frames)


def _piece(frame: ClipFrame, shifted: bool) -> _Piece:
    velocities = frame.velocities
    if shifted:
        first = 2.0 * velocities[:1] - velocities[1:2]  # not stored; as if it went on evenly
        velocities = np.concatenate([first, velocities[:-1]])
    backwards, speeds = along_the_way(velocities[::-1], 0.0)
    headings = backwards[::-1]
    along = np.stack([np.cos(headings), np.sin(headings)], axis=1)
    accelerations = (frame.accelerations * along).sum(axis=1)
    headings = headings - headings[-1]  # what little it slips now, it slipped before
    past: Floats = np.arange(1 - PAST_STATES, 1, dtype=np.float64) * _STEP
    now = frame.index * FRAME_PERIOD
    if frame.future is None:
        return _Piece(
            past + now, frame.past, headings, speeds[::-1], accelerations, PAST_STATES - 1
        )
    path = np.concatenate([frame.past[-1:], frame.future])
    ahead, ahead_speeds = along_the_way(np.gradient(path, _STEP, axis=0)[1:], 0.0)
    return _Piece(
        times=np.concatenate([past, np.arange(1, len(path)) * _STEP]) + now,
        positions=np.concatenate([frame.past, frame.future]),
        headings=np.concatenate([headings, ahead]),
        speeds=np.concatenate([speeds[::-1], ahead_speeds]),
        accelerations=accelerations,
        now=PAST_STATES - 1,
    )


def _onto(before: _Piece, piece: _Piece) -> tuple[Floats, float, str]:
    """The pose ([2] m, rad) of a frame in the frame before, and what is wrong with it.

    Least squares over the samples of the later frame that lie within the earlier one (Umeyama,
    PAMI 1991, in the plane).
    """
    inside = piece.times <= before.times[-1] + _ROUNDING
    inside &= piece.times >= before.times[0] - _ROUNDING
    if inside.sum() < 2:
        moved = before.speeds[-1] * (piece.times[piece.now] - before.times[-1])
        heading = float(before.headings[-1])
        ahead = np.array([np.cos(heading), np.sin(heading)])
        lost = "have no common motion: how one lies to the other is guessed"
        return before.positions[-1] + moved * ahead, heading, lost
    wanted = interpolate(
        before.times, before.positions, before.headings, before.speeds, piece.times[inside]
    ).positions
    given = piece.positions[inside]
    a, b = given - given.mean(axis=0), wanted - wanted.mean(axis=0)
    cross, dot = a[:, 0] @ b[:, 1] - a[:, 1] @ b[:, 0], (a * b).sum()
    far = np.ptp(given, axis=0).max() >= _TURN_NEEDS
    turn = float(np.arctan2(cross, dot)) if far else 0.0
    step = wanted.mean(axis=0) - to_world(given.mean(axis=0), np.zeros(2), turn)
    off = np.linalg.norm(to_world(given, step, turn) - wanted, axis=1).max()
    problem = f"disagree by {off:.1f} m on their common motion" if off > _DISAGREE else ""
    return step, turn, problem
