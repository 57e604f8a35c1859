"""The graphs of an EAGLE-3 drafter (arXiv 2503.01840): `fuse` and `draft` (one step)."""

from __future__ import annotations

import numpy as np
import onnx

from export.checkpoint import Checkpoint, Stored
from export.draft_configs import Eagle3Config
from export.graphs.attention import Attention
from export.graphs.builder import GraphBuilder
from export.graphs.decoder import Decoder, group_major


def fuse_graph(checkpoint: Checkpoint, config: Eagle3Config) -> onnx.ModelProto:
    """taps [N, C, K*d] -> features [N, C, d]."""
    b, width, tapped = GraphBuilder("fuse"), config.width, len(config.taps) * config.width
    taps = b.input("taps", ["N", "C", tapped])
    features = b.output("features", ["N", "C", width])
    weight = b.weight("fc", np.ascontiguousarray(checkpoint.tensor("fc.weight", width, tapped).T))
    b.op("MatMul", taps, weight, out=features)
    return b.build()


def step_graph(checkpoint: Checkpoint, config: Eagle3Config, max_position: int) -> onnx.ModelProto:
    """One pass over S new rows of N rollouts: a token's embedding and the feature before it.

    `hidden` is the residual stream behind the layer: the feature of the row that follows, and what
    `draft_head` reads.

    Args:
        max_position: positions 0..max_position-1 may be fed.
    """
    b, width = GraphBuilder("draft"), config.width
    embeddings = b.input("embeddings", ["N", "S", width])
    features = b.input("features", ["N", "S", width])
    positions = b.input("positions", ["N", "S"], integer=True)
    trunk_bias = b.input("trunk_bias", ["P"])
    branch_bias = b.input("branch_bias", ["N", "S", "T+S"])
    hidden = b.output("hidden", ["N", "S", width])

    layer = _Layer(b, checkpoint, config, max_position)
    ((trunk, branch),) = layer.caches()
    embedded = b.op("Transpose", embeddings, perm=[1, 0, 2])
    stream = b.op("Transpose", features, perm=[1, 0, 2])
    normed = layer.layer_norm(0, "hidden_norm", stream)
    x = b.op("Concat", layer.layer_norm(0, "input_layernorm", embedded), normed, axis=-1)
    if config.norm_before_residual:
        stream = normed
    attention = Attention(
        b,
        config,
        x=stream,
        trunk_bias=trunk_bias,
        branch_bias=branch_bias,
        segments=[trunk.key, branch.key, stream],
    )
    q, new = layer.project(0, x, layer.rope(positions), attention, layer.present(0, "S"))
    stream = layer.add_attention(0, stream, attention.mix(q, trunk, [branch, new]))
    stream = layer.add_mlp(0, stream)
    b.op("Transpose", stream, perm=[1, 0, 2], out=hidden)
    return b.build()


class _Layer(Decoder):
    """The drafter's one layer: its attention reads rows twice as wide as it writes."""

    config: Eagle3Config

    def __init__(
        self, b: GraphBuilder, checkpoint: Checkpoint, config: Eagle3Config, max_position: int
    ) -> None:
        super().__init__(b, checkpoint, config, "", max_position)

    def _query(self, layer: int) -> Stored:
        c = self.config
        weight = self._layer(layer, "self_attn.q_proj.weight", c.heads * c.head_dim, 2 * c.width)
        return group_major(weight, c)

    def _key_value(self, layer: int, suffix: str = "") -> list[Stored]:
        shape = (self.config.kv_heads * self.config.head_dim, 2 * self.config.width)
        return [
            self._layer(layer, f"self_attn.{part}_proj{suffix}.weight", *shape) for part in "kv"
        ]

    def _layer(self, layer: int, name: str, *shape: int) -> Stored:
        return self.checkpoint.stored(f"{self.config.layer}.{name}", *shape)
