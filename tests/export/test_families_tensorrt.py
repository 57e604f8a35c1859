"""Real TensorRT-RTX builds for SM86 of every family's graphs, here, without a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from export.bundle import export_bundle
from export.engines.builder import capabilities_in
from export.engines.compile import compile_graph, plan_builds
from export.engines.flavours import load_library
from export.engines.options import BuildOptions
from runtime.bundle import Bundle, Limits
from runtime.engines.store import EngineStore, Precision
from tests.families import FAMILIES

pytest.importorskip("tensorrt_rtx", reason="TensorRT-RTX is not installed: pip install '.[rtx]'")
pytestmark = pytest.mark.slow
LIMITS = Limits(trunk=64, branch=32, rollouts=4, max_position=128)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_s_graphs_are_built(family: str, precision: Precision, tmp_path: Path) -> None:
    folder = FAMILIES[family](tmp_path / "target", dtype=torch.float16)
    export_bundle(folder, None, tmp_path / "bundle", limits=LIMITS, check_parity=False)
    bundle = Bundle.open(tmp_path / "bundle")
    library, store = load_library("tensorrt_rtx"), EngineStore(tmp_path, bundle.folder)
    options = BuildOptions(precision, level=0)
    for planned in plan_builds(bundle, library, "8.6", options, store):
        compiled = compile_graph(bundle, library, planned, options, store, lambda *_: None)
        assert capabilities_in(compiled.path) == {"sm86"}
        assert compiled.sidecar.layers > 0
        inputs = compiled.sidecar.inputs
        if planned.graph == "target":
            assert ("deepstack" in inputs) == (family == "qwen3_vl")
            assert len(inputs["positions"].shape) == (3 if family.endswith("vl") else 2)
