"""Blocks are what decoding drafts, and both masks are one function."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from planners.nets.block_drafter import BlockDrafter
from planners.nets.drafters import new_drafter
from planners.nets.layers import attend
from planners.training.batches import batch_rows
from planners.training.blocks import Blocks, make_blocks
from tests.planners.training.configs import drafter_config

pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")

MASK = 2
LENGTH, BLOCK = 40, 8
ANCHORS = torch.tensor([[9, 20, 36], [12, 38, 25]])
WIDTHS = torch.tensor([[8, 5, 8], [8, 8, 4]])


def blocks() -> Blocks:
    torch.manual_seed(0)
    tokens = torch.randint(3, 500, (2, LENGTH))
    is_value = torch.arange(LENGTH) % 3 > 0
    return make_blocks(tokens, is_value, ANCHORS, WIDTHS, BLOCK, MASK)


def test_a_block_is_the_anchor_and_what_follows_it() -> None:
    torch.manual_seed(0)
    tokens = torch.randint(3, 500, (2, LENGTH))
    found = blocks()
    for n in range(2):
        for a in range(3):
            for k in range(BLOCK):
                place, at = a * BLOCK + k, int(ANCHORS[n, a]) + k
                inside = k < WIDTHS[n, a] and at < LENGTH
                drafted = inside and k > 0 and at % 3 > 0
                assert found.inside[n, place] == inside
                assert found.drafted[n, place] == drafted
                assert found.positions[n, place] == min(at, LENGTH - 1)
                shown = MASK if drafted else int(tokens[n, min(at, LENGTH - 1)])
                assert found.tokens[n, place] == shown


def test_the_dense_mask_by_definition() -> None:
    found = blocks()
    for n in range(2):
        for row in range(3 * BLOCK):
            a = row // BLOCK
            wanted = [column < ANCHORS[n, a] for column in range(LENGTH)]
            wanted += [
                bool(other // BLOCK == a and (found.inside[n, other] or other == row))
                for other in range(3 * BLOCK)
            ]
            assert found.mask[n, row].tolist() == wanted


def test_the_sparse_mask_is_the_same_function() -> None:
    from torch.nn.attention.flex_attention import create_mask

    found = blocks()
    sparse = found.sparse_mask
    assert sparse.mask_mod is found.look
    rows, columns = 3 * BLOCK, LENGTH + 3 * BLOCK
    dense = create_mask(sparse.mask_mod, 2, None, rows, columns, device="cpu")
    assert torch.equal(dense[:, 0], found.mask)


def test_tiles_are_skipped_only_where_no_row_looks() -> None:
    torch.manual_seed(1)
    anchors = torch.arange(20, 340, 10)[None]
    found = make_blocks(
        torch.zeros(1, 400, dtype=torch.long),
        torch.ones(400, dtype=torch.bool),
        anchors,
        torch.full_like(anchors, 16),
        16,
        MASK,
    )
    tiles = found.sparse_mask.to_dense()[0, 0].bool()  # [tiles of rows, tiles of columns]
    padded = torch.zeros(tiles.shape[0] * 128, tiles.shape[1] * 128, dtype=torch.bool)
    padded[: found.mask.shape[1], : found.mask.shape[2]] = found.mask[0]
    wanted = padded.view(tiles.shape[0], 128, tiles.shape[1], 128).any(3).any(1)
    assert torch.equal(tiles, wanted)
    assert not tiles.all()


def test_attention_is_the_same_under_both_masks() -> None:
    torch.manual_seed(2)
    found = blocks()
    q = torch.randn(2, 4, 3 * BLOCK, 16)
    k, v = torch.randn(2, 2, 2, LENGTH + 3 * BLOCK, 16)
    dense = attend(q, k, v, found.mask[:, None])
    torch.testing.assert_close(attend(q, k, v, found.sparse_mask), dense, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_a_drafter_takes_either_mask() -> None:
    found = blocks()
    drafter: BlockDrafter = new_drafter(0, drafter_config(MASK))
    size = drafter.config.hidden_size
    x, taps = torch.randn(2, 3 * BLOCK, size), torch.randn(2, LENGTH, 3 * size)
    places = torch.arange(LENGTH).expand(2, -1)
    one, other = (
        drafter(x, found.positions, taps, places, mask) for mask in (found.mask, found.sparse_mask)
    )
    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_epochs_hold_every_example_once() -> None:
    steps = [batch_rows(10, 4, 7, step) for step in range(10)]
    order = np.concatenate(steps).reshape(4, 10)
    for epoch in order:
        assert sorted(epoch) == list(range(10))
    assert not np.array_equal(order[0], order[1])
    assert np.array_equal(batch_rows(10, 4, 7, 3), steps[3])
    assert not np.array_equal(batch_rows(10, 4, 8, 3), steps[3])
    assert sorted(batch_rows(3, 7, 0, 0)[:3]) == [0, 1, 2]  # a batch larger than an epoch
