"""Block drafters by kind: made, loaded and saved."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from planners.drafter_layouts import MASK_EMBEDDING, flat_config
from planners.nets.block_drafter import BlockDrafter, BlockDrafterConfig
from planners.nets.dflare import DFlare, DFlareConfig
from planners.nets.dflash import DFlash, DFlashConfig
from planners.nets.files import as_floats, load_weights, read_object
from runtime.errors import SlipstreamError
from runtime.files import write_atomic


def build_drafter(config: BlockDrafterConfig) -> BlockDrafter:
    """The network of a config, its weights not set yet."""
    if isinstance(config, DFlareConfig):
        return DFlare(config)
    assert isinstance(config, DFlashConfig)
    return DFlash(config)


def new_drafter(seed: int, config: BlockDrafterConfig) -> BlockDrafter:
    """A freshly initialised drafter."""
    torch.manual_seed(seed)
    drafter = build_drafter(config)
    drafter.initialise()
    return drafter


def read_config(raw: dict[str, Any]) -> BlockDrafterConfig:
    """`config.json`'s content; raises KeyError or ValueError for what is no block drafter's."""
    kinds = {kind.architecture: kind for kind in (DFlashConfig, DFlareConfig)}
    found = raw["architectures"]
    if len(found) != 1 or found[0] not in kinds:
        raise ValueError(f"architectures {found} is none of {', '.join(kinds)}")
    return kinds[found[0]].from_json(raw)


def load_drafter(folder: Path) -> BlockDrafter:
    """Load `config.json` and the safetensors file, or its shards, weights as fp32.

    Raises:
        SlipstreamError: a file is missing or unreadable, or does not hold a block drafter.
    """
    try:
        raw, weights = read_object(folder / "config.json"), load_weights(folder)
        config = _as_stored(read_config(flat_config(raw)), weights)
        drafter = build_drafter(config)
        floats = as_floats(weights)
        if MASK_EMBEDDING in floats:
            floats[MASK_EMBEDDING] = floats[MASK_EMBEDDING].reshape(-1)
        if config.draft_vocab_size == config.vocab_size:  # the whole vocabulary needs no map
            floats = {name: getattr(drafter, name) for name in ("d2t", "t2d")} | floats
        drafter.load_state_dict(floats)
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
        raise SlipstreamError(
            f"{folder} can't be loaded as a drafter",
            expected="config.json with dflash_config, and model.safetensors (or its shards and "
            "model.safetensors.index.json) with its tensors",
            found=f"{type(error).__name__}: {error}",
            fix="train one with `make train-tiny`, or name the folder of a DFlash or DFlare "
            "checkpoint",
        ) from error
    return drafter.eval()


def _as_stored(config: BlockDrafterConfig, weights: Mapping[str, Tensor]) -> BlockDrafterConfig:
    """The config, and what only the weights say: a head and embeddings of its own."""
    head = weights.get("lm_head.weight")
    return replace(
        config,
        draft_vocab_size=None if head is None else len(head),
        own_embedding="embed_tokens.weight" in weights,
        mask_embedding=MASK_EMBEDDING in weights,
    )


def save_drafter(drafter: BlockDrafter, folder: Path) -> None:
    """Write `config.json` and `model.safetensors` in bf16."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = {
        name: (value.to(torch.bfloat16) if value.is_floating_point() else value).contiguous()
        for name, value in drafter.state_dict().items()
    }
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)
    write_atomic(folder / "config.json", json.dumps(drafter.config.to_json(), indent=2) + "\n")
