"""Positions of prompts with pictures: equal to transformers' get_rope_index."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VLModel
from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLModel

from planners.mrope import positions
from runtime.bundle import CameraDims, VisionDims
from runtime.errors import SlipstreamError

IMAGE, VIDEO, START, END = 290, 291, 292, 293
MODELS: dict[str, Any] = {"qwen2_5_vl": Qwen2_5_VLModel, "qwen3_vl": Qwen3VLModel}
# frames and grid of each camera
RIGS = {
    "one image": [(1, (1, 4, 6))],
    "three images": [(1, (1, 4, 6)), (1, (1, 10, 2)), (1, (1, 2, 2))],
    "a short video": [(2, (1, 4, 6))],
    "videos and an image": [(5, (3, 4, 6)), (1, (1, 6, 6)), (8, (4, 2, 4))],
    "a long video": [(40, (20, 2, 4))],
}


def rig(family: str, name: str, frame_rate: float = 2.0) -> VisionDims:
    cameras = [
        CameraDims(name=f"camera{i}", width=64, height=64, frames=frames, grid=grid)
        for i, (frames, grid) in enumerate(RIGS[name])
    ]
    return VisionDims(
        family=family,  # type: ignore[arg-type]
        cameras=cameras,
        patch=14,
        temporal_patch=2,
        merge=2,
        mean=(0.5, 0.5, 0.5),
        std=(0.5, 0.5, 0.5),
        image_token=IMAGE,
        video_token=VIDEO,
        vision_start=START,
        vision_end=END,
        frame_rate=frame_rate,
        tokens_per_second=2.0 if family == "qwen2_5_vl" else None,
    )


def prompt(vision: VisionDims, seed: int = 0) -> list[int]:
    """Text of a few tokens around every camera's pictures, written as the processors do."""
    rng = np.random.default_rng(seed)

    def text() -> list[int]:
        return [int(token) for token in rng.integers(0, 256, rng.integers(1, 9))]

    tokens = text()
    for camera, count in zip(vision.cameras, vision.tokens, strict=True):
        parts = 1
        if camera.frames > 1 and vision.family == "qwen3_vl":
            parts = camera.grid[0]
        token = IMAGE if camera.frames == 1 else VIDEO
        for _ in range(parts):
            tokens += [*text(), START, *[token] * (count // parts), END]
    return tokens + text()


def reference(tokens: list[int], vision: VisionDims) -> tuple[np.ndarray[Any, Any], int]:
    """transformers' own positions and rope delta."""
    ids = torch.tensor([tokens])
    kinds = (ids == IMAGE).int() + 2 * (ids == VIDEO).int()
    sizes = SimpleNamespace(spatial_merge_size=vision.merge, tokens_per_second=2)
    model = SimpleNamespace(config=SimpleNamespace(vision_config=sizes))
    kind = MODELS[vision.family]
    model.get_vision_position_ids = lambda *args, **said: kind.get_vision_position_ids(
        model, *args, **said
    )
    grids: dict[bool, list[tuple[int, int, int]]] = {False: [], True: []}
    for camera in vision.cameras:
        grids[camera.frames > 1].append(camera.grid)
    seconds = [vision.temporal_patch / vision.frame_rate] * len(grids[True])
    found, delta = kind.get_rope_index(
        model,
        ids,
        mm_token_type_ids=kinds,
        image_grid_thw=torch.tensor(grids[False]) if grids[False] else None,
        video_grid_thw=torch.tensor(grids[True]) if grids[True] else None,
        second_per_grid_ts=torch.tensor(seconds),
    )
    return found[:, 0].numpy(), int(delta)


@pytest.mark.parametrize("frame_rate", [2.0, 3.0, 10.0, 0.7])
@pytest.mark.parametrize("name", RIGS)
@pytest.mark.parametrize("family", MODELS)
def test_positions_are_those_of_transformers(family: str, name: str, frame_rate: float) -> None:
    vision = rig(family, name, frame_rate)
    for seed in range(4):
        tokens = prompt(vision, seed)
        found, offset = positions(tokens, vision)
        wanted, delta = reference(tokens, vision)
        assert found.dtype == np.int32
        np.testing.assert_array_equal(found, wanted)
        assert offset == delta


def test_text_alone_counts_on() -> None:
    found, offset = positions([5, 6, 7], None)
    np.testing.assert_array_equal(found, np.tile(np.arange(3), (3, 1)))
    assert offset == 0


def test_a_prompt_may_end_with_a_picture() -> None:
    vision = rig("qwen2_5_vl", "one image")
    tokens = [1, START, *[IMAGE] * 6]
    found, offset = positions(tokens, vision)
    wanted, delta = reference(tokens, vision)
    np.testing.assert_array_equal(found, wanted)
    assert offset == delta


def refusal(tokens: list[int], vision: VisionDims) -> str:
    with pytest.raises(SlipstreamError) as caught:
        positions(tokens, vision)
    return str(caught.value)


def test_pictures_that_are_not_the_rig_s_are_refused() -> None:
    vision = rig("qwen2_5_vl", "three images")
    tokens = prompt(vision)
    short = tokens.copy()
    short.remove(IMAGE)
    said = refusal(short, vision)
    assert "camera camera0" in said
    assert "expected: 6 image tokens" in said
    assert "found: 5 image tokens" in said
    said = refusal([1, *[VIDEO] * 6, 2], vision)
    assert "found: 6 video tokens" in said
    assert "lacks camera camera1" in refusal([1, START, *[IMAGE] * 6, END], vision)
    assert "a picture too many" in refusal([*tokens, *[IMAGE] * 4], vision)
    assert "lacks camera camera0" in refusal([], vision)
