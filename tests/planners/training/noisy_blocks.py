"""Outputs of a small scaffold, and blocks of them with hidden values."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from planners.training.allowed import Allowed
from planners.training.blocks import Blocks
from planners.training.noise import Noise
from runtime.scaffold import Scaffold, Span

BLOCK, FIRST, MASK = 6, 9, 2


def scaffold_of(fixed: str = "10??1??0????0??1????") -> Scaffold:
    """Digits are fixed tokens, `?` any token; two sections of equal length."""
    cells, half = [-1 if c == "?" else 40 + int(c) for c in fixed], len(fixed) // 2
    return Scaffold(
        tokens=np.asarray(cells, np.int64),
        allowed_id=np.zeros(len(cells), np.int64),
        allowed_sets=np.ones((1, 512), np.bool_),
        sections=(Span("head", 0, half), Span("tail", half, len(cells))),
    )


def words(scaffold: Scaffold, count: int = 3) -> tuple[Tensor, Tensor]:
    """Prompts [N, FIRST] and outputs [N, L]."""
    torch.manual_seed(7)
    fixed = torch.from_numpy(scaffold.tokens).repeat(count, 1)
    drawn = torch.randint(3, 500, fixed.shape)
    return torch.randint(3, 500, (count, FIRST)), torch.where(fixed < 0, drawn, fixed)


def noise_of(scaffold: Scaffold, hidden: float = 0.0, **shapes: tuple[float, float]) -> Noise:
    return Noise.of(scaffold, Allowed(scaffold, FIRST, torch.device("cpu")), shapes, hidden, MASK)


def noisy_blocks(scaffold: Scaffold, tokens: Tensor, hidden: float = 0.0, seed: int = 0) -> Blocks:
    anchors = torch.tensor([FIRST - 1, 12, 20, 24, 14, 10])
    each = anchors.expand(len(tokens), -1)
    rng = np.random.default_rng(seed)
    widths = torch.tensor([6, 6, 4, 6, 6, 6]).expand(len(tokens), -1)
    return noise_of(scaffold, hidden).blocks(tokens, each, widths, BLOCK, rng)
