"""The rows a target drafts for itself from: which are hidden, and what each of them sees."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import numpy as np
import torch
from torch import Tensor
from transformers import Qwen3ForCausalLM

from planners.nets.qwen3 import Cache, forward
from planners.training.allowed import Allowed
from planners.training.self_drafting import two_streams
from tests.planners.training.noisy_blocks import (
    BLOCK,
    FIRST,
    MASK,
    noise_of,
    noisy_blocks,
    scaffold_of,
    words,
)


@torch.no_grad()
def test_clean_rows_are_a_plain_causal_pass(target: Qwen3ForCausalLM) -> None:
    scaffold = scaffold_of()
    tokens = torch.cat(words(scaffold), 1)
    clean, _ = two_streams(target, tokens, noisy_blocks(scaffold, tokens))
    torch.testing.assert_close(clean, forward(target, tokens).hidden, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_noisy_rows_are_a_pass_over_what_stands_before_their_anchor(
    target: Qwen3ForCausalLM,
) -> None:
    """As in decoding: [tokens before the anchor, block], the block's rows seeing all of it."""
    scaffold = scaffold_of()
    tokens = torch.cat(words(scaffold), 1)
    blocks = noisy_blocks(scaffold, tokens)
    _, noisy = two_streams(target, tokens, blocks)
    for n in range(len(tokens)):
        for a in range(6):
            rows = slice(a * BLOCK, (a + 1) * BLOCK)
            inside = blocks.inside[n, rows]
            own = blocks.tokens[n, rows][inside]
            anchor, width = int(blocks.positions[n, a * BLOCK]), len(own)
            alone = torch.cat([tokens[n, :anchor], own])[None]
            mask = torch.ones(anchor + width, anchor + width, dtype=torch.bool).tril()
            mask[anchor:, anchor:] = True
            wanted = forward(target, alone, mask=mask[None]).hidden[0, anchor:]
            torch.testing.assert_close(noisy[n, rows][inside], wanted, rtol=1e-4, atol=2e-5)


def test_a_row_sees_exactly_what_it_may(target: Qwen3ForCausalLM) -> None:
    """The gradient of one row's hidden state to every input row, by perturbing what is embedded."""
    scaffold = scaffold_of()
    tokens = torch.cat(words(scaffold, 1), 1)
    blocks = noisy_blocks(scaffold, tokens)
    length, seen = tokens.shape[1], []
    embedded: list[Tensor] = []

    def keep(_: object, __: object, out: Tensor) -> Tensor:
        embedded.append(out.detach().requires_grad_(True))
        return embedded[-1]

    hook = target.model.embed_tokens.register_forward_hook(keep)
    clean, noisy = two_streams(target, tokens, blocks)
    hook.remove()
    for row in (0, 5, 13, 23, 35):
        (found,) = torch.autograd.grad(noisy[0, row].sum(), embedded[-1], retain_graph=True)
        seen.append(found[0].abs().sum(-1) > 0)
        assert torch.equal(seen[-1], blocks.mask[0, row])
    (found,) = torch.autograd.grad(clean[0, 15].sum(), embedded[-1])
    assert torch.equal(found[0].abs().sum(-1) > 0, torch.arange(length + 36) <= 15)
    assert seen[1][length:].sum() == BLOCK  # its own block, in both directions


def test_a_pair_hides_every_value_exactly_once() -> None:
    scaffold = scaffold_of()
    tokens = torch.cat(words(scaffold), 1)
    for seed in range(20):
        blocks = noisy_blocks(scaffold, tokens, seed=seed)
        one, other = blocks.drafted.view(3, 2, 3, BLOCK).unbind(1)
        places = blocks.positions.view(3, 2, 3, BLOCK)
        assert torch.equal(places[:, 0], places[:, 1])
        is_value = torch.tensor(scaffold.is_value)[(places[:, 0] - FIRST).clamp_min(0)]
        inside = blocks.inside.view(3, 2, 3, BLOCK)[:, 0]
        value = is_value & inside & (torch.arange(BLOCK) > 0)
        assert torch.equal(one ^ other, value)
        assert not (one & other).any()
        true = tokens.gather(1, blocks.positions)
        assert torch.equal(blocks.tokens, torch.where(blocks.drafted, MASK, true))


