"""Attention of many short blocks behind one context, without the columns that no row may see.

Dense masked attention over A blocks of B rows computes A*B*(C + A*B) scores, of which a block's
rows may use C + B each. Here only those are computed: the CPU's counterpart of `sparse.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True, eq=False)
class PackedMask:
    """Where rows may look.

    Attributes:
        before: [N, A*B, C] bool, over the context.
        own: [N, A, B, B] bool, over the rows of a row's own block; none of its rows is all false
            there and in `before`.
    """

    before: Tensor
    own: Tensor


@dataclass(frozen=True, eq=False)
class TwoStreams:
    """C clean rows, which are causal and see nothing else, and blocks of noisy rows behind them.

    Attributes:
        noisy: where the blocks' rows may look; their context is the clean rows.
    """

    noisy: PackedMask


def two_stream_attention(q: Tensor, k: Tensor, v: Tensor, mask: TwoStreams) -> Tensor:
    """Grouped-query attention [N, H, C + A*B, D] of q [N, H, C + A*B, D], k and v [N, Hkv, ..]."""
    context = mask.noisy.before.shape[-1]
    own_q, own_k, own_v = (x[:, :, :context] for x in (q, k, v))
    clean = functional.scaled_dot_product_attention(
        own_q, own_k, own_v, is_causal=True, enable_gqa=True
    )
    return torch.cat([clean, packed_attention(q[:, :, context:], k, v, mask.noisy)], 2)


def packed_attention(q: Tensor, k: Tensor, v: Tensor, mask: PackedMask) -> Tensor:
    """Grouped-query attention [N, H, A*B, D] of q [N, H, A*B, D], k and v [N, Hkv, C + A*B, D]."""
    n, blocks, block, _ = mask.own.shape
    heads, kv_heads, size, context = q.shape[1], k.shape[1], q.shape[-1], mask.before.shape[-1]
    group, rows = heads // kv_heads, blocks * block
    q = (q * size**-0.5).reshape(n, kv_heads, group, rows, size)
    own_k, own_v = (x[:, :, context:].reshape(n, kv_heads, 1, blocks, block, size) for x in (k, v))
    context_k, context_v = k[:, :, :context], v[:, :, :context]

    flat = q.reshape(n, kv_heads, group * rows, size)
    scores = (flat @ context_k.transpose(-1, -2)).view(n, kv_heads, group, rows, context)
    scores = scores.masked_fill(~mask.before[:, None, None], float("-inf"))
    near = q.view(n, kv_heads, group, blocks, block, size) @ own_k.transpose(-1, -2)
    near = near.masked_fill(~mask.own[:, None, None], float("-inf"))
    shares = torch.cat([scores, near.flatten(3, 4)], -1).softmax(-1).to(v.dtype)

    far = shares[..., :context].reshape(n, kv_heads, group * rows, context) @ context_v
    close = shares[..., context:].view(n, kv_heads, group, blocks, block, block) @ own_v
    return far.view(n, heads, rows, size) + close.reshape(n, heads, rows, size)
