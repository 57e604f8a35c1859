"""A frame in the camera: the nearest picture, and the paths projected onto the road in it."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drives.camera import Calibration, moved
from drives.drive import Drive, ImageReferences
from drives.images import jpeg, read_image
from drives.scene_results import Line, View
from planners.observation import Observation
from runtime.errors import SlipstreamError

Floats = NDArray[np.float64]

NEAREST_S = 0.1  # s that a picture may be from the frame
WIDEST = 640  # px of a copied picture
LARGEST = 80_000  # bytes of one
_AHEAD = float(np.cos(np.radians(40.0)))  # of the optical axis of a camera that looks ahead
_SECONDS = slice(4, None, 4)  # of a path that begins at the vehicle, at 4 Hz
_ROUNDING = 1e-6  # s


@dataclass(frozen=True, eq=False)
class Paths:
    """What is drawn over a picture, in the frame's ego frame: [20, 2] m; rollouts [n, 20, 2]."""

    plan: Floats
    truth: Floats
    rollouts: Floats


@dataclass(frozen=True, eq=False)
class Picture:
    """A small copy of a camera's picture.

    Attributes:
        camera: whose.
        time: s on the drive's clock.
        jpeg: the copy.
        width, height: px of it.
    """

    camera: ImageReferences
    time: float
    jpeg: bytes
    width: int
    height: int

    @property
    def scale(self) -> Floats:
        """[2] the copy's px in one px of the calibration's; ones without a calibration."""
        known = self.camera.calibration
        own = np.array([self.width, self.height], np.float64)
        return own / own if known is None else own / (known.width, known.height)


def picture_at(drive: Drive, time: float) -> Picture | None:
    """The picture nearest to `time` of a camera that looks ahead, None without one within 0.1 s.

    Raises:
        SlipstreamError: it can't be read, or a library for it is missing.
    """
    for camera in ahead(drive.images or ()):
        index = nearest(camera, time)
        if index is not None:
            data, width, height = jpeg(read_image(camera.paths[index]), WIDEST, LARGEST)
            return Picture(camera, float(camera.times[index]), data, width, height)
    return None


def view_of(drive: Drive, observation: Observation, paths: Paths) -> tuple[View | None, str]:
    """A frame's picture with its paths, or why there is none ("" without a camera)."""
    try:
        picture = picture_at(drive, observation.time)
    except SlipstreamError as error:
        return None, f"no camera picture: {error.what} ({error.found}); {error.fix}"
    if picture is None:
        return None, f"no camera picture within {NEAREST_S:g} s of this frame" * bool(drive.images)
    calibration, late = picture.camera.calibration, picture.time - observation.time

    def at_picture(path: Floats) -> Floats:
        """The path, from where the vehicle is, in the vehicle frame of the picture's instant."""
        whole = np.concatenate([np.zeros((1, 2)), path])
        speed, yaw_rate = observation.speeds[-1], observation.yaw_rates[-1]
        return moved(whole, float(speed), float(yaw_rate), late)

    def line(path: Floats) -> list[Line]:
        return [] if calibration is None else lines(calibration, at_picture(path), picture)

    def dots(path: Floats) -> tuple[Line, list[int]]:
        if calibration is None:
            return [], []
        return spots(calibration, at_picture(path)[_SECONDS], picture)

    (plan_seconds, plan_at), (truth_seconds, truth_at) = dots(paths.plan), dots(paths.truth)
    view = View(
        camera=picture.camera.camera,
        late_ms=round(1e3 * late, 1),
        width=picture.width,
        height=picture.height,
        jpeg=base64.b64encode(picture.jpeg).decode(),
        calibration=None if calibration is None else calibration.source,
        plan=line(paths.plan),
        truth=line(paths.truth),
        rollouts=[line(rollout) for rollout in paths.rollouts],
        plan_seconds=plan_seconds,
        truth_seconds=truth_seconds,
        plan_at=plan_at,
        truth_at=truth_at,
    )
    return view, ""


def ahead(cameras: Sequence[ImageReferences]) -> list[ImageReferences]:
    """Those that look ahead, in the drive's order; where no calibration tells, by their names.

    Cameras of unknown direction are taken only if there is no better one.
    """
    told = [each for each in cameras if each.calibration and each.calibration.forward > _AHEAD]
    unknown = [each for each in cameras if each.calibration is None]
    named = [each for each in unknown if _looks_ahead(each.camera)]
    return told or named or unknown


def nearest(camera: ImageReferences, time: float) -> int | None:
    """The camera's picture nearest to `time` (s on the drive's clock) within 0.1 s."""
    away = np.abs(camera.times - time)
    index = int(np.argmin(away)) if len(away) else 0
    return index if len(away) and away[index] <= NEAREST_S + _ROUNDING else None


def lines(calibration: Calibration, path: Floats, picture: Picture) -> list[Line]:
    """Visible pieces of a path [n, 2] m (vehicle frame), px of the picture."""
    return [_rounded(piece * picture.scale) for piece in calibration.project(path)]


def spots(calibration: Calibration, points: Floats, picture: Picture) -> tuple[Line, list[int]]:
    """Those of the points [n, 2] m (vehicle frame) that lie within the picture, px of it.

    Returns:
        They, and which ones they are, counted from 1.
    """
    at = calibration.spots(points) * picture.scale
    inside = ((at >= 0) & (at <= (picture.width, picture.height))).all(axis=1)  # NaN is not
    return _rounded(at[inside]), [int(place) + 1 for place in np.flatnonzero(inside)]


def _rounded(pixels: Floats) -> Line:
    return [(round(float(x), 1), round(float(y), 1)) for x, y in pixels]


def _looks_ahead(name: str) -> bool:
    words = name.lower().replace("/", " ").replace("_", " ").replace("(", " ").split()
    return bool({"front", "road", "forward"} & {*words}) and not {"left", "right"} & {*words}
