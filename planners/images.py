"""Camera pictures to the patches that the vision graph takes, as the checkpoint's processor does.

Bicubic resize to the exported grid, x / 255, (x - mean) / std, and patches in blocks of
merge x merge (Qwen2-VL, arXiv 2409.12191). Pillow resizes, as in transformers' PIL processors;
its torchvision processors round between the two passes of a resize in another way.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.bundle import CameraDims, VisionDims
from runtime.errors import SlipstreamError
from runtime.vision_dims import CHANNELS

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]

_BICUBIC = 3  # Pillow's number


def patches(images: Sequence[Bytes], vision: VisionDims) -> Floats:
    """The rows of the vision graph's input `patches`.

    Args:
        images: each camera's frames, oldest first, camera after camera in the rig's order;
            [height, width, 3] of uint8: red, green, blue.
        vision: the rig, and how pictures become patches.

    Returns:
        [rows, channels * temporal_patch * patch^2]. A video whose frames don't fill its last
        patches repeats the last one; an image is repeated in all of its patch.

    Raises:
        SlipstreamError: another number of pictures, one that is no picture or has another size than
            its camera's, or Pillow is not installed.
    """
    expected = sum(camera.frames for camera in vision.cameras)
    count = len(images) if hasattr(images, "__len__") else 0
    if count != expected:
        raise SlipstreamError(
            "images has the wrong length",
            expected=f"{expected}: {_rig(vision)}",
            found=f"{count} in a {type(images).__name__}",
            fix="give each camera's frames, oldest first, in this order",
        )
    cameras = [camera for camera in vision.cameras for _ in range(camera.frames)]
    checked = [_checked(image, camera) for image, camera in zip(images, cameras, strict=True)]
    # Pillow works without Python's lock: cameras are resized side by side
    with ThreadPoolExecutor(min(len(checked), os.cpu_count() or 1)) as pool:
        resized = list(pool.map(partial(_resized, vision=vision), checked, cameras))
    rows = np.empty((vision.rows, vision.patch_size), np.float32)
    first = at = 0
    for camera in vision.cameras:
        count = prod(camera.grid)
        frames = resized[first : first + camera.frames]
        _write(rows[at : at + count], frames, camera, vision)
        first, at = first + camera.frames, at + count
    return rows


def _write(out: Floats, frames: list[Bytes], camera: CameraDims, vision: VisionDims) -> None:
    """Write a camera's rows: in time, blocks of patches, patches of a block; in each of them
    channels, frames, pixels."""
    time, height, width = camera.grid
    merge, patch, depth = vision.merge, vision.patch, vision.temporal_patch
    down, across = height // merge, width // merge
    out = out.reshape(time, down, across, merge, merge, CHANNELS, depth, patch, patch)
    mean, std = (np.array(each, np.float64) for each in (vision.mean, vision.std))
    scale, shift = (
        each.astype(np.float32)[:, None, None] for each in (1 / (255 * std), -mean / std)
    )
    for i in range(time * depth):
        if i < len(frames):
            pixels = frames[i].reshape(down, merge, patch, across, merge, patch, CHANNELS)
            pixels = np.ascontiguousarray(pixels.transpose(0, 3, 1, 4, 6, 2, 5))
            values = pixels.astype(np.float32)
            values *= scale
            values += shift
        out[i // depth, ..., i % depth, :, :] = values  # the last frame fills up its patch


def _resized(image: Bytes, camera: CameraDims, vision: VisionDims) -> Bytes:
    _, height, width = camera.grid
    size = (width * vision.patch, height * vision.patch)
    if size == (camera.width, camera.height):
        return image
    return np.asarray(_pillow().fromarray(image).resize(size, resample=_BICUBIC))


def _checked(image: Any, camera: CameraDims) -> Bytes:
    which = f"camera {camera.name}"
    wanted = (camera.height, camera.width, CHANNELS)
    try:
        array = np.asarray(image)
    except Exception as error:  # of rows of several lengths, or of whatever gives the pixels
        raise SlipstreamError(
            f"{which}: the picture can't be read",
            expected=f"numpy.uint8 of shape {list(wanted)}",
            found=f"{type(error).__name__}: {error}"[:120],
            fix="give a numpy array: np.asarray(picture)",
        ) from error
    if array.dtype != np.uint8:
        finite = "" if array.dtype.kind != "f" or np.isfinite(array).all() else ", not all finite"
        raise SlipstreamError(
            f"{which}: the picture has the wrong type",
            expected="uint8, 0..255",
            found=f"{array.dtype}{finite}",
            fix="give pixels as they come from the camera: np.uint8, not scaled",
        )
    if array.ndim != 3 or array.shape[2] != CHANNELS:
        raise SlipstreamError(
            f"{which}: the picture has no three channels",
            expected=f"{list(wanted)}: height, width, and red, green, blue",
            found=str(list(array.shape)),
            fix="np.repeat(grey[..., None], 3, axis=2) for a grey picture",
        )
    if array.shape != wanted:
        raise SlipstreamError(
            f"{which}: the picture has another size than the bundle was exported for",
            expected=f"{camera.width}x{camera.height}",
            found=f"{array.shape[1]}x{array.shape[0]}",
            fix=f"slipstream export ... --camera {camera.name}={array.shape[1]}x{array.shape[0]}",
        )
    return array


def _rig(vision: VisionDims) -> str:
    """The rig in words: front 1280x720, left 1280x720 x 2 frames."""
    return ", ".join(
        f"{camera.name} {camera.width}x{camera.height}"
        + (f" x {camera.frames} frames" if camera.frames > 1 else "")
        for camera in vision.cameras
    )


def _pillow() -> Any:
    try:
        return import_module("PIL.Image")
    except ImportError as error:
        raise SlipstreamError(
            "camera pictures can't be resized",
            expected="the package pillow",
            found=str(error),
            fix="pip install pillow, or pip install '.[drives]' in slipstream's folder",
        ) from error
