"""The shipped planner, windows of a computed drive, and what its graphs were fed while planning."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

import slipstream
from calibration.recording import Recording, record, usual_settings
from calibration.strata import stratified
from drives.windows import Window
from planners.planner import Planner
from runtime.bundle import GraphName


@cache
def planner() -> Planner:
    return slipstream.load(slipstream.shipped_bundle(), threads=1)


@cache
def windows() -> tuple[Window, ...]:
    return slipstream.windows(slipstream.open_drive("synthetic")).windows


@cache
def recording() -> Recording:
    """Four frames: three drafted ones and a plain one."""
    settings = usual_settings(planner().bundle.manifest)
    return record(planner(), stratified(windows(), 4, seed=0), settings, passes=8)


def graph(name: GraphName) -> Path:
    return planner().bundle.graph_path(name)


def scaled(
    model: onnx.ModelProto, weight: str, factor: float, columns: slice = slice(None)
) -> onnx.ModelProto:
    """The same graph with some columns of a weight [in, out] times a power of two."""
    stored = next(w for w in model.graph.initializer if w.name.rpartition(".bf16")[0] == weight)
    values = np.asarray(numpy_helper.to_array(stored), np.float32)
    values[:, columns] *= np.float32(factor)
    assert np.log2(factor) % 1 == 0
    assert np.isfinite(values).all()
    stored.CopyFrom(numpy_helper.from_array(values, stored.name))
    return model
