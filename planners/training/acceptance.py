"""How much of a draft would be accepted, found from known outputs without decoding."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from transformers import Qwen3ForCausalLM

from planners.nets.block_drafter import BlockDrafter
from planners.nets.markov import GatedMarkovHead
from planners.nets.qwen3 import Cache, forward
from planners.training.allowed import Allowed
from planners.training.blocks import Blocks, make_blocks
from planners.training.drafter import draft
from runtime.scaffold import Scaffold

# blocks of the sequences numbered [M] -> logits [M, B, V], each at its own position
DraftLogits = Callable[[Blocks, Tensor], Tensor]


@torch.no_grad()
def acceptance_length(
    drafter: BlockDrafter,
    target: Qwen3ForCausalLM,
    prompts: Tensor,
    outputs: Tensor,
    scaffold: Scaffold,
    width: int,
    *,
    heats: Tensor | None = None,
    seed: int = 0,
) -> float:
    """Tokens committed per verification, bonus and scaffold counted.

    Where the target is greedy, a draft is accepted if it agrees with the output. Elsewhere drafts
    are drawn from q and token verification keeps them: an output token x that the target has drawn
    was the draft's with probability min(1, q(x)/p(x)) (Bayes' rule on arXiv 2211.17192, algorithm
    1), so its fate is drawn with that.

    Args:
        prompts: [N, Lp]; outputs: [N, L], the target's own at these temperatures.
        width: B, anchor included.
        heats: [L] temperature of each place of the output; None is greedy.
        seed: of the fates.
    """
    tokens = torch.cat([prompts, outputs], 1)
    run = forward(target, tokens, taps=drafter.config.target_layer_ids)
    taps = run.taps
    assert taps is not None

    def logits_of(blocks: Blocks, active: Tensor) -> Tensor:
        logits: Tensor = target.lm_head(draft(drafter, target, blocks, taps[active])).float()
        if drafter.markov is not None:
            before = (blocks.positions - 1).clamp_min(0)
            logits = logits + drafter.markov(tokens[active].gather(1, before))
        return logits

    words = tokens, prompts.shape[1], scaffold
    mask = drafter.config.mask_token_id
    return _length(logits_of, target, run.hidden, *words, width, mask, heats, seed)


@torch.no_grad()
def self_acceptance_length(
    target: Qwen3ForCausalLM,
    prompts: Tensor,
    outputs: Tensor,
    scaffold: Scaffold,
    width: int,
    mask_token: int,
    *,
    value_rows: bool = False,
    markov: GatedMarkovHead | None = None,
    heats: Tensor | None = None,
    seed: int = 0,
) -> float:
    """`acceptance_length` of a target that drafts for itself, over its own keys and values.

    Args:
        value_rows: a block holds no rows behind the anchor that no value is read from.
        markov: the target's own, for drafts.
    """
    tokens = torch.cat([prompts, outputs], 1)
    count, length = tokens.shape
    clean = Cache(target.config, count, length + width, tokens.device)
    hidden = forward(target, tokens, cache=clean).hidden
    is_value = Allowed(scaffold, prompts.shape[1], tokens.device).is_value

    def logits_of(blocks: Blocks, active: Tensor) -> Tensor:
        cached = clean.of(active)
        passed = blocks.of_value_rows(is_value) if value_rows else blocks
        noisy = forward(
            target,
            blocks.tokens,
            cache=cached,
            positions=blocks.positions,
            mask=passed.packed_mask,
        )
        said = noisy.hidden.roll(1, dims=1)  # token shift: a row says what follows it
        logits: Tensor = target.lm_head(said).float()
        if markov is not None:
            before = (blocks.positions - 1).clamp_min(0)
            logits = logits + markov(tokens[active].gather(1, before), said)
        return logits

    words = tokens, prompts.shape[1], scaffold
    return _length(logits_of, target, hidden, *words, width, mask_token, heats, seed)


def _length(
    logits_of: DraftLogits,
    target: Qwen3ForCausalLM,
    hidden: Tensor,
    tokens: Tensor,
    first: int,
    scaffold: Scaffold,
    width: int,
    mask_token: int,
    heats: Tensor | None,
    seed: int,
) -> float:
    """`acceptance_length` for any drafter.

    Args:
        hidden: [N, S, d] of the target over prompts and outputs; tokens: [N, S]; first: Lp.
    """
    length = tokens.shape[1]
    allowed = Allowed(scaffold, first, tokens.device)
    heat = torch.zeros(length - first) if heats is None else heats
    heat = heat.to(tokens.device)
    generator = torch.Generator().manual_seed(seed)
    anchors = torch.full_like(tokens[:, :1], first - 1)
    rounds = 0
    while len(active := torch.nonzero(anchors[:, 0] < length - 1)[:, 0]):
        own, at = tokens[active], anchors[active]
        widths = torch.full_like(at, width)
        blocks = make_blocks(own, allowed.is_value, at, widths, width, mask_token)
        bias, before = allowed.bias(blocks.positions), (blocks.positions - 1).clamp_min(0)
        logits = logits_of(blocks, active) + bias
        said = own.gather(1, blocks.positions)
        right = logits.argmax(-1) == said
        if heats is not None:
            hot = heat[(blocks.positions - first).clamp_min(0)][..., None]
            truth = target.lm_head(hidden[active[:, None], before]).float() + bias
            q, p = (torch.log_softmax(x / hot.clamp_min(1e-3), -1) for x in (logits, truth))
            ratio = (q - p).gather(-1, said[..., None])[..., 0]
            fate = torch.rand(ratio.shape, generator=generator).to(ratio.device)
            right = torch.where(hot[..., 0] > 0, fate.log() < ratio, right)
        accepted = (~blocks.drafted | right)[:, 1:].int().cumprod(1).sum(1)
        rounds += len(active)
        anchors[active, 0] = (at[:, 0] + accepted + 1).clamp_max(length - 1)
    return tokens[:, first:].numel() / rounds
