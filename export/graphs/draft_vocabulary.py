"""The graphs at both ends of a drafter that has tables of its own: `draft_embed`, `draft_head`."""

from __future__ import annotations

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto

from export.checkpoint import Checkpoint, Stored
from export.draft_configs import BlockDrafterConfig, DrafterConfig, Eagle3Config
from export.graphs.builder import GraphBuilder
from planners.drafter_layouts import MASK_EMBEDDING


def draft_embed_graph(checkpoint: Checkpoint, config: DrafterConfig) -> onnx.ModelProto:
    """tokens [N, S] -> embeddings [N, S, d]; token V is the mask, if it has a vector of its own."""
    b = GraphBuilder("draft_embed")
    tokens = b.input("tokens", ["N", "S"], integer=True)
    out = b.output("embeddings", ["N", "S", config.width])
    table = checkpoint.stored("embed_tokens.weight", config.vocab, config.width)
    b.table("embedding", with_mask(table, mask_row(checkpoint, config)), tokens, out)
    return b.build()


def mask_row(checkpoint: Checkpoint, config: DrafterConfig) -> Stored | None:
    """[1, d] what stands for the mask; None where that is the embedding of a token."""
    if isinstance(config, Eagle3Config) or not config.mask_embedding:
        return None
    shape = checkpoint.tensors[MASK_EMBEDDING].shape
    wanted = (1, config.width) if len(shape) == 2 else (config.width,)
    return checkpoint.stored(MASK_EMBEDDING, *wanted).reshape(1, config.width)


def with_mask(table: Stored, row: Stored | None) -> Stored:
    """An embedding table [V, d], and the mask's vector behind it if there is one."""
    if row is None:
        return table
    if not (row.astype(table.dtype).astype(np.float32) == row.astype(np.float32)).all():
        table = table.astype(np.float32)
    return np.concatenate([table, row.astype(table.dtype)])


def draft_head_graph(checkpoint: Checkpoint, config: DrafterConfig, top_k: int) -> onnx.ModelProto:
    """hidden [N, S, d] -> top_logits and top_tokens [N, S, k], logsumexp [N, S].

    The head's vocabulary is the drafter's own; `top_tokens` are the target's tokens. With k = Vd
    they are the same for every row. A stepwise drafter's hidden rows are normed here.
    """
    assert config.draft_vocab is not None
    b, width = GraphBuilder("draft_head"), config.width
    rows = b.input("hidden", ["N", "S", width])
    b.output("top_logits", ["N", "S", top_k])
    b.output("top_tokens", ["N", "S", top_k], integer=True)
    b.output("logsumexp", ["N", "S"])
    if isinstance(config, Eagle3Config):
        norm = b.weight("norm", checkpoint.tensor("norm.weight", width))
        rows = b.op("RMSNormalization", rows, norm, epsilon=config.eps)
    head = checkpoint.stored("lm_head.weight", config.draft_vocab, width)
    own = draft_tokens(checkpoint, config)
    order = np.argsort(own)  # rising, so that a whole vocabulary's logits are in token order
    weight = b.weight("head", np.ascontiguousarray(head[order].T))
    tokens = b.constant(own[order].astype(np.int32))
    logits = b.op("MatMul", rows, weight)
    if isinstance(config, BlockDrafterConfig) and config.softcap is not None:
        cap = b.constant(np.array(config.softcap, np.float32))
        logits = b.op("Mul", b.op("Tanh", b.op("Div", logits, cap)), cap)
    if top_k == config.draft_vocab:
        b.op("Identity", logits, out="top_logits")
        b.op("Expand", tokens, b.op("Shape", logits), out="top_tokens")
    else:
        _, best = b.ops("TopK", logits, b.constant([top_k]), out=["top_logits", "top_indices"])
        chosen = b.op("Gather", tokens, best)
        b.op("Cast", chosen, out="top_tokens", to=TensorProto.INT32)
    b.op("ReduceLogSumExp", logits, b.constant([-1]), keepdims=0, out="logsumexp")
    return b.build()


def draft_tokens(checkpoint: Checkpoint, config: DrafterConfig) -> NDArray[np.int64]:
    """[Vd] the target's token of each entry of the drafter's head: its number plus d2t."""
    assert config.draft_vocab is not None
    numbers = np.arange(config.draft_vocab)
    if config.draft_vocab == config.vocab and "d2t" not in checkpoint.tensors:
        return numbers
    tokens = numbers + checkpoint.integers("d2t", config.draft_vocab)
    if tokens.min() < 0 or tokens.max() >= config.vocab or len(np.unique(tokens)) < len(tokens):
        raise checkpoint.unfit("d2t", f"different tokens, 0..{config.vocab - 1}", tokens)
    return tokens
