"""The decoder block that targets and drafters share, rows [S, N, d]; `DecoderConfig` says how."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from export.checkpoint import Checkpoint, Floats, Stored
from export.decoder_config import DecoderConfig
from export.graphs.attention import Attention, KeyValue
from export.graphs.builder import Dims, GraphBuilder


@dataclass(frozen=True)
class Rope:
    """cos and sin at the positions of some rows, each [S*N, 1, D/2]."""

    cos: str
    sin: str


class Decoder:
    """Writes the layers of one checkpoint into a graph.

    Args:
        prefix: of the layers' tensor names in the checkpoint.
        max_position: rows of the RoPE tables.
    """

    def __init__(
        self,
        b: GraphBuilder,
        checkpoint: Checkpoint,
        config: DecoderConfig,
        prefix: str,
        max_position: int,
    ) -> None:
        self.b, self.checkpoint, self.config, self.prefix = b, checkpoint, config, prefix
        cos, sin = rope_tables(config, max_position)
        self._tables = {"cos": cos, "sin": sin}

    def rope(self, positions: str) -> Rope:
        """cos and sin of positions [N, S], or [3, N, S] for M-RoPE."""
        b = self.b
        if self.config.mrope_section is None:
            rows = b.op("Transpose", positions, perm=[1, 0])
            rows = b.op("Reshape", rows, b.constant([-1, 1]))
            return Rope(*(b.op("Gather", self._columns(name), rows) for name in ("cos", "sin")))
        by_axis = b.op("Transpose", positions, perm=[0, 2, 1])
        by_axis = b.op("Reshape", by_axis, b.constant([3, -1, 1]))
        rows_of = [b.op("Gather", by_axis, b.constant(np.array(axis))) for axis in range(3)]
        return Rope(self._turned("cos", rows_of), self._turned("sin", rows_of))

    def _turned(self, name: str, rows_of: list[str]) -> str:
        """A table's rows, each frequency's from the row that its axis says: [S*N, 1, D/2]."""
        b, axes = self.b, np.array(self.config.rope_axes)
        parts = [
            b.op("Gather", self._columns(f"{name}.{axis}", axes == axis), rows_of[axis])
            for axis in np.unique(axes)
        ]
        joined = b.op("Concat", *parts, axis=-1)
        order = np.argsort(axes, kind="stable")  # of the frequencies in `joined`
        if (order == np.arange(len(axes))).all():
            return joined
        return b.op("Gather", joined, b.constant(np.argsort(order)), axis=-1)

    def _columns(self, name: str, some: NDArray[np.bool_] | None = None) -> str:
        table = self._tables[name.split(".")[0]]
        return self.b.weight(f"rope.{name}", table if some is None else table[:, some])

    def caches(self) -> list[tuple[KeyValue, KeyValue]]:
        """Declare every layer's inputs: trunk [P, Hkv, D] and branch [T, N, Hkv, D]."""
        c, b = self.config, self.b
        sizes: tuple[str | int, ...] = (c.kv_heads, c.head_dim)

        def declare(part: str, layer: int, *rows: str) -> KeyValue:
            name = f"{part}.past_key_values.{layer}"
            return KeyValue(
                b.input(f"{name}.key", [*rows, *sizes]), b.input(f"{name}.value", [*rows, *sizes])
            )

        return [
            (declare("trunk", layer, "P"), declare("branch", layer, "T", "N"))
            for layer in range(c.layers)
        ]

    def present(self, layer: int, rows: str) -> KeyValue:
        """Declare a layer's outputs: keys after norm and RoPE, and values, [rows, N, Hkv, D]."""
        dims: Dims = [rows, "N", self.config.kv_heads, self.config.head_dim]
        name = f"present.{layer}"
        return KeyValue(self.b.output(f"{name}.key", dims), self.b.output(f"{name}.value", dims))

    def project(
        self, layer: int, x: str, rope: Rope, attention: Attention, out: KeyValue | None
    ) -> tuple[str, KeyValue]:
        """Queries [S*N, H, 1, D], keys and values [S, N, Hkv, D] of normed rows x."""
        c = self.config
        name = f"layers.{layer}.qkv"
        rows = self._matmul(x, name, np.concatenate([self._query(layer), *self._key_value(layer)]))
        if c.qkv_bias:
            rows = self._biased(rows, name, self._qkv_bias(layer))
        q, k, v = self._split_heads(rows, [c.heads, c.kv_heads, c.kv_heads])
        q = self._rotate(self._scaled_query(layer, q), rope)
        return q, self._keys_values(layer, k, v, rope, attention, out)

    def _scaled_query(self, layer: int, q: str) -> str:
        """Queries times D**-0.5, the scores' scale: in the norm's weight where there is one."""
        size = self.config.head_dim
        scale = np.float32(size**-0.5)
        if not self.config.qk_norm:
            return self.b.op("Mul", q, self.b.constant(np.array(scale)))
        norm = self._layer(layer, "self_attn.q_norm.weight", size)
        return self.norm(q, f"layers.{layer}.q_norm", norm.astype(np.float32) * scale)

    def project_context(
        self,
        layer: int,
        x: str,
        rope: Rope,
        attention: Attention,
        out: KeyValue,
        suffix: str = "",
    ) -> KeyValue:
        """Keys and values [C, N, Hkv, D] of context rows x, without queries.

        Args:
            suffix: of the names of Wk and Wv, where the context has some of its own.
        """
        c = self.config
        name = f"layers.{layer}.context"
        rows = self._matmul(x, name, np.concatenate(self._key_value(layer, suffix)))
        if c.qkv_bias:
            rows = self._biased(rows, name, np.concatenate(self._kv_bias(layer, suffix)))
        k, v = self._split_heads(rows, [c.kv_heads, c.kv_heads])
        return self._keys_values(layer, k, v, rope, attention, out)

    def add_attention(self, layer: int, x: str, mixed: str) -> str:
        """x plus the output projection of attention's result [S, N, H*D]."""
        c = self.config
        weight = self._layer(layer, "self_attn.o_proj.weight", c.width, c.heads * c.head_dim)
        name = f"layers.{layer}.o"
        added = self._matmul(mixed, name, group_major(weight.T, c).T)
        if c.o_bias:
            added = self._biased(added, name, self._layer(layer, "self_attn.o_proj.bias", c.width))
        return self.b.op("Add", x, added)

    def add_mlp(self, layer: int, x: str) -> str:
        """x plus SwiGLU (arXiv 2002.05202) of normed x."""
        b, c = self.b, self.config
        normed = self.layer_norm(layer, "post_attention_layernorm", x)
        # two products: one fused product saves nothing, for splitting its result copies it
        gated = self._mlp(layer, "gate", normed, c.width, c.intermediate)
        linear = self._mlp(layer, "up", normed, c.width, c.intermediate)
        gated = b.op("Mul", b.op("Mul", gated, b.op("Sigmoid", gated)), linear)
        return b.op("Add", x, self._mlp(layer, "down", gated, c.intermediate, c.width))

    def _mlp(self, layer: int, part: str, x: str, size: int, out: int) -> str:
        name = f"layers.{layer}.{part}"
        rows = self._matmul(x, name, self._layer(layer, f"mlp.{part}_proj.weight", out, size))
        if self.config.mlp_bias:
            return self._biased(rows, name, self._layer(layer, f"mlp.{part}_proj.bias", out))
        return rows

    def layer_norm(self, layer: int, name: str, x: str) -> str:
        """One of a layer's two RMS norms over the width."""
        return self.norm(
            x, f"layers.{layer}.{name}", self._layer(layer, f"{name}.weight", self.config.width)
        )

    def norm(self, x: str, name: str, weight: Stored) -> str:
        """RMS norm over the last dimension (arXiv 1910.07467, eq. 4)."""
        return self.b.op(
            "RMSNormalization", x, self.b.weight(name, weight), epsilon=self.config.eps
        )

    def _matmul(self, x: str, name: str, weight: Stored) -> str:
        """x times the transpose of a weight [out, in], as linear layers store it."""
        return self.b.op("MatMul", x, self.b.weight(name, weight.T))

    def _biased(self, rows: str, name: str, bias: Stored) -> str:
        return self.b.op("Add", rows, self.b.weight(f"{name}.bias", bias))

    def _split_heads(self, rows: str, heads: list[int]) -> tuple[str, ...]:
        """[S, N, (heads)*D] -> one tensor [S*N, heads, 1, D] for each entry of heads."""
        b = self.b
        rows = b.op("Reshape", rows, b.constant([-1, sum(heads), 1, self.config.head_dim]))
        return b.ops("Split", rows, b.constant(heads), out=len(heads), axis=1)

    def _keys_values(
        self, layer: int, k: str, v: str, rope: Rope, attention: Attention, out: KeyValue | None
    ) -> KeyValue:
        """Norm and rotate keys; both get the cache's layout, and the names `out` if given."""
        if self.config.qk_norm:
            norm = self._layer(layer, "self_attn.k_norm.weight", self.config.head_dim)
            k = self.norm(k, f"layers.{layer}.k_norm", norm)
        k = self._rotate(k, rope)
        return KeyValue(
            self.b.op("Reshape", k, attention.cache_rows, out=out.key if out else None),
            self.b.op("Reshape", v, attention.cache_rows, out=out.value if out else None),
        )

    def _rotate(self, x: str, rope: Rope) -> str:
        """RoPE (arXiv 2104.09864) by halves of heads [S*N, heads, 1, D]."""
        return self.b.op("RotaryEmbedding", x, rope.cos, rope.sin)

    def _query(self, layer: int) -> Stored:
        c = self.config
        weight = self._layer(layer, "self_attn.q_proj.weight", c.heads * c.head_dim, c.width)
        return group_major(weight, c)

    def _key_value(self, layer: int, suffix: str = "") -> list[Stored]:
        shape = (self.config.kv_heads * self.config.head_dim, self.config.width)
        names = [f"self_attn.{part}_proj{suffix}.weight" for part in "kv"]
        return [self._layer(layer, name, *shape) for name in names]

    def _qkv_bias(self, layer: int) -> Stored:
        """[(H + 2 Hkv) * D], in the order of the fused weight's rows."""
        c = self.config
        query = self._layer(layer, "self_attn.q_proj.bias", c.heads * c.head_dim)
        return np.concatenate([group_major(query[:, None], c)[:, 0], *self._kv_bias(layer)])

    def _kv_bias(self, layer: int, suffix: str = "") -> list[Stored]:
        size = self.config.kv_heads * self.config.head_dim
        names = [f"self_attn.{part}_proj{suffix}.bias" for part in "kv"]
        return [self._layer(layer, name, size) for name in names]

    def _layer(self, layer: int, name: str, *shape: int) -> Stored:
        return self.checkpoint.stored(f"{self.prefix}layers.{layer}.{name}", *shape)


def group_major(weight: Stored, config: DecoderConfig) -> Stored:
    """Reorder the H*D rows of a weight from [Hkv, G, D], as stored, to [G, Hkv, D]."""
    heads = weight.reshape(config.kv_heads, config.group, config.head_dim, -1)
    return np.ascontiguousarray(heads.swapaxes(0, 1)).reshape(weight.shape)


def rope_tables(config: DecoderConfig, positions: int) -> tuple[Floats, Floats]:
    """cos and sin [positions, D/2]; angles are rounded to fp32 as in training."""
    frequencies = config.rope.frequencies(config.theta, config.head_dim)
    angles = np.arange(positions, dtype=np.float32)[:, None] * frequencies
    exact, gain = angles.astype(np.float64), config.rope.gain
    return (np.cos(exact) * gain).astype(np.float32), (np.sin(exact) * gain).astype(np.float32)
