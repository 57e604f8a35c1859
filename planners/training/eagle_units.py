"""What a stepwise drafter is fed, pass by pass: a token, and the fixed tokens behind it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Unit:
    """One pass from each of A anchors of N sequences, rows packed: [N, M].

    Attributes:
        owner: [N, M] anchor that a row belongs to.
        positions: [N, M] of the rows' tokens.
        real: [N, M] bool; False for padding.
        last: [N, A] slot of each anchor's last row, whose hidden state is the next unit's feature.
        predicted: [N, A] position that this pass drafts; the sequence's length where there is none.
    """

    owner: Tensor
    positions: Tensor
    real: Tensor
    last: Tensor
    predicted: Tensor


def next_drafted(is_value: Tensor, first: int, runs: bool) -> Tensor:
    """[S] the next position behind each that a drafter drafts, S where there is none.

    Args:
        is_value: [S] bool; first: where the output begins.
        runs: fixed tokens are passed with the token before them; else each takes a pass.
    """
    length = len(is_value)
    drafted = is_value if runs else torch.arange(length) >= first
    at = torch.where(drafted, torch.arange(length), length)
    following = at.flip(0).cummin(0).values.flip(0)
    return torch.cat([following[1:], following.new_tensor([length])])


def unroll(anchors: Tensor, following: Tensor, steps: int) -> list[Unit]:
    """The units of `steps` passes from each anchor on.

    Args:
        anchors: [N, A] positions of the last committed token.
        following: [S] from `next_drafted`.
    """
    ends = torch.cat([following, following.new_tensor([len(following)])])  # behind the end: nothing
    units, start = [], anchors
    for _ in range(steps):
        stop = ends[start]
        units.append(_pack(start, stop))
        start = stop
    return units


def _pack(start: Tensor, stop: Tensor) -> Unit:
    """Rows start..stop-1 of every anchor, [N, A] each, next to one another."""
    count, anchors = start.shape
    lengths = stop - start
    rows = torch.arange(max(1, int(lengths.max()))).expand(count, anchors, -1)
    inside = (rows < lengths[..., None]).flatten(1)
    order = (~inside).int().argsort(dim=1, stable=True)[:, : max(1, int(inside.sum(1).max()))]
    owner = torch.arange(anchors)[:, None].expand(rows.shape).flatten(1)
    return Unit(
        owner=owner.gather(1, order),
        positions=(start[..., None] + rows).flatten(1).gather(1, order),
        real=inside.gather(1, order),
        last=(lengths.cumsum(1) - 1).clamp_min(0),
        predicted=stop,
    )
