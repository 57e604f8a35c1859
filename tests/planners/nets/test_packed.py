"""Attention that skips what no row may see equals dense attention under the same mask."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from planners.nets.layers import attend
from planners.training.blocks import Blocks, make_blocks


@pytest.fixture(params=[1, 5])
def blocks(request: pytest.FixtureRequest) -> Blocks:
    """A blocks of 8 rows at any place and of any width, over 40 tokens."""
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(3, 50, (3, 40), generator=generator)
    is_value = torch.rand(40, generator=generator) > 0.3
    anchors = torch.randint(0, 39, (3, request.param), generator=generator)
    widths = torch.randint(2, 9, anchors.shape, generator=generator)
    return make_blocks(tokens, is_value, anchors, widths, 8, mask_token=2)


def test_same_outputs_and_gradients_as_dense_attention(blocks: Blocks) -> None:
    rows, columns = blocks.tokens.shape[1], blocks.context + blocks.tokens.shape[1]
    inputs = [
        torch.randn(3, heads, length, 16, requires_grad=True)
        for heads, length in ((4, rows), (2, columns), (2, columns))
    ]
    aim = torch.randn(3, rows, 64)

    def run(mask: object) -> list[Tensor]:
        out = attend(*inputs, mask)  # type: ignore[arg-type]
        return [out, *torch.autograd.grad((out * aim).sum(), inputs)]

    for packed, dense in zip(run(blocks.packed_mask), run(blocks.mask[:, None]), strict=True):
        torch.testing.assert_close(packed, dense, atol=2e-5, rtol=1e-5)


def test_the_masks_say_the_same(blocks: Blocks) -> None:
    packed, count = blocks.packed_mask, blocks.tokens.shape[1] // 8
    dense = blocks.mask[:, :, blocks.context :].view(3, count, 8, count, 8)
    assert torch.equal(packed.before, blocks.mask[:, :, : blocks.context])
    for number in range(count):
        assert torch.equal(packed.own[:, number], dense[:, number, :, number])
    others = torch.ones(count, count, dtype=torch.bool).fill_diagonal_(False)
    assert not dense.permute(0, 2, 4, 1, 3)[..., others].any()
