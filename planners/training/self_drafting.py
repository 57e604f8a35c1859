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
from typing import Annotated, ClassVar, Literal

import numpy as np
import torch
from pydantic import ConfigDict, Field
from torch import Tensor, nn
from torch.nn import functional
from transformers import Qwen3ForCausalLM

from planners.nets.markov import GatedMarkovHead
from planners.nets.packed import TwoStreams
from planners.nets.qwen3 import forward
from planners.training.allowed import Allowed
from planners.training.batches import batch_rows
from planners.training.blocks import Blocks, Packing
from planners.training.drafter import DrafterSettings, draw_blocks
from planners.training.drafter_objective import block_loss, row_figures
from planners.training.loop import Evaluate, train
from planners.training.noise import Noise
from planners.training.objectives import token_loss, weighted_mean
from planners.training.sections import check_sections, section_weights
from planners.training.settings import CHECKED, Share, Spread, plain
from planners.training.watch import Watch
from runtime.scaffold import Scaffold
from runtime.schema import schema_blocks

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
        blocks: `anchors` draws them; `schema` takes all blocks of the output's schema, each of as
            many values as the drafter's block, instead of `anchors` blocks of drawn widths.
        restarts: share of the schema's blocks that begin behind a token inside, as a round does
            whose draft was refused there; among the second ones of pairs that hide every value.
        value_rows: blocks hold the anchor and the rows that a value is read from, and no others.
        frozen: the target stays as it is, and its Markov head alone learns.
        normalise: `mean` weighs hidden values and clean rows to a mean each; `sasd` divides the
            sums over both by Z, twice the tokens of the responses, and clean rows answer for fixed
            tokens too (SASD, as published).
    """

    __pydantic_config__: ClassVar[ConfigDict] = CHECKED

    anchors: Annotated[int, Field(ge=2, multiple_of=2)] = 8
    hidden: Share = 0.5
    noise: Mapping[str, tuple[Shape, Shape]] = field(default_factory=dict)
    weights: Mapping[str, Spread] = field(default_factory=dict)
    keep: Spread = 1.0
    causal: Spread = 0.0
    blocks: Literal["anchors", "schema"] = "anchors"
    restarts: Share = 0.0
    value_rows: bool = False
    frozen: bool = False
    normalise: Literal["mean", "sasd"] = "mean"


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
    markov: GatedMarkovHead | None = None,
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
        block: B, anchor included; with `blocks: schema` the values of a block.
        mask_token: stands where a value is hidden.
        markov: a head that learns with the target, or alone where that is frozen.

    Raises:
        SlipstreamError: `noise` or `weights` name a section that the output has not.
    """
    target.requires_grad_(not settings.frozen).train()
    before.requires_grad_(False).eval()
    words = prompts, outputs, scaffold
    lessons = SelfLessons(target, before, *words, block, mask_token, settings, markov)
    return train(
        lessons.learning,
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
        markov: GatedMarkovHead | None = None,
    ) -> None:
        check_sections("training.noise", settings.noise, scaffold)
        check_sections("training.weights", settings.weights, scaffold)
        self.target, self.before, self.settings, self.markov = target, before, settings, markov
        self.sequences = torch.cat([prompts, outputs], 1)
        self.first = prompts.shape[1]
        self.allowed = Allowed(scaffold, self.first, prompts.device)
        self.values = torch.nonzero(self.allowed.is_value)[:, 0]
        self.noise = Noise.of(scaffold, self.allowed, settings.noise, settings.hidden, mask_token)
        weights = section_weights(settings.weights, scaffold)
        self.weights = torch.cat([torch.ones(self.first), weights]).to(prompts.device)
        by_schema = settings.blocks == "schema"
        self.schema = SchemaBlocks.of(scaffold, block, self.first) if by_schema else None
        self.block = self.schema.rows if self.schema else block

    @property
    def learning(self) -> nn.Module:
        """The weights that the steps change."""
        learning: list[nn.Module] = [] if self.settings.frozen else [self.target]
        learning += [] if self.markov is None else [self.markov]
        return learning[0] if len(learning) == 1 else nn.ModuleList(learning)

    def loss_of_step(self, step: int) -> tuple[Tensor, dict[str, float]]:
        """The loss of a batch that seed and step determine, and figures to log."""
        settings = self.settings
        rng = np.random.default_rng((settings.seed, step))
        rows = batch_rows(len(self.sequences), settings.batch, settings.seed, step)
        tokens = self.sequences[torch.from_numpy(rows).to(self.sequences.device)]
        blocks = self.noisy_blocks(tokens, rng)
        passed = blocks
        if settings.value_rows:
            passed = blocks.of_value_rows(self.allowed.is_value)
        packing = Packing.of(passed) if self.schema else None
        with torch.set_grad_enabled(not settings.frozen):
            clean, noisy = two_streams(self.target, tokens, passed, packing)
        progress = step / settings.schedule.steps
        draft, figures = self.draft_loss(tokens, blocks, clean, noisy, progress)
        if settings.frozen:
            return draft, {"loss": draft.item(), **figures}
        causal, kept = self.causal_loss(tokens, clean)
        loss = draft + causal
        return loss, {"loss": loss.item(), **figures, **kept}

    def noisy_blocks(self, tokens: Tensor, rng: np.random.Generator) -> Blocks:
        """The blocks of a step: anywhere, or those of the schema."""
        if self.schema is None:
            places = draw_blocks(self.settings, self.block, self.first, tokens, rng)
            return self.noise.blocks(tokens, *places, self.block, rng)
        places = self.schema.pairs(tokens, rng, self.settings.restarts)
        return self.noise.blocks(tokens, *places, self.block, rng, alike=True)

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
        hidden = noisy[sequence, row - 1]
        logits = head(hidden)
        if self.markov is not None:
            logits = logits + self.markov(tokens[sequence, position - 1], hidden)
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
        if self.settings.normalise == "sasd":  # from a weighted mean to a sum over Z
            loss = loss * weights[drafted].sum() / self._z(tokens)
        return loss, {"hit": figures["right"].float().mean().item(), **terms}

    def _z(self, tokens: Tensor) -> int:
        """SASD's Z: twice the tokens of the responses."""
        return 2 * len(tokens) * (tokens.shape[1] - self.first)

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
            if settings.normalise == "sasd":
                said = self.target.lm_head(clean[:, self.first - 1 : -1])
                outputs = tokens[:, self.first :]
                terms["nats"] = token_loss(said, outputs, torch.ones_like(outputs))
                share = outputs.numel() / self._z(tokens)
            else:
                terms["nats"], share = token_loss(now, tokens[:, self.values], counted), 1.0
            loss = loss + settings.causal * share * terms["nats"]
        return loss, {name: value.item() for name, value in terms.items()}


