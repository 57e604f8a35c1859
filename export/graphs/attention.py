"""Attention over [trunk | branch | new rows] under one softmax, for N rollouts at once.

Only scores are concatenated, never keys or values. The trunk has no rollout dimension: its scores
are one matrix product per key/value head over the query rows of all rollouts (as in Hydragen,
arXiv 2402.05099). Rows are time-major, [S, N, ...], as in the cache, and query heads lie as
[G, Hkv, D]: then all rows of a key/value head have one stride, so that the transposes in front of
matrix products cost nothing (ONNX Runtime and TensorRT fold them into the product).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from export.decoder_config import DecoderConfig
from export.graphs.builder import GraphBuilder


@dataclass(frozen=True)
class KeyValue:
    """Names of a key and a value tensor: [P, Hkv, D] in the trunk, else [rows, N, Hkv, D]."""

    key: str
    value: str


class Attention:
    """What the attention layers of one graph share: shapes and the bias, made once a pass.

    Args:
        x: rows [S, N, d].
        trunk_bias: [P]
        branch_bias: [N, S, all columns after the trunk's]
        segments: a tensor for each key segment, trunk first, whose leading dimension is its rows.

    Attributes:
        cache_rows: the shape [-1, N, Hkv, D].
    """

    def __init__(
        self,
        b: GraphBuilder,
        config: DecoderConfig,
        *,
        x: str,
        trunk_bias: str,
        branch_bias: str,
        segments: Sequence[str],
    ) -> None:
        self.b, self.config = b, config
        kv, g, d = ([size] for size in (config.kv_heads, config.group, config.head_dim))
        s, n = b.op("Shape", x, end=1), b.op("Shape", x, start=1, end=2)
        columns = [b.op("Shape", segment, end=1) for segment in segments]
        self._columns = b.shape(*columns)
        self.cache_rows = b.shape([-1], n, kv + d)
        self._heads = b.shape(s, n, g, [-1])
        self._trunk_split = b.shape(kv, [-1], n, columns[0])
        self._trunk_joined = b.shape(kv, [-1], columns[0])
        self._trunk_mixed = b.shape(kv, [-1], n, d)
        self._mixed = b.shape(n, kv, s, g, d)
        self._bias = self._combine(trunk_bias, branch_bias, s, n)

    def _combine(self, trunk_bias: str, branch_bias: str, s: str, n: str) -> str:
        """One bias [N, 1, S*G, columns]: every query head of a row has the row's."""
        b, g = self.b, self.config.group
        trunk = b.op("Expand", trunk_bias, b.shape(n, s, [1]))
        bias = b.op("Concat", trunk, branch_bias, axis=-1)
        bias = b.op("Concat", *[bias] * g, axis=-1)
        # no -1 here: TensorRT would bound it by the bias's size over the fewest columns
        rows = b.op("Mul", s, b.constant([g]))
        return b.op("Reshape", bias, b.shape(n, [1], rows, b.op("ReduceSum", self._columns)))

    def mix(self, q: str, trunk: KeyValue, others: Sequence[KeyValue]) -> str:
        """Attend from queries to the trunk and to the other segments, in the bias's column order.

        Args:
            q: [S*N, H, 1, D], scaled by D**-0.5.

        Returns:
            [S, N, H*D]
        """
        b, c = self.b, self.config
        q = b.op("Transpose", b.op("Reshape", q, self._heads), perm=[0, 2, 1, 3])
        scores = [self._trunk_scores(q, trunk.key)]
        rows = b.op("Transpose", b.op("Reshape", q, self.cache_rows), perm=[1, 2, 0, 3])
        for segment in others:
            key = b.op("Transpose", segment.key, perm=[1, 2, 3, 0])
            scores.append(b.op("MatMul", rows, key))
        biased = b.op("Add", b.op("Concat", *scores, axis=-1), self._bias)
        weights = b.ops(
            "Split", b.op("Softmax", biased, axis=-1), self._columns, out=len(scores), axis=-1
        )
        sums = [self._trunk_values(weights[0], trunk.value)]
        for weight, segment in zip(weights[1:], others, strict=True):
            value = b.op("Transpose", segment.value, perm=[1, 2, 0, 3])
            sums.append(b.op("MatMul", weight, value))
        mixed = b.op("Reshape", b.op("Sum", *sums), self._mixed)
        mixed = b.op("Transpose", mixed, perm=[2, 0, 3, 1, 4])
        return b.op("Reshape", mixed, b.constant([0, 0, c.heads * c.head_dim]))

    def _trunk_scores(self, q: str, key: str) -> str:
        """q [S, G, N, Hkv*D] and key [P, Hkv, D] -> [N, Hkv, S*G, P]"""
        b, c = self.b, self.config
        rows = b.op("Reshape", q, b.constant([-1, c.kv_heads, c.head_dim]))
        rows = b.op("Transpose", rows, perm=[1, 0, 2])
        scores = b.op("MatMul", rows, b.op("Transpose", key, perm=[1, 2, 0]))
        return b.op("Transpose", b.op("Reshape", scores, self._trunk_split), perm=[2, 0, 1, 3])

    def _trunk_values(self, weights: str, value: str) -> str:
        """weights [N, Hkv, S*G, P] and value [P, Hkv, D] -> [N, Hkv, S*G, D]"""
        b = self.b
        rows = b.op("Transpose", weights, perm=[1, 2, 0, 3])
        rows = b.op("Reshape", rows, self._trunk_joined)
        mixed = b.op("MatMul", rows, b.op("Transpose", value, perm=[1, 0, 2]))
        return b.op("Transpose", b.op("Reshape", mixed, self._trunk_mixed), perm=[2, 0, 1, 3])
