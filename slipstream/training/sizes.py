"""A drafter's sizes from its config and its target."""

from __future__ import annotations

from typing import Any

from transformers import Qwen3Config

from export.configs import tap_rule
from planners.nets.block_drafter import BlockDrafterConfig
from planners.nets.dflare import DFlareConfig
from planners.nets.dflash import DFlashConfig
from planners.nets.eagle3 import Eagle3Config
from runtime.errors import SlipstreamError
from slipstream.training import config as configs


def block_sizes(
    config: configs.BlockDrafterConfig, target: Qwen3Config, mask_token: int
) -> BlockDrafterConfig:
    """What is not given is the target's; a number of taps is placed by DFlash's rule.

    Raises:
        SlipstreamError: taps outside of the target, or heads that don't divide.
    """
    sizes = config.drafter
    layers = int(target.num_hidden_layers)
    taps = tap_rule(layers, sizes.taps) if isinstance(sizes.taps, int) else sizes.taps
    _check_taps(taps, layers)
    shared: dict[str, Any] = {
        **_of_target(sizes, target),
        "num_hidden_layers": sizes.layers,
        "block_size": sizes.block,
        "mask_token_id": mask_token,
        "target_layer_ids": taps,
        "scaffold_in_block": sizes.scaffold_in_block,
        "markov_rank": sizes.markov_rank,
    }
    if isinstance(sizes, configs.DFlashSizes):
        return DFlashConfig(**shared)
    own = ("fusion_init", "fusion_softmax", "heterogeneous_kv", "fusion_fc")
    return DFlareConfig(**shared, **{name: getattr(sizes, name) for name in own})


def eagle_sizes(config: configs.EagleConfig, target: Qwen3Config) -> Eagle3Config:
    """What is not given is the target's; raises as `block_sizes`."""
    sizes = config.drafter
    _check_taps(sizes.taps, int(target.num_hidden_layers))
    vocab = int(target.vocab_size)
    return Eagle3Config(
        **_of_target(sizes, target),
        draft_vocab_size=min(sizes.vocabulary or vocab, vocab),
        target_layer_ids=sizes.taps,
        depth=sizes.depth,
        scaffold_runs=sizes.scaffold_runs,
        qk_norm=sizes.qk_norm,
    )


def _of_target(
    sizes: configs.BlockSizes | configs.Eagle3Sizes, target: Qwen3Config
) -> dict[str, Any]:
    heads = sizes.heads or int(target.num_attention_heads)
    kv_heads = sizes.kv_heads or int(target.num_key_value_heads)
    if heads % kv_heads:
        raise SlipstreamError(
            "the config's drafter.heads is not valid",
            expected=f"a multiple of its {kv_heads} key/value heads",
            found=str(heads),
            fix="change drafter.heads or drafter.kv_heads",
        )
    return {
        "hidden_size": int(target.hidden_size),
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": sizes.head_dim or int(target.head_dim),
        "intermediate_size": sizes.intermediate or int(target.intermediate_size),
        "vocab_size": int(target.vocab_size),
        "rope_theta": float(target.rope_parameters["rope_theta"]),
        "rms_norm_eps": float(target.rms_norm_eps),
        "max_position_embeddings": int(target.max_position_embeddings),
    }


def _check_taps(taps: tuple[int, ...], layers: int) -> None:
    if not taps or max(taps) >= layers or list(taps) != sorted(set(taps)):
        raise SlipstreamError(
            "the config's drafter.taps don't fit the target",
            expected=f"different blocks out of 0..{layers - 1}, rising",
            found=str(list(taps)),
            fix="change drafter.taps",
        )
