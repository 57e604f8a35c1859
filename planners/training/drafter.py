"""Train the drafter on what the target says (DFlash, arXiv 2602.06036, section 4.2)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from transformers import Qwen3ForCausalLM

from planners.nets.dflash import DFlash
from planners.nets.qwen3 import forward
from planners.training.blocks import make_blocks
from planners.training.loop import Evaluate, train
from planners.training.objectives import DrafterObjective, block_weights, drafter_loss
from planners.training.schedule import Schedule
from runtime.scaffold import Scaffold

FORBIDDEN = -1e4  # added to the logits of tokens outside an allowed set; finite, for the KL


@dataclass(frozen=True)
class DrafterSettings:
    """How the drafter is trained.

    Attributes:
        batch: sequences a step; anchors: blocks of each.
        gamma: rows over which the loss weight falls by e.
        full_width: share of blocks as wide as the drafter allows. Of the others half have half
            that width, half any width from 4: attention is bidirectional, so a narrow block is
            another problem than the head of a wide one.
    """

    schedule: Schedule
    seed: int = 0
    batch: int = 8
    anchors: int = 16
    gamma: float = 7.0
    objective: DrafterObjective = "ce+kl"
    full_width: float = 0.6


def train_drafter(
    drafter: DFlash,
    target: Qwen3ForCausalLM,
    prompts: Tensor,
    outputs: Tensor,
    scaffold: Scaffold,
    settings: DrafterSettings,
    folder: Path,
    *,
    evaluate: Evaluate | None = None,
    every: int = 500,
    until: int | None = None,
) -> dict[str, float]:
    """Train in place; the drafter ends with averaged weights. Returns the last evaluation.

    Args:
        prompts: [M, Lp] and outputs: [M, L], the target's own, sampled or greedy.
    """
    drafter.train()
    target.requires_grad_(False)
    sequences = torch.cat([prompts, outputs], 1)
    first = prompts.shape[1]
    is_value = torch.cat([torch.zeros(first, dtype=torch.bool), torch.tensor(scaffold.is_value)])
    bias = torch.tensor(scaffold.bias_at(np.arange(len(scaffold)))).clamp_min(FORBIDDEN)

    def loss_of_step(step: int) -> tuple[Tensor, dict[str, float]]:
        rng = np.random.default_rng((settings.seed, step))
        tokens = sequences[torch.from_numpy(rng.integers(len(sequences), size=settings.batch))]
        anchors, widths = draw_blocks(settings, drafter.config.block_size, first, tokens, rng)
        blocks = make_blocks(
            tokens,
            is_value,
            anchors,
            widths,
            drafter.config.block_size,
            drafter.config.mask_token_id,
        )
        with torch.no_grad():
            run = forward(target, tokens, taps=drafter.config.target_layer_ids)
            truth = target.lm_head(run.hidden[:, first - 1 : -1]).float() + bias
        assert run.taps is not None
        hidden = drafter(
            target.model.embed_tokens(blocks.tokens),
            blocks.positions,
            run.taps,
            torch.arange(tokens.shape[1]).expand(tokens.shape),
            blocks.mask,
        )
        sequence, row = blocks.drafted.nonzero(as_tuple=True)
        position = blocks.positions[sequence, row]
        wanted = tokens[sequence, position]
        logits = target.lm_head(hidden[sequence, row])
        loss = drafter_loss(
            logits,
            wanted,
            truth[sequence, position - first],
            block_weights(blocks.rows[sequence, row], settings.gamma),
            settings.objective,
        )
        hit = (logits.argmax(-1) == wanted).float().mean()
        return loss, {"loss": loss.item(), "hit": hit.item()}

    return train(
        drafter,
        loss_of_step,
        settings.schedule,
        folder,
        seed=settings.seed,
        settings=asdict(settings),
        evaluate=evaluate,
        every=every,
        until=until,
    )


def draw_blocks(
    settings: DrafterSettings, block: int, first: int, tokens: Tensor, rng: np.random.Generator
) -> tuple[Tensor, Tensor]:
    """Anchors [N, A], from the last prompt token to the last token but one, and widths [N, A]."""
    shape = (len(tokens), settings.anchors)
    anchors = rng.integers(first - 1, tokens.shape[1] - 1, shape)
    kind = rng.random(shape)
    any_width = rng.integers(4, block + 1, shape)
    narrow = np.where(kind < (1 + settings.full_width) / 2, block // 2, any_width)
    widths = np.where(kind < settings.full_width, block, narrow)
    return torch.from_numpy(anchors), torch.from_numpy(widths)


@torch.no_grad()
def acceptance_length(
    drafter: DFlash,
    target: Qwen3ForCausalLM,
    prompts: Tensor,
    outputs: Tensor,
    scaffold: Scaffold,
    width: int,
) -> float:
    """Tokens committed per verification of greedy decoding, bonus and scaffold counted.

    The target's greedy outputs are known, so a draft is accepted as far as it agrees with them.

    Args:
        prompts: [N, Lp]; outputs: [N, L], the target's greedy ones.
        width: B, anchor included.
    """
    tokens = torch.cat([prompts, outputs], 1)
    first, length = prompts.shape[1], tokens.shape[1]
    is_value = torch.cat([torch.zeros(first, dtype=torch.bool), torch.tensor(scaffold.is_value)])
    bias = torch.tensor(scaffold.bias_at(np.arange(len(scaffold))))
    taps = forward(target, tokens, taps=drafter.config.target_layer_ids).taps
    assert taps is not None
    anchors = torch.full((len(tokens), 1), first - 1)
    rounds = 0
    while len(active := torch.nonzero(anchors[:, 0] < length - 1)[:, 0]):
        own, at = tokens[active], anchors[active]
        blocks = make_blocks(
            own, is_value, at, torch.full_like(at, width), width, drafter.config.mask_token_id
        )
        hidden = drafter(
            target.model.embed_tokens(blocks.tokens),
            blocks.positions,
            taps[active],
            torch.arange(length).expand(own.shape),
            blocks.mask,
        )
        logits = target.lm_head(hidden) + bias[(blocks.positions - first).clamp_min(0)]
        right = ~blocks.drafted | (logits.argmax(-1) == own.gather(1, blocks.positions))
        accepted = right[:, 1:].int().cumprod(1).sum(1)
        rounds += len(active)
        anchors[active, 0] = (at[:, 0] + accepted + 1).clamp_max(length - 1)
    return outputs.numel() / rounds
