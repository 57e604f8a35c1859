"""The picture behind a reference of `Drive.images`, decoded when it is asked for.

A reference is a file, or a file and where in it the picture stands:

- `shot.png`, `shot.jpg`: an image file;
- `video.ts#frame=12`: a picture of a video, counted from 0 in the order of showing;
- `bag.mcap#topic=/camera&time=38163620661`: a message of a ROS 2 bag;
- `val.tfrecord#1024+8192`: bytes of a file that are an image.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drives.readers.extra import library
from drives.readers.rosbag2 import read_message
from drives.readers.wod_e2e import read_jpeg
from runtime.errors import SlipstreamError

Bytes = NDArray[np.uint8]

_MOST_PIXELS = 64_000_000
_LANCZOS = 1  # Pillow's number
_QUALITIES = (82, 70, 55)
_NARROWEST = 80  # px
_CHANNELS = {"mono8": [0], "8UC1": [0], "rgb8": [0, 1, 2], "bgr8": [2, 1, 0]}
_CHANNELS |= {"8UC3": [2, 1, 0], "rgba8": [0, 1, 2], "bgra8": [2, 1, 0]}
_WIDTHS = {"mono8": 1, "8UC1": 1, "rgba8": 4, "bgra8": 4}


def read_image(reference: str) -> Bytes:
    """The picture that a reference names.

    Returns:
        [height, width, 3], red, green, blue.

    Raises:
        SlipstreamError: no such file or picture, a damaged one, or an encoding that is not known.
    """
    place, _, within = reference.rpartition("#")
    if within.startswith("frame=") and _is_number(within[6:]):
        return _of_video(Path(place), int(within[6:]))
    if within.startswith("topic="):
        return _of_message(reference, read_message(reference))
    start, plus, length = within.partition("+")
    if plus and _is_number(start) and _is_number(length):
        return _decoded(reference, read_jpeg(reference))
    try:
        return _decoded(reference, Path(reference).read_bytes())
    except OSError as error:
        raise _no_image(reference, error.strerror or str(error)) from error


def jpeg(pixels: Bytes, widest: int, largest: int) -> tuple[bytes, int, int]:
    """A small copy of a picture.

    Args:
        pixels: [height, width, 3].
        widest: px; a wider picture is scaled down.
        largest: bytes; quality, then size give way until it fits.

    Returns:
        The JPEG, its width and its height.

    Raises:
        SlipstreamError: Pillow is not installed.
    """
    made = library("PIL.Image", "an image").fromarray(pixels)
    width = min(widest, made.width)
    while True:
        height = max(1, round(made.height * width / made.width))
        scaled = made if width == made.width else made.resize((width, height), _LANCZOS)
        for quality in _QUALITIES:
            file = io.BytesIO()
            scaled.save(file, "JPEG", quality=quality, optimize=True)
            if file.tell() <= largest or width <= _NARROWEST:
                return file.getvalue(), width, height
        width = max(_NARROWEST, width // 2)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 18


def _decoded(reference: str, data: bytes) -> Bytes:
    """PNG, JPEG and what else Pillow knows."""
    image = library("PIL.Image", "an image")
    try:
        with image.open(io.BytesIO(data)) as opened:
            if opened.width * opened.height > _MOST_PIXELS:
                raise _no_image(reference, f"{opened.width} x {opened.height} pixels")
            return np.asarray(opened.convert("RGB"), dtype=np.uint8)
    except SlipstreamError:
        raise
    except image.UnidentifiedImageError as error:
        raise _no_image(reference, "bytes of no image format") from error
    except Exception as error:  # Pillow's decoders raise whatever they meet
        raise _no_image(reference, str(error) or type(error).__name__) from error


def _of_message(reference: str, message: Any) -> Bytes:
    """sensor_msgs CompressedImage or Image."""
    if hasattr(message, "format"):
        return _decoded(reference, bytes(message.data))
    channels = _CHANNELS.get(message.encoding)
    if channels is None:
        raise _no_image(reference, f"encoding {message.encoding!r}", ", ".join(_CHANNELS))
    width = _WIDTHS.get(message.encoding, 3)
    rows = np.asarray(message.data, dtype=np.uint8)
    row = message.width * width
    if message.step < row or len(rows) != message.height * message.step:
        raise _no_image(reference, f"{len(rows)} bytes in rows of {message.step}")
    pixels = rows.reshape(message.height, message.step)[:, :row]
    pixels = pixels.reshape(message.height, message.width, width)[:, :, channels]
    return np.ascontiguousarray(np.broadcast_to(pixels, (*pixels.shape[:2], 3)))


def video_size(path: Path) -> tuple[int, int]:
    """Width and height in px of a video's pictures.

    Raises:
        SlipstreamError: PyAV is not installed, or no video.
    """
    with _video(path) as (_, stream):
        return int(stream.width), int(stream.height)


def _of_video(path: Path, number: int) -> Bytes:
    """Decodes from the key frame before, or from the begin where seeking goes too far."""
    reference = f"{path}#frame={number}"
    try:
        shown, keys = _index(str(path), path.stat().st_mtime_ns)
    except OSError as error:
        raise _no_image(reference, error.strerror or str(error)) from error
    if number >= len(shown):
        raise _no_image(reference, f"a video of {len(shown)} pictures")
    before = [key for key in keys if key <= shown[number]]
    for start in (*before[-1:], None):
        with _video(path) as (container, stream):
            if start is not None:
                container.seek(start, stream=stream, backward=True)
            frames = (frame for frame in container.decode(stream) if frame.pts is not None)
            frame = next((frame for frame in frames if frame.pts >= shown[number]), None)
            if frame is not None and frame.pts == shown[number]:
                return np.asarray(frame.to_ndarray(format="rgb24"), dtype=np.uint8)
    raise _no_image(reference, "a video that can't be decoded there")


@lru_cache(maxsize=16)
def _index(path: str, _changed: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Time stamps of a video's pictures in the order of showing, and of its key frames."""
    with _video(Path(path)) as (container, stream):
        packets = [p for p in container.demux(stream) if p.pts is not None and p.size]
        shown = sorted(packet.pts for packet in packets)
        return tuple(shown), tuple(sorted(p.pts for p in packets if p.is_keyframe))


@contextmanager
def _video(path: Path) -> Iterator[tuple[Any, Any]]:
    av = library("av", "a video")
    try:
        with av.open(str(path)) as container:
            if not container.streams.video:
                raise _no_image(str(path), "a file without a video")
            yield container, container.streams.video[0]
    except (OSError, ValueError, av.error.FFmpegError) as error:
        raise _no_image(str(path), str(error)) from error


def _no_image(reference: str, found: str, expected: str = "a whole image") -> SlipstreamError:
    return SlipstreamError(
        f"{reference} can't be shown",
        expected=expected,
        found=found,
        fix="fetch the recording again",
    )
