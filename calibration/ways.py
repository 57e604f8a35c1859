"""Every way of quantizing a bundle's graphs for this CPU, made, timed in pairs, and chosen."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import onnx

from calibration.cpu import WAYS, How, Quantized, quantize_for_cpu
from calibration.fastest import PLAIN, REPEATS, Timing, choose, measure, share_of_plain
from calibration.groups import first_and_last, groups, nodes_of
from calibration.recording import Feeds, Recording
from runtime.bundle import Bundle, GraphName

Reduced = Literal["int8", "int4"]


@dataclass(frozen=True)
class WayOf:
    """A graph that was quantized in one way."""

    precision: Reduced
    how: How
    path: Path
    made: Quantized

    @property
    def name(self) -> str:
        """As in `Compared.timings`: "int8 dynamic"."""
        return f"{self.precision} {self.how}"


@dataclass(frozen=True)
class Compared:
    """One graph in all its ways.

    Attributes:
        ways: by name; none for a graph without weight products.
        timings: by kind of pass; ratios by the ways' names, and "fp32".
        counts: passes of each kind in a frame.
    """

    ways: dict[str, WayOf]
    timings: dict[str, Timing]
    counts: dict[str, float]

    @property
    def shares(self) -> dict[str, float]:
        """Each way's time over a drive as a share of fp32's."""
        return share_of_plain(self.timings, self.counts) if self.timings else {PLAIN: 1.0}

    def chosen(self, precision: Reduced) -> WayOf | None:
        """The fastest way of a precision; None where fp32 is not slower."""
        if not self.timings:
            return None
        among = {name for name, way in self.ways.items() if way.precision == precision}
        return self.ways.get(choose(self.timings, self.counts, among))


def compare_ways(
    bundle: Bundle,
    recording: Recording,
    precisions: Sequence[Reduced],
    folder: Path,
    *,
    keep: Mapping[GraphName, Collection[str]],
    threads: int,
    smooth: float | None = None,
    repeats: int = REPEATS,
) -> dict[GraphName, Compared]:
    """Quantize and time every graph that was recorded.

    Args:
        precisions: to look at.
        folder: for the graphs; what is not needed later is the caller's to remove.
        keep: nodes of each graph that stay in fp32; see `ends`.
        threads: of the engine.

    Raises:
        SlipstreamError: see `quantize_for_cpu`.
    """
    found = {}
    for graph in recording.passes:
        feeds = recording.feeds(graph)
        ways: dict[str, WayOf] = {}
        for precision in precisions:
            for how in WAYS[precision]:
                path = folder / f"{graph}.{precision}.{how}.onnx"
                made = quantize_for_cpu(
                    bundle.graph_path(graph),
                    path,
                    precision,
                    how,
                    keep=keep.get(graph, ()),
                    feeds=feeds,
                    smooth=smooth,
                )
                if made.quantized:
                    way = WayOf(precision, how, path, made)
                    ways[way.name] = way
        found[graph] = _compared(bundle, graph, ways, recording, threads, repeats)
    return found


def ends(bundle: Bundle) -> dict[GraphName, tuple[str, ...]]:
    """What stays in fp32 unless told otherwise: nodes of the head, and of the first and last blocks
    of each network."""
    found: dict[GraphName, tuple[str, ...]] = {}
    for graph in bundle.manifest.graphs:
        parts = groups(onnx.load(bundle.graph_path(graph), load_external_data=False))
        found[graph] = nodes_of(parts, first_and_last(parts))
    return found


def _compared(
    bundle: Bundle,
    graph: GraphName,
    ways: dict[str, WayOf],
    recording: Recording,
    threads: int,
    repeats: int,
) -> Compared:
    counts = {str(k): n / recording.frames for k, n in recording.seen[graph].items()}
    if not ways:
        return Compared({}, {}, counts)
    paths = {PLAIN: bundle.graph_path(graph), **{name: way.path for name, way in ways.items()}}
    by_kind: dict[str, list[Feeds]] = {}
    for one in recording.passes[graph]:
        by_kind.setdefault(one.kind, []).append(one.feeds)
    return Compared(ways, measure(paths, by_kind, threads, repeats), counts)
