"""One training step at the sizes of a published pair, Qwen3-4B and its DFlash drafter."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from planners.nets.dflash import DFlash, DFlashConfig
from planners.training.drafter import DrafterSettings, train_drafter
from planners.training.drafter_objective import DrafterObjective
from planners.training.schedule import Schedule
from runtime.scaffold import free_scaffold

WIDTH, HEADS, KV_HEADS, HEAD_DIM, INNER, VOCAB = 2560, 32, 8, 128, 9728, 151936
LAYERS = 2  # of the target's 36
TAPS = (0, 0, 0, 1, 1)  # in place of 1, 9, 17, 25, 33: the projection keeps its size
MASK = 151669


def quick(shape: tuple[int, ...]) -> torch.Tensor:
    """Random enough, and made at the speed of memory."""
    noise = torch.randn(1 << 16) * 0.02
    count = int(torch.tensor(shape).prod())
    return noise.repeat(-(-count // len(noise)))[:count].view(shape)


@pytest.mark.slow
def test_one_step_of_a_published_drafter(tmp_path: Path) -> None:
    config = Qwen3Config(
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        head_dim=HEAD_DIM,
        intermediate_size=INNER,
        vocab_size=VOCAB,
        max_position_embeddings=40960,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6},
        tie_word_embeddings=True,
    )
    sizes = DFlashConfig(
        hidden_size=WIDTH,
        num_hidden_layers=1,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        head_dim=HEAD_DIM,
        intermediate_size=INNER,
        vocab_size=VOCAB,
        block_size=16,
        mask_token_id=MASK,
        target_layer_ids=TAPS,
        rope_theta=1e6,
        max_position_embeddings=40960,
    )
    with torch.device("meta"):
        target, drafter = Qwen3ForCausalLM(config), DFlash(sizes)
    for net in (target, drafter):
        net.to_empty(device="cpu")
        with torch.no_grad():
            for parameter in net.parameters():
                parameter.copy_(quick(parameter.shape) if parameter.dim() > 1 else torch.ones(()))
    target.tie_weights()
    before = {name: p.detach().sum().item() for name, p in drafter.named_parameters()}
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(VOCAB, (1, 40), generator=generator)
    how = DrafterSettings(
        Schedule(steps=1, peak=6e-4, average=0.0),
        batch=1,
        anchors=2,
        objective=DrafterObjective(ce=1, kl=0.1, chain=1, first_error=0.3),
        full_width=1.0,
    )
    scaffold = free_scaffold(24, VOCAB)
    train_drafter(drafter, target, tokens[:, :16], tokens[:, 16:], scaffold, how, tmp_path)
    line = json.loads((tmp_path / "log.jsonl").read_text())
    assert 5.0 < line["ce"] < 30.0
    assert line["gradient"] > 0
    changed = [name for name, p in drafter.named_parameters() if p.sum().item() != before[name]]
    assert {"fc.weight", "layers.0.self_attn.k_proj.weight"} <= set(changed)
    assert not any(p.grad is not None for p in target.parameters())
