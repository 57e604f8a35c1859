"""A planner with an outlier channel, as published models have them (arXiv 2211.10438, figure 4)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from calibration.bundle import write_bundle
from calibration.fold import floats, folded, unfolded, with_parts
from calibration.smooth import places
from export.graphs.storage import save_graph
from planners.planner import Planner
from runtime.bundle import Bundle
from runtime.costs import cache_file
from runtime.files import write_atomic
from tests.calibration.recorded import planner

FACTOR = np.float32(2.0**11)  # a power of two: in fp32 nothing changes, to the bit
CHANNEL = 7


def outlier_planner(out: Path, blocks: Sequence[int]) -> Planner:
    """`outlier_bundle`, loaded; passes take what the shipped planner's take, and are not timed."""
    bundle, curve = outlier_bundle(out, blocks), planner().decoder.curve
    assert curve is not None
    write_atomic(cache_file(f"{bundle.key}-spin", 1), curve.to_json())
    return Planner.load(bundle.folder, threads=1)


def outlier_bundle(out: Path, blocks: Sequence[int]) -> Bundle:
    """The shipped planner, one channel of what the MLPs of some blocks of the target read being
    2048 times larger, and the weights behind it as much smaller."""
    source = planner().bundle
    model = folded(onnx.load(source.graph_path("target")))
    weights = {weight.name: floats(weight).copy() for weight in model.graph.initializer}
    for block in blocks:
        place = next(
            each
            for each in places(model)
            if {p.weight for p in each.readers} >= {f"layers.{block}.gate"}
        )
        weights[place.scaled][CHANNEL] *= FACTOR
        for product in place.readers:
            weights[product.weight][CHANNEL] /= FACTOR
    changed = [
        numpy_helper.from_array(weights[each.name], each.name)
        if each.data_type == onnx.TensorProto.FLOAT
        else each
        for each in model.graph.initializer
    ]
    made = out.with_name(f"{out.name}.target.onnx")
    save_graph(unfolded(with_parts(model, list(model.graph.node), changed)), made)
    write_bundle(source, out, {"target": made}, {"target": "fp32"})
    made.unlink()
    return Bundle.open(out)
