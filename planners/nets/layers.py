"""The pieces that target and drafter share: RMS norm, rotary positions, grouped attention."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

from planners.nets.packed import (
    PackedMask,
    TwoStreams,
    packed_attention,
    two_stream_attention,
)
from planners.nets.rope import frequencies

if TYPE_CHECKING:  # importing it takes a second
    from torch.nn.attention.flex_attention import BlockMask

Mask: TypeAlias = "Tensor | BlockMask | PackedMask | TwoStreams"


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """[..., d] -> [..., d], scaled by the reciprocal root mean square (arXiv 1910.07467, eq. 4)."""
    x32 = x.float()
    scale = torch.rsqrt(x32.square().mean(-1, keepdim=True) + eps)
    return (x32 * scale * weight).to(x.dtype)


class RMSNorm(nn.Module):
    """`rms_norm` with its weight."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return rms_norm(x, self.weight, self.eps)


def rotary_table(
    positions: Tensor,
    head_dim: int,
    theta: float,
    scaling: Mapping[str, Any] | None = None,
    max_position: int = 1 << 20,
) -> tuple[Tensor, Tensor]:
    """Cosine and sine [N, 1, S, D] of positions [N, S] (RoFormer, arXiv 2104.09864, eq. 15).

    Args:
        scaling, max_position: see `planners.nets.rope.frequencies`.
    """
    frequency, factor = frequencies(head_dim, theta, scaling, max_position)
    angle = positions.to(torch.float32)[:, None, :, None] * frequency.to(positions.device)
    angle = torch.cat([angle, angle], -1)
    return angle.cos() * factor, angle.sin() * factor


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate heads [N, H, S, D] by half-split rotary embedding, as Qwen3 does."""
    low, high = x.chunk(2, -1)
    return (x * cos + torch.cat([-high, low], -1) * sin).to(x.dtype)


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """[N, S, H*D] -> [N, H, S, D]"""
    return x.view(*x.shape[:2], -1, head_dim).transpose(1, 2)


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Mask | None, causal: bool = False) -> Tensor:
    """Grouped-query attention.

    Args:
        q: [N, H, S, D]; k, v: [N, Hkv, T, D].
        mask: bool, broadcastable to [N, H, S, T], true where a row may look; or the same as a
            BlockMask of flex_attention, a PackedMask or TwoStreams; or None.
        causal: with mask None and S = T, row i sees rows 0..i.

    Returns:
        [N, S, H*D]
    """
    if mask is None or isinstance(mask, Tensor):
        out = functional.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=causal, enable_gqa=True
        )
    elif isinstance(mask, PackedMask):
        out = packed_attention(q, k, v, mask)
    elif isinstance(mask, TwoStreams):
        out = two_stream_attention(q, k, v, mask)
    else:
        from planners.nets.sparse import block_sparse_attention

        out = block_sparse_attention(q, k, v, mask)
    return out.transpose(1, 2).flatten(2)
