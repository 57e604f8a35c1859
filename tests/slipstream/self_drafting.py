"""A bundle that drafts for itself: the shipped target's first layer, said to do so.

It never learned it, and what it plans no car can drive; its passes are real, and cheap.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from safetensors.torch import load_file, save_file

from export.bundle import export_bundle
from runtime.bundle import Bundle, Limits
from slipstream import shipped_bundle

BLOCK = 32
LIMITS = Limits(trunk=384, branch=128, rollouts=4, max_position=512)  # small: passes are timed


def self_drafting_checkpoint(folder: Path) -> Path:
    """The shipped target's folder under a new name, with one layer and `self_draft`."""
    shutil.copytree(shipped_bundle().parent / "target", folder)
    mask = Bundle.open(shipped_bundle()).manifest.mask_token
    said = {"block_size": BLOCK, "mask_token_id": mask, "scaffold_in_block": True}
    config = json.loads((folder / "config.json").read_text())
    config |= {"num_hidden_layers": 1, "layer_types": ["full_attention"], "self_draft": said}
    (folder / "config.json").write_text(json.dumps(config))
    weights = folder / "model.safetensors"
    kept = {k: v for k, v in load_file(weights).items() if ".layers." not in k or ".layers.0." in k}
    save_file(kept, weights)
    return folder


def self_drafting_bundle(folder: Path) -> Path:
    target = self_drafting_checkpoint(folder / "target")
    export_bundle(target, None, folder / "bundle", limits=LIMITS, check_parity=False)
    return folder / "bundle"
