"""The target graph: a decoder from embeddings to hidden states, taps and new keys/values."""

from __future__ import annotations

import onnx

from export.checkpoint import Checkpoint
from export.configs import TargetConfig
from export.graphs.attention import Attention
from export.graphs.builder import GraphBuilder
from export.graphs.decoder import Decoder


def target_graph(
    checkpoint: Checkpoint, config: TargetConfig, taps: tuple[int, ...], max_position: int
) -> onnx.ModelProto:
    """One pass over S new rows of N rollouts: prefill, decoding, chain and tree verification.

    With M-RoPE `positions` are [3, N, S]: time, height and width. With deepstack the features of
    pictures come in [N, Sd, Ld*d], where Sd is S, or 1 for all rows alike; the l-th part is added
    after block l (Qwen3-VL; DeepStack, arXiv 2406.04334).

    Args:
        taps: 0-based blocks whose output residual stream is returned, concatenated in this order:
            what the next block reads, features of pictures included.
        max_position: positions 0..max_position-1 may be fed.
    """
    b, width = GraphBuilder("target"), config.width
    embeddings = b.input("embeddings", ["N", "S", width])
    axes = [] if config.mrope_section is None else [3]
    positions = b.input("positions", [*axes, "N", "S"], integer=True)
    trunk_bias, branch_bias = (
        b.input("trunk_bias", ["P"]),
        b.input("branch_bias", ["N", "S", "T+S"]),
    )
    features = _features(b, config)
    hidden, tapped = (
        b.output("hidden", ["N", "S", width]),
        b.output("taps", ["N", "S", len(taps) * width]),
    )

    decoder = Decoder(b, checkpoint, config, config.prefix, max_position)
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
        if layer < len(features):
            x = b.op("Add", x, features[layer])
        streams.append(x)

    x = decoder.norm(x, "norm", checkpoint.stored(f"{config.prefix}norm.weight", width))
    b.op("Transpose", x, perm=[1, 0, 2], out=hidden)
    joined = b.op("Concat", *(streams[tap] for tap in taps), axis=-1)
    b.op("Transpose", joined, perm=[1, 0, 2], out=tapped)
    return b.build()


def _features(b: GraphBuilder, config: TargetConfig) -> tuple[str, ...]:
    """What is added after each of the first blocks, [Sd, N, d]."""
    if not config.deepstack:
        return ()
    rows = b.input("deepstack", ["N", "Sd", config.deepstack * config.width])
    rows = b.op("Transpose", rows, perm=[1, 0, 2])
    sizes = b.constant([config.width] * config.deepstack)
    return b.ops("Split", rows, sizes, out=config.deepstack, axis=-1)
