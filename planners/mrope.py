"""Positions of a prompt with pictures: time, height and width (M-RoPE, arXiv 2409.12191).

Text counts on in all three rows. A picture's token stands at its place in the grid, counted from
where the text ended, and the text behind it goes on behind the grid's longer side. So positions
run behind the number of tokens, and output tokens need an offset.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from runtime.bundle import CameraDims, VisionDims
from runtime.errors import SlipstreamError

Ints = NDArray[np.int32]


def positions(
    tokens: Sequence[int] | NDArray[np.integer], vision: VisionDims | None
) -> tuple[Ints, int]:
    """Positions of a prompt whose cameras stand in the rig's order.

    Args:
        tokens: [Lp]; `image_token` or `video_token` once for each row of a picture. Something else
            stands between two pictures.
        vision: the rig; None for text alone.

    Returns:
        [3, Lp], and the offset: the token at place i >= Lp has position i + offset in every row.

    Raises:
        SlipstreamError: the prompt's pictures are not those of the rig.
    """
    tokens = np.asarray(tokens, np.int64)
    pictures = _pictures(vision) if vision else []
    kind = np.zeros(len(tokens), np.int8)  # 0 text, 1 image, 2 video
    if vision:
        kind[tokens == vision.image_token] = 1
        if vision.video_token is not None:
            kind[tokens == vision.video_token] = 2
    starts = np.flatnonzero(np.diff(kind, prepend=-1))
    stops = np.append(starts, len(tokens))[1:]
    out, at, seen = np.empty((3, len(tokens)), np.int32), 0, 0
    for start, stop in zip(starts, stops, strict=True):
        if kind[start] == 0:
            out[:, start:stop] = np.arange(at, at + stop - start)
            at += stop - start
            continue
        picture = pictures[seen] if seen < len(pictures) else None
        _check(picture, int(kind[start]), int(stop - start), int(start), len(pictures))
        assert picture is not None
        out[:, start:stop] = at + picture.places()
        at, seen = at + max(picture.height, picture.width), seen + 1
    if seen < len(pictures):
        raise SlipstreamError(
            f"the prompt lacks camera {pictures[seen].camera}",
            expected=f"{len(pictures)} pictures",
            found=f"{seen}",
            fix="write every camera of the bundle into the prompt, in the rig's order",
        )
    # the last position may be a picture's, whose time can run ahead of its longer side
    last = int(out.max()) + 1 if len(tokens) else 0
    return out, last - len(tokens)


@dataclass(frozen=True)
class _Picture:
    """A run of picture tokens: a camera's image or video, or a part of one in time.

    Attributes:
        kind: 1 image, 2 video.
        time, height, width: of the grid, in tokens.
        interval: steps of the time row between two parts in time.
    """

    camera: str
    kind: int
    time: int
    height: int
    width: int
    interval: np.float32

    def places(self) -> Ints:
        """[3, time * height * width], from 0."""
        time, row, column = np.indices((self.time, self.height, self.width), np.int32)
        steps = (time.astype(np.float32) * self.interval).astype(np.int32)
        return np.stack([steps, row, column]).reshape(3, -1)


def _pictures(vision: VisionDims) -> list[_Picture]:
    """The runs that the rig's cameras make."""
    return [part for camera in vision.cameras for part in _parts(camera, vision)]


def _parts(camera: CameraDims, vision: VisionDims) -> list[_Picture]:
    time, height, width = camera.grid
    height, width = height // vision.merge, width // vision.merge
    if camera.frames == 1:
        return [_Picture(camera.name, 1, time, height, width, np.float32(1))]
    if vision.family == "qwen3_vl":  # text with the time stands before each part
        return [_Picture(camera.name, 2, 1, height, width, np.float32(1))] * time
    seconds = np.float32(vision.temporal_patch / vision.frame_rate)
    interval = np.float32(vision.tokens_per_second or 1) * seconds
    return [_Picture(camera.name, 2, time, height, width, interval)]


def _check(picture: _Picture | None, kind: int, length: int, at: int, count: int) -> None:
    names = {1: "image", 2: "video"}
    if picture is None:
        raise SlipstreamError(
            f"the prompt has a picture too many, at token {at}",
            expected=f"{count} pictures",
            found=f"another {length} {names[kind]} tokens",
            fix="write each camera of the bundle into the prompt once",
        )
    wanted = picture.time * picture.height * picture.width
    if (kind, length) != (picture.kind, wanted):
        raise SlipstreamError(
            f"the prompt's picture of camera {picture.camera}, at {at}, is not that of the bundle",
            expected=f"{wanted} {names[picture.kind]} tokens, and other tokens behind them",
            found=f"{length} {names[kind]} tokens",
            fix="write one token for each row of the camera's picture",
        )
