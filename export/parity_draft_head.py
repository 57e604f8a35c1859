"""Parity of a drafter's own head with torch; see `export.parity`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from runtime.engines.base import Array
from runtime.engines.onnx import OnnxEngine

Add = Callable[[str, Array, Tensor, bool], None]  # check, found, expected, relative


def check_draft_head(
    add: Add, engine: OnnxEngine, hidden: Array, own: Tensor, tokens: Tensor, vocab: int
) -> None:
    """Logits of hidden rows [N, S, d].

    Args:
        own: [N, S, Vd] torch's; tokens: [Vd] the target's token of each column.
        vocab: V of the target.
    """
    outputs = engine.run({"hidden": np.ascontiguousarray(hidden, np.float32)}, {})
    logits = torch.full((*own.shape[:2], vocab), -torch.inf)
    logits[..., tokens] = own
    chosen = torch.from_numpy(outputs["top_tokens"].astype(np.int64))
    add("draft head", outputs["top_logits"], logits.gather(-1, chosen), True)
    add("draft logsumexp", outputs["logsumexp"], logits.logsumexp(-1), True)
    best = logits.topk(chosen.shape[-1]).values
    add("draft top k", -np.sort(-outputs["top_logits"], -1), best, True)
