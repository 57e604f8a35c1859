"""The draft graph: a block drafter over cached and new context rows."""

from __future__ import annotations

import onnx

from export.checkpoint import Checkpoint
from export.draft_configs import BlockDrafterConfig, DFlareConfig
from export.graphs.attention import Attention
from export.graphs.builder import GraphBuilder
from export.graphs.decoder import Decoder
from export.graphs.fusion import mixed_contexts, shared_context


def draft_graph(
    checkpoint: Checkpoint, config: BlockDrafterConfig, max_position: int
) -> onnx.ModelProto:
    """One pass over a block of B rows; C verified rows enter as keys and values alone.

    Context rows are made of the target's taps (see `export.graphs.fusion`). They skip the layers'
    input norm, and are what the cache keeps; the block's own keys and values are forgotten.

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
    rows = b.op("Transpose", taps, perm=[1, 0, 2])
    if isinstance(config, DFlareConfig):
        contexts = mixed_contexts(decoder, checkpoint, config, rows)
        suffix = "_target" if config.heterogeneous_kv else ""
    else:
        contexts = [shared_context(decoder, checkpoint, config, rows)] * config.layers
        suffix = ""
    trunk, branch = caches[0]
    attention = Attention(
        b,
        config,
        x=x,
        trunk_bias=trunk_bias,
        branch_bias=branch_bias,
        segments=[trunk.key, branch.key, rows, x],
    )
    for layer, (trunk, branch) in enumerate(caches):
        new = decoder.project_context(
            layer, contexts[layer], tap_rope, attention, decoder.present(layer, "C"), suffix
        )
        normed = decoder.layer_norm(layer, "input_layernorm", x)
        q, block = decoder.project(layer, normed, rope, attention, None)
        x = decoder.add_attention(layer, x, attention.mix(q, trunk, [branch, new, block]))
        x = decoder.add_mlp(layer, x)

    x = decoder.norm(x, "norm", checkpoint.tensor("norm.weight", width))
    b.op("Transpose", x, perm=[1, 0, 2], out=hidden)
    return b.build()
