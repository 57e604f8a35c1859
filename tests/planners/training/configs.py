"""Sizes of the tests' networks."""

from __future__ import annotations

from planners.nets.dflash import DFlashConfig


def drafter_config(mask_token: int, **changes: int | bool) -> DFlashConfig:
    """Two layers of width 32, three taps, blocks of 16."""
    sizes = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 16,
        "intermediate_size": 48,
        "vocab_size": 512,
        "block_size": 16,
    }
    return DFlashConfig(
        **(sizes | changes),
        mask_token_id=mask_token,
        target_layer_ids=(1, 2, 3),
    )