def test_whole_pairs_hide_all_and_need_not_share_a_place() -> None:
    scaffold = scaffold_of()
    tokens = torch.cat(words(scaffold), 1)
    blocks = noisy_blocks(scaffold, tokens, hidden=1.0)
    assert blocks.positions.view(3, 6, BLOCK)[0, :, 0].tolist() == [8, 12, 20, 24, 14, 10]
    is_value = torch.tensor(scaffold.is_value)[(blocks.positions - FIRST).clamp_min(0)]
    assert torch.equal(blocks.drafted, is_value & blocks.inside & (blocks.rows > 0))


def test_each_section_has_noise_of_its_own() -> None:
    scaffold = scaffold_of("?" * 40)
    tokens = torch.cat(words(scaffold, 200), 1)
    noise = noise_of(scaffold, head=(0.1, 0.9), tail=(0.9, 0.1))
    anchors = torch.full((200, 2), FIRST + 15)  # four values in the head, four in the tail
    widths = torch.full_like(anchors, 9)
    blocks = noise.blocks(tokens, anchors, widths, 9, np.random.default_rng(0))
    first = blocks.drafted.view(200, 2, 9)[:, 0].float()
    assert first[:, 1:5].mean() == pytest.approx(0.1, abs=0.05)
    assert first[:, 5:].mean() == pytest.approx(0.9, abs=0.05)
    # one rate for a section of a block: rows of a section go together more than chance has it
    shares = first[:, 5:].mean(1)
    assert shares.var() > 2 * float(shares.mean() * (1 - shares.mean()) / 4)


@torch.no_grad()
def test_rows_that_no_value_is_read_from_may_be_left_out(target: Qwen3ForCausalLM) -> None:
    """A block of the other rows alone says the same."""
    scaffold = scaffold_of()
    prompts, outputs = words(scaffold)
    tokens = torch.cat([prompts, outputs], 1)
    blocks = noisy_blocks(scaffold, tokens, hidden=1.0)
    is_value = Allowed(scaffold, FIRST, tokens.device).is_value
    fewer = blocks.of_value_rows(is_value)
    kept = fewer.inside
    following = torch.cat([is_value[1:], is_value.new_zeros(1)])[blocks.positions]
    assert torch.equal(kept, blocks.inside & ((blocks.rows == 0) | following))
    assert 0 < kept.sum() < blocks.inside.sum()
    assert torch.equal(fewer.drafted, blocks.drafted)
    noisy = two_streams(target, tokens, fewer)[1]
    for n in range(len(tokens)):
        rows = torch.nonzero(kept[n])[:, 0]
        for block in (rows // BLOCK).unique():
            own = rows[rows // BLOCK == block]
            anchor = int(blocks.positions[n, own[0]])
            shown = torch.cat([tokens[n, :anchor], blocks.tokens[n, own]])
            at = torch.cat([torch.arange(anchor), blocks.positions[n, own]])
            mask = torch.ones(len(shown), len(shown), dtype=torch.bool).tril()
            mask[anchor:, anchor:] = True
            alone = forward(target, shown[None], positions=at[None], mask=mask[None]).hidden
            torch.testing.assert_close(noisy[n, own], alone[0, anchor:], rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_a_pass_that_is_taken_back_leaves_nothing(target: Qwen3ForCausalLM) -> None:
    tokens = torch.randint(3, 500, (2, 12))
    cache = Cache(target.config, 2, 20)
    forward(target, tokens[:, :8], cache=cache)
    before = cache.length
    forward(target, tokens[:, 2:6], cache=cache, mask=torch.ones(2, 4, 12, dtype=torch.bool))
    cache.length = before
    found = forward(target, tokens[:, 8:], cache=cache).hidden
    wanted = forward(target, tokens).hidden[:, 8:]
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
