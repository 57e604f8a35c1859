"""Teach a target to draft for itself, from a drafter's config of kind `self`."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import Qwen3ForCausalLM

from planners.nets.markov import GatedMarkovHead
from planners.nets.qwen3 import forward, round_to_bf16, save_target
from planners.training.acceptance import self_acceptance_length
from planners.training.allowed import Allowed
from planners.training.data import Recorded
from planners.training.examples import Examples
from planners.training.self_drafting import divergence, train_self_drafting
from slipstream.training.config import DrafterEvaluation, SelfDraftConfig
from slipstream.training.held_out import HeldOut, figure_name
from slipstream.training.target import WORDS


class SelfHeldOut(HeldOut):
    """Live figures of a target that learns to draft, beside what it was.

    Attributes:
        names: acceptance lengths on what it says now; `same`, the share of greedy outputs that are
            what it said before; `kl`, KL(before || now) in nats over the values of the old outputs.
        before: the target as it was.
    """

    def __init__(
        self,
        evaluation: DrafterEvaluation,
        target: Qwen3ForCausalLM,
        windows: Recorded,
        examples: Examples,
    ) -> None:
        super().__init__(evaluation, target, windows, examples)
        self.names = (*self.names, "same", "kl")
        self.before = deepcopy(target)
        self._greedy = self._speak(0.0)

    def of_itself(
        self, mask_token: int, value_rows: bool = False, markov: GatedMarkovHead | None = None
    ) -> dict[str, float]:
        """Every figure."""
        figures = {}
        for heat in self.evaluation.temperatures:
            said = self._speak(heat)
            for width in self.evaluation.widths:
                figures[figure_name(width, heat)] = self_acceptance_length(
                    self.target,
                    self.prompts,
                    said,
                    self.examples.scaffold,
                    width,
                    mask_token,
                    value_rows=value_rows,
                    markov=markov,
                    heats=self.heats(heat),
                )
        same = (self._speak(0.0) == self._greedy).all(1)
        return {**figures, "same": same.float().mean().item(), "kl": self._divergence()}

    @torch.no_grad()
    def _divergence(self) -> float:
        """Sequence by sequence: logits of a large vocabulary are many."""
        allowed = Allowed(self.examples.scaffold, self.prompts.shape[1], self.prompts.device)
        values = torch.nonzero(allowed.is_value)[:, 0]
        bias, found = allowed.bias(values), []
        for tokens in torch.split(torch.cat([self.prompts, self._greedy], 1), 1):
            was, now = (
                model.lm_head(forward(model, tokens).hidden[:, values - 1]).float() + bias
                for model in (self.before, self.target)
            )
            found.append(divergence(was, now).mean())
        return torch.stack(found).mean().item()


def learn_to_draft(
    config: SelfDraftConfig,
    target: Qwen3ForCausalLM,
    examples: Examples,
    said: tuple[Tensor, Tensor],
    held_out: HeldOut,
    go: dict[str, Any],
) -> Callable[[Path], None]:
    """Train the target in place; returns what saves it."""
    assert isinstance(held_out, SelfHeldOut)
    mask, block = examples.tokenizer.mask, config.drafter.block
    markov = new_markov(config, target)
    train_self_drafting(
        target,
        held_out.before,
        *said,
        examples.scaffold,
        block,
        mask,
        config.training,
        markov=markov,
        evaluate=lambda: held_out.of_itself(mask, config.training.value_rows, markov),
        **go,
    )
    return lambda folder: save_self_drafting(target, config, mask, folder, markov)


def new_markov(config: SelfDraftConfig, target: Qwen3ForCausalLM) -> GatedMarkovHead | None:
    """The head that the config asks for, as training begins with it."""
    sizes, rank = target.config, config.drafter.markov_rank
    if not rank:
        return None
    torch.manual_seed(config.training.seed)
    return GatedMarkovHead(sizes.vocab_size, rank, sizes.hidden_size).to(target.device)


def save_self_drafting(
    target: Qwen3ForCausalLM,
    config: SelfDraftConfig,
    mask_token: int,
    folder: Path,
    markov: GatedMarkovHead | None = None,
) -> None:
    """Write a target's checkpoint whose config.json says that it drafts for itself, and how.

    The words are those of the checkpoint that it was made from.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in WORDS:
        shutil.copyfile(config.target / name, folder / name)
    round_to_bf16(target)
    target.config.self_draft = {
        "block_size": config.drafter.block,
        "mask_token_id": mask_token,
        "scaffold_in_block": True,
        "value_rows": config.training.value_rows,
    }
    if markov is not None:
        target.config.self_draft["markov_rank"] = markov.rank
        markov.save(folder)
    save_target(target.cpu(), folder)
