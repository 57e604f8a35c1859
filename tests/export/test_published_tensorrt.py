"""Real TensorRT-RTX builds for SM86 of published drafters' graphs, here, without a GPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("torch")

from export.bundle import export_bundle
from export.engines.builder import capabilities_in
from export.engines.compile import compile_graph, plan_builds
from export.engines.flavours import load_library
from export.engines.options import BuildOptions
from runtime.bundle import Bundle, GraphName
from runtime.engines.store import EngineStore, Precision
from tests.export import published
from tests.export.conftest import LIMITS

pytest.importorskip("tensorrt_rtx", reason="TensorRT-RTX is not installed: pip install '.[rtx]'")
pytestmark = pytest.mark.slow
TABLES = published.random_weights({
    "embed_tokens.weight": (published.VOCAB, published.WIDTH),
    "mask_embedding": (1, published.WIDTH),
})  # fmt: skip
WINDOWS = {
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
    "sliding_window": 6,
}
# a drafter, and the graphs that are its own
DRAFTERS: dict[str, tuple[Callable[[Path], Path], set[GraphName]]] = {
    "windows": (lambda folder: published.dflash(folder, None, **WINDOWS), {"draft"}),
    "windows both ways, own tables": (
        lambda folder: published.dflash(
            folder,
            TABLES | published.reduced_head(40),
            draft_vocab_size=40,
            final_logit_softcapping=2.0,
            is_causal=False,
            **WINDOWS,
        ),
        {"draft", "draft_embed", "draft_head"},
    ),
    "causal": (lambda folder: published.dflash(folder, None, is_causal=True), {"draft"}),
    "dflare": (published.dflare, {"draft"}),
    "eagle3": (
        lambda folder: published.eagle3(
            folder,
            {"embed_tokens.weight": TABLES["embed_tokens.weight"]},
            norm_before_residual=True,
        ),
        {"fuse", "draft", "draft_embed", "draft_head"},
    ),
}


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("kind", DRAFTERS)
def test_a_drafter_s_graphs_are_built(
    target: Path, tmp_path: Path, kind: str, precision: Precision
) -> None:
    make, own = DRAFTERS[kind]
    drafter = make(tmp_path / "drafter")
    export_bundle(target, drafter, tmp_path / "bundle", limits=LIMITS, check_parity=False)
    bundle = Bundle.open(tmp_path / "bundle")
    assert set(bundle.manifest.graphs) == own | {"embed", "target", "head"}
    library, store = load_library("tensorrt_rtx"), EngineStore(tmp_path, bundle.folder)
    options = BuildOptions(precision, level=0)
    built = set()
    for planned in plan_builds(bundle, library, "8.6", options, store, graphs=sorted(own)):
        compiled = compile_graph(bundle, library, planned, options, store, lambda *_: None)
        assert capabilities_in(compiled.path) == {"sm86"}
        assert compiled.sidecar.layers > 0
        built.add(planned.graph)
        if planned.graph == "draft":
            windowed = {"trunk_positions", "branch_positions"} <= compiled.sidecar.inputs.keys()
            assert windowed == ("windows" in kind)
    assert built == own