def two_streams(
    target: Qwen3ForCausalLM, tokens: Tensor, blocks: Blocks, packing: Packing | None = None
) -> tuple[Tensor, Tensor]:
    """Hidden states of the clean rows [N, S, d] and of the noisy rows [N, A*B, d], in one pass.

    Args:
        packing: of these blocks; rows outside of them are then zero, and not computed.
    """
    length = tokens.shape[1]
    own = torch.arange(length, device=tokens.device).expand(tokens.shape)
    kept = slice(None) if packing is None else packing.kept
    hidden = forward(
        target,
        torch.cat([tokens, blocks.tokens[:, kept]], 1),
        positions=torch.cat([own, blocks.positions[:, kept]], 1),
        mask=TwoStreams(blocks.packed_mask if packing is None else packing.mask),
    ).hidden
    clean, noisy = hidden[:, :length], hidden[:, length:]
    if packing is None:
        return clean, noisy
    spread = noisy.new_zeros(*blocks.tokens.shape, noisy.shape[-1])
    return clean, spread.index_copy(1, packing.kept, noisy)


@dataclass(frozen=True, eq=False)
class SchemaBlocks:
    """The blocks of an output's schema, each behind the token before it (see `runtime.schema`).

    Attributes:
        anchors, widths: [A] positions in prompt and output, and rows with the anchor.
    """

    anchors: Tensor
    widths: Tensor

    @classmethod
    def of(cls, scaffold: Scaffold, values: int, first: int) -> SchemaBlocks:
        """Blocks of so many values, behind a prompt of `first` tokens."""
        numbers = schema_blocks(scaffold, values)
        starts, counts = np.unique(numbers[numbers >= 0], return_index=True, return_counts=True)[1:]
        places = np.flatnonzero(numbers >= 0)[starts]
        return cls(torch.from_numpy(first + places - 1), torch.from_numpy(counts + 1))

    @property
    def rows(self) -> int:
        """Of the widest block."""
        return int(self.widths.max())

    def pairs(
        self, tokens: Tensor, rng: np.random.Generator, restarts: float
    ) -> tuple[Tensor, Tensor]:
        """Anchors and widths [N, 2*A] for sequences [N, S]: each block twice.

        Args:
            restarts: share of the second ones that begin inside, the same in every sequence.
        """
        inside = rng.integers(1, np.maximum(self.widths.numpy() - 1, 2))
        skipped = torch.from_numpy(inside * (rng.random(len(inside)) < restarts))
        anchors = torch.cat([self.anchors, self.anchors + skipped])
        widths = torch.cat([self.widths, self.widths - skipped])
        shape, device = (len(tokens), len(anchors)), tokens.device
        return anchors.expand(shape).to(device), widths.expand(shape).to(device)


def divergence(was: Tensor, now: Tensor) -> Tensor:
    """KL [...] of the distributions of logits [..., V], nats."""
    p, q = (functional.log_softmax(logits, -1) for logits in (was, now))
    return (p.exp() * (p - q)).sum(-1)
