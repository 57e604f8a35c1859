"""A calibrated camera on the vehicle: where points of the road appear in its pictures.

Pinhole with the Brown-Conrady lens (k1, k2, p1, p2, k3), as OpenCV, ROS (`plumb_bob`) and Waymo
number it; Brown, "Close-range camera calibration", Photogrammetric Engineering 37 (1971).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.errors import SlipstreamError

Floats = NDArray[np.float64]

NEAR = 0.5  # m in front of the lens; nearer points would fill the picture
_STEP = 0.5  # m between the points that a bent line is drawn through
_SQUARE = 1e-3  # that a rotation may miss
_FAR = 1e3  # m from the axle; no camera is mounted there
_LENS = 5  # coefficients


@dataclass(frozen=True, eq=False)
class Calibration:
    """Intrinsics, and the camera's pose in the vehicle frame (rear axle, x forward, y left, z up).

    Attributes:
        width, height: px of the pictures that the intrinsics are for.
        fx, fy: px.
        cx, cy: px, the principal point from the top left corner.
        rotation: [3, 3] vehicle from camera (x right, y down, z along the optical axis).
        position: [3] m, the camera in the vehicle frame.
        source: one line: from where, and what of it is nominal; errors and the report show it.
        road: m, height of the road in the vehicle frame.
        distortion: (k1, k2, p1, p2, k3), or () for pictures without any.

    Raises:
        SlipstreamError: a value that is not finite or can't be a camera's.
    """

    width: int
    height: int
    fx: float
    fy: float
    cx: float
    cy: float
    rotation: Floats
    position: Floats
    source: str
    road: float = 0.0
    distortion: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        numbers = [self.fx, self.fy, self.cx, self.cy, self.road, *self.distortion]
        sizes = f"{self.width} x {self.height} px, f {self.fx:g}, {self.fy:g} px"
        if not np.isfinite(numbers).all() or min(self.width, self.height) < 1:
            raise self._bad("finite intrinsics and a picture's size", sizes)
        if min(self.fx, self.fy) <= 0 or max(map(abs, numbers)) > 1e6:
            raise self._bad("focal lengths above 0 px", sizes)
        if len(self.distortion) not in (0, _LENS):
            raise self._bad("k1, k2, p1, p2, k3", f"{len(self.distortion)} coefficients")
        if self.position.shape != (3,) or not (np.abs(self.position) < _FAR).all():  # NaN too
            raise self._bad("a position [3] in m", np.array2string(self.position))
        square = self.rotation.shape == (3, 3) and np.isfinite(self.rotation).all()
        product = self.rotation @ self.rotation.T if square else np.zeros((3, 3))
        if np.abs(product - np.eye(3)).max() > _SQUARE or np.linalg.det(self.rotation) < 0:
            found = " ".join(np.array2string(self.rotation, precision=3).split())
            raise self._bad("a rotation [3, 3]", found[:200])

    @property
    def forward(self) -> float:
        """Cosine between the optical axis and the vehicle's x axis."""
        return float(self.rotation[0, 2])

    def project(self, points: Floats) -> list[Floats]:
        """A line on the road as it appears in the picture.

        Args:
            points: [n, 2] m, in the vehicle frame at the picture's instant.

        Returns:
            The visible pieces, [k, 2] px each with k >= 2, from the top left corner; they may lead
            out of the picture, and none is where the line is behind the camera or beyond the lens.
        """
        seen = self._seen(points)
        if self.distortion:
            seen = _closer(seen)
        pieces = (_normalised(piece) for piece in _in_front(seen))
        lines = [line for piece in pieces for line in self._within_lens(piece)]
        return [np.column_stack(self._pixels(line)) for line in lines]

    def spots(self, points: Floats) -> Floats:
        """Where single points [n, 2] of the road appear, [n, 2] px; NaN where they don't."""
        seen = self._seen(points)
        at = np.full((len(points), 2), np.nan)
        front = seen[:, 2] >= NEAR
        at[front] = _normalised(seen[front])
        at[~(np.hypot(*at.T) < self._limit)] = np.nan
        return np.column_stack(self._pixels(at))

    def _seen(self, points: Floats) -> Floats:
        """Points of the road in the camera's frame, [n, 3] m."""
        ground = np.column_stack([points, np.full(len(points), self.road)])
        return np.asarray((ground - self.position) @ self.rotation)

    def _pixels(self, at: Floats) -> tuple[Floats, Floats]:
        x, y = at.T
        if self.distortion:
            k1, k2, p1, p2, k3 = self.distortion
            square = x * x + y * y
            radial = 1 + square * (k1 + square * (k2 + square * k3))
            bent = x * radial + 2 * p1 * x * y + p2 * (square + 2 * x * x)
            y = y * radial + p1 * (square + 2 * y * y) + 2 * p2 * x * y
            x = bent
        return self.fx * x + self.cx, self.fy * y + self.cy

    def _within_lens(self, at: Floats) -> list[Floats]:
        """Pieces of [n, 2] within the radius up to which the lens model is one to one."""
        return _runs(at, np.hypot(*at.T) < self._limit)

    @property
    def _limit(self) -> float:
        """Where r (1 + k1 r² + k2 r⁴ + k3 r⁶) stops growing; beyond, points would fold back."""
        if not self.distortion:
            return float("inf")
        k1, k2, _, _, k3 = self.distortion
        roots = np.roots([7 * k3, 5 * k2, 3 * k1, 1.0])
        real = roots[np.abs(roots.imag) < 1e-9].real
        return float(np.sqrt(real[real > 0].min())) if (real > 0).any() else float("inf")

    def _bad(self, expected: str, found: str) -> SlipstreamError:
        return SlipstreamError(
            f"the calibration of a camera can't be used: {self.source}",
            expected=expected,
            found=found,
            fix="mend the calibration, or remove it: the drive is read without it",
        )


