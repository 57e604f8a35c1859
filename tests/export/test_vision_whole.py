"""Pictures to hidden states, through all of a VLM's graphs: equal to transformers' whole model.

Preprocessing, vision graph, positions, and what DeepStack adds meet here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import Qwen2_5_VLForConditionalGeneration, Qwen3VLForConditionalGeneration

from export.bundle import export_bundle
from export.rig import Camera, RigOptions
from planners.images import patches
from planners.mrope import positions
from runtime.bundle import Bundle, Limits, VisionDims
from runtime.engines.onnx import OnnxEngine
from tests.vlm_families import Family, image_processor, make_vlm

MODELS: dict[Family, Any] = {
    "qwen2_5_vl": Qwen2_5_VLForConditionalGeneration,
    "qwen3_vl": Qwen3VLForConditionalGeneration,
}
LIMITS = Limits(trunk=900, branch=32, rollouts=4, max_position=1024)
CAMERAS = [Camera("front", 301, 200), Camera("left", 160, 233)]


@pytest.fixture(scope="module", params=list(MODELS))
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("vlm")
    bounds = {"size": {"shortest_edge": 64, "longest_edge": 200_000}}
    return make_vlm(root / request.param, request.param, processor=bounds)


def written(vision: VisionDims) -> list[int]:
    """A prompt with all cameras, as the processors write it."""
    rng = np.random.default_rng(2)
    tokens = [int(token) for token in rng.integers(0, 256, 5)]
    for camera, count in zip(vision.cameras, vision.tokens, strict=True):
        video = camera.frames > 1
        token = vision.video_token if video else vision.image_token
        parts = camera.grid[0] if video and vision.family == "qwen3_vl" else 1
        for _ in range(parts):
            run = [int(token or 0)] * (count // parts)
            tokens += [*rng.integers(0, 256, 3).tolist(), vision.vision_start, *run]
            tokens.append(vision.vision_end)
    return tokens + [int(token) for token in rng.integers(0, 256, 7)]


def hidden_states(bundle: Bundle, rows: np.ndarray[Any, Any], tokens: list[int]) -> Any:
    """The target graph over a prompt whose picture tokens are the vision graph's rows."""
    manifest = bundle.manifest
    vision = manifest.vision
    assert vision
    engines = {name: OnnxEngine(bundle.graph_path(name), threads=1) for name in manifest.graphs}
    ids = np.array([tokens], np.int32)
    embeddings = engines["embed"].run({"tokens": ids}, {})["embeddings"].copy()
    seen = engines["vision"].run({"patches": rows}, {})
    pictures = np.isin(ids[0], [vision.image_token, vision.video_token])
    embeddings[0, pictures] = seen["image_embeddings"]
    target, length = engines["target"], len(tokens)
    feeds = {
        "embeddings": embeddings,
        "positions": positions(tokens, vision)[0][:, None],
        "trunk_bias": np.full(1, -30000.0, np.float32),
        "branch_bias": np.triu(np.full((1, length, length + 1), -30000.0, np.float32), 2),
    }
    feeds["branch_bias"][..., 0] = -30000.0  # an empty cache's row
    if manifest.target.deepstack:
        width = manifest.target.deepstack * manifest.target.width
        feeds["deepstack"] = np.zeros((1, length, width), np.float32)
        feeds["deepstack"][0, pictures] = seen["image_deepstack"]
    for name, spec in target.inputs.items():
        if "past_key_values" in name:
            shape = [dim if isinstance(dim, int) else 1 for dim in spec.shape]
            feeds[name] = np.zeros(shape, np.float32)
    return target.run(feeds, {})["hidden"][0]


@pytest.mark.parametrize("frames", [1, 3])
def test_hidden_states_are_those_of_the_whole_model(
    folder: Path, tmp_path: Path, frames: int
) -> None:
    rig = RigOptions(CAMERAS, frames=frames, frame_rate=4.0)
    export_bundle(folder, None, tmp_path / "bundle", limits=LIMITS, rig=rig, check_parity=False)
    bundle = Bundle.open(tmp_path / "bundle")
    vision = bundle.manifest.vision
    assert vision
    rng = np.random.default_rng(3)
    images = [
        rng.integers(0, 256, (camera.height, camera.width, 3), np.uint8)
        for camera in vision.cameras
        for _ in range(frames)
    ]
    rows, tokens = patches(images, vision), written(vision)
    pixels = torch.from_numpy(rows)
    if frames == 1:
        pixels = image_processor(folder)(images, return_tensors="pt")["pixel_values"]
    grids = torch.tensor([camera.grid for camera in vision.cameras])
    ids = torch.tensor([tokens])
    kinds = (ids == vision.image_token).int() + 2 * (ids == vision.video_token).int()
    given: dict[str, Any] = {"pixel_values": pixels, "image_grid_thw": grids}
    if frames > 1:
        given = {"pixel_values_videos": pixels, "video_grid_thw": grids}
        if vision.family == "qwen2_5_vl":
            given["second_per_grid_ts"] = torch.tensor([2 / 4.0] * len(CAMERAS))
    model = MODELS[vision.family].from_pretrained(folder, dtype=torch.float32).eval()
    with torch.inference_mode():
        wanted = model.model(input_ids=ids, mm_token_type_ids=kinds, **given)
    found = hidden_states(bundle, rows, tokens)
    assert np.abs(found - wanted.last_hidden_state[0].numpy()).max() < 1e-4
    assert positions(tokens, vision)[1] == int(model.model.rope_deltas)
