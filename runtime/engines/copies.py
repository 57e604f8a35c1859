"""Gathering rows with few strided copies: devices copy rectangles fast and single rows slowly."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Rectangle:
    """`height` runs of `width` rows, `source_stride` and `target_stride` rows apart.

    Attributes:
        source, target: first row of each side.
    """

    source: int
    target: int
    width: int
    height: int = 1
    source_stride: int = 0
    target_stride: int = 0


def rectangles(source: Ints, target: Ints) -> list[Rectangle]:
    """The copies that bring rows `source` to rows `target`, both [M, C], in no particular order.

    Rows are joined along each axis in turn; the order that needs fewer copies is taken.
    """
    if source.size == 0:
        return []
    along = list(_joined(source.ravel(), target.ravel()))
    if len(along) <= min(source.shape):
        return along
    across = list(_joined(source.T.ravel(), target.T.ravel()))
    return min(along, across, key=len)


def _joined(source: Ints, target: Ints) -> Iterator[Rectangle]:
    """Runs of neighbouring rows, and equally long runs at equal distances as one rectangle."""
    breaks = np.flatnonzero((np.diff(source) != 1) | (np.diff(target) != 1)) + 1
    starts = np.concatenate([[0], breaks])
    widths = np.diff(np.concatenate([starts, [len(source)]])).tolist()
    firsts, places = source[starts].tolist(), target[starts].tolist()
    i = 0
    while i < len(firsts):
        width, j = widths[i], i + 1
        steps = (0, 0)
        if j < len(firsts):
            steps = (firsts[j] - firsts[i], places[j] - places[i])
        if min(steps) >= width:  # a pitch is never shorter than its row
            while (
                j < len(firsts)
                and widths[j] == width
                and (firsts[j] - firsts[j - 1], places[j] - places[j - 1]) == steps
            ):
                j += 1
        height = j - i
        strides = steps if height > 1 else (0, 0)
        yield Rectangle(firsts[i], places[i], width, height, *strides)
        i = j
