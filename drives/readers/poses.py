"""What readers of pose tables share: dense stamps thinned, quaternions checked, speeds derived."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from drives.drive import MAX_GAP
from drives.motion import causal_derivative, segment_starts
from runtime.errors import SlipstreamError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SHORTEST_STEP = 0.005  # s; poses closer than this differ by their jitter
_SPEED_SPAN = 0.5  # s of poses behind a speed
_NO_UNIT = 0.01
_FARTHEST = 1e7  # m; more is no map frame
_FASTEST = 1e3  # m/s
_ROUNDING = 1e-6  # s


def thinned(times: Floats) -> Ints:
    """Indices of the first sample and of each that is at least 5 ms after the one taken before.

    Args:
        times: [n] s, increasing.
    """
    taken = []
    last = -np.inf
    for index, time in enumerate(times.tolist()):
        if time - last >= SHORTEST_STEP - _ROUNDING:
            taken.append(index)
            last = time
    return np.array(taken, dtype=np.int64)


def speeds_of_poses(times: Floats, positions: Floats, headings: Floats) -> Floats:
    """[n] m/s along the heading, from a parabola through the poses of the last 0.5 s.

    Args:
        times: [n] s, increasing; positions: [n, 2 or 3] m; headings: [n] rad. NaN is unknown.
    """
    known = np.isfinite(positions).all(axis=1) & np.isfinite(headings)
    broken = (np.diff(times) > MAX_GAP + _ROUNDING) | ~known[1:] | ~known[:-1]
    starts = segment_starts(broken)
    x, y = (causal_derivative(times, positions[:, i], starts, _SPEED_SPAN, 2) for i in (0, 1))
    return np.where(known, x * np.cos(headings) + y * np.sin(headings), np.nan)


def check_quaternions(path: Path, quaternions: Floats, fix: str) -> None:
    """Insist on unit quaternions; rows with NaN are unknown poses.

    Args:
        quaternions: [n, 4].
        fix: what mends the file.

    Raises:
        SlipstreamError: naming the first bad row.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        bad = np.abs(np.linalg.norm(quaternions, axis=1) - 1.0) > _NO_UNIT
    if bad.any():
        row = int(np.argmax(bad))
        raise SlipstreamError(
            f"{path} row {row + 1} is not an orientation",
            expected="a unit quaternion",
            found=str(quaternions[row]),
            fix=fix,
        )


def check_positions(path: Path, positions: Floats, fix: str) -> None:
    """Insist on positions within 10,000 km of the map's origin; NaN is unknown.

    Args:
        positions: [n, 2 or 3] m.
        fix: what mends the file.

    Raises:
        SlipstreamError: naming the first bad row.
    """
    bad = (np.abs(positions) > _FARTHEST).any(axis=1)
    if bad.any():
        row = int(np.argmax(bad))
        raise SlipstreamError(
            f"{path} row {row + 1} is not a position",
            expected=f"metres, within {_FARTHEST:g} of the origin",
            found=str(positions[row]),
            fix=fix,
        )


def check_speeds(path: Path, speeds: Floats, fix: str) -> None:
    """Insist on speeds below 1,000 m/s; NaN is unknown.

    Args:
        speeds: [n] m/s.
        fix: what mends the file.

    Raises:
        SlipstreamError: naming the first bad row.
    """
    bad = np.abs(speeds) > _FASTEST
    if bad.any():
        row = int(np.argmax(bad))
        raise SlipstreamError(
            f"{path} row {row + 1} is not a speed",
            expected=f"metres per second, below {_FASTEST:g}",
            found=f"{speeds[row]:g}",
            fix=fix,
        )
