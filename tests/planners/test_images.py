"""Preprocessing: equal to transformers' processor, and clear about pictures that don't fit."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import (
    Qwen2VLImageProcessorPil,
    smart_resize,
)
from transformers.models.qwen3_vl.video_processing_qwen3_vl import (
    Qwen3VLVideoProcessor,
)
from transformers.models.qwen3_vl.video_processing_qwen3_vl import (
    smart_resize as smart_resize_video,
)

from export import resize
from export.checkpoint import Checkpoint
from export.rig import Camera, RigOptions, rig
from export.vision_configs import vision_config
from planners.images import patches
from runtime.bundle import VisionDims
from runtime.errors import SlipstreamError
from tests.vlm_families import Family, image_processor, make_vlm

FAMILIES: list[Family] = ["qwen2_5_vl", "qwen3_vl"]
SIZES = [(301, 200), (640, 363), (61, 45), (224, 224), (33, 900)]
Bytes = NDArray[np.uint8]


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[Family, Path]:
    root = tmp_path_factory.mktemp("vlm")
    return {each: make_vlm(root / each, each) for each in FAMILIES}


def exported_rig(
    folder: Path, sizes: list[tuple[int, int]], frames: int = 1, **bounds: int
) -> VisionDims:
    checkpoint = Checkpoint.open(folder)
    cameras = [Camera(f"camera{i}", *size) for i, size in enumerate(sizes)]
    options = RigOptions(cameras, frames=frames, **bounds)  # type: ignore[arg-type]
    return rig(checkpoint, vision_config(checkpoint), options)


def pictures(sizes: list[tuple[int, int]]) -> list[Bytes]:
    """Smooth shapes with noise on them, so that edges, overshoot and clipping all occur."""
    rng, found = np.random.default_rng(0), []
    for width, height in sizes:
        y, x = np.mgrid[:height, :width]
        waves = np.stack([np.sin(x / 9), np.cos(y / 7), np.sign(np.sin((x + y) / 11))], -1)
        noisy = 127 + 150 * waves + rng.normal(0, 30, (height, width, 3))
        found.append(noisy.clip(0, 255).astype(np.uint8))
    return found


@pytest.mark.parametrize("family", FAMILIES)
def test_patches_are_the_processor_s(checkpoints: dict[Family, Path], family: Family) -> None:
    processor = image_processor(checkpoints[family])
    vision, images = exported_rig(checkpoints[family], SIZES), pictures(SIZES)
    wanted = processor(images, return_tensors="np")
    assert wanted["image_grid_thw"].tolist() == [list(each.grid) for each in vision.cameras]
    found = patches(images, vision)
    assert found.dtype == np.float32
    assert found.shape == wanted["pixel_values"].shape
    assert np.abs(found - wanted["pixel_values"]).max() < 1e-5


def test_bounds_given_at_export_are_the_processor_s(checkpoints: dict[Family, Path]) -> None:
    processor = Qwen2VLImageProcessorPil(min_pixels=40_000, max_pixels=60_000)
    vision = exported_rig(checkpoints["qwen2_5_vl"], SIZES, min_pixels=40_000, max_pixels=60_000)
    images = pictures(SIZES)
    wanted = processor(images, return_tensors="np")
    assert wanted["image_grid_thw"].tolist() == [list(each.grid) for each in vision.cameras]
    assert np.abs(patches(images, vision) - wanted["pixel_values"]).max() < 1e-5


@pytest.mark.parametrize("frames", [2, 3, 5])
def test_frames_are_laid_out_as_the_video_processor_does(
    checkpoints: dict[Family, Path], frames: int
) -> None:
    """Its resize needs torchvision; each frame is resized as an image, its patches are its own."""
    size = (301, 200)
    vision = exported_rig(checkpoints["qwen2_5_vl"], [size, size], frames)
    images = pictures([size] * (2 * frames))
    processor, video = image_processor(checkpoints["qwen2_5_vl"]), Qwen3VLVideoProcessor
    time, height, width = vision.cameras[0].grid
    assert time == (frames + 1) // 2
    wanted = []
    for camera in (images[:frames], images[frames:]):
        pixels = processor(camera, return_tensors="pt")["pixel_values"]
        pixels = pixels.view(frames, height // 2, width // 2, 2, 2, 3, 2, 14, 14)[:, ..., 0, :, :]
        plain = pixels.permute(0, 5, 1, 3, 6, 2, 4, 7).reshape(1, frames, 3, height * 14, -1)
        wanted.append(video.patchify(None, plain, 14, 2, 2)[0][0])
    assert np.abs(patches(images, vision) - torch.cat(wanted).numpy()).max() < 1e-5


def test_sizes_are_those_of_smart_resize() -> None:
    rng = np.random.default_rng(1)
    for _ in range(3000):
        height, width = (int(side) for side in rng.integers(8, 2200, 2))
        factor, low = int(rng.choice([28, 32])), int(rng.integers(1_000, 300_000))
        bounds = (low, low + int(rng.integers(factor**2, 2_000_000)))
        if max(height, width) <= 200 * min(height, width):
            found = resize.smart_resize(height, width, factor, *bounds)
            assert found == smart_resize(height, width, factor, *bounds)
            frames = int(rng.integers(2, 12))
            sizes = (frames, height, width, 2, factor, *bounds)
            assert resize.smart_resize_video(*sizes) == smart_resize_video(*sizes)


@pytest.fixture(scope="module")
def vision(checkpoints: dict[Family, Path]) -> VisionDims:
    return exported_rig(checkpoints["qwen2_5_vl"], [(301, 200), (224, 224)])


def refusal(images: list[Bytes], vision: VisionDims) -> str:
    with pytest.raises(SlipstreamError) as caught:
        patches(images, vision)
    return str(caught.value)


def test_another_size_names_camera_and_sizes(vision: VisionDims) -> None:
    said = refusal(pictures([(301, 200), (200, 301)]), vision)
    assert "camera camera1" in said
    assert "expected: 224x224" in said
    assert "found: 200x301" in said
    assert "--camera camera1=200x301" in said


def test_floats_are_refused(vision: VisionDims) -> None:
    images = pictures([(301, 200), (224, 224)])
    scaled = [(image / 255).astype(np.float32) for image in images]
    assert "expected: uint8" in refusal(scaled, vision)  # type: ignore[arg-type]
    scaled[0][0, 0, 0] = np.nan
    assert "float32, not all finite" in refusal(scaled, vision)  # type: ignore[arg-type]
    signed = [image.astype(np.int16) for image in images]
    assert "found: int16" in refusal(signed, vision)  # type: ignore[arg-type]


def test_grey_and_four_channels_are_refused(vision: VisionDims) -> None:
    grey, rest = pictures([(301, 200), (224, 224)])
    said = refusal([grey[..., 0], rest], vision)
    assert "camera camera0: the picture has no three channels" in said
    assert "found: [200, 301]" in said
    assert "no three channels" in refusal([grey[..., :1], rest], vision)
    assert "no three channels" in refusal([np.dstack([grey, grey[..., :1]]), rest], vision)


def test_pictures_missing_or_too_many(vision: VisionDims) -> None:
    images = pictures([(301, 200), (224, 224)])
    said = refusal(images[:1], vision)
    assert "expected: 2: camera0 301x200, camera1 224x224" in said
    assert "found: 1" in said
    assert "found: 3" in refusal([*images, images[0]], vision)


def test_without_pillow_the_error_names_the_command(
    vision: VisionDims, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = pictures([(301, 200), (224, 224)])
    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    assert "pip install pillow" in refusal(images, vision)
