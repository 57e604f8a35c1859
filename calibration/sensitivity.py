"""Which parts of a graph quantization costs the most: each group alone, and each one left out."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray

from calibration.fold import folded
from calibration.groups import groups
from calibration.recording import Feeds, Pass
from calibration.switched import switch, switched
from calibration.tokens import likeliest, log_likelihoods
from export.graphs.storage import beside, save_graph
from runtime.bundle import GraphName
from runtime.engines.onnx import OnnxEngine

MAIN: dict[GraphName, str] = {  # what a graph is for
    "embed": "embeddings",
    "draft_embed": "embeddings",
    "target": "hidden",
    "draft": "hidden",
    "fuse": "features",
    "head": "top_logits",
    "draft_head": "top_logits",
    "vision": "image_embeddings",
}
_PASSES = 9  # of a graph, of all kinds
_DECODING = ("verify", "single", "draft")  # passes whose rows predict tokens of an output


@dataclass(frozen=True)
class Effect:
    """What quantizing some products does to a graph's main output.

    Attributes:
        error: norm of the difference over the norm, over all passes; infinite where it is not
            finite.
        log_likelihood: nats a token: the change of the log likelihood of the tokens that the plain
            graph finds likeliest, the heads being plain; None where rows predict no tokens.
    """

    error: float
    log_likelihood: float | None


@dataclass(frozen=True)
class GroupCost:
    """One group of a graph.

    Attributes:
        graph, group: their names.
        products: how many products of it are quantized.
        alone: the effect where this group alone is quantized.
        without: where all others are, and this one is not.
    """

    graph: GraphName
    group: str
    products: int
    alone: Effect
    without: Effect


def sensitivity(
    graph: GraphName,
    plain: Path,
    quantized: Path,
    products: Collection[str],
    passes: Sequence[Pass],
    head: Path | None,
    folder: Path,
) -> tuple[Effect, list[GroupCost]]:
    """The effect of all groups together, and what each one costs, worst first.

    Args:
        graph: which of a bundle's graphs this is.
        plain, quantized: the graph before and after; of a smoothed one, smoothed before.
        products: names of the nodes that are quantized.
        passes: recorded of this graph.
        head: the graph that turns this one's hidden states into logits, or None.
        folder: for a graph that is made for this and removed.

    Raises:
        SlipstreamError: see `switched`.
    """
    model = folded(onnx.load(plain))
    parts = {
        group: chosen
        for group, nodes in groups(model).items()
        if (chosen := tuple(node for node in nodes if node in products))
    }
    path = folder / f"{graph}.switched.onnx"
    try:
        save_graph(switched(model, onnx.load(quantized), parts), path)
        del model
        bench = _Bench(graph, path, len(parts), spread_passes(passes, _PASSES), head)
        everything = np.ones(len(parts), np.int32)
        together = bench.effect(everything)
        costs = [
            GroupCost(
                graph,
                group,
                len(nodes),
                bench.effect(one := np.eye(len(parts), dtype=np.int32)[number]),
                bench.effect(everything - one),
            )
            for number, (group, nodes) in enumerate(parts.items())
        ]
    finally:
        path.unlink(missing_ok=True)
        beside(path).unlink(missing_ok=True)
    return together, sorted(costs, key=lambda cost: -cost.alone.error)


def spread_passes(passes: Sequence[Pass], count: int) -> list[Pass]:
    """At most `count` passes, of every kind as many as can be."""
    by_kind: dict[str, list[Pass]] = {}
    for one in passes:
        by_kind.setdefault(one.kind, []).append(one)
    share = max(count // max(len(by_kind), 1), 1)
    return [one for each in by_kind.values() for one in each[:share]]


class _Bench:
    """A switched graph on recorded passes, and what it gives with every switch off."""

    def __init__(
        self,
        graph: GraphName,
        path: Path,
        switches: int,
        passes: Sequence[Pass],
        head: Path | None,
    ) -> None:
        self._output, self._passes = MAIN[graph], passes
        self._engine = OnnxEngine(path, spinning=False)
        self._head = OnnxEngine(head, spinning=False) if head else None
        off = np.zeros(switches, np.int32)
        self._wanted = [self._run(one.feeds, off) for one in passes]
        self._tokens = [
            self._greedy(one, out) for one, out in zip(passes, self._wanted, strict=True)
        ]

    def effect(self, on: NDArray[np.int32]) -> Effect:
        """Of quantizing the groups whose switch is on."""
        gap = size = 0.0
        changes: list[NDArray[np.float64]] = []
        for one, wanted, greedy in zip(self._passes, self._wanted, self._tokens, strict=True):
            found = self._run(one.feeds, on)
            gap += float(
                np.square(found[self._output] - wanted[self._output], dtype=np.float64).sum()
            )
            size += float(np.square(wanted[self._output], dtype=np.float64).sum())
            if greedy is not None:
                tokens, before = greedy
                changes.append((log_likelihoods(self._logits(found), tokens) - before).ravel())
        error = (gap / size) ** 0.5 if size else 0.0
        if not np.isfinite(error):
            return Effect(float("inf"), None)
        return Effect(error, float(np.concatenate(changes).mean()) if changes else None)

    def _run(self, feeds: Feeds, on: NDArray[np.int32]) -> Mapping[str, NDArray[np.float32]]:
        switches = {switch(i): np.array(each) for i, each in enumerate(on)}
        out = self._engine.run({**feeds, **switches}, {})
        kept = (self._output, "top_tokens", "logsumexp")
        return {name: np.array(out[name]) for name in kept if name in out}

    def _greedy(
        self, one: Pass, out: Mapping[str, NDArray[np.float32]]
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]] | None:
        if one.kind not in _DECODING or (self._head is None and self._output != "top_logits"):
            return None
        logits = self._logits(out)
        tokens = likeliest(logits)
        return tokens, log_likelihoods(logits, tokens)

    def _logits(self, out: Mapping[str, NDArray[np.float32]]) -> Mapping[str, NDArray[np.float32]]:
        if self._head is None:
            return out
        return self._head.run({"hidden": out["hidden"]}, {})
