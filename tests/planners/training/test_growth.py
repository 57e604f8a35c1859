"""Growth: what is grown computes the same, its repeats learn apart, and misfits are named."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import Qwen3ForCausalLM

from planners.nets.block_drafter import BlockDrafter, BlockDrafterConfig
from planners.nets.dflare import DFlareConfig
from planners.nets.dflash import DFlashConfig
from planners.nets.drafters import build_drafter
from planners.nets.qwen3 import forward, new_target
from planners.tokens import Tokenizer
from planners.training.blocks import make_blocks
from planners.training.drafter import draft
from planners.training.examples import Examples
from planners.training.growth import growth_between, warm_started_drafter
from planners.training.target import warm_started
from runtime.errors import SlipstreamError

SMALL = {
    "vocab_size": 512,
    "hidden_size": 24,
    "intermediate_size": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "rope_theta": 500.0,
    "rms_norm_eps": 1e-3,
}
WIDER = {"hidden_size": 48}
GROWN: dict[str, dict[str, int]] = {
    "width": WIDER,
    "width x3": {"hidden_size": 72},
    "heads": {"num_attention_heads": 8, "num_key_value_heads": 4},
    "query heads": {"num_attention_heads": 8},
    "key/value heads": {"num_key_value_heads": 4},
    "neurons": {"intermediate_size": 64},
    "some neurons": {"intermediate_size": 45},
    "depth": {"num_hidden_layers": 7},
    "all": {
        "hidden_size": 48,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "intermediate_size": 64,
        "num_hidden_layers": 7,
    },
}
TAPS = (1, 3)


@torch.no_grad()
def lively(net: nn.Module, seed: int) -> Any:
    """Weights that matter, and norms that are not all ones."""
    torch.manual_seed(seed)
    for parameter in net.parameters():
        parameter.copy_(torch.randn_like(parameter) * 0.3 + (parameter.dim() == 1))
    return net.eval()


def small_target(tied: bool = True) -> Qwen3ForCausalLM:
    return lively(new_target(0, tie_word_embeddings=tied, **SMALL), 0)


def grown_target(
    small: Qwen3ForCausalLM, changes: dict[str, int], words: Tokenizer
) -> Qwen3ForCausalLM:
    tied = bool(small.config.tie_word_embeddings)
    big = new_target(1, tie_word_embeddings=tied, **(SMALL | changes))
    return warm_started(big, words, small, words).eval()


@pytest.fixture
def tokens(examples: Examples) -> Tensor:
    """Of the tokenizer's: a grown target has the rows of these."""
    known = torch.tensor(sorted(examples.tokenizer.ids.values()))
    return known[torch.randint(len(known), (3, 20), generator=torch.Generator().manual_seed(0))]


def close(one: Tensor, other: Tensor) -> bool:
    return bool((one - other).abs().max() < 1e-4 * other.abs().max())


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("what", GROWN)
@torch.no_grad()
def test_a_grown_target_says_the_same(
    what: str, tied: bool, tokens: Tensor, examples: Examples
) -> None:
    small = small_target(tied)
    big = grown_target(small, GROWN[what], examples.tokenizer)
    rows = sorted(examples.tokenizer.ids.values())
    wanted = small(tokens).logits[..., rows]
    assert wanted.std() > 1
    assert close(big(tokens).logits[..., rows], wanted)


@pytest.mark.parametrize("noise", [0.0, 0.25])
@torch.no_grad()
def test_the_stream_behind_the_taps_is_the_small_ones(noise: float, tokens: Tensor) -> None:
    small = small_target()
    big = new_target(1, tie_word_embeddings=True, **(SMALL | GROWN["all"]))
    growth = growth_between(small.config, big.config)
    big.load_state_dict(growth.weights(small.state_dict(), noise=noise))
    assert growth.layers.tolist() == [0, 0, 1, 1, 2, 2, 3]
    assert growth.taps(TAPS) == (3, 6)
    narrow = forward(small, tokens, taps=TAPS).taps
    wide = forward(big, tokens, taps=growth.taps(TAPS)).taps
    assert narrow is not None
    assert wide is not None
    assert close(wide, narrow.repeat_interleave(2, -1))


def test_repeats_do_not_learn_alike(tokens: Tensor) -> None:
    """Two channels, neurons and heads that are the same get other gradients, by the noise."""
    small = small_target()
    apart = {}
    for noise in (0.0, 0.25):
        big = new_target(1, tie_word_embeddings=True, **(SMALL | GROWN["all"]))
        growth = growth_between(small.config, big.config)
        big.load_state_dict(growth.weights(small.state_dict(), noise=noise))
        big(tokens, labels=tokens).loss.backward()
        block = big.model.layers[0]
        written = block.self_attn.o_proj.weight.grad, block.mlp.gate_proj.weight.grad
        heads = block.self_attn.q_proj.weight.grad.view(8, 8, -1).flatten(1)
        apart[noise] = [
            float((rows[::2] - rows[1::2]).abs().mean() / rows.abs().mean())
            for rows in (*written, heads)
        ]
    assert max(apart[0.0]) < 1e-3
    assert min(apart[0.25]) > 0.05


