"""The DFlare drafter (arXiv 2606.02091): every layer reads its own mixture of the target's taps.

Tensor names and `config.json` follow the authors' training code (AngelSlim).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from planners.nets.block_drafter import BlockDrafter, BlockDrafterConfig

FusionInit = Literal["onset", "distance"]


@dataclass(frozen=True)
class DFlareConfig(BlockDrafterConfig):
    """A DFlare drafter's sizes, and the paper's ablations as options.

    Attributes:
        fusion_init: where the fusion starts, see `fusion_start`.
        fusion_softmax: a layer's weights are a softmax; else they are used as they are.
        heterogeneous_kv: the context has Wk and Wv of its own; else it shares the block's.
        fusion_fc: a linear map [d, d], shared by the layers, follows the mixture.
    """

    architecture: ClassVar[str] = "QwenDFlareDraftModel"

    fusion_init: FusionInit = "onset"
    fusion_softmax: bool = True
    heterogeneous_kv: bool = True
    fusion_fc: bool = False

    def to_json(self) -> dict[str, Any]:
        raw = super().to_json()
        raw["dflash_config"] |= {
            "fusion_init": self.fusion_init,
            "fusion_softmax": self.fusion_softmax,
            "heterogeneous_kv": self.heterogeneous_kv,
            "fusion_fc": self.fusion_fc,
        }
        return raw

    @classmethod
    def _own_options(cls, raw: dict[str, Any]) -> dict[str, Any]:
        return {
            "fusion_init": raw.get("fusion_init", "onset"),
            "fusion_softmax": bool(raw.get("fusion_softmax", True)),
            "heterogeneous_kv": bool(raw.get("heterogeneous_kv", True)),
            "fusion_fc": bool(raw.get("fusion_fc", False)),
        }


class DFlare(BlockDrafter):
    """Layer i's context is f_i = RMSNorm(sum_j a_ij h_j), a_i = softmax(W_fuse[i]).

    One norm weight [d] serves all layers. Context rows have Wk and Wv of their own; the key norm is
    shared with the block.
    """

    config: DFlareConfig

    def __init__(self, config: DFlareConfig) -> None:
        super().__init__(config, separate=config.heterogeneous_kv)
        d = config.hidden_size
        self.layer_fusion_weights = nn.Parameter(fusion_start(config))
        self.fc = nn.Linear(d, d, bias=False) if config.fusion_fc else None

    def mixture(self) -> Tensor:
        """[D, K] weights of the taps by layer."""
        weights = self.layer_fusion_weights
        return weights.softmax(-1) if self.config.fusion_softmax else weights

    def contexts(self, taps: Tensor) -> Sequence[Tensor]:
        n, c, _ = taps.shape
        mixture = self.mixture().to(taps.dtype)
        fused = mixture @ taps.view(n, c, mixture.shape[1], -1)  # [N, C, D, d]
        if self.fc is not None:
            fused = self.fc(fused)
        normed: Tensor = self.hidden_norm(fused)
        return normed.unbind(2)

    @torch.no_grad()
    def initialise(self) -> None:
        super().initialise()
        self.layer_fusion_weights.copy_(fusion_start(self.config))


def fusion_start(config: DFlareConfig) -> Tensor:
    """[D, K] W_fuse before training, with layer i of D and tap t of K.

    `onset` puts 2 at t = floor(i K / D) and 0 elsewhere, as AngelSlim does; `distance` is
    -2 |t - t*| with t* = round(i (K-1) / (D-1)), as AngelSpec does. Without the softmax it starts
    at the same mixture.
    """
    depth, taps = config.num_hidden_layers, len(config.target_layer_ids)
    layer, tap = torch.arange(depth)[:, None], torch.arange(taps)[None]
    if config.fusion_init == "onset":
        start = 2.0 * (tap == layer * taps // depth)
    else:
        near = torch.tensor([round(i * (taps - 1) / max(depth - 1, 1)) for i in range(depth)])
        start = -2.0 * (tap - near[:, None]).abs()
    return start if config.fusion_softmax else start.softmax(-1)
