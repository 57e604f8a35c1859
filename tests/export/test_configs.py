"""config.json: what is understood, and what is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from export.checkpoint import Checkpoint, CheckpointError
from export.configs import tap_rule, target_config
from export.draft_configs import drafter_config


def test_the_target_is_understood(target: Path) -> None:
    config = target_config(Checkpoint.open(target))
    assert (config.layers, config.width, config.heads, config.kv_heads) == (5, 64, 6, 2)
    assert (config.theta, config.eps, config.tied) == (10000.0, 1e-6, True)
    assert config.group == 3


def test_the_older_key_of_the_rope_base_is_understood(altered: Callable[..., Path]) -> None:
    folder = altered(rope_parameters=None, rope_scaling=None, rope_theta=1e6)
    assert target_config(Checkpoint.open(folder)).theta == 1e6


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"architectures": ["LlamaForCausalLM"]}, "unknown architecture"),
        ({"architectures": None}, "unknown architecture"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"attention_bias": True}, "attention_bias"),
        ({"use_sliding_window": True}, "use_sliding_window"),
        ({"layer_types": ["sliding_attention"] * 5}, "use_sliding_window"),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e6}}, "rope_parameters"),
        ({"rope_parameters": "yarn"}, "rope_parameters"),
        ({"num_hidden_layers": 0}, "num_hidden_layers"),
        ({"num_attention_heads": 5}, "num_attention_heads"),
        ({"rms_norm_eps": None}, "rms_norm_eps"),
        ({"head_dim": 15}, "head_dim"),
        ({"vocab_size": "many"}, "vocab_size"),
        ({"vocab_size": None}, "vocab_size"),
        ({"num_key_value_heads": 4}, "num_attention_heads|heads"),
        ({"num_key_value_heads": 0}, "num_key_value_heads"),
        ({"hidden_size": -64}, "hidden_size"),
        ({"intermediate_size": 1 << 40}, "intermediate_size"),
        ({"max_position_embeddings": None}, "max_position_embeddings"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps|can't be read"),
        ({"rms_norm_eps": 0}, "rms_norm_eps"),
        ({"rope_parameters": None, "rope_theta": None}, "rope_theta"),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": -1.0}}, "rope_theta"),
        ({"rope_parameters": None, "rope_scaling": {"type": "linear"}}, "rope_parameters"),
        ({"tie_word_embeddings": "perhaps"}, "tie_word_embeddings"),
        ({"num_hidden_layers": 4}, "num_hidden_layers"),
    ],
)
def test_what_cannot_be_exported_is_named(
    altered: Callable[..., Path], values: dict[str, Any], named: str
) -> None:
    with pytest.raises(CheckpointError, match=named) as caught:
        target_config(Checkpoint.open(altered(**values)))
    assert "config.json" in caught.value.what
    assert caught.value.fix


def test_the_drafter_is_understood(target: Path, drafter: Path) -> None:
    config = drafter_config(Checkpoint.open(drafter), target_config(Checkpoint.open(target)))
    assert (config.block, config.mask_token, config.taps) == (8, 257, (1, 2, 4))
    assert not config.scaffold_in_block


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"architectures": ["DFlash2DraftModel"]}, "unknown architecture"),
        ({"is_causal": True}, "is_causal"),
        ({"hidden_size": 32}, "does not fit the target"),
        ({"vocab_size": 299}, "does not fit the target"),
        ({"block_size": 1}, "block_size"),
        ({"dflash_config": {"mask_token_id": 300, "target_layer_ids": [1]}}, "mask_token_id"),
        ({"dflash_config": {"mask_token_id": 7, "target_layer_ids": [5]}}, "target_layer_ids"),
        ({"dflash_config": {"mask_token_id": 7, "target_layer_ids": []}}, "target_layer_ids"),
        ({"dflash_config": {"target_layer_ids": [1]}}, "mask_token_id"),
        ({"dflash_config": [1]}, "dflash_config"),
        ({"dflash_config": {"is_causal": True}}, "is_causal"),
        ({"dflash_config": {"mask_token_id": -1, "target_layer_ids": [1]}}, "mask_token_id"),
        ({"dflash_config": {"mask_token_id": 7, "target_layer_ids": [-1]}}, "target_layer_ids"),
        ({"dflash_config": {"mask_token_id": 7, "target_layer_ids": "1"}}, "target_layer_ids"),
        ({"block_size": None}, "block_size"),
        ({"block_size": 1 << 11}, "block_size"),
        ({"scaffold_in_block": "perhaps"}, "scaffold_in_block"),
        ({"num_hidden_layers": 1}, "num_hidden_layers"),
    ],
)
def test_a_drafter_that_does_not_fit_is_named(
    target: Path,
    drafter: Path,
    altered: Callable[..., Path],
    values: dict[str, Any],
    named: str,
) -> None:
    folder = altered(drafter, **values)
    with pytest.raises(CheckpointError, match=named):
        drafter_config(Checkpoint.open(folder), target_config(Checkpoint.open(target)))


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        (36, (1, 9, 17, 25, 33)),
        (24, (1, 6, 11, 16, 21)),
        (28, (1, 7, 13, 19, 25)),
        (5, (1, 2)),
        (4, (2,)),
        (2, (1,)),
    ],
)
def test_taps_follow_the_published_rule(layers: int, expected: tuple[int, ...]) -> None:
    assert tap_rule(layers) == expected


def test_one_tap_is_the_middle_block() -> None:
    assert tap_rule(36, count=1) == (18,)
    assert tap_rule(6) == (1, 2, 3)


def test_keys_may_stand_inside_or_beside_dflash_config(
    target: Path, drafter: Path, altered: Callable[..., Path]
) -> None:
    inside = {"mask_token_id": 9, "target_layer_ids": [0, 3], "scaffold_in_block": True}
    folder = altered(drafter, dflash_config=inside)
    sizes = target_config(Checkpoint.open(target))
    config = drafter_config(Checkpoint.open(folder), sizes)
    assert (config.mask_token, config.taps) == (9, (0, 3))
    assert config.scaffold_in_block
