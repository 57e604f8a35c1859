"""Train the drafter on what the target says (DFlash, arXiv 2602.06036, section 4.2)."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from pydantic import ConfigDict
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from transformers import Qwen3ForCausalLM

from planners.nets.block_drafter import BlockDrafter
from planners.training.allowed import Allowed
from planners.training.batches import batch_rows
from planners.training.blocks import Blocks, make_blocks
from planners.training.drafter_objective import DrafterObjective, block_loss, row_figures
from planners.training.features import Features, Online
from planners.training.loop import Evaluate, train
from planners.training.schedule import Schedule
from planners.training.settings import CHECKED, Positive, Seed, Share, plain
from planners.training.watch import Watch
from runtime.scaffold import Scaffold

LOGITS = 1 << 26  # most logits held at once for the backward pass; more are computed again


@dataclass(frozen=True)
class DrafterSettings:
    """How the drafter is trained.

    Attributes:
        batch: sequences a step, in epochs; anchors: blocks of each, drawn anew in every epoch.
        objective: what is minimised.
        full_width: share of blocks as wide as the drafter allows. Of the others half have half
            that width, half any width from 4: attention is bidirectional, so a narrow block is
            another problem than the head of a wide one.
    """

    __pydantic_config__: ClassVar[ConfigDict] = CHECKED

    schedule: Schedule
    seed: Seed = 0
    batch: Positive = 8
    anchors: Positive = 16
    objective: DrafterObjective = field(default_factory=DrafterObjective)
    full_width: Share = 0.6


def train_drafter(
    drafter: BlockDrafter,
    target: Qwen3ForCausalLM,
    prompts: Tensor,
    outputs: Tensor,
    scaffold: Scaffold,
    settings: DrafterSettings,
    folder: Path,
    *,
    features: Features | None = None,
    evaluate: Evaluate | None = None,
    every: int = 500,
    save_every: int | None = None,
    until: int | None = None,
    watch: Watch | None = None,
) -> dict[str, float]:
    """Train in place; the drafter ends with averaged weights. Returns the last evaluation.

    Args:
        prompts: [M, Lp] and outputs: [M, L], the target's own, sampled or greedy.
        features: what the target makes of them; None runs it at every step.
    """
    drafter.train()
    target.requires_grad_(False)
    features = features or Online(target, drafter.config.target_layer_ids)
    lessons = Lessons(drafter, target, prompts, outputs, scaffold, settings, features)
    return train(
        drafter,
        lessons.loss_of_step,
        settings.schedule,
        folder,
        seed=settings.seed,
        settings=plain(settings),
        evaluate=evaluate,
        every=every,
        save_every=save_every,
        until=until,
        watch=watch,
    )


class Lessons:
    """The steps of a drafter's training: which blocks, and how wrong the drafter is there."""

    def __init__(
        self,
        drafter: BlockDrafter,
        target: Qwen3ForCausalLM,
        prompts: Tensor,
        outputs: Tensor,
        scaffold: Scaffold,
        settings: DrafterSettings,
        features: Features,
    ) -> None:
        self.drafter, self.target, self.settings = drafter, target, settings
        self.features = features
        self.sequences = torch.cat([prompts, outputs], 1)
        self.first = prompts.shape[1]
        self.allowed = Allowed(scaffold, self.first, prompts.device)

    def loss_of_step(self, step: int) -> tuple[Tensor, dict[str, float]]:
        """The loss of a batch that seed and step determine, and figures to log."""
        settings, sizes = self.settings, self.drafter.config
        rng = np.random.default_rng((settings.seed, step))
        chosen = torch.from_numpy(
            batch_rows(len(self.sequences), settings.batch, settings.seed, step)
        ).to(self.sequences.device)
        tokens = self.sequences[chosen]
        anchors, widths = draw_blocks(settings, sizes.block_size, self.first, tokens, rng)
        blocks = make_blocks(
            tokens, self.allowed.is_value, anchors, widths, sizes.block_size, sizes.mask_token_id
        )
        taps, truth = self.features.of(chosen, tokens)
        hidden = draft(self.drafter, self.target, blocks, taps, fused=taps.is_cuda)
        figures = self._figures(tokens, blocks, hidden, truth)
        drafted, inside = (
            grid.view(-1, sizes.block_size)[:, 1:] for grid in (blocks.drafted, blocks.inside)
        )
        progress = step / settings.schedule.steps
        loss, terms = block_loss(figures, drafted, inside, settings.objective, progress)
        hit = figures["right"].float().mean().item()
        return loss, {"loss": loss.item(), "hit": hit, **terms}

    def _figures(
        self, tokens: Tensor, blocks: Blocks, hidden: Tensor, truth: Tensor
    ) -> dict[str, Tensor]:
        """`row_figures` of the drafted rows, in pieces where the vocabulary is large."""
        sequence, row = blocks.drafted.nonzero(as_tuple=True)
        position = blocks.positions[sequence, row]
        parts = (
            hidden[sequence, row],
            truth[sequence, position - 1],
            tokens[sequence, position],
            tokens[sequence, position - 1],
            position,
        )
        rows = max(1, LOGITS // self.target.config.vocab_size)
        if len(position) <= rows:
            return self._compare(*parts)
        pieces: list[dict[str, Tensor]] = [
            checkpoint(self._compare, *piece, use_reentrant=False)
            for piece in zip(*(torch.split(part, rows) for part in parts), strict=True)
        ]
        return {name: torch.cat([piece[name] for piece in pieces]) for name in pieces[0]}

    def _compare(
        self, hidden: Tensor, truth: Tensor, tokens: Tensor, previous: Tensor, position: Tensor
    ) -> dict[str, Tensor]:
        """Rows' hidden states of drafter and target [R, d] -> `row_figures`."""
        objective, head = self.settings.objective, self.target.lm_head
        allowed = self.allowed.bias(position)
        logits = head(hidden)
        if self.drafter.markov is not None:
            logits = logits + self.drafter.markov(previous)
        if objective.allowed_only:
            logits = logits + allowed
        with torch.no_grad():
            wanted = head(truth).float() + allowed
        return row_figures(logits, wanted, tokens, objective)


def draft(
    drafter: BlockDrafter,
    target: Qwen3ForCausalLM,
    blocks: Blocks,
    taps: Tensor,
    *,
    fused: bool = False,
) -> Tensor:
    """Hidden states [N, A*B, d] of blocks after the context of all taps [N, C, K*d].

    Args:
        fused: attend through a CUDA kernel that is compiled for these shapes: worth it where they
            come again and again.
    """
    count, rows, _ = taps.shape
    hidden: Tensor = drafter(
        target.model.embed_tokens(blocks.tokens),
        blocks.positions,
        taps,
        torch.arange(rows, device=taps.device).expand(count, -1),
        blocks.sparse_mask if fused else blocks.packed_mask,
    )
    return hidden


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
    device = tokens.device
    return torch.from_numpy(anchors).to(device), torch.from_numpy(widths).to(device)
