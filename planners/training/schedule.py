"""Learning rate, averaged weights, and the optimizer that both networks train with."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from pydantic import ConfigDict, Field
from torch import Tensor, nn

from planners.training.settings import CHECKED, Share


@dataclass(frozen=True)
class Schedule:
    """How long and how fast to train.

    Attributes:
        steps: optimizer steps.
        peak: highest learning rate, reached after `warmup` of all steps.
        floor: learning rate at the end, as a part of `peak`.
        decay: AdamW's weight decay, for matrices only.
        clip: largest gradient norm.
        average: decay of the exponential moving average of the weights.
    """

    __pydantic_config__: ClassVar[ConfigDict] = CHECKED

    steps: Annotated[int, Field(ge=1)]
    peak: Annotated[float, Field(gt=0)]
    warmup: Share = 0.04
    floor: Share = 0.02
    decay: Annotated[float, Field(ge=0)] = 0.05
    clip: Annotated[float, Field(gt=0)] = 1.0
    average: Annotated[float, Field(ge=0, lt=1)] = 0.998

    def rate(self, step: int) -> float:
        """Linear warm-up, then half a cosine (arXiv 1608.03983, eq. 5)."""
        rising = max(1, round(self.warmup * self.steps))
        if step < rising:
            return self.peak * (step + 1) / rising
        phase = min(1.0, (step - rising) / max(1, self.steps - rising))
        return self.peak * (self.floor + (1 - self.floor) * 0.5 * (1 + math.cos(math.pi * phase)))


def adamw(module: nn.Module, schedule: Schedule) -> torch.optim.AdamW:
    """AdamW with fp32 moments (arXiv 1711.05101); vectors are not decayed."""
    parameters = [p for p in module.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.dim() > 1], "weight_decay": schedule.decay},
        {"params": [p for p in parameters if p.dim() <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=schedule.peak, betas=(0.9, 0.98), eps=1e-8)


class Average:
    """Exponential moving average of a module's parameters, with a short memory at the start."""

    def __init__(self, module: nn.Module, decay: float) -> None:
        self.decay = decay
        self.values = {name: p.detach().clone() for name, p in module.named_parameters()}

    @torch.no_grad()
    def update(self, module: nn.Module, step: int) -> None:
        decay = min(self.decay, (step + 1) / (step + 10))
        for name, parameter in module.named_parameters():
            self.values[name].lerp_(parameter, 1 - decay)

    @torch.no_grad()
    def copy_to(self, module: nn.Module) -> dict[str, Tensor]:
        """Put the averages into `module`; returns what was there, for `put_back`."""
        before = {name: p.detach().clone() for name, p in module.named_parameters()}
        put_back(module, self.values)
        return before


@torch.no_grad()
def put_back(module: nn.Module, values: dict[str, Tensor]) -> None:
    """Set a module's parameters by name."""
    for name, parameter in module.named_parameters():
        parameter.copy_(values[name])
