"""config.json: what is understood, and what is refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import AutoConfig
from transformers.models.qwen3.modeling_qwen3 import Qwen3RotaryEmbedding

from export.checkpoint import Checkpoint, CheckpointError
from export.configs import tap_rule, target_config
from export.draft_options import drafter_config
from planners.nets.drafters import read_config

_LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


def test_the_target_is_understood(target: Path) -> None:
    config = target_config(Checkpoint.open(target))
    assert (config.layers, config.width, config.heads, config.kv_heads) == (5, 64, 6, 2)
    assert (config.theta, config.eps, config.tied) == (10000.0, 1e-6, True)
    assert config.group == 3


def test_the_older_key_of_the_rope_base_is_understood(altered: Callable[..., Path]) -> None:
    folder = altered(rope_parameters=None, rope_scaling=None, rope_theta=1e6)
    assert target_config(Checkpoint.open(folder)).theta == 1e6


def test_keys_without_effect_and_options_that_are_off_are_passed_over(
    altered: Callable[..., Path],
) -> None:
    folder = altered(
        torch_dtype="bfloat16",
        use_cache=False,
        sliding_window=128,
        max_window_layers=2,
        logit_scale=None,
        rope_interleaved=False,
        partial_rotary_factor=1.0,
    )
    target_config(Checkpoint.open(folder))


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"architectures": ["GemmaForCausalLM"]}, "unknown architecture"),
        ({"architectures": ["Qwen3ForCausalLM", "LlamaForCausalLM"]}, "unknown architecture"),
        ({"architectures": None}, "unknown architecture"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"use_sliding_window": True}, "use_sliding_window"),
        ({"layer_types": ["sliding_attention"] * 5}, "layer_types"),
        ({"layer_types": ["full_attention", "linear_attention"]}, "layer_types"),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e6}}, "rope_parameters.factor"),
        ({"rope_parameters": {"rope_type": "longrope", "rope_theta": 1e6}}, "rope_type"),
        ({"rope_scaling": {"type": "su", "factor": 2.0}}, r"rope_scaling\.rope_type"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0, "extra": 1}}, r"rope_scaling\.extra"),
        ({"rope_scaling": {"type": "linear", "factor": -2.0}}, r"rope_scaling\.factor"),
        ({"rope_scaling": {"type": "yarn", "factor": "4"}}, r"rope_scaling\.factor"),
        ({"rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]}}, "rope_parameters"),
        ({"rope_scaling": {**_LLAMA3, "high_freq_factor": 1.0}}, "low_freq_factor"),
        ({"rope_scaling": {"full_attention": {"rope_type": "default"}}}, "full_attention"),
        ({"logit_scale": 0.5}, "logit_scale is unknown"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor is unknown"),
        ({"quantization_config": {"quant_method": "awq"}}, "quantization_config"),
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
        ({"rope_parameters": None, "rope_scaling": {"type": "linear"}}, r"rope_scaling\.factor"),
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
        ({"hidden_size": 32}, "does not fit the target"),
        ({"vocab_size": 299}, "does not fit the target"),
        ({"block_size": 1}, "block_size"),
        ({"dflash_config": {"mask_token_id": 300, "target_layer_ids": [1]}}, "mask_token_id"),
        ({"dflash_config": {"mask_token_id": 7, "target_layer_ids": [5]}}, "target_layer_ids"),
        ({"dflash_config": {"mask_token_id": 7, "target_layer_ids": []}}, "target_layer_ids"),
        ({"dflash_config": {"target_layer_ids": [1]}}, "mask_token_id"),
        ({"dflash_config": [1]}, "dflash_config"),
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
    "rope",
    [
        {"rope_type": "default"},
        {"rope_type": "linear", "factor": 3.0},
        {"rope_type": "dynamic", "factor": 3.0},
        _LLAMA3,
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
        {"type": "yarn", "factor": 8.0, "beta_fast": 16, "beta_slow": 2, "attention_factor": 1.3},
        {"rope_type": "yarn", "factor": 40, "mscale": 1.0, "mscale_all_dim": 0.8},
        {"rope_type": "yarn", "factor": 4.0, "truncate": False},
    ],
)
@pytest.mark.parametrize("theta", [1e4, 1e6])
def test_frequencies_are_those_of_transformers(
    altered: Callable[..., Path], rope: dict[str, Any], theta: float
) -> None:
    folder = altered(rope_parameters=None, rope_scaling=rope, rope_theta=theta)
    config = target_config(Checkpoint.open(folder))
    embedding = Qwen3RotaryEmbedding(AutoConfig.from_pretrained(folder))
    found = config.rope.frequencies(config.theta, config.head_dim)
    np.testing.assert_allclose(found, embedding.inv_freq, rtol=3e-7)
    assert config.rope.gain == pytest.approx(embedding.attention_scaling)


@pytest.mark.parametrize(
    ("sections", "interleaved", "axes"),
    [
        (None, False, (0,) * 8),
        ((2, 3, 3), False, (0, 0, 1, 1, 1, 2, 2, 2)),
        ((4, 2, 2), True, (0, 1, 2, 0, 1, 2, 0, 0)),
        ((8, 0, 0), False, (0,) * 8),
    ],
)
def test_each_frequency_turns_with_its_axis(
    target: Path, sections: Any, interleaved: bool, axes: tuple[int, ...]
) -> None:
    config = target_config(Checkpoint.open(target))
    changed = {"mrope_section": sections, "mrope_interleaved": interleaved}
    assert config.model_copy(update=changed).rope_axes == axes


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


@pytest.mark.parametrize("inside", [True, False])
def test_keys_may_stand_inside_or_beside_dflash_config(
    target: Path, drafter: Path, altered: Callable[..., Path], inside: bool
) -> None:
    """The network reads them like the export."""
    options = {
        "mask_token_id": 9,
        "target_layer_ids": [0, 3],
        "scaffold_in_block": True,
        "input_embedding_scale": 2.0,
        "is_causal": True,
        "block_size": 6,
    }
    values = {"dflash_config": options} if inside else {"dflash_config": None, **options}
    folder = altered(drafter, **values)
    config = drafter_config(Checkpoint.open(folder), target_config(Checkpoint.open(target)))
    raw = json.loads((folder / "config.json").read_text())
    read = read_config(raw)
    assert (config.mask_token, config.taps, config.block) == (9, (0, 3), 6)
    assert (read.mask_token_id, read.target_layer_ids, read.block_size) == (9, (0, 3), 6)
    assert config.scaffold_in_block is read.scaffold_in_block is True
    assert config.embedding_scale == read.input_embedding_scale == 2.0
    assert list(config.kinds) == read.kinds == [(True, None)] * 2