def calibrated(where: str, fix: str, **values: Any) -> Calibration:
    """A `Calibration` of `values`, read from a recording.

    Args:
        where: the file, and which camera of it.
        fix: what mends the file.

    Raises:
        SlipstreamError: naming the file.
    """
    try:
        return Calibration(**values)
    except SlipstreamError as error:
        raise SlipstreamError(
            f"{where} has a calibration that can't be used",
            expected=error.expected,
            found=error.found,
            fix=fix,
        ) from error


def moved(points: Floats, speed: float, yaw_rate: float, after: float) -> Floats:
    """Points [n, 2] of one instant's vehicle frame in that of `after` s later.

    Args:
        speed, yaw_rate: m/s and rad/s (left positive), taken as constant meanwhile.
    """
    turn = yaw_rate * after
    middle = 0.5 * turn
    gone = speed * after * np.array([np.cos(middle), np.sin(middle)])
    cos, sin = np.cos(turn), np.sin(turn)
    return np.asarray((points - gone) @ np.array([[cos, -sin], [sin, cos]]))


def _in_front(seen: Floats) -> list[Floats]:
    """Pieces of the line [n, 3] (camera frame) at least NEAR in front of the camera."""
    depth = seen[:, 2]
    points = [seen[:1]]
    for a, b in pairwise(seen):
        if (a[2] - NEAR) * (b[2] - NEAR) < 0:
            points.append((a + (NEAR - a[2]) / (b[2] - a[2]) * (b - a))[None])
        points.append(b[None])
    line = np.concatenate(points) if len(depth) else seen
    return _runs(line, line[:, 2] >= NEAR - 1e-9)


def _runs(line: Floats, keep: NDArray[np.bool_]) -> list[Floats]:
    """Stretches of at least two points in a row that are kept."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], keep, [False]]).astype(int)))
    spans = edges.reshape(-1, 2)
    return [line[begin:end] for begin, end in spans if end - begin > 1]


def _closer(line: Floats) -> Floats:
    """The same line [n, 3] with points at most `_STEP` apart, for a lens that bends it."""
    if len(line) < 2:
        return line
    along = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(line, axis=0), axis=1))])
    at = np.union1d(along, np.arange(0.0, along[-1], _STEP))
    return np.stack([np.interp(at, along, axis) for axis in line.T], axis=1)


def _normalised(seen: Floats) -> Floats:
    return np.asarray(seen[:, :2] / seen[:, 2:])
