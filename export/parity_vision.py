"""Parity of the vision graph: transformers' own tower on the same patches, for the rig's grids."""

from __future__ import annotations

import numpy as np
import torch
from transformers import AutoConfig
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import (
    Qwen2_5_VisionTransformerPretrainedModel,
)
from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLVisionModel

from export.checkpoint import Checkpoint
from export.differences import Differences
from export.graphs.vision import tower_prefix
from runtime.bundle import VisionDims
from runtime.engines.base import Engine

_TOWERS = {
    "qwen2_5_vl": Qwen2_5_VisionTransformerPretrainedModel,
    "qwen3_vl": Qwen3VLVisionModel,
}


def check_vision(
    found: Differences, checkpoint: Checkpoint, vision: VisionDims, engine: Engine
) -> None:
    """Rows for the text decoder, of random patches."""
    tower = _tower(checkpoint, vision)
    rng = np.random.default_rng(5)
    patches = rng.standard_normal((vision.rows, vision.patch_size), np.float32)
    out = engine.run({"patches": patches}, {})
    grids = torch.tensor([camera.grid for camera in vision.cameras])
    wanted = tower(torch.from_numpy(patches), grid_thw=grids)
    found.add("vision", out["image_embeddings"], wanted.pooler_output, relative=True)
    if features := getattr(wanted, "deepstack_features", None):
        joined = torch.cat(features, -1)
        found.add("vision deepstack", out["image_deepstack"], joined, relative=True)


def _tower(checkpoint: Checkpoint, vision: VisionDims) -> torch.nn.Module:
    """The tower alone, in fp32: the text decoder is not loaded for it."""
    config = AutoConfig.from_pretrained(checkpoint.folder).vision_config
    tower: torch.nn.Module = _TOWERS[vision.family]._from_config(config, dtype=torch.float32)
    prefix = tower_prefix(checkpoint)
    weights = {
        name.removeprefix(prefix): torch.from_numpy(checkpoint.tensor(name, *place.shape))
        for name, place in checkpoint.tensors.items()
        if name.startswith(prefix)
    }
    tower.load_state_dict(weights, assign=True)
    return tower.eval()
