"""Block-sparse attention for packed training blocks (FlexAttention, arXiv 2412.05496)."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention


def block_sparse_attention(q: Tensor, k: Tensor, v: Tensor, mask: BlockMask) -> Tensor:
    """Grouped-query attention q [N, H, S, D], k and v [N, Hkv, T, D] -> [N, H, S, D].

    Only the fused CUDA kernel skips tiles and has a backward pass; elsewhere this is the plain,
    slow definition of the same attention.
    """
    attention = _fused() if q.is_cuda else flex_attention
    out: Tensor = attention(q, k, v, block_mask=mask, enable_gqa=True)
    return out


@cache
def _fused() -> Any:
    return torch.compile(flex_attention, dynamic=False)
