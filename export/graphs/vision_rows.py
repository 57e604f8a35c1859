"""The rows of a vision graph, known at export: their order, windows, and position tables.

Attention stays within a frame, and in most layers of Qwen2.5-VL within a window of it. Rows are
ordered so that both are plain reshapes: frames of one grid lie together, and in a frame the windows
of one size do. Windows at the right and lower edges are smaller; no row is padded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]
Grid = tuple[int, int, int]


@dataclass(frozen=True)
class Windows:
    """Windows of one size that lie together in a frame: how many, and rows of each."""

    count: int
    rows: int


@dataclass(frozen=True)
class Frames:
    """Frames that have one grid and lie together.

    Attributes:
        count: how many.
        height, width: in patches.
        windows: of each frame, in the order of its rows.
        units: [height * width / merge^2] merged rows of a frame, by their places in the order.
    """

    count: int
    height: int
    width: int
    windows: tuple[Windows, ...]
    units: Ints

    @property
    def rows(self) -> int:
        """Patches of one frame."""
        return self.height * self.width


@dataclass(frozen=True)
class RowOrder:
    """The order of all rows.

    Attributes:
        frames: by grid.
        patches: [L] the row of `patches` that stands at each place.
        merged: [M] the place of each merged row, in the processor's order.
    """

    frames: tuple[Frames, ...]
    patches: Ints
    merged: Ints

    @property
    def is_given(self) -> bool:
        """Whether it is the processor's own order."""
        return bool(np.array_equal(self.patches, np.arange(len(self.patches))))


def row_order(grids: Sequence[Grid], merge: int, window: int | None) -> RowOrder:
    """Order the rows of pictures.

    Args:
        grids: (t, h, w) in patches of each picture or video, in the processor's order.
        merge: merge x merge patches are one merged row; they lie together in either order.
        window: merged rows on a side of a window; None: one window is the whole frame.
    """
    starts: dict[tuple[int, int], list[int]] = {}  # first merged row of each frame, by grid
    at, group = 0, merge**2
    for time, height, width in grids:
        size = height * width // group
        starts.setdefault((height, width), []).extend(at + size * i for i in range(time))
        at += size * time
    frames: list[Frames] = []
    order: list[Ints] = []
    for (height, width), firsts in starts.items():
        units, windows = _windows(height // merge, width // merge, window)
        of_rows = tuple(Windows(count, size * group) for count, size in windows)
        frames.append(Frames(len(firsts), height, width, of_rows, units))
        order.extend(first + units for first in firsts)
    merged = np.concatenate(order)
    patches = (merged[:, None] * group + np.arange(group)).reshape(-1)
    return RowOrder(tuple(frames), patches, np.argsort(merged))


def _windows(height: int, width: int, side: int | None) -> tuple[Ints, list[tuple[int, int]]]:
    """A frame's merged rows window by window, larger windows first; counts and sizes."""
    side = side or max(height, width)
    row, column = np.divmod(np.arange(height * width), width)
    across = -(-width // side)
    window = row // side * across + column // side
    size = np.bincount(window)[window]
    order = np.lexsort((window, -size))
    sizes, rows = np.unique(size, return_counts=True)
    found = [(int(n // s), int(s)) for s, n in zip(sizes, rows, strict=True)]
    return order.astype(np.int64), found[::-1]


def places(frames: Frames, merge: int) -> tuple[Ints, Ints]:
    """Row and column in the grid of each patch of a frame, [rows] each, in the graph's order."""
    across = frames.width // merge
    unit_row, unit_column = np.divmod(frames.units, across)
    inner_row, inner_column = np.divmod(np.arange(merge**2), merge)
    row = unit_row[:, None] * merge + inner_row
    column = unit_column[:, None] * merge + inner_column
    return row.reshape(-1), column.reshape(-1)


def rope_tables(frames: Frames, merge: int, head_dim: int, theta: float) -> tuple[Floats, Floats]:
    """cos and sin [rows, D/2] of a frame: half of the angles turn with its rows, half with its
    columns (Qwen2-VL, arXiv 2409.12191)."""
    exponents = np.arange(0, head_dim // 2, 2, dtype=np.float32) / np.float32(head_dim // 2)
    frequencies = np.float32(1) / np.float32(theta) ** exponents
    axes = [place.astype(np.float32)[:, None] * frequencies for place in places(frames, merge)]
    angles = np.concatenate(axes, axis=1).astype(np.float64)
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def learned_positions(table: Floats, side: int, frames: Frames, merge: int) -> Floats:
    """A square grid of learned positions [side * side, d], resampled to a frame: [rows, d].

    Bilinear, corners on corners, as in Qwen3-VL (arXiv 2511.21631).
    """
    row, column = places(frames, merge)
    out = np.zeros((frames.rows, table.shape[1]), np.float32)
    for r, r_weight in _taps(row, frames.height, side):
        for c, c_weight in _taps(column, frames.width, side):
            out += table[r * side + c] * (r_weight * c_weight)[:, None]
    return out


def _taps(place: Ints, size: int, side: int) -> Iterator[tuple[Ints, Floats]]:
    """The two nearest grid lines and their weights, of places 0..size-1 spread over `side`."""
    source = place.astype(np.float32) * np.float32(side - 1) / np.float32(max(size - 1, 1))
    low = np.floor(source)
    for offset in (0, 1):
        weight = np.float32(1) - np.abs(source - low - np.float32(offset))
        yield np.minimum(low.astype(np.int64) + offset, side - 1), weight
