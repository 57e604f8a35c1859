"""The draft graph: a DFlash block drafter (arXiv 2602.06036) over cached and new context rows."""

from __future__ import annotations

import onnx

from export.checkpoint import Checkpoint
from export.configs import DFlashConfig
from export.graphs.attention import Attention
from export.graphs.builder import GraphBuilder
from export.graphs.decoder import Decoder


def draft_graph(checkpoint: Checkpoint, config: DFlashConfig, max_position: int) -> onnx.ModelProto:
    """One pass over a block of B rows; C verified rows enter as keys and values alone.

    Context rows are the target's taps through `fc` and `hidden_norm` (section 3 of the paper: the
    projection is normed, not the taps). They skip the layers' input norm, share Wk and Wv with the
    block, and are what the cache keeps; the block's own keys and values are forgotten.

    Args:
        max_position: positions 0..max_position-1 may be fed.
    """
    b, width, tapped = GraphBuilder("draft"), config.width, len(config.taps) * config.width
    embeddings = b.input("block_embeddings", ["N", "B", width])
    positions = b.input("block_positions", ["N", "B"], integer=True)
    taps = b.input("taps", ["N", "C", tapped])
    tap_positions = b.input("tap_positions", ["N", "C"], integer=True)
    trunk_bias = b.input("trunk_bias", ["P"])
    branch_bias = b.input("branch_bias", ["N", "B", "T+C+B"])
    hidden = b.output("hidden", ["N", "B", width])

    decoder = Decoder(b, checkpoint, config, "", max_position)
    caches = decoder.caches()
    x = b.op("Transpose", embeddings, perm=[1, 0, 2])
    rope, tap_rope = decoder.rope(positions), decoder.rope(tap_positions)
    context = b.op("Transpose", taps, perm=[1, 0, 2])
    context = b.op(
        "MatMul", context, b.weight("fc", checkpoint.tensor("fc.weight", width, tapped).T)
    )
    context = decoder.norm(context, "hidden_norm", checkpoint.tensor("hidden_norm.weight", width))
    trunk, branch = caches[0]
    attention = Attention(
        b,
        config,
        x=x,
        trunk_bias=trunk_bias,
        branch_bias=branch_bias,
        segments=[trunk.key, branch.key, context, x],
    )
    for layer, (trunk, branch) in enumerate(caches):
        new = decoder.project_context(
            layer, context, tap_rope, attention, decoder.present(layer, "C")
        )
        normed = decoder.layer_norm(layer, "input_layernorm", x)
        q, block = decoder.project(layer, normed, rope, attention, None)
        x = decoder.add_attention(layer, x, attention.mix(q, trunk, [branch, new, block]))
        x = decoder.add_mlp(layer, x)

    x = decoder.norm(x, "norm", checkpoint.tensor("norm.weight", width))
    b.op("Transpose", x, perm=[1, 0, 2], out=hidden)
    return b.build()
