"""How far a candidate's graphs are from their source's, fed the very same recorded passes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibration.recording import Recording
from calibration.results import TensorError
from calibration.sensitivity import MAIN
from calibration.tokens import likeliest, log_likelihoods
from drives.figures import known
from runtime.bundle import GraphName
from runtime.graphs import Graphs

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
    source: Graphs, candidate: Graphs, names: Collection[GraphName], recording: Recording
) -> list[TensorError]:
    """Every float output of every replaced graph, the main one first.

    Args:
        source, candidate: engines on the host.
        names: of the graphs that differ.
        recording: of the source.
    """
    found: list[TensorError] = []
    for graph in (name for name in names if name in recording.passes):
        sums: dict[str, _Sums] = {}
        for feeds in recording.feeds(graph):
            wanted, got = (each.engine(graph).run(feeds, {}) for each in (source, candidate))
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
    source: Graphs, candidate: Graphs, names: Collection[GraphName], recording: Recording
) -> TokenAgreement | None:
    """Target and head of both, one after the other, on recorded rounds; None without any."""
    if "target" not in names and "head" not in names:
        return None
    kinds = ("verify", "single")
    passes = [one for one in recording.passes.get("target", ()) if one.kind in kinds]
    rows = agreeing = 0
    change = 0.0
    for one in passes:
        wanted = {name: np.array(value) for name, value in _logits(source, one.feeds).items()}
        got = _logits(candidate, one.feeds)  # of the same engine, where the head is the same
        tokens = likeliest(wanted)
        rows += tokens.size
        agreeing += int((likeliest(got) == tokens).sum())
        change += float((log_likelihoods(got, tokens) - log_likelihoods(wanted, tokens)).sum())
    return TokenAgreement(rows, agreeing, change / rows) if rows else None


def _logits(graphs: Graphs, feeds: Mapping[str, NDArray[Any]]) -> Outputs:
    hidden = graphs.engine("target").run(feeds, {})["hidden"]
    return graphs.engine("head").run({"hidden": hidden}, {})


def _floats(outputs: Outputs, main: str) -> list[str]:
    names = [name for name, value in outputs.items() if np.issubdtype(value.dtype, np.floating)]
    return sorted(names, key=lambda name: name != main)