def test_a_seed_repeats_and_another_does_not() -> None:
    small = small_target()
    big = new_target(1, tie_word_embeddings=True, **(SMALL | WIDER)).config
    growth = growth_between(small.config, big)
    name = "model.layers.0.mlp.up_proj.weight"
    one, same, other = (growth.weights(small.state_dict(), seed)[name] for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_the_same_sizes_are_taken_to_the_bit() -> None:
    small = small_target()
    growth = growth_between(small.config, small.config)
    for name, weights in growth.weights(small.state_dict()).items():
        assert torch.equal(weights, small.state_dict()[name])


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"hidden_size": 36}, "hidden_size"),
        ({"hidden_size": 12}, "hidden_size"),
        ({"num_hidden_layers": 3}, "num_hidden_layers"),
        ({"intermediate_size": 31}, "intermediate_size"),
        ({"num_attention_heads": 6}, "num_attention_heads"),
        ({"num_key_value_heads": 1}, "num_key_value_heads"),
        ({"head_dim": 16}, "head_dim"),
        ({"rope_theta": 600.0}, "rope_parameters"),
        ({"rms_norm_eps": 1e-6}, "rms_norm_eps"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings"),
        ({"attention_bias": True}, "model.layers.0.self_attn.k_proj.bias"),
    ],
)
def test_what_does_not_fit_is_named(changes: dict[str, Any], says: str, examples: Examples) -> None:
    big = new_target(1, **(SMALL | {"tie_word_embeddings": True} | changes))
    before = {name: x.clone() for name, x in big.state_dict().items()}
    with pytest.raises(SlipstreamError, match=f"does not fit: {says}\n"):
        warm_started(big, examples.tokenizer, small_target(), examples.tokenizer)
    assert all(torch.equal(x, before[name]) for name, x in big.state_dict().items())


def dflash(**changes: Any) -> BlockDrafterConfig:
    return DFlashConfig(**drafter_sizes(), **changes)


def dflare(**changes: Any) -> BlockDrafterConfig:
    return DFlareConfig(**drafter_sizes(), **changes)


def drafter_sizes() -> dict[str, Any]:
    sizes = {name: value for name, value in SMALL.items() if name != "num_hidden_layers"}
    return sizes | {
        "num_hidden_layers": 2,
        "block_size": 8,
        "mask_token_id": 2,
        "target_layer_ids": TAPS,
    }


DRAFTERS = {
    "dflash": dflash(),
    "markov": dflash(markov_rank=4, scaffold_in_block=True),
    "biases": dflash(attention_bias=True),
    "its own words": dflash(own_embedding=True, mask_embedding=True, draft_vocab_size=512),
    "dflare": dflare(fusion_fc=True),
    "dflare, one key": dflare(heterogeneous_kv=False, fusion_softmax=False),
}


@torch.no_grad()
def drafts(drafter: BlockDrafter, target: Qwen3ForCausalLM, tokens: Tensor) -> Tensor:
    """Logits [N, B, V] of a block behind the first ten tokens."""
    anchors = torch.full((len(tokens), 1), 9)
    widths = torch.full_like(anchors, 8)
    value = torch.ones(20, dtype=torch.bool)
    blocks = make_blocks(tokens, value, anchors, widths, 8, drafter.config.mask_token_id)
    taps = forward(target, tokens, taps=drafter.config.target_layer_ids).taps
    assert taps is not None
    logits = drafter.logits(draft(drafter, target, blocks, taps), target.lm_head)
    if drafter.markov is not None:
        logits = logits + drafter.markov(tokens.gather(1, blocks.positions - 1))
    return logits


@pytest.mark.parametrize("kind", DRAFTERS)
def test_a_grown_drafter_drafts_the_same_for_the_grown_target(
    kind: str, tokens: Tensor, examples: Examples
) -> None:
    small, target = lively(build_drafter(DRAFTERS[kind]), 3), small_target()
    big = grown_target(target, GROWN["all"], examples.tokenizer)
    sizes = replace(
        DRAFTERS[kind],
        **{**GROWN["all"], "num_hidden_layers": 3, "block_size": 16},
        target_layer_ids=growth_between(target.config, big.config).taps(TAPS),
    )
    grown = warm_started_drafter(build_drafter(sizes), small, seed=1).eval()
    rows = sorted(examples.tokenizer.ids.values())
    wanted = drafts(small, target, tokens)[..., rows]
    found = drafts(grown, big, tokens)[..., rows]
    assert close(found, wanted)
    assert torch.equal(found.argmax(-1), wanted.argmax(-1))
    assert len(wanted.argmax(-1).unique()) > 3


@pytest.mark.parametrize(
    ("config", "says"),
    [
        (dflare(), "kind"),
        (dflash(markov_rank=4), "markov_rank"),
        (replace(dflash(), vocab_size=513), "vocab_size"),
        (replace(dflash(), mask_token_id=3), "mask_token_id"),
        (replace(dflash(), target_layer_ids=(1, 2, 3)), "number of taps"),
        (replace(dflash(), num_hidden_layers=1), "num_hidden_layers"),
    ],
)
def test_a_drafter_that_does_not_fit_is_named(config: BlockDrafterConfig, says: str) -> None:
    with pytest.raises(SlipstreamError, match=f"does not fit: {says}\n"):
        warm_started_drafter(build_drafter(config), build_drafter(dflash()), seed=0)
