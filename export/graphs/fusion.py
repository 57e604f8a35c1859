"""From the target's taps to a drafter's context rows: one projection, or a mixture a layer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from export.checkpoint import Checkpoint, Floats
from export.draft_configs import BlockDrafterConfig, DFlareConfig
from export.graphs.decoder import Decoder


def shared_context(
    decoder: Decoder, checkpoint: Checkpoint, config: BlockDrafterConfig, taps: str
) -> str:
    """RMSNorm(fc taps) [C, N, d] of taps [C, N, K*d] (DFlash, arXiv 2602.06036, section 3).

    The projection is normed, not the taps.
    """
    b, width, tapped = decoder.b, config.width, len(config.taps) * config.width
    fc = b.weight("fc", np.ascontiguousarray(checkpoint.tensor("fc.weight", width, tapped).T))
    return decoder.norm(
        b.op("MatMul", taps, fc), "hidden_norm", checkpoint.tensor("hidden_norm.weight", width)
    )


def mixed_contexts(
    decoder: Decoder, checkpoint: Checkpoint, config: DFlareConfig, taps: str
) -> Sequence[str]:
    """RMSNorm(sum_j a_ij h_j), one [1, C, N, d] a layer, of taps [C, N, K*d] (DFlare, arXiv
    2606.02091).

    The weights a are constants, so that all mixtures are one product [D, K] x [K, C*N*d]; one norm
    serves all.
    """
    b, d, k = decoder.b, config.width, len(config.taps)
    mixture = b.weight("fusion", _mixture(checkpoint, config))
    each = b.op("Reshape", taps, b.constant([0, 0, k, d]))
    each = b.op("Transpose", each, perm=[2, 0, 1, 3])
    fused = b.op("MatMul", mixture, b.op("Reshape", each, b.constant([k, -1])))
    shape = b.shape([config.layers], b.op("Shape", taps, end=2), [d])
    fused = b.op("Reshape", fused, shape)
    if config.fusion_fc:
        fc = np.ascontiguousarray(checkpoint.tensor("fc.weight", d, d).T)
        fused = b.op("MatMul", fused, b.weight("fc", fc))
    fused = decoder.norm(fused, "hidden_norm", checkpoint.tensor("hidden_norm.weight", d))
    return b.ops("Split", fused, b.constant([1] * config.layers), out=config.layers, axis=0)


def _mixture(checkpoint: Checkpoint, config: DFlareConfig) -> Floats:
    """[D, K] weights of the taps by layer."""
    weights = checkpoint.tensor("layer_fusion_weights", config.layers, len(config.taps))
    if not config.fusion_softmax:
        return weights
    raised = np.exp(weights.astype(np.float64) - weights.max(axis=1, keepdims=True))
    return np.asarray(raised / raised.sum(axis=1, keepdims=True), np.float32)
