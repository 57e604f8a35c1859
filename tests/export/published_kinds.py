"""Options and tensors that published drafters have, and a drafter's graphs behind the runtime."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from export.bundle import export_bundle
from runtime.bundle import Bundle
from runtime.engines.onnx import OnnxEngine
from runtime.graphs import Graphs
from tests.export import published
from tests.export.conftest import LIMITS
from tests.export.published import VOCAB, WIDTH

WINDOWED = {
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
    "sliding_window": 6,
}


def own_mask(seed: int = 9) -> dict[str, Tensor]:
    return published.random_weights({"mask_embedding": (1, WIDTH)}, seed)


def own_embedding() -> dict[str, Tensor]:
    return published.random_weights({"embed_tokens.weight": (VOCAB, WIDTH)}, 11)


def own_head() -> dict[str, Tensor]:
    return published.random_weights({"lm_head.weight": (VOCAB, WIDTH)}, 12)


def exported(target: Path, drafter: Path, out: Path) -> Graphs:
    export_bundle(target, drafter, out, limits=LIMITS)
    return Graphs(Bundle.open(out), lambda path: OnnxEngine(path, threads=1))
