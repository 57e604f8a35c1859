"""The DFlash drafter (arXiv 2602.06036): one projection of all taps is every layer's context.

Tensor names and `config.json` follow the published checkpoints.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from planners.nets.block_drafter import BlockDrafter, BlockDrafterConfig


@dataclass(frozen=True)
class DFlashConfig(BlockDrafterConfig):
    """A DFlash drafter's sizes."""

    architecture: ClassVar[str] = "DFlashDraftModel"


class DFlash(BlockDrafter):
    """H = RMSNorm(fc [h_1 .. h_K]) is the context of every layer; Wk and Wv are the block's own."""

    config: DFlashConfig

    def __init__(self, config: DFlashConfig) -> None:
        super().__init__(config, separate=False)
        d = config.hidden_size
        self.fc = nn.Linear(len(config.target_layer_ids) * d, d, bias=False)

    def contexts(self, taps: Tensor) -> Sequence[Tensor]:
        return [self.hidden_norm(self.fc(taps))] * len(self.layers)
