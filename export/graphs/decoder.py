"""The Qwen3 decoder block that target and drafter share (arXiv 2505.09388), rows [S, N, d]."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from export.checkpoint import Checkpoint, Floats
from export.configs import Qwen3Config
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
        config: Qwen3Config,
        prefix: str,
        max_position: int,
    ) -> None:
        self.b, self.checkpoint, self.config, self.prefix = b, checkpoint, config, prefix
        cos, sin = rope_tables(config, max_position)
        self._cos, self._sin = b.weight("rope.cos", cos), b.weight("rope.sin", sin)

    def rope(self, positions: str) -> Rope:
        """cos and sin of positions [N, S]."""
        rows = self.b.op("Transpose", positions, perm=[1, 0])
        rows = self.b.op("Reshape", rows, self.b.constant([-1, 1]))
        return Rope(self.b.op("Gather", self._cos, rows), self.b.op("Gather", self._sin, rows))

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
        weight = np.concatenate([self._query(layer), *self._key_value(layer)])
        rows = self._matmul(x, f"layers.{layer}.qkv", weight)
        sizes = [c.heads, c.kv_heads, c.kv_heads]
        q, k, v = self._split_heads(rows, sizes)
        scale = np.float32(c.head_dim**-0.5)  # of the scores, folded into the query norm
        norm = self._layer(layer, "self_attn.q_norm.weight", c.head_dim) * scale
        q = self._rotate(self.norm(q, f"layers.{layer}.q_norm", norm), rope)
        return q, self._keys_values(layer, k, v, rope, attention, out)

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
        weight = np.concatenate(self._key_value(layer, suffix))
        rows = self._matmul(x, f"layers.{layer}.context", weight)
        k, v = self._split_heads(rows, [c.kv_heads, c.kv_heads])
        return self._keys_values(layer, k, v, rope, attention, out)

    def add_attention(self, layer: int, x: str, mixed: str) -> str:
        """x plus the output projection of attention's result [S, N, H*D]."""
        c = self.config
        weight = self._layer(layer, "self_attn.o_proj.weight", c.width, c.heads * c.head_dim)
        weight = group_major(weight.T, c).T
        return self.b.op("Add", x, self._matmul(mixed, f"layers.{layer}.o", weight))

    def add_mlp(self, layer: int, x: str) -> str:
        """x plus SwiGLU (arXiv 2002.05202) of normed x."""
        b, c = self.b, self.config
        gate = self._layer(layer, "mlp.gate_proj.weight", c.intermediate, c.width)
        up = self._layer(layer, "mlp.up_proj.weight", c.intermediate, c.width)
        down = self._layer(layer, "mlp.down_proj.weight", c.width, c.intermediate)
        normed = self.layer_norm(layer, "post_attention_layernorm", x)
        # two products: one fused product saves nothing, for splitting its result copies it
        gated = self._matmul(normed, f"layers.{layer}.gate", gate)
        linear = self._matmul(normed, f"layers.{layer}.up", up)
        gated = b.op("Mul", b.op("Mul", gated, b.op("Sigmoid", gated)), linear)
        return b.op("Add", x, self._matmul(gated, f"layers.{layer}.down", down))

    def layer_norm(self, layer: int, name: str, x: str) -> str:
        """One of a layer's two RMS norms over the width."""
        return self.norm(
            x, f"layers.{layer}.{name}", self._layer(layer, f"{name}.weight", self.config.width)
        )

    def norm(self, x: str, name: str, weight: Floats) -> str:
        """RMS norm over the last dimension (arXiv 1910.07467, eq. 4)."""
        return self.b.op(
            "RMSNormalization", x, self.b.weight(name, weight), epsilon=self.config.eps
        )

    def _matmul(self, x: str, name: str, weight: Floats) -> str:
        """x times the transpose of a weight [out, in], as linear layers store it."""
        return self.b.op("MatMul", x, self.b.weight(name, np.ascontiguousarray(weight.T)))

    def _split_heads(self, rows: str, heads: list[int]) -> tuple[str, ...]:
        """[S, N, (heads)*D] -> one tensor [S*N, heads, 1, D] for each entry of heads."""
        b = self.b
        rows = b.op("Reshape", rows, b.constant([-1, sum(heads), 1, self.config.head_dim]))
        return b.ops("Split", rows, b.constant(heads), out=len(heads), axis=1)

    def _keys_values(
        self, layer: int, k: str, v: str, rope: Rope, attention: Attention, out: KeyValue | None
    ) -> KeyValue:
        """Norm and rotate keys; both get the cache's layout, and the names `out` if given."""
        norm = self._layer(layer, "self_attn.k_norm.weight", self.config.head_dim)
        k = self._rotate(self.norm(k, f"layers.{layer}.k_norm", norm), rope)
        return KeyValue(
            self.b.op("Reshape", k, attention.cache_rows, out=out.key if out else None),
            self.b.op("Reshape", v, attention.cache_rows, out=out.value if out else None),
        )

    def _rotate(self, x: str, rope: Rope) -> str:
        """RoPE (arXiv 2104.09864) by halves of heads [S*N, heads, 1, D]."""
        return self.b.op("RotaryEmbedding", x, rope.cos, rope.sin)

    def _query(self, layer: int) -> Floats:
        c = self.config
        weight = self._layer(layer, "self_attn.q_proj.weight", c.heads * c.head_dim, c.width)
        return group_major(weight, c)

    def _key_value(self, layer: int, suffix: str = "") -> list[Floats]:
        shape = (self.config.kv_heads * self.config.head_dim, self.config.width)
        names = [f"self_attn.{part}_proj{suffix}.weight" for part in "kv"]
        return [self._layer(layer, name, *shape) for name in names]

    def _layer(self, layer: int, name: str, *shape: int) -> Floats:
        return self.checkpoint.tensor(f"{self.prefix}layers.{layer}.{name}", *shape)


def group_major(weight: Floats, config: Qwen3Config) -> Floats:
    """Reorder the H*D rows of a weight from [Hkv, G, D], as stored, to [G, Hkv, D]."""
    heads = weight.reshape(config.kv_heads, config.group, config.head_dim, -1)
    return np.ascontiguousarray(heads.swapaxes(0, 1)).reshape(weight.shape)


def rope_tables(config: Qwen3Config, positions: int) -> tuple[Floats, Floats]:
    """cos and sin [positions, D/2]; angles are rounded to fp32 as in training."""
    exponents = np.arange(0, config.head_dim, 2, dtype=np.float32) / np.float32(config.head_dim)
    frequencies = np.float32(1) / np.float32(config.theta) ** exponents
    angles = np.arange(positions, dtype=np.float32)[:, None] * frequencies
    exact = angles.astype(np.float64)
    return np.cos(exact).astype(np.float32), np.sin(exact).astype(np.float32)
