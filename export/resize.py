"""The size that a processor resizes pictures to: both rules of Qwen's VLMs."""

from __future__ import annotations

from math import ceil, floor, sqrt

from runtime.errors import SlipstreamError


def smart_resize(
    height: int, width: int, factor: int, min_pixels: int, max_pixels: int
) -> tuple[int, int]:
    """(height, width) in multiples of `factor`, within the bounds, of nearly the same aspect.

    The rule of Qwen2-VL (arXiv 2409.12191) and its processors. Halves round to even.
    """
    _check_aspect(height, width)
    tall, wide = round(height / factor) * factor, round(width / factor) * factor
    if tall * wide > max_pixels:
        return _shrunk(height, width, factor, height * width / max_pixels)
    if tall * wide < min_pixels:
        return _grown(height, width, factor, min_pixels / (height * width))
    return tall, wide


def smart_resize_video(
    frames: int,
    height: int,
    width: int,
    temporal_factor: int,
    factor: int,
    min_pixels: int,
    max_pixels: int,
) -> tuple[int, int]:
    """Qwen3-VL's rule for videos (arXiv 2511.21631): the bounds are of all frames together."""
    if height < factor or width < factor:
        scale = max(factor / height, factor / width)
        height, width = int(height * scale), int(width * scale)
    _check_aspect(height, width)
    tall, wide = round(height / factor) * factor, round(width / factor) * factor
    total = round(frames / temporal_factor) * temporal_factor * tall * wide
    if total > max_pixels:
        return _shrunk(height, width, factor, frames * height * width / max_pixels)
    if total < min_pixels:
        return _grown(height, width, factor, min_pixels / (frames * height * width))
    return tall, wide


def _shrunk(height: int, width: int, factor: int, ratio: float) -> tuple[int, int]:
    beta = sqrt(ratio)
    tall, wide = (max(factor, floor(side / beta / factor) * factor) for side in (height, width))
    return tall, wide


def _grown(height: int, width: int, factor: int, ratio: float) -> tuple[int, int]:
    beta = sqrt(ratio)
    tall, wide = (ceil(side * beta / factor) * factor for side in (height, width))
    return tall, wide


def _check_aspect(height: int, width: int) -> None:
    if min(height, width) < 1 or max(height, width) > 200 * min(height, width):
        raise SlipstreamError(
            "a camera's pictures can't be resized",
            expected="sides of at least 1 px, and a longer side of at most 200 times the shorter",
            found=f"{width}x{height}",
            fix="give the pictures' size: --camera NAME=WIDTHxHEIGHT",
        )
