"""The vision graph: equal to transformers' towers, and portable."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from transformers import Qwen2_5_VLForConditionalGeneration, Qwen3VLForConditionalGeneration

from export.checkpoint import Checkpoint, CheckpointError
from export.graphs import vision_attention
from export.graphs.precision import reduce_precision
from export.graphs.spelling import spell_out
from export.graphs.vision import vision_graph
from export.rig import Camera, RigOptions, rig
from export.vision_configs import VisionConfig, vision_config
from runtime.bundle import VisionDims
from tests.vlm_families import Family, make_vlm, rename_tensors

MODELS = {
    "qwen2_5_vl": Qwen2_5_VLForConditionalGeneration,
    "qwen3_vl": Qwen3VLForConditionalGeneration,
}
FAMILIES: list[Family] = ["qwen2_5_vl", "qwen3_vl"]
# pictures whose sides are no multiples of 28 or 32; 14 x 22 patches leave windows half empty
RIGS = {
    "one camera": ([("front", 301, 200)], 1),
    "one window": ([("front", 112, 112)], 1),
    "three cameras": ([("front", 400, 225), ("left", 301, 200), ("right", 301, 200)], 1),
    "another grid between": ([("left", 301, 200), ("front", 400, 225), ("right", 301, 200)], 1),
    "two frames": ([("front", 301, 200)], 2),
    "five frames": ([("front", 301, 200), ("rear", 230, 230)], 5),
}


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[Family, Path]:
    root = tmp_path_factory.mktemp("vlm")
    # small pictures, so that no lower bound makes them all one size
    bounds = {"size": {"shortest_edge": 64, "longest_edge": 200_000}}
    return {each: make_vlm(root / each, each, processor=bounds) for each in FAMILIES}


@pytest.fixture(scope="module")
def towers(checkpoints: dict[Family, Path]) -> dict[Family, torch.nn.Module]:
    return {
        each: MODELS[each].from_pretrained(folder, dtype=torch.float32).eval().model.visual
        for each, folder in checkpoints.items()
    }


def opened(
    folder: Path, cameras: list[tuple[str, int, int]], frames: int = 1, **said: Any
) -> tuple[Checkpoint, VisionConfig, VisionDims]:
    checkpoint = Checkpoint.open(folder)
    config = vision_config(checkpoint)
    options = RigOptions([Camera(*each) for each in cameras], frames=frames, **said)
    return checkpoint, config, rig(checkpoint, config, options)


def session(model: onnx.ModelProto) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    return ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def assert_equal(
    model: onnx.ModelProto, dims: VisionDims, tower: torch.nn.Module, tolerance: float = 1e-4
) -> None:
    """Rows of random patches, from both."""
    rng = np.random.default_rng(0)
    patches = rng.standard_normal((dims.rows, dims.patch_size), np.float32)
    found = session(model).run(None, {"patches": patches})
    grids = torch.tensor([camera.grid for camera in dims.cameras])
    with torch.inference_mode():
        wanted = tower(torch.from_numpy(patches), grid_thw=grids)
    rows = wanted.pooler_output.numpy()
    assert np.abs(rows).max() > 0.3  # the comparison is of something
    assert np.abs(found[0] - rows).max() < tolerance
    features = getattr(wanted, "deepstack_features", None)
    assert len(found) == (2 if features else 1)
    if features:
        assert np.abs(found[1] - torch.cat(features, -1).numpy()).max() < tolerance


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", RIGS)
def test_rows_are_those_of_transformers(
    checkpoints: dict[Family, Path],
    towers: dict[Family, torch.nn.Module],
    family: Family,
    name: str,
) -> None:
    cameras, frames = RIGS[name]
    checkpoint, config, dims = opened(checkpoints[family], cameras, frames)
    model = vision_graph(checkpoint, config, dims)
    onnx.checker.check_model(model, full_check=True)
    assert_equal(model, dims, towers[family])


@pytest.mark.parametrize("family", FAMILIES)
def test_scores_in_parts_are_the_same(
    checkpoints: dict[Family, Path],
    towers: dict[Family, torch.nn.Module],
    family: Family,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checkpoint, config, dims = opened(checkpoints[family], *RIGS["five frames"])
    whole = vision_graph(checkpoint, config, dims)
    monkeypatch.setattr(vision_attention, "SCORES", 100_000)
    parts = vision_graph(checkpoint, config, dims)
    assert len(parts.graph.node) > len(whole.graph.node)
    assert_equal(parts, dims, towers[family])


def test_windowed_layers_make_no_scores_of_whole_frames(checkpoints: dict[Family, Path]) -> None:
    checkpoint, config, dims = opened(checkpoints["qwen2_5_vl"], [("front", 560, 336)])
    model = onnx.shape_inference.infer_shapes(vision_graph(checkpoint, config, dims))
    shapes = {
        value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in model.graph.value_info
    }
    scores = [shapes[node.output[0]] for node in model.graph.node if node.op_type == "Softmax"]
    rows = dims.rows
    full = [shape for shape in scores if shape[-1] == rows]
    assert len(full) == len(config.full_layers)
    assert {shape[-1] for shape in scores} - {rows} == {64}  # 8 x 8 patches
    assert all(shape[-2:] == [64, 64] for shape in scores if shape[-1] != rows)


@pytest.mark.parametrize(
    ("family", "old", "new"),
    [("qwen2_5_vl", "visual.", "model.visual."), ("qwen3_vl", "model.visual.", "visual.")],
)
def test_both_names_of_the_tower_are_read(
    checkpoints: dict[Family, Path], tmp_path: Path, family: Family, old: str, new: str
) -> None:
    folder = make_vlm(tmp_path / "renamed", family)
    rename_tensors(folder, old, new)
    assert any(name.startswith(new) for name in Checkpoint.open(folder).tensors)
    cameras = [("front", 301, 200)]
    renamed = vision_graph(*opened(folder, cameras, max_pixels=200_000, min_pixels=64))
    usual = vision_graph(*opened(checkpoints[family], cameras))
    assert renamed.SerializeToString(deterministic=True) == usual.SerializeToString(
        deterministic=True
    )


def test_a_checkpoint_without_a_tower_says_so(tmp_path: Path) -> None:
    folder = make_vlm(tmp_path / "text", "qwen2_5_vl")
    rename_tensors(folder, "visual.", "audio.")
    with pytest.raises(CheckpointError, match=r"lacks the tensor model.visual.patch_embed"):
        vision_graph(*opened(folder, [("front", 301, 200)]))


@pytest.mark.parametrize("family", FAMILIES)
def test_rows_in_an_older_opset(
    checkpoints: dict[Family, Path], towers: dict[Family, torch.nn.Module], family: Family
) -> None:
    checkpoint, config, dims = opened(checkpoints[family], *RIGS["three cameras"])
    model = spell_out(vision_graph(checkpoint, config, dims))
    onnx.checker.check_model(model, full_check=True)
    assert_equal(model, dims, towers[family])


@pytest.mark.parametrize("family", FAMILIES)
def test_rows_in_fp16(
    checkpoints: dict[Family, Path], towers: dict[Family, torch.nn.Module], family: Family
) -> None:
    checkpoint, config, dims = opened(checkpoints[family], *RIGS["three cameras"])
    model = reduce_precision(vision_graph(checkpoint, config, dims), "fp16")
    onnx.checker.check_model(model, full_check=True)
    assert_equal(model, dims, towers[family], tolerance=0.05)
