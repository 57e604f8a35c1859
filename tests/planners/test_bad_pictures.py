"""Pictures and rigs that a vision graph can't take: one error that names the camera or the key."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from planners.images import patches
from runtime.errors import SlipstreamError
from runtime.vision_dims import VisionDims

FRONT = {"name": "front", "width": 96, "height": 72, "frames": 1, "grid": [1, 6, 8]}
RIG: dict[str, Any] = {
    "family": "qwen2_5_vl",
    "cameras": [FRONT],
    "patch": 14,
    "temporal_patch": 2,
    "merge": 2,
    "mean": [0.5, 0.5, 0.5],
    "std": [0.5, 0.5, 0.5],
    "image_token": 3,
    "video_token": 4,
    "vision_start": 5,
    "vision_end": 6,
}
VISION = VisionDims.model_validate_json(json.dumps(RIG))
PIXELS = np.random.default_rng(0).integers(0, 256, (72, 96, 3)).astype(np.uint8)


class Broken:
    """What fails when its pixels are asked for."""

    def __array__(self, *_: object) -> None:
        raise RuntimeError("the camera went away")


@pytest.mark.parametrize(
    "picture",
    [
        None,
        5,
        "front.png",
        b"abc",
        [[1, 2], [3]],
        {"a": 1},
        Broken(),
        PIXELS.tolist(),
        PIXELS.astype(np.float32),
        PIXELS.astype(np.int8),
        PIXELS.astype(np.uint16),
        PIXELS.astype(bool),
        np.full((72, 96, 3), np.nan),
        np.full((72, 96, 3), None),
        PIXELS[..., 0],
        PIXELS[None],
        PIXELS[..., [0, 1, 2, 0]],
        PIXELS.transpose(2, 0, 1),
        np.zeros((0, 0, 3), np.uint8),
        np.broadcast_to(np.uint8(0), (20_000, 20_000, 3)),
        np.zeros((72, 96), [("r", "u1"), ("g", "u1"), ("b", "u1")]),
    ],
)
def test_what_is_no_picture(picture: Any) -> None:
    with pytest.raises(SlipstreamError, match="camera front") as caught:
        patches([picture], VISION)
    assert caught.value.expected
    assert caught.value.found
    assert caught.value.fix


@pytest.mark.parametrize("pictures", [None, 5, [], [PIXELS] * 2])
def test_another_number_of_pictures(pictures: Any) -> None:
    with pytest.raises(SlipstreamError, match="images has the wrong length"):
        patches(pictures, VISION)


def test_how_a_picture_lies_in_memory_changes_nothing() -> None:
    wanted = patches([PIXELS], VISION)
    frozen = PIXELS.copy()
    frozen.setflags(write=False)
    wide = np.zeros((144, 192, 3), np.uint8)
    wide[::2, ::2] = PIXELS
    turned = np.ascontiguousarray(PIXELS[::-1])[::-1]
    for same in (frozen, wide[::2, ::2], np.asfortranarray(PIXELS), turned):
        np.testing.assert_array_equal(patches([same], VISION), wanted)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("mean", [0.5, 0.5]),
        ("mean", [float("nan")] * 3),
        ("mean", [1e308] * 3),
        ("mean", [True] * 3),
        ("std", [0, 0, 0]),
        ("std", [-1, 1, 1]),
        ("std", [1e-320] * 3),
        ("std", [float("inf")] * 3),
        ("patch", 0),
        ("patch", 10**9),
        ("temporal_patch", 0),
        ("merge", 5),
        ("image_token", -1),
        ("image_token", True),
        ("frame_rate", 1e-320),
        ("frame_rate", float("nan")),
        ("cameras", []),
        ("cameras", [FRONT, FRONT]),
        ("cameras", [FRONT | {"name": "../front"}]),
        ("cameras", [FRONT | {"frames": 1000}]),
        ("cameras", [FRONT | {"grid": [0, 6, 8]}]),
        ("cameras", [FRONT | {"grid": [1, 1024, 1024]}]),  # 5 GB of patches
    ],
)
def test_a_rig_that_can_t_be(key: str, value: object) -> None:
    with pytest.raises(ValidationError):
        VisionDims.model_validate_json(json.dumps(RIG | {key: value}))
