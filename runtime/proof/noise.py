"""How far passes of different shapes may differ in an engine that is right.

Sums of fp32 in another order differ by a few units of the last place. Where activations are rounded
to 8 bits, a value next to an edge then falls on the other side of it, a whole step away: 1/127 of
its row. On the shipped planner in int8 that moved logits by up to 0.015 in 2000 tokens, and keys
and values by up to 0.063 in 30 frames. With one scale for all rows of a pass they move by 0.7 to
2.2, which no longer counts as rounding.
"""

from __future__ import annotations

from dataclasses import dataclass

from runtime.graphs import Graphs

_QUANTIZED = ("int8", "int4", "fp8", "nvfp4")
_DRAFTING = ("draft", "draft_head", "draft_embed", "fuse")  # graphs that decide no token
# of keys and values as the engines write them; 16 bits round passes of different shapes differently
_ROWS = {"float32": 1e-4, "float16": 0.05, "bfloat16": 0.4}


@dataclass(frozen=True)
class Noise:
    """What counts as rounding.

    Attributes:
        gap: between two logits.
        edge: of a probability.
        rows: of keys and values.
    """

    gap: float
    edge: float
    rows: float


def noise_of(graphs: Graphs) -> Noise:
    """By the precision of the bundle's graphs and the type of its cache."""
    rows = _ROWS[graphs.cache_dtype(graphs.manifest.target).name]
    files = graphs.manifest.graphs.items()
    quantized = {name for name, graph in files if graph.precision in _QUANTIZED}
    rows = max(rows, 0.2) if quantized else rows
    if quantized.difference(_DRAFTING):
        return Noise(gap=0.03, edge=0.005, rows=rows)
    return Noise(gap=1e-3, edge=1e-4, rows=rows)
