"""Attention of the vision graph: over whole frames, or over windows of them.

Scores of a windowed layer are [windows, heads, rows, rows] of one window's rows, never of the whole
picture. Those of a full layer are of a frame's rows; they are made for some rows at a time where
all of them would take more than `SCORES` bytes.
"""

from __future__ import annotations

import numpy as np

from export.graphs.builder import GraphBuilder
from export.graphs.vision_rows import Frames, RowOrder, Windows, rope_tables
from export.vision_configs import VisionConfig

SCORES = 256 << 20  # bytes in fp32


class VisionAttention:
    """What the layers of one tower share: the rows' order and the RoPE tables."""

    def __init__(self, b: GraphBuilder, config: VisionConfig, order: RowOrder) -> None:
        self.b, self.config, self.order = b, config, order
        cos, sin = self._tables()
        scale = np.float32(config.head_dim**-0.5)  # of the scores, folded into the queries' tables
        self._key_rope, self._query_rope = (cos, sin), (f"{cos}.q", f"{sin}.q")
        for name, scaled in zip(self._key_rope, self._query_rope, strict=True):
            b.op("Mul", name, b.constant(np.array(scale)), out=scaled)

    def _tables(self) -> tuple[str, str]:
        """cos and sin [L, 1, D/2]; frames of one grid share a table."""
        b, c = self.b, self.config
        parts: tuple[list[str], list[str]] = ([], [])
        for i, frames in enumerate(self.order.frames):
            tables = rope_tables(frames, c.merge, c.head_dim, c.theta)
            for kind, table, names in zip(("cos", "sin"), tables, parts, strict=True):
                name = b.weight(f"rope.{kind}.{i}", np.ascontiguousarray(table[:, None]))
                names += [name] * frames.count
        cos, sin = (b.op("Concat", *names, axis=0) for names in parts)
        return cos, sin

    def mix(self, qkv: str, windowed: bool) -> str:
        """Attend: qkv [L, 3*d] with queries, keys and values of all heads in a row -> [L, d]."""
        b, c = self.b, self.config
        heads = b.op("Reshape", qkv, b.constant([-1, 3 * c.heads, 1, c.head_dim]))
        q, k, v = b.ops("Split", heads, b.constant([c.heads] * 3), out=3, axis=1)
        q = b.op("RotaryEmbedding", q, *self._query_rope)
        k = b.op("RotaryEmbedding", k, *self._key_rope)
        groups = self.order.frames
        sizes = [frames.count * frames.rows for frames in groups]
        split = [self._split(part, sizes, 0) for part in (q, k, v)]
        mixed = [
            self._frames(frames, parts, windowed)
            for frames, *parts in zip(groups, *split, strict=True)
        ]
        return b.op("Concat", *mixed, axis=0) if len(mixed) > 1 else mixed[0]

    def _frames(self, frames: Frames, parts: list[str], windowed: bool) -> str:
        """q, k and v [F*R, H, 1, D] of frames of one grid -> [F*R, d]."""
        b, c = self.b, self.config
        windows = frames.windows if windowed else (Windows(1, frames.rows),)
        shape = b.constant([frames.count, frames.rows, c.heads, c.head_dim])
        parts = [b.op("Reshape", part, shape) for part in parts]
        sizes = [each.count * each.rows for each in windows]
        split = [self._split(part, sizes, 1) for part in parts]
        mixed = []
        for each, *qkv in zip(windows, *split, strict=True):
            one = self._windows(frames.count * each.count, each.rows, *qkv)
            flat = b.constant([frames.count, each.count * each.rows, c.width])
            mixed.append(b.op("Reshape", one, flat))
        joined = b.op("Concat", *mixed, axis=1) if len(mixed) > 1 else mixed[0]
        return b.op("Reshape", joined, b.constant([-1, c.width]))

    def _windows(self, count: int, rows: int, q: str, k: str, v: str) -> str:
        """Attention within each of `count` windows of `rows` rows: [count, rows, H, D]."""
        b, c = self.b, self.config
        shape = b.constant([count, rows, c.heads, c.head_dim])
        q, k, v = (b.op("Reshape", part, shape) for part in (q, k, v))
        q, v = (b.op("Transpose", part, perm=[0, 2, 1, 3]) for part in (q, v))
        k = b.op("Transpose", k, perm=[0, 2, 3, 1])
        mixed = self._in_parts(count, rows, q, k, v)
        return b.op("Transpose", mixed, perm=[0, 2, 1, 3])

    def _in_parts(self, count: int, rows: int, q: str, k: str, v: str) -> str:
        """Softmax of q k over v, for as many windows and query rows at a time as `SCORES` holds."""
        b, row = self.b, self.config.heads * rows * 4  # bytes of one query row's scores
        if count * rows * row <= SCORES:
            return self._softmax(q, k, v)
        if count > 1:
            ones = [self._split(part, [1] * count, 0) for part in (q, k, v)]
            mixed = [self._in_parts(1, rows, *one) for one in zip(*ones, strict=True)]
            return b.op("Concat", *mixed, axis=0)
        parts = -(-rows * row // SCORES)
        sizes = [(rows * (i + 1)) // parts - rows * i // parts for i in range(parts)]
        mixed = [self._softmax(some, k, v) for some in self._split(q, sizes, 2)]
        return b.op("Concat", *mixed, axis=2)

    def _softmax(self, q: str, k: str, v: str) -> str:
        b = self.b
        return b.op("MatMul", b.op("Softmax", b.op("MatMul", q, k), axis=-1), v)

    def _split(self, x: str, sizes: list[int], axis: int) -> tuple[str, ...]:
        if len(sizes) == 1:
            return (x,)
        return self.b.ops("Split", x, self.b.constant(sizes), out=len(sizes), axis=axis)
