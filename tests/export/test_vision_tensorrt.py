"""Real TensorRT-RTX builds of vision graphs for SM86, here, without a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from export.bundle import export_bundle
from export.engines.builder import capabilities_in
from export.engines.compile import compile_graph, plan_builds
from export.engines.flavours import load_library
from export.engines.options import BuildOptions
from export.rig import Camera, RigOptions
from runtime.bundle import Bundle, Limits
from runtime.engines.store import EngineStore, Precision
from tests.vlm_families import Family, make_vlm

pytest.importorskip("tensorrt_rtx", reason="TensorRT-RTX is not installed: pip install '.[rtx]'")
LIMITS = Limits(trunk=400, branch=32, rollouts=4, max_position=512)
RIG = RigOptions([Camera("front", 301, 200), Camera("left", 160, 233)], max_pixels=80_000)


@pytest.mark.parametrize(
    ("family", "precision"),
    [
        ("qwen2_5_vl", "fp16"),
        pytest.param("qwen2_5_vl", "fp32", marks=pytest.mark.slow),
        pytest.param("qwen2_5_vl", "bf16", marks=pytest.mark.slow),
        pytest.param("qwen3_vl", "fp16", marks=pytest.mark.slow),
        pytest.param("qwen3_vl", "fp32", marks=pytest.mark.slow),
    ],
)
def test_a_vision_graph_is_built(family: Family, precision: Precision, tmp_path: Path) -> None:
    folder = make_vlm(tmp_path / "target", family)
    export_bundle(folder, None, tmp_path / "bundle", limits=LIMITS, rig=RIG, check_parity=False)
    bundle = Bundle.open(tmp_path / "bundle")
    vision = bundle.manifest.vision
    assert vision
    library, store = load_library("tensorrt_rtx"), EngineStore(tmp_path, bundle.folder)
    options = BuildOptions(precision, level=0)
    (planned,) = plan_builds(bundle, library, "8.6", options, store, graphs=["vision"])
    compiled = compile_graph(bundle, library, planned, options, store, lambda *_: None)
    assert capabilities_in(compiled.path) == {"sm86"}
    shapes = {tensor.name: tensor.shape for tensor in compiled.sidecar.tensors}
    assert shapes["patches"] == [vision.rows, vision.patch_size]
    assert shapes["image_embeddings"] == [sum(vision.tokens), bundle.manifest.target.width]
    assert ("image_deepstack" in shapes) == (family == "qwen3_vl")
    assert {tensor.dtype for tensor in compiled.sidecar.tensors} == {"float32"}
