"""Teach a target to draft for itself, without forgetting what it says (Fast-dDrive, 2605.23163).

One pass holds the clean sequence and noisy blocks behind it. Clean rows are causal and see no
noise; a noisy row sees the clean rows before its anchor and its own block, in both directions. The
token at p is read from the row at p - 1 (token shift), as the causal head does, so one head serves
both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np
import torch
from pydantic import ConfigDict, Field
from torch import Tensor
from torch.nn import functional
from transformers import Qwen3ForCausalLM

from planners.nets.packed import TwoStreams
from planners.nets.qwen3 import forward
from planners.training.allowed import Allowed
from planners.training.batches import batch_rows
from planners.training.blocks import Blocks
from planners.training.drafter import DrafterSettings, draw_blocks
from planners.training.drafter_objective import block_loss, row_figures
from planners.training.loop import Evaluate, train
from planners.training.noise import Noise, check_sections, section_numbers
from planners.training.objectives import token_loss, weighted_mean
from planners.training.settings import CHECKED, Share, Spread, plain
from planners.training.watch import Watch
from runtime.scaffold import Scaffold

Shape = Annotated[float, Field(gt=0)]


@dataclass(frozen=True)
class SelfDraftSettings(DrafterSettings):
    """How a target learns to draft; what is inherited says how its noisy blocks are drawn.

    The objective's p is what the clean rows of the same pass say, without a gradient.

    Attributes:
        anchors: noisy blocks of each sequence, in pairs.
        hidden: share of pairs in which every value is hidden, as when drafting; in the others a
            value is hidden with a probability drawn from a Beta distribution, in one of the two.
        noise: section -> (alpha, beta) of that Beta distribution; (1, 1) where none is named.
        weights: section -> weight of its noisy rows; 1 where none is named.
        keep: weight of KL(target before || target now) over the clean rows.
        causal: weight of the clean rows' cross-entropy to the response.
    """

    __pydantic_config__: ClassVar[ConfigDict] = CHECKED

    anchors: Annotated[int, Field(ge=2, multiple_of=2)] = 8
    hidden: Share = 0.5
    noise: Mapping[str, tuple[Shape, Shape]] = field(default_factory=dict)
    weights: Mapping[str, Spread] = field(default_factory=dict)
    keep: Spread = 1.0
    causal: Spread = 0.0


def train_self_drafting(
    target: Qwen3ForCausalLM,
    before: Qwen3ForCausalLM,
    prompts: Tensor,
    outputs: Tensor,
    scaffold: Scaffold,
    block: int,
    mask_token: int,
    settings: SelfDraftSettings,
    folder: Path,
    *,
    evaluate: Evaluate | None = None,
    every: int = 500,
    save_every: int | None = None,
    until: int | None = None,
    watch: Watch | None = None,
) -> dict[str, float]:
    """Train in place; the target ends with averaged weights. Returns the last evaluation.

    Args:
        before: the target as it was, which `keep` holds on to.
        prompts: [M, Lp] and outputs: [M, L], the target's own.
        block: B, anchor included.
        mask_token: stands where a value is hidden.

    Raises:
        SlipstreamError: `noise` or `weights` name a section that the output has not.
    """
    target.requires_grad_(True).train()
    before.requires_grad_(False).eval()
    words = prompts, outputs, scaffold
    lessons = SelfLessons(target, before, *words, block, mask_token, settings)
    return train(
        target,
        lessons.loss_of_step,
        settings.schedule,
        folder,
        seed=settings.seed,
        settings={**plain(settings), "block": block, "mask_token": mask_token},
        evaluate=evaluate,
        every=every,
        save_every=save_every,
        until=until,
        watch=watch,
    )


class SelfLessons:
    """The steps of a self-drafting target's training."""

    def __init__(
        self,
        target: Qwen3ForCausalLM,
        before: Qwen3ForCausalLM,
        prompts: Tensor,
        outputs: Tensor,
        scaffold: Scaffold,
        block: int,
        mask_token: int,
        settings: SelfDraftSettings,
    ) -> None:
        check_sections("training.noise", settings.noise, scaffold)
        check_sections("training.weights", settings.weights, scaffold)
        self.target, self.before, self.settings, self.block = target, before, settings, block
        self.sequences = torch.cat([prompts, outputs], 1)
        self.first = prompts.shape[1]
        self.allowed = Allowed(scaffold, self.first, prompts.device)
        self.values = torch.nonzero(self.allowed.is_value)[:, 0]
        self.noise = Noise.of(scaffold, self.allowed, settings.noise, settings.hidden, mask_token)
        of_section = torch.tensor([settings.weights.get(s.name, 1.0) for s in scaffold.sections])
        weights = of_section[torch.from_numpy(section_numbers(scaffold))]
        self.weights = torch.cat([torch.ones(self.first), weights]).to(prompts.device)

    def loss_of_step(self, step: int) -> tuple[Tensor, dict[str, float]]:
        """The loss of a batch that seed and step determine, and figures to log."""
        settings = self.settings
        rng = np.random.default_rng((settings.seed, step))
        rows = batch_rows(len(self.sequences), settings.batch, settings.seed, step)
        tokens = self.sequences[torch.from_numpy(rows).to(self.sequences.device)]
        anchors, widths = draw_blocks(settings, self.block, self.first, tokens, rng)
        blocks = self.noise.blocks(tokens, anchors, widths, self.block, rng)
        clean, noisy = two_streams(self.target, tokens, blocks)
        progress = step / settings.schedule.steps
        draft, figures = self.draft_loss(tokens, blocks, clean, noisy, progress)
        causal, kept = self.causal_loss(tokens, clean)
        loss = draft + causal
        return loss, {"loss": loss.item(), **figures, **kept}

    def draft_loss(
        self, tokens: Tensor, blocks: Blocks, clean: Tensor, noisy: Tensor, progress: float = 0.0
    ) -> tuple[Tensor, dict[str, float]]:
        """Of the hidden values, each read from the row before its own; and figures to log.

        Args:
            clean: [N, S, d] and noisy: [N, A*B, d] hidden states.
        """
        objective, head = self.settings.objective, self.target.lm_head
        sequence, row = blocks.drafted.nonzero(as_tuple=True)
        position = blocks.positions[sequence, row]
        allowed = self.allowed.bias(position)
        logits = head(noisy[sequence, row - 1])
        if objective.allowed_only:
            logits = logits + allowed
        with torch.no_grad():
            said = head(clean[sequence, position - 1]).float() + allowed
        figures = row_figures(logits, said, tokens[sequence, position], objective)
        drafted, inside, weights = (
            grid.view(-1, self.block)[:, 1:]
            for grid in (blocks.drafted, blocks.inside, self.weights[blocks.positions])
        )
        loss, terms = block_loss(figures, drafted, inside, objective, progress, weights)
        return loss, {"hit": figures["right"].float().mean().item(), **terms}

    def causal_loss(self, tokens: Tensor, clean: Tensor) -> tuple[Tensor, dict[str, float]]:
        """Of the clean rows that say a value: the target's own word must stay what it was."""
        settings, terms = self.settings, dict[str, Tensor]()
        loss = clean.new_zeros(())
        bias = self.allowed.bias(self.values)
        now = self.target.lm_head(clean[:, self.values - 1]).float() + bias
        counted = torch.ones_like(now[..., 0])
        if settings.keep:
            with torch.no_grad():
                hidden = forward(self.before, tokens).hidden[:, self.values - 1]
                was = self.before.lm_head(hidden).float() + bias
            terms["kept"] = weighted_mean(divergence(was, now), counted)
            loss = loss + settings.keep * terms["kept"]
        if settings.causal:
            terms["nats"] = token_loss(now, tokens[:, self.values], counted)
            loss = loss + settings.causal * terms["nats"]
        return loss, {name: value.item() for name, value in terms.items()}


def two_streams(target: Qwen3ForCausalLM, tokens: Tensor, blocks: Blocks) -> tuple[Tensor, Tensor]:
    """Hidden states of the clean rows [N, S, d] and of the noisy rows [N, A*B, d], in one pass."""
    length = tokens.shape[1]
    own = torch.arange(length, device=tokens.device).expand(tokens.shape)
    hidden = forward(
        target,
        torch.cat([tokens, blocks.tokens], 1),
        positions=torch.cat([own, blocks.positions], 1),
        mask=TwoStreams(blocks.packed_mask),
    ).hidden
    return hidden[:, :length], hidden[:, length:]


def divergence(was: Tensor, now: Tensor) -> Tensor:
    """KL [...] of the distributions of logits [..., V], nats."""
    p, q = (functional.log_softmax(logits, -1) for logits in (was, now))
    return (p.exp() * (p - q)).sum(-1)
