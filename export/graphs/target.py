"""The target graph: a Qwen3 decoder from embeddings to hidden states, taps and new keys/values."""

from __future__ import annotations

import onnx

from export.checkpoint import Checkpoint
from export.configs import Qwen3Config
from export.graphs.attention import Attention
from export.graphs.builder import GraphBuilder
from export.graphs.decoder import Decoder


def target_graph(
    checkpoint: Checkpoint, config: Qwen3Config, taps: tuple[int, ...], max_position: int
) -> onnx.ModelProto:
    """One pass over S new rows of N rollouts: prefill, decoding, chain and tree verification.

    Args:
        taps: 0-based blocks whose output residual stream is returned, concatenated in this order.
        max_position: positions 0..max_position-1 may be fed.
    """
    b, width = GraphBuilder("target"), config.width
    embeddings = b.input("embeddings", ["N", "S", width])
    positions = b.input("positions", ["N", "S"], integer=True)
    trunk_bias, branch_bias = (
        b.input("trunk_bias", ["P"]),
        b.input("branch_bias", ["N", "S", "T+S"]),
    )
    hidden, tapped = (
        b.output("hidden", ["N", "S", width]),
        b.output("taps", ["N", "S", len(taps) * width]),
    )

    decoder = Decoder(b, checkpoint, config, "model.", max_position)
    caches = decoder.caches()
    x = b.op("Transpose", embeddings, perm=[1, 0, 2])
    rope = decoder.rope(positions)
    trunk, branch = caches[0]
    attention = Attention(
        b,
        config,
        x=x,
        trunk_bias=trunk_bias,
        branch_bias=branch_bias,
        segments=[trunk.key, branch.key, x],
    )
    streams = []
    for layer, (trunk, branch) in enumerate(caches):
        normed = decoder.layer_norm(layer, "input_layernorm", x)
        q, new = decoder.project(layer, normed, rope, attention, decoder.present(layer, "S"))
        x = decoder.add_attention(layer, x, attention.mix(q, trunk, [branch, new]))
        x = decoder.add_mlp(layer, x)
        streams.append(x)

    x = decoder.norm(x, "norm", checkpoint.tensor("model.norm.weight", width))
    b.op("Transpose", x, perm=[1, 0, 2], out=hidden)
    joined = b.op("Concat", *(streams[tap] for tap in taps), axis=-1)
    b.op("Transpose", joined, perm=[1, 0, 2], out=tapped)
    return b.build()
