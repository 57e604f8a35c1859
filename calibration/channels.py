"""The range of each channel of a tensor over recorded passes, found inside the graph.

Only two rows of numbers leave a pass for each tensor, so that memory does not grow with the passes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from runtime.engines.onnx import OnnxEngine
from runtime.errors import SlipstreamError

Feeds = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Channels:
    """Least and largest value of each channel (last dimension), zero included.

    Attributes:
        low, high: [C]
    """

    low: NDArray[np.float32]
    high: NDArray[np.float32]

    @property
    def largest(self) -> NDArray[np.float32]:
        """[C] of magnitudes."""
        return np.maximum(-self.low, self.high)


def channel_ranges(
    path: Path, tensors: Mapping[str, int], feeds: Sequence[Feeds]
) -> dict[str, Channels]:
    """Run a graph over recorded passes and range some of its tensors.

    Args:
        path: the graph; another one stands in its folder while this runs.
        tensors: their names, and how many channels each has.
        feeds: the graph's inputs, pass by pass.

    Raises:
        SlipstreamError: there are no feeds, or a tensor is not finite.
    """
    if not tensors:
        return {}
    if not feeds:
        raise SlipstreamError(
            f"{path.name} can't be calibrated without passes",
            expected="recorded feeds of this graph",
            found="none",
            fix="record some with calibration.recording.record, or quantize with how='dynamic'",
        )
    ranging = path.with_name(f"{path.stem}.ranges.onnx")
    try:
        onnx.save_model(_with_ranges(onnx.load(path, load_external_data=False), tensors), ranging)
        engine = OnnxEngine(ranging, spinning=False)
        lows = {name: np.zeros(channels, np.float32) for name, channels in tensors.items()}
        highs = {name: np.zeros(channels, np.float32) for name, channels in tensors.items()}
        for each in feeds:
            out = engine.run(each, {})
            for index, name in enumerate(tensors):
                np.minimum(lows[name], out[f"low.{index}"], out=lows[name])
                np.maximum(highs[name], out[f"high.{index}"], out=highs[name])
    finally:
        ranging.unlink(missing_ok=True)
    for name in tensors:
        if not np.isfinite([lows[name], highs[name]]).all():
            raise SlipstreamError(
                f"{path.name}: the tensor {name} is not finite",
                expected="finite activations in fp32",
                found=f"{float(lows[name].min()):g} to {float(highs[name].max()):g}",
                fix="look for NaN in the checkpoint: slipstream inspect BUNDLE, then export again",
            )
    return {name: Channels(lows[name], highs[name]) for name in tensors}


def _with_ranges(model: onnx.ModelProto, tensors: Mapping[str, int]) -> onnx.ModelProto:
    """The graph with the ranges as its only outputs."""
    graph = model.graph
    del graph.output[:]
    graph.initializer.append(numpy_helper.from_array(np.array([0], np.int64), "ranges.axis"))
    for index, (name, channels) in enumerate(tensors.items()):
        rows, shape = f"ranges.rows.{index}", f"ranges.shape.{index}"
        sizes = np.array([-1, channels], np.int64)
        graph.initializer.append(numpy_helper.from_array(sizes, shape))
        graph.node.append(helper.make_node("Reshape", [name, shape], [rows]))
        for kind, end in (("ReduceMin", "low"), ("ReduceMax", "high")):
            out = f"{end}.{index}"
            graph.node.append(helper.make_node(kind, [rows, "ranges.axis"], [out], keepdims=0))
            graph.output.append(helper.make_tensor_value_info(out, TensorProto.FLOAT, [channels]))
    return model
