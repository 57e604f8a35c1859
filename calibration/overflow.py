"""A graph in fp16 without infinities: what fp16 can't hold on recorded windows stays fp32.

Activations of some channels grow far beyond 65504 in published models (arXiv 2402.17762), and one
infinity is enough: the next norm or softmax makes NaN of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from calibration.ranges import Feeds, overflowing, ranges
from export.graphs.precision import Reduced, reduce_precision, reduced_tensors

_FP16_LARGEST = float(np.finfo(np.float16).max)


def guarded(
    path: Path, precision: Reduced, feeds: Iterable[Feeds], headroom: float = 2.0
) -> tuple[onnx.ModelProto, tuple[str, ...]]:
    """A graph in a reduced precision, and the tensors that were kept in fp32 for their range.

    Every node that touches such a tensor computes in fp32. What stays fp32 anyway, such as the
    residual stream and masked scores, may be of any size. bf16 reaches as far as fp32, so that
    nothing is kept, and no pass is run.

    Args:
        path: a graph as it was exported, in fp32; external weights lie beside it.
        feeds: of each recorded pass, every input by name.
        headroom: how much further values may reach on the road than in these passes.

    Returns:
        The model with its weights in memory, and names in the order of a pass.

    Raises:
        EngineError, SlipstreamError: see `calibration.ranges.ranges`.
    """
    if precision != "fp16":
        return reduce_precision(onnx.load(path), precision), ()
    found = ranges(path, feeds)
    beyond, model = overflowing(found, headroom), onnx.load(path)
    names = [name for name in found if name in beyond]
    names += [weight.name for weight in model.graph.initializer if _is_beyond(weight)]
    reduced = reduced_tensors(model, precision)
    kept = tuple(name for name in dict.fromkeys(names) if name in reduced)
    return reduce_precision(model, precision, kept), kept


def _is_beyond(weight: onnx.TensorProto) -> bool:
    """Whether a stored weight has no place in fp16; it is what it is, and needs no headroom."""
    if weight.data_type not in (TensorProto.FLOAT, TensorProto.BFLOAT16):
        return False
    values = np.asarray(numpy_helper.to_array(weight), np.float32)
    return bool(np.abs(values).max(initial=0.0) > _FP16_LARGEST)
