"""What counts as rounding follows from what a bundle's graphs are."""

from __future__ import annotations

from pathlib import Path

import pytest

from runtime.proof.noise import noise_of
from tests.runtime.tabular import tabular_graphs


def test_fp32_is_exact_but_for_the_order_of_sums(tmp_path: Path) -> None:
    noise = noise_of(tabular_graphs(tmp_path, 32))
    assert (noise.gap, noise.edge, noise.rows) == (1e-3, 1e-4, 1e-4)


@pytest.mark.parametrize("precision", ["int8", "int4", "fp8", "nvfp4"])
@pytest.mark.parametrize("graph", ["target", "head"])
def test_rounded_activations_may_fall_a_step_aside(
    precision: str, graph: str, tmp_path: Path
) -> None:
    graphs = tabular_graphs(tmp_path, 32)
    plain, files = noise_of(graphs), dict(graphs.manifest.graphs)
    changed = files[graph].model_copy(update={"precision": precision})  # type: ignore[index]
    files[graph] = changed  # type: ignore[index]
    graphs.manifest = graphs.manifest.model_copy(update={"graphs": files})
    noise = noise_of(graphs)
    assert noise.gap == 0.03 > plain.gap
    assert noise.edge == 0.005 > plain.edge
    assert noise.rows == 0.2 > plain.rows


def test_what_drafts_decides_no_token(tmp_path: Path) -> None:
    """A drafter in int8 leaves the target's words as exact as they were."""
    graphs = tabular_graphs(tmp_path, 32)
    files = dict(graphs.manifest.graphs)
    files["draft"] = files["draft"].model_copy(update={"precision": "int8"})
    graphs.manifest = graphs.manifest.model_copy(update={"graphs": files})
    noise = noise_of(graphs)
    assert (noise.gap, noise.edge, noise.rows) == (1e-3, 1e-4, 0.2)
