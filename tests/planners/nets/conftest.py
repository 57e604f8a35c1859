"""Networks small enough to test in milliseconds."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch
from transformers import Qwen3ForCausalLM

from planners.nets.dflash import DFlash, DFlashConfig
from planners.nets.qwen3 import new_target

SIZES = {
    "vocab_size": 40,
    "hidden_size": 24,
    "intermediate_size": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "rope_theta": 500.0,
    "tie_word_embeddings": True,
    "initializer_range": 0.3,
}
MASK = 39


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def target() -> Qwen3ForCausalLM:
    return new_target(0, **SIZES).eval()


@pytest.fixture
def drafter() -> DFlash:
    config = DFlashConfig(
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        intermediate_size=32,
        vocab_size=40,
        block_size=8,
        mask_token_id=MASK,
        target_layer_ids=(1, 3),
        rope_theta=500.0,
        scaffold_in_block=True,
    )
    drafter = DFlash(config)
    torch.manual_seed(1)
    with torch.no_grad():  # norms that are not all ones, and weights that matter
        for parameter in drafter.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.3 + (parameter.dim() == 1))
    return drafter.eval()
