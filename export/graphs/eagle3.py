"""The graphs of an EAGLE-3 drafter (arXiv 2503.01840): `fuse`, `draft` (one step), `draft_head`."""

from __future__ import annotations

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto

from export.checkpoint import Checkpoint, Floats
from export.draft_configs import Eagle3Config
from export.graphs.attention import Attention, KeyValue
from export.graphs.builder import GraphBuilder
from export.graphs.decoder import Decoder, Rope, group_major


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
    x = b.op(
        "Concat",
        layer.layer_norm(0, "input_layernorm", embedded),
        layer.layer_norm(0, "hidden_norm", stream),
        axis=-1,
    )
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


def draft_head_graph(checkpoint: Checkpoint, config: Eagle3Config, top_k: int) -> onnx.ModelProto:
    """hidden [N, S, d] -> top_logits and top_tokens [N, S, k], logsumexp [N, S].

    The head's vocabulary is the drafter's own; `top_tokens` are the target's tokens. With k = Vd
    they are the same for every row.
    """
    b, width = GraphBuilder("draft_head"), config.width
    hidden = b.input("hidden", ["N", "S", width])
    b.output("top_logits", ["N", "S", top_k])
    b.output("top_tokens", ["N", "S", top_k], integer=True)
    b.output("logsumexp", ["N", "S"])
    norm = b.weight("norm", checkpoint.tensor("norm.weight", width))
    normed = b.op("RMSNormalization", hidden, norm, epsilon=config.eps)
    head = checkpoint.tensor("lm_head.weight", config.draft_vocab, width)
    own = draft_tokens(checkpoint, config)
    order = np.argsort(own)  # rising, so that a whole vocabulary's logits are in token order
    weight = b.weight("head", np.ascontiguousarray(head[order].T))
    tokens = b.constant(own[order].astype(np.int32))
    if top_k == config.draft_vocab:
        logits = b.op("MatMul", normed, weight, out="top_logits")
        b.op("Expand", tokens, b.op("Shape", logits), out="top_tokens")
    else:
        logits = b.op("MatMul", normed, weight)
        _, best = b.ops("TopK", logits, b.constant([top_k]), out=["top_logits", "top_indices"])
        chosen = b.op("Gather", tokens, best)
        b.op("Cast", chosen, out="top_tokens", to=TensorProto.INT32)
    b.op("ReduceLogSumExp", logits, b.constant([-1]), keepdims=0, out="logsumexp")
    return b.build()


def draft_tokens(checkpoint: Checkpoint, config: Eagle3Config) -> NDArray[np.int64]:
    """[Vd] the target's token of each entry of the drafter's head: its number plus d2t."""
    numbers = np.arange(config.draft_vocab)
    if config.draft_vocab == config.vocab and "d2t" not in checkpoint.tensors:
        return numbers
    tokens = numbers + checkpoint.integers("d2t", config.draft_vocab)
    if tokens.min() < 0 or tokens.max() >= config.vocab or len(np.unique(tokens)) < len(tokens):
        raise checkpoint.unfit("d2t", f"different tokens, 0..{config.vocab - 1}", tokens)
    return tokens


class _Layer(Decoder):
    """The drafter's one layer: its attention reads rows twice as wide as it writes."""

    config: Eagle3Config

    def __init__(
        self, b: GraphBuilder, checkpoint: Checkpoint, config: Eagle3Config, max_position: int
    ) -> None:
        super().__init__(b, checkpoint, config, "", max_position)

    def project(
        self, layer: int, x: str, rope: Rope, attention: Attention, out: KeyValue | None
    ) -> tuple[str, KeyValue]:
        if self.config.qk_norm:
            return super().project(layer, x, rope, attention, out)
        b, c = self.b, self.config
        weight = np.concatenate([self._query(layer), *self._key_value(layer)])
        q, k, v = self._split_heads(
            self._matmul(x, f"layers.{layer}.qkv", weight), [c.heads, c.kv_heads, c.kv_heads]
        )
        q = b.op("Mul", q, b.constant(np.array(c.head_dim**-0.5, np.float32)))
        k = self._rotate(k, rope)
        return self._rotate(q, rope), KeyValue(
            b.op("Reshape", k, attention.cache_rows, out=out.key if out else None),
            b.op("Reshape", v, attention.cache_rows, out=out.value if out else None),
        )

    def _query(self, layer: int) -> Floats:
        c = self.config
        weight = self._layer(layer, "self_attn.q_proj.weight", c.heads * c.head_dim, 2 * c.width)
        return group_major(weight, c)

    def _key_value(self, layer: int, suffix: str = "") -> list[Floats]:
        shape = (self.config.kv_heads * self.config.head_dim, 2 * self.config.width)
        return [
            self._layer(layer, f"self_attn.{part}_proj{suffix}.weight", *shape) for part in "kv"
        ]

    def _layer(self, layer: int, name: str, *shape: int) -> Floats:
        return self.checkpoint.tensor(f"midlayer.{name}", *shape)
