"""Training blocks for the drafter: many anchors of a sequence in one masked pass."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Blocks:
    """A blocks of B rows for each of N sequences, laid one after another.

    Attributes:
        tokens: [N, A*B]: the anchor, then scaffold tokens as themselves and MASK at values.
        positions: [N, A*B] in the sequence; rows past its end repeat the last one.
        rows: [N, A*B] number within the block, 0 the anchor.
        drafted: [N, A*B] bool: inside its block's width and the sequence, and a value.
        mask: [N, A*B, C + A*B] bool: a row sees the context before its anchor, and its own block.
    """

    tokens: Tensor
    positions: Tensor
    rows: Tensor
    drafted: Tensor
    mask: Tensor


def make_blocks(
    tokens: Tensor, is_value: Tensor, anchors: Tensor, widths: Tensor, block: int, mask_token: int
) -> Blocks:
    """Lay out blocks as decoding does: block b holds positions anchor .. anchor + width - 1.

    Args:
        tokens: [N, S] prompt and output.
        is_value: [S] bool, positions that the drafter has to fill.
        anchors: [N, A] positions of the last committed token.
        widths: [N, A] rows of each block, anchor included; clipped at the sequence's end.
        block: B, at least the largest width.
    """
    count, length = tokens.shape
    rows = torch.arange(block).expand(*anchors.shape, block)
    positions = anchors[..., None] + rows
    inside = (rows < widths[..., None]) & (positions < length)
    positions = positions.clamp_max(length - 1)
    drafted = inside & (rows > 0) & is_value[positions]
    flat = positions.flatten(1)
    shown = tokens.gather(1, flat).masked_fill(drafted.flatten(1), mask_token)
    owner = torch.arange(anchors.shape[1]).repeat_interleave(block)
    own = (owner[:, None] == owner[None, :])[None] & inside.flatten(1)[:, None, :]
    # A row outside of its block sees itself, so that its softmax is not empty.
    own = own | torch.eye(len(owner), dtype=torch.bool)
    before = torch.arange(length) < anchors.repeat_interleave(block, 1)[..., None]
    return Blocks(
        tokens=shown,
        positions=flat,
        rows=rows.flatten(1),
        drafted=drafted.flatten(1),
        mask=torch.cat([before, own.expand(count, -1, -1)], 2),
    )
