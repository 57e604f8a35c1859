"""Training blocks for the drafter: many anchors of a sequence in one masked pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from planners.nets.packed import PackedMask

if TYPE_CHECKING:  # importing it takes a second
    from torch.nn.attention.flex_attention import BlockMask

# (sequence, head, row, column) index tensors -> bool, as flex_attention calls it
Look = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Blocks:
    """A blocks of B rows for each of N sequences, laid one after another.

    Attributes:
        tokens: [N, A*B]: the anchor, then scaffold tokens as themselves and MASK at values.
        positions: [N, A*B] in the sequence; rows past its end repeat the last one.
        rows: [N, A*B] number within the block, 0 the anchor.
        inside: [N, A*B] bool: within its block's width and the sequence.
        drafted: [N, A*B] bool: inside, behind the anchor, and a value.
        look: whether a row may look at a column; the first `context` columns are the sequence.
        context: C
    """

    tokens: Tensor
    positions: Tensor
    rows: Tensor
    inside: Tensor
    drafted: Tensor
    look: Look
    context: int

    def of_value_rows(self, is_value: Tensor) -> Blocks:
        """The same blocks without rows behind the anchor that no value is read from (token shift).

        Args:
            is_value: [S] bool
        """
        block = int(self.rows.max()) + 1
        read = torch.cat([is_value[1:], is_value.new_zeros(1)])
        inside = self.inside & ((self.rows == 0) | read[self.positions])
        look = look_of(self.positions[:, ::block], inside, block, self.context)
        return replace(self, inside=inside, look=look)

    @cached_property
    def mask(self) -> Tensor:
        """[N, A*B, C + A*B] bool: `look` everywhere."""
        count, rows = self.tokens.shape
        device = self.tokens.device
        sequence = torch.arange(count, device=device)[:, None, None]
        row = torch.arange(rows, device=device)[None, :, None]
        column = torch.arange(self.context + rows, device=device)[None, None, :]
        return self.look(sequence, torch.zeros_like(sequence), row, column)

    @cached_property
    def packed_mask(self) -> PackedMask:
        """`look` where a row may see anything: the context, and its own block."""
        count, rows = self.tokens.shape
        number = torch.arange(rows, device=self.tokens.device)
        sequence = torch.arange(count, device=self.tokens.device)[:, None, None]
        head, row = torch.zeros_like(sequence), number[None, :, None]
        block = int(self.rows.max()) + 1
        before = self.look(sequence, head, row, torch.arange(self.context)[None, None].to(row))
        first = self.context + number[None, :, None] // block * block
        own = self.look(sequence, head, row, first + number[None, None, :block])
        return PackedMask(before, own.view(count, rows // block, block, block))

    @cached_property
    def sparse_mask(self) -> BlockMask:
        """`look` for flex_attention (arXiv 2412.05496), which skips tiles where no row looks."""
        from torch.nn.attention.flex_attention import create_block_mask

        count, rows = self.tokens.shape
        columns, device = self.context + rows, self.tokens.device
        return create_block_mask(self.look, count, None, rows, columns, device=device)


@dataclass(frozen=True, eq=False)
class Packing:
    """Rows of blocks of different widths without those that no block holds.

    Attributes:
        kept: [R] the rows that are inside of their block.
        mask: where these may look, as one block of R rows in each sequence.
    """

    kept: Tensor
    mask: PackedMask

    @classmethod
    def of(cls, blocks: Blocks) -> Packing:
        """Of blocks that lie at the same places in every sequence; the first one tells."""
        kept = torch.nonzero(blocks.inside[0])[:, 0]
        count, zero = len(blocks.tokens), torch.zeros_like(kept[:1])[:, None, None]
        columns = torch.arange(blocks.context, device=kept.device)
        before, own = (
            blocks.look(zero, zero, kept[None, :, None], seen[None, None]).expand(count, -1, -1)
            for seen in (columns, blocks.context + kept)
        )
        return cls(kept, PackedMask(before, own[:, None]))


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
    length = tokens.shape[1]
    rows = torch.arange(block, device=tokens.device).expand(*anchors.shape, block)
    positions = anchors[..., None] + rows
    inside = (rows < widths[..., None]) & (positions < length)
    positions = positions.clamp_max(length - 1)
    drafted = inside & (rows > 0) & is_value[positions]
    flat = positions.flatten(1)
    return Blocks(
        tokens=tokens.gather(1, flat).masked_fill(drafted.flatten(1), mask_token),
        positions=flat,
        rows=rows.flatten(1),
        inside=inside.flatten(1),
        drafted=drafted.flatten(1),
        look=look_of(anchors, inside.flatten(1), block, length),
        context=length,
    )


def look_of(anchors: Tensor, inside: Tensor, block: int, context: int) -> Look:
    """A row sees the context before its anchor, and the rows inside its own block.

    A row outside of its block sees itself, so that its softmax is not empty.

    Args:
        anchors: [N, A]; inside: [N, A*B] bool.
        context: C, columns before the blocks' own.
    """

    def look(sequence: Tensor, head: Tensor, row: Tensor, column: Tensor) -> Tensor:
        before = (column < context) & (column < anchors[sequence, row // block])
        other = (column - context).clamp_min(0)
        own = (column >= context) & (other // block == row // block)
        return before | (own & (inside[sequence, other] | (other == row)))

    return look
