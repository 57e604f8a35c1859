"""Train the target: true outputs after prompts, helped by a regression that is thrown away."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import ConfigDict, Field
from torch import Tensor, nn
from transformers import Qwen3ForCausalLM

from planners.language import Language
from planners.nets.qwen3 import forward, new_target
from planners.observation import FUTURE_STATES
from planners.tokens import Tokenizer
from planners.training.batches import batch_rows
from planners.training.data import Augmentation, Recorded, augment, constant_velocity
from planners.training.examples import Examples
from planners.training.growth import growth_between, misfit
from planners.training.loop import Evaluate, train
from planners.training.objectives import distance_loss, token_loss
from planners.training.schedule import Schedule
from planners.training.sections import check_sections, section_weights
from planners.training.settings import CHECKED, Positive, Seed, Share, Spread, plain
from planners.training.teacher import Teacher
from planners.training.watch import Watch

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class TargetSettings:
    """How the target is trained.

    Attributes:
        batch: windows a step.
        aid: weight of the regression aid's loss; the token loss has weight 1.
        aid_scale: m that the aid's output of 1 stands for.
        teacher_share: share of windows whose label is the teacher's path, not the recorded one.
        teacher_from: part of the steps before the teacher comes in.
        weights: section -> weight of its values in the token loss; 1 where none is named.
    """

    __pydantic_config__: ClassVar[ConfigDict] = CHECKED

    schedule: Schedule
    seed: Seed = 0
    batch: Positive = 16
    aid: Spread = 0.3
    aid_scale: Annotated[float, Field(gt=0)] = 5.0
    teacher_share: Share = 0.5
    teacher_from: Share = 0.625
    augmentation: Augmentation = field(default_factory=Augmentation)
    weights: Mapping[str, Spread] = field(default_factory=dict)


class TargetWithAids(nn.Module):
    """The target and regressions of the path from the last prompt token's residual stream.

    A digit's cross-entropy says little about metres; regressing the path from the middle blocks
    makes them read the prompt's numbers as quantities early in training.
    """

    def __init__(self, target: Qwen3ForCausalLM) -> None:
        super().__init__()
        self.target = target
        width, layers = target.config.hidden_size, target.config.num_hidden_layers
        self.blocks = tuple(range(layers // 2, layers - 1))
        self.aids = nn.ModuleList(
            nn.Sequential(
                nn.LayerNorm(width), nn.Linear(width, width), nn.GELU(), nn.Linear(width, 40)
            )
            for _ in self.blocks
        )

    def forward(self, tokens: Tensor, last_prompt: int) -> tuple[Tensor, Tensor]:
        """tokens [N, S] -> logits [N, S - last_prompt, V], aids' paths [A, N, 20, 2] (unscaled)."""
        run = forward(self.target, tokens, taps=self.blocks, first_output=last_prompt)
        assert run.taps is not None
        streams = run.taps[:, last_prompt].chunk(len(self.blocks), -1)
        paths = [aid(stream) for aid, stream in zip(self.aids, streams, strict=True)]
        return self.target.lm_head(run.hidden), torch.stack(paths).view(
            len(paths), -1, FUTURE_STATES, 2
        )


def seeded_target(
    seed: int, tokenizer: Tokenizer, language: Language, **sizes: int | float | bool
) -> Qwen3ForCausalLM:
    """A new target whose digits start as points on a line: their order is known from the outset."""
    target = new_target(seed, eos_token_id=tokenizer.eos, **sizes)
    with torch.no_grad():
        table = target.model.embed_tokens.weight
        along = torch.randn(table.shape[1]) * table.std()
        shared = torch.randn(table.shape[1]) * table.std()
        for digit, token in enumerate(tokenizer.digits):
            table[token] = 0.7 * table[token] + shared + along * (digit - 4.5) / 3
    return target


def warm_started(
    target: Qwen3ForCausalLM,
    words: Tokenizer,
    source: Qwen3ForCausalLM,
    known: Tokenizer,
    seed: int = 0,
) -> Qwen3ForCausalLM:
    """A new target with another's blocks, and with its rows of the tokens that both write alike.

    The other rows stay as they are: tokens that only the new tokenizer knows. What is larger than
    the other's is grown so that it computes the same (`planners.training.growth`).

    Args:
        seed: see `Growth.weights`.

    Raises:
        SlipstreamError: the new one is smaller, or differs in more than sizes and vocabulary.
    """
    tables = ("embed_tokens.weight", "lm_head.weight")
    growth = growth_between(source.config, target.config)
    own, given = target.state_dict(), growth.weights(source.state_dict(), seed)
    for name in sorted(own.keys() | given.keys()):
        new, old = (None if x is None else tuple(x.shape) for x in (own.get(name), given.get(name)))
        if name.endswith(tables) and new and old:  # rows are chosen below
            new, old = new[1:], old[1:]
        if new != old:
            raise misfit(name, old or "none", new or "none")
    alike = [(token, known.ids[text]) for text, token in words.ids.items() if text in known.ids]
    rows, from_rows = torch.tensor(alike).T
    for name, weights in own.items():
        if name.endswith(tables):
            weights[rows] = given[name][from_rows]
        else:
            weights.copy_(given[name])
    return target


def train_target(
    target: Qwen3ForCausalLM,
    windows: Recorded,
    examples: Examples,
    teacher: Teacher,
    settings: TargetSettings,
    folder: Path,
    *,
    evaluate: Evaluate | None = None,
    every: int = 500,
    save_every: int | None = None,
    until: int | None = None,
    watch: Watch | None = None,
) -> dict[str, float]:
    """Train in place; the target ends with averaged weights. Returns the last evaluation.

    Raises:
        SlipstreamError: `weights` name a section that the output has not.
    """
    scaffold = examples.scaffold
    check_sections("training.weights", settings.weights, scaffold)
    torch.manual_seed(settings.seed)
    module = TargetWithAids(target).train()
    device = target.device
    module.to(device)
    is_value = torch.from_numpy(scaffold.is_value.astype(np.float32))
    weights = (is_value * section_weights(settings.weights, scaffold)).to(device)

    def loss_of_step(step: int) -> tuple[Tensor, dict[str, float]]:
        rng = np.random.default_rng((settings.seed, step))
        rows = batch_rows(len(windows), settings.batch, settings.seed, step)
        sample = augment(windows[rows], settings.augmentation, rng)
        truth = torch.from_numpy(sample.futures - constant_velocity(sample)).float().to(device)
        if step >= settings.teacher_from * settings.schedule.steps:
            taught = (rng.random(settings.batch) < settings.teacher_share)[:, None, None]
            sample = replace(
                sample, futures=np.where(taught, teacher.paths(sample), sample.futures)
            )
        prompts = examples.prompts(sample).to(device)
        outputs = examples.outputs(sample).to(device)
        tokens = torch.cat([prompts, outputs[:, :-1]], 1)
        logits, paths = module(tokens, prompts.shape[1] - 1)
        words = token_loss(logits, outputs, weights.expand(outputs.shape))
        metres = distance_loss(paths.float() * settings.aid_scale, truth.expand(paths.shape))
        loss = words + settings.aid * metres / settings.aid_scale
        return loss, {"nats": words.item(), "aid m": metres.item()}

    return train(
        module,
        loss_of_step,
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
