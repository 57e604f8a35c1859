"""Rotary frequencies, scaled as a checkpoint says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

ROPE_KINDS = ("default", "linear", "yarn", "llama3")


def frequencies(
    head_dim: int, theta: float, scaling: Mapping[str, Any] | None, max_position: int
) -> tuple[Tensor, float]:
    """Angles per position [D/2], and what cosine and sine are multiplied by.

    Args:
        scaling: `rope_scaling` or `rope_parameters` of config.json: linear, yarn (arXiv
            2309.00071) or llama3; None and `default` are plain RoPE (arXiv 2104.09864).
        max_position: positions that the model was trained on.

    Raises:
        ValueError: another kind of scaling.
    """
    kind = str((scaling or {}).get("rope_type", (scaling or {}).get("type", "default")))
    if kind not in ROPE_KINDS:
        raise ValueError(f"rope_type {kind} is none of {', '.join(ROPE_KINDS)}")
    if kind == "default":
        return theta ** -(torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim), 1.0
    from transformers import Qwen3Config
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    config = Qwen3Config(
        head_dim=head_dim,
        max_position_embeddings=max_position,
        rope_parameters={**dict(scaling or {}), "rope_type": kind, "rope_theta": theta},
    )
    found, factor = ROPE_INIT_FUNCTIONS[kind](config, torch.device("cpu"))
    return found, float(factor)


def plain(scaling: Mapping[str, Any] | None) -> bool:
    """Whether nothing is scaled."""
    return scaling is None or scaling.get("rope_type", scaling.get("type", "default")) == "default"
