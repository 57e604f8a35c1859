"""Batched decoding in torch: what the target itself says, for evaluation and for the drafter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

import numpy as np
import torch
from pydantic import AfterValidator, ConfigDict, Field
from torch import Tensor
from transformers import Qwen3ForCausalLM

from planners.nets.qwen3 import Cache, forward
from planners.training.data import Augmentation, Recorded, augment
from planners.training.examples import Examples
from planners.training.settings import CHECKED, Positive, Seed, Share, Spread
from runtime.scaffold import VALUE, Scaffold


@torch.no_grad()
def respond(
    target: Qwen3ForCausalLM,
    prompts: Tensor,
    scaffold: Scaffold,
    temperatures: Mapping[str, Tensor] | None = None,
    *,
    seed: int = 0,
) -> Tensor:
    """Decode outputs token by token; scaffold tokens are given, values keep to their allowed sets.

    Args:
        prompts: [N, Lp], on the target's device.
        temperatures: section name -> [N], 0 for greedy; sections not named are greedy.
        seed: of the sampling.

    Returns:
        [N, L] tokens.
    """
    device = prompts.device
    generator = torch.Generator(device).manual_seed(seed)
    bias = torch.from_numpy(scaffold.bias_at(np.arange(len(scaffold)))).to(device)
    fixed = torch.from_numpy(scaffold.tokens).to(device)
    out = fixed.clamp_min(0).repeat(len(prompts), 1)
    fresh = prompts
    cache = Cache(target.config, len(prompts), prompts.shape[1] + len(scaffold), device)
    begin = 0  # output positions before it are in the cache, or in `fresh`
    for position in range(len(scaffold)):
        if fixed[position] != VALUE:
            continue
        fresh = torch.cat([fresh, out[:, begin:position]], 1)
        step = forward(target, fresh, cache=cache, first_output=fresh.shape[1] - 1)
        fresh, begin = out[:, :0], position
        logits = target.lm_head(step.hidden[:, -1]).float() + bias[position]
        section = scaffold.section_of(position).name
        heat = (temperatures or {}).get(section)
        heat = None if heat is None else heat.to(device)
        out[:, position] = _choose(logits, heat, generator)
    return out


def _choose(logits: Tensor, heat: Tensor | None, generator: torch.Generator) -> Tensor:
    """[N, V] -> [N]; rows with temperature 0 take the likeliest token."""
    best = logits.argmax(-1)
    if heat is None or not bool((heat > 0).any()):
        return best
    probabilities = torch.softmax(logits / heat.clamp_min(1e-3)[:, None], -1)
    drawn = torch.multinomial(probabilities, 1, generator=generator)[:, 0]
    return torch.where(heat > 0, drawn, best)


def _sum_to_one(heats: tuple[tuple[float, float], ...]) -> tuple[tuple[float, float], ...]:
    if abs(sum(share for _, share in heats) - 1.0) > 1e-6:
        raise ValueError("shares that add up to 1")
    return heats


Heats = Annotated[
    tuple[tuple[Spread, Share], ...], Field(min_length=1), AfterValidator(_sum_to_one)
]


@dataclass(frozen=True)
class ResponseSettings:
    """Which outputs the drafter learns from.

    Attributes:
        count: outputs; each from a changed copy of a training window.
        fork_heats: temperatures of the forked section, with their shares.
        free_prefix: share of outputs whose other sections are sampled too, at 0.7.
    """

    __pydantic_config__: ClassVar[ConfigDict] = CHECKED

    count: Positive = 4000
    seed: Seed = 0
    fork_heats: Heats = ((0.0, 0.45), (0.5, 0.25), (1.0, 0.3))
    free_prefix: Share = 0.15
    augmentation: Augmentation = field(default_factory=Augmentation)


def draw_responses(
    target: Qwen3ForCausalLM,
    windows: Recorded,
    examples: Examples,
    settings: ResponseSettings,
    batch: int = 250,
    progress: Callable[[int], None] | None = None,
) -> tuple[Tensor, Tensor]:
    """Prompts [M, Lp] and the target's outputs [M, L], greedy and sampled, in random order.

    Args:
        progress: hears how many are drawn.
    """
    rng = np.random.default_rng(settings.seed)
    rows = rng.integers(len(windows), size=settings.count)
    prompts = examples.prompts(augment(windows[rows], settings.augmentation, rng))
    heats, shares = zip(*settings.fork_heats, strict=True)
    forked = rng.choice(heats, size=settings.count, p=shares)
    prefix = np.where(rng.random(settings.count) < settings.free_prefix, 0.7, 0.0)
    fork = examples.language.fork_section
    outputs = []
    for begin in range(0, settings.count, batch):
        part = slice(begin, begin + batch)
        temperatures = {
            span.name: torch.from_numpy(forked[part] if span.name == fork else prefix[part])
            for span in examples.scaffold.sections
        }
        seed = (settings.seed << 24) + begin
        asked = prompts[part].to(target.device)
        outputs.append(respond(target, asked, examples.scaffold, temperatures, seed=seed))
        if progress is not None:
            progress(begin + len(asked))
    return prompts.to(target.device), torch.cat(outputs)
