"""The graphs at both ends, shared by target and drafter: `embed` and `head`."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto

from export.checkpoint import Checkpoint, Stored
from export.configs import TargetConfig
from export.graphs.builder import GraphBuilder
from export.graphs.draft_vocabulary import with_mask


def embed_graph(
    checkpoint: Checkpoint, config: TargetConfig, mask: Stored | None = None
) -> onnx.ModelProto:
    """tokens [N, S] -> embeddings [N, S, d]; token V is a drafter's mask [1, d], if it has one."""
    b = GraphBuilder("embed")
    tokens = b.input("tokens", ["N", "S"], integer=True)
    out = b.output("embeddings", ["N", "S", config.width])
    b.table("embedding", with_mask(_embedding(checkpoint, config), mask), tokens, out)
    return b.build()


def head_graph(checkpoint: Checkpoint, config: TargetConfig, top_k: int) -> onnx.ModelProto:
    """hidden [N, S, d] -> top_logits and top_tokens [N, S, k], logsumexp [N, S].

    With k = V the logits come in token order, so that no sort is paid for.
    """
    b = GraphBuilder("head")
    hidden = b.input("hidden", ["N", "S", config.width])
    b.output("top_logits", ["N", "S", top_k])
    b.output("top_tokens", ["N", "S", top_k], integer=True)
    b.output("logsumexp", ["N", "S"])
    weight = b.weight("head", _head(checkpoint, config).T)
    if top_k == config.vocab:
        logits = b.op("MatMul", hidden, weight, out="top_logits")
        tokens = b.constant(np.arange(top_k, dtype=np.int32))
        b.op("Expand", tokens, b.op("Shape", logits), out="top_tokens")
    else:
        logits = b.op("MatMul", hidden, weight)
        _, tokens = b.ops("TopK", logits, b.constant([top_k]), out=["top_logits", "top_indices"])
        b.op("Cast", tokens, out="top_tokens", to=TensorProto.INT32)
    b.op("ReduceLogSumExp", logits, b.constant([-1]), keepdims=0, out="logsumexp")
    return b.build()


def _embedding(checkpoint: Checkpoint, config: TargetConfig) -> Stored:
    return checkpoint.stored(f"{config.prefix}embed_tokens.weight", config.vocab, config.width)


def _head(checkpoint: Checkpoint, config: TargetConfig) -> Stored:
    if config.tied:
        return _embedding(checkpoint, config)
    names = ("lm_head.weight", "language_model.lm_head.weight")
    name = next((name for name in names if name in checkpoint.tensors), names[0])
    return checkpoint.stored(name, config.vocab, config.width)
