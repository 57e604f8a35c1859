"""The draft graph: a block drafter over cached and new context rows."""

from __future__ import annotations

import numpy as np
import onnx

from export.checkpoint import Checkpoint
from export.draft_configs import BlockDrafterConfig, DFlareConfig, LayerKind
from export.graphs.attention import Attention
from export.graphs.builder import GraphBuilder
from export.graphs.decoder import Decoder
from export.graphs.fusion import mixed_contexts, shared_context

_MASKED = np.array(-30000.0, np.float32)


def draft_graph(
    checkpoint: Checkpoint, config: BlockDrafterConfig, max_position: int
) -> onnx.ModelProto:
    """One pass over a block of B rows; C verified rows enter as keys and values alone.

    Context rows are made of the target's taps (see `export.graphs.fusion`). They skip the layers'
    input norm, and are what the cache keeps; the block's own keys and values are forgotten.

    Layers with a window need to know where cached rows stand: then there are two inputs more,
    `trunk_positions` [P] and `branch_positions` [N, T].

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
    kinds = layer_kinds(config, max_position)
    if any(window for _, window in kinds):
        b.input("trunk_positions", ["P"], integer=True)
        b.input("branch_positions", ["N", "T"], integer=True)
    hidden = b.output("hidden", ["N", "B", width])

    decoder = Decoder(b, checkpoint, config, "", max_position)
    caches = decoder.caches()
    x = b.op("Transpose", embeddings, perm=[1, 0, 2])
    if config.embedding_scale != 1.0:
        x = b.op("Mul", x, b.constant(np.array(config.embedding_scale, np.float32)))
    rope, tap_rope = decoder.rope(positions), decoder.rope(tap_positions)
    rows = b.op("Transpose", taps, perm=[1, 0, 2])
    if isinstance(config, DFlareConfig):
        contexts = mixed_contexts(decoder, checkpoint, config, rows)
        suffix = "_target" if config.heterogeneous_kv else ""
    else:
        contexts = [shared_context(decoder, checkpoint, config, rows)] * config.layers
        suffix = ""
    trunk, branch = caches[0]
    masks = {kind: _seen(b, kind, trunk_bias, branch_bias) for kind in dict.fromkeys(kinds)}
    attentions = {
        kind: Attention(
            b,
            config,
            x=x,
            trunk_bias=trunk,
            branch_bias=rest,
            segments=[caches[0][0].key, branch.key, rows, x],
        )
        for kind, (trunk, rest) in masks.items()
    }
    for layer, (trunk, branch) in enumerate(caches):
        attention = attentions[kinds[layer]]
        new = decoder.project_context(
            layer, contexts[layer], tap_rope, attention, decoder.present(layer, "C"), suffix
        )
        normed = decoder.layer_norm(layer, "input_layernorm", x)
        q, block = decoder.project(layer, normed, rope, attention, None)
        x = decoder.add_attention(layer, x, attention.mix(q, trunk, [branch, new, block]))
        x = decoder.add_mlp(layer, x)

    norm = checkpoint.tensor("norm.weight", width) * np.float32(config.logit_scale)
    x = decoder.norm(x, "norm", norm)
    b.op("Transpose", x, perm=[1, 0, 2], out=hidden)
    return b.build()


def layer_kinds(config: BlockDrafterConfig, max_position: int) -> list[LayerKind]:
    """Each layer's kind in a graph: a window that reaches as far as positions do is none."""
    kinds = config.kinds or ((False, None),) * config.layers
    return [(causal, w if w is not None and w < max_position else None) for causal, w in kinds]


def _seen(b: GraphBuilder, kind: LayerKind, trunk_bias: str, branch_bias: str) -> tuple[str, str]:
    """The biases of the layers of one kind, [P] or [N, B, P], and [N, B, T+C+B]."""
    causal, window = kind
    if not causal and window is None:
        return trunk_bias, branch_bias
    block = b.op("Unsqueeze", "block_positions", b.constant([2]))  # [N, B, 1]
    among = _hidden(b, _apart(b, block, "block_positions"), causal, window)
    if window is None:
        zeros = b.op("Mul", b.op("Slice", branch_bias, *_all_but_block(b)), _zero(b))
        return trunk_bias, b.op("Min", branch_bias, b.op("Concat", zeros, among, axis=-1))
    before = [
        _hidden(b, _apart(b, block, name), False, window)
        for name in ("branch_positions", "tap_positions")
    ]
    rest = b.op("Min", branch_bias, b.op("Concat", *before, among, axis=-1))
    trunk = _hidden(b, b.op("Sub", block, "trunk_positions"), False, window)
    return b.op("Min", trunk_bias, trunk), rest


def _apart(b: GraphBuilder, block: str, positions: str) -> str:
    """[N, B, rows] how far keys at positions [N, rows] stand before the block's rows."""
    return b.op("Sub", block, b.op("Unsqueeze", positions, b.constant([1])))


def _hidden(b: GraphBuilder, apart: str, causal: bool, window: int | None) -> str:
    """A bias [N, B, rows]: 0 where keys `apart` positions before a row are seen."""
    seen = []
    if causal:
        seen.append(b.op("GreaterOrEqual", apart, b.constant(np.array(0, np.int32))))
    if window is not None:
        near = b.op("Abs", apart)
        seen.append(b.op("Less", near, b.constant(np.array(window, np.int32))))
    both = b.op("And", *seen) if len(seen) > 1 else seen[0]
    return b.op("Where", both, _zero(b), b.constant(_MASKED))


def _zero(b: GraphBuilder) -> str:
    return b.constant(np.array(0.0, np.float32))


def _all_but_block(b: GraphBuilder) -> tuple[str, str, str]:
    """Where a slice of the branch's bias starts, ends, and along which axis: up to the block."""
    width = b.op("Shape", "block_positions", start=1, end=2)
    return b.constant([0]), b.op("Neg", width), b.constant([2])
