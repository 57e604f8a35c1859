"""Pictures for planners with cameras: those a drive took before an instant, decoded when asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from drives.drive import Drive, ImageReferences
from drives.images import read_image
from drives.views import ahead
from drives.windows import Window
from runtime.errors import SlipstreamError
from runtime.vision_dims import CameraDims, VisionDims

Bytes = NDArray[np.uint8]

LATEST_S = 0.15  # s that a picture may be older than the instant it is for
KEPT = 16  # decoded pictures: every decoder of a replay plans the same frame
_ROUNDING = 1e-6  # s


@dataclass(frozen=True)
class Pictures(Mapping[str, list[Bytes]]):
    """An instant's pictures by camera, decoded when they are asked for.

    Attributes:
        references: of each camera's frames, oldest first; see `drives.images`.
    """

    references: Mapping[str, tuple[str, ...]]

    def __getitem__(self, camera: str) -> list[Bytes]:
        return [_decoded(reference) for reference in self.references[camera]]

    def __iter__(self) -> Iterator[str]:
        return iter(self.references)

    def __len__(self) -> int:
        return len(self.references)


def with_cameras(
    windows: Sequence[Window], drive: Drive, vision: VisionDims | None
) -> tuple[list[Window], Counter[str]]:
    """The windows with the pictures that a bundle asks for, and why others were left out.

    A picture is the newest that the camera took up to the instant; more frames of it lie
    1 / frame_rate apart. Nothing is decoded here. Cameras go by their names; a rig of one camera
    also takes the drive's camera that looks ahead.

    Args:
        vision: the bundle's; None leaves the windows as they are.

    Raises:
        SlipstreamError: the drive lacks a camera, or has no picture for any of the windows.
    """
    if vision is None:
        return list(windows), Counter()
    cameras = [(camera, _taken_by(camera, drive, vision)) for camera in vision.cameras]
    seen: list[Window] = []
    skipped: Counter[str] = Counter()
    for window in windows:
        time, found = window.observation.time, {}
        for camera, images in cameras:
            wanted = time - np.arange(camera.frames)[::-1] / vision.frame_rate
            references = _newest(images, wanted)
            if references is None:
                skipped[f"no picture of camera {camera.name}"] += 1
                break
            found[camera.name] = references
        else:
            looking = replace(window.observation, images=Pictures(found))
            seen.append(replace(window, observation=looking))
    if windows and not seen:
        raise SlipstreamError(
            f"drive {drive.name} has no pictures for these frames",
            expected=f"one of each camera at most {LATEST_S:g} s before a frame",
            found=", ".join(f"{reason}: {count} frames" for reason, count in skipped.items()),
            fix="choose other --frames, or a recording that holds its pictures",
        )
    return seen, skipped


def _taken_by(camera: CameraDims, drive: Drive, vision: VisionDims) -> ImageReferences:
    images = drive.images or ()
    named = [each for each in images if each.camera == camera.name]
    if not named and len(vision.cameras) == 1:
        named = ahead(images)
    if not named:
        raise SlipstreamError(
            f"drive {drive.name} has no camera {camera.name}, which the bundle looks through",
            expected=", ".join(each.name for each in vision.cameras),
            found=", ".join(each.camera for each in images) or "no camera",
            fix="export the bundle with the drive's cameras: --camera NAME=WIDTHxHEIGHT",
        )
    return named[0]


def _newest(images: ImageReferences, wanted: NDArray[np.float64]) -> tuple[str, ...] | None:
    """The newest picture up to each of the times, None where one is too old or there is none."""
    at = np.searchsorted(images.times, wanted + _ROUNDING, side="right") - 1
    if (at < 0).any() or (wanted - images.times[at] > LATEST_S + _ROUNDING).any():
        return None
    return tuple(images.paths[i] for i in at)


@lru_cache(maxsize=KEPT)
def _decoded(reference: str) -> Bytes:
    pixels = read_image(reference)
    pixels.flags.writeable = False  # it may be given out again
    return pixels
