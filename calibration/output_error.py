"""How far a candidate's graphs are from their source's, fed the very same recorded passes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibration.recording import Recording
from calibration.results import TensorError
from calibration.sensitivity import MAIN
from calibration.tokens import likeliest, log_likelihoods
from drives.figures import known
from runtime.bundle import Bundle, GraphName
from runtime.engines.onnx import OnnxEngine

Outputs = Mapping[str, NDArray[Any]]


@dataclass
class _Sums:
    """Of one tensor, over passes."""

    gap: float = 0.0
    size: float = 0.0
    largest: float = 0.0
    passes: int = 0

    def add(self, found: NDArray[Any], wanted: NDArray[Any]) -> None:
        gap = found.astype(np.float64) - wanted.astype(np.float64)
        self.gap += float(np.square(gap).sum())
        self.size += float(np.square(wanted, dtype=np.float64).sum())
        self.largest = float(np.maximum(self.largest, np.abs(gap).max(initial=0.0)))
        self.passes += 1

    @property
    def relative(self) -> float:
        return float(np.sqrt(self.gap / self.size if self.size else self.gap))


def output_errors(
    bundle: Bundle, graphs: Mapping[GraphName, Path], recording: Recording
) -> list[TensorError]:
    """Every float output of every replaced graph, the main one first.

    Args:
        bundle: the source.
        graphs: what stands for its graphs on this CPU.
        recording: of the source.
    """
    found: list[TensorError] = []
    for graph, path in graphs.items():
        if graph not in recording.passes:
            continue
        source = OnnxEngine(bundle.graph_path(graph), spinning=False)
        candidate = OnnxEngine(path, spinning=False)
        sums: dict[str, _Sums] = {}
        for feeds in recording.feeds(graph):
            wanted, got = source.run(feeds, {}), candidate.run(feeds, {})
            for name in _floats(wanted, MAIN[graph]):
                sums.setdefault(name, _Sums()).add(got[name], wanted[name])
        found += [
            TensorError(
                graph=graph,
                tensor=name,
                relative=known(each.relative),
                largest=known(each.largest),
                passes=each.passes,
            )
            for name, each in sums.items()
        ]
    return found


@dataclass(frozen=True)
class TokenAgreement:
    """Rows of an output's tokens, fed the same to both.

    Attributes:
        rows: how many.
        agreeing: of them, those whose likeliest token is the same.
        log_likelihood: nats a row: change for the source's likeliest token; NaN where the candidate
            is not finite.
    """

    rows: int
    agreeing: int
    log_likelihood: float


def token_agreement(
    bundle: Bundle, graphs: Mapping[GraphName, Path], recording: Recording
) -> TokenAgreement | None:
    """Target and head of both, one after the other, on recorded rounds; None without any."""
    if "target" not in graphs and "head" not in graphs:
        return None
    kinds = ("verify", "single")
    passes = [one for one in recording.passes.get("target", ()) if one.kind in kinds]
    source = [OnnxEngine(bundle.graph_path(name), spinning=False) for name in ("target", "head")]
    both = [graphs.get(name, bundle.graph_path(name)) for name in ("target", "head")]
    candidate = [OnnxEngine(path, spinning=False) for path in both]
    rows = agreeing = 0
    change = 0.0
    for one in passes:
        wanted, got = (_logits(engines, one.feeds) for engines in (source, candidate))
        tokens = likeliest(wanted)
        rows += tokens.size
        agreeing += int((likeliest(got) == tokens).sum())
        change += float((log_likelihoods(got, tokens) - log_likelihoods(wanted, tokens)).sum())
    return TokenAgreement(rows, agreeing, change / rows) if rows else None


def _logits(engines: Sequence[OnnxEngine], feeds: Mapping[str, NDArray[Any]]) -> Outputs:
    target, head = engines
    return head.run({"hidden": target.run(feeds, {})["hidden"]}, {})


def _floats(outputs: Outputs, main: str) -> list[str]:
    names = [name for name, value in outputs.items() if np.issubdtype(value.dtype, np.floating)]
    return sorted(names, key=lambda name: name != main)
