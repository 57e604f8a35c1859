"""Candidates: a bundle's graphs in another precision, and what stands for them on this CPU."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, cast

import onnx

from calibration.cpu import How, Quantized, quantize_for_cpu, smooth_graph
from calibration.fold import folded
from calibration.groups import first_and_last, groups, nodes_of
from calibration.overflow import guarded
from calibration.products import weight_products
from calibration.recording import Recording
from calibration.results import Device, GraphMade
from calibration.rounded import rounded
from calibration.ways import Reduced, compare_ways
from export.graphs.precision import Reduced as Half
from export.graphs.precision import reduce_precision
from export.graphs.storage import beside, save_graph
from runtime.bundle import Bundle, GraphName
from runtime.calibrated import StoredPrecision, Way
from runtime.errors import SlipstreamError

ENDS, NONE = "ends", "none"  # words of --keep besides groups' names
HALVES = ("fp16", "bf16")
TensorRtFormat = Literal["int8", "int4", "fp8", "nvfp4"]


@dataclass(frozen=True)
class Made:
    """One graph of a candidate.

    Attributes:
        path: what the bundle gets; runs: what computes the same on this CPU.
        quantized, kept: names of weight products.
        kept_tensors: beyond fp16 on recorded windows.
        share: time over a drive, over fp32's; None where nothing was timed.
    """

    graph: GraphName
    path: Path
    runs: Path
    precision: StoredPrecision
    way: Way
    quantized: tuple[str, ...]
    kept: tuple[str, ...]
    kept_tensors: tuple[str, ...] = ()
    share: float | None = None


@dataclass(frozen=True)
class Maker:
    """Makes graphs of one bundle in one precision.

    Attributes:
        bundle: the source.
        recording: of its passes on the windows to calibrate on.
        graphs: those to look at.
        precision, device: what for.
        how: "auto" measures; else one of `calibration.cpu.WAYS`.
        smooth: SmoothQuant's alpha, or None.
        threads: of the engine, for measuring.
        folder: for everything that is made.
    """

    bundle: Bundle
    recording: Recording
    graphs: tuple[GraphName, ...]
    precision: StoredPrecision
    device: Device
    how: str
    smooth: float | None
    threads: int
    folder: Path
    _parts: dict[GraphName, dict[str, tuple[str, ...]]] = field(default_factory=dict)

    def parts(self, graph: GraphName) -> dict[str, tuple[str, ...]]:
        """A graph's groups; names of their nodes."""
        if graph not in self._parts:
            model = onnx.load(self.bundle.graph_path(graph), load_external_data=False)
            self._parts[graph] = groups(model)
        return self._parts[graph]

    def products(self, graph: GraphName) -> set[str]:
        """Names of the products with a weight: what can be quantized."""
        model = folded(onnx.load(self.bundle.graph_path(graph)))
        return {product.node for product in weight_products(model)}

    def first(self, keep: Mapping[GraphName, Collection[str]]) -> dict[GraphName, Made]:
        """Every graph, those that nothing makes faster or that nothing is quantized of left out.

        Args:
            keep: names of each graph's groups that stay as they are.
        """
        if self.device == "cpu" and self.precision not in HALVES and self.how == "auto":
            return self._fastest(keep)
        made = {graph: self.one(graph, keep.get(graph, ())) for graph in self.graphs}
        return {graph: each for graph, each in made.items() if each.quantized}

    def one(self, graph: GraphName, keep: Collection[str], like: Made | None = None) -> Made:
        """One graph, in the way that was chosen for it before or is asked for."""
        nodes = nodes_of(self.parts(graph), keep)
        if self.precision in HALVES:
            return self._half(graph, nodes)
        if self.device == "tensorrt":
            return self._for_tensorrt(graph, nodes)
        how = cast(How, like.way if like else self.how)
        path = self._path(graph, how)
        quantized = quantize_for_cpu(
            self.bundle.graph_path(graph),
            path,
            cast(Reduced, self.precision),
            how,
            keep=nodes,
            feeds=self.recording.feeds(graph),
            smooth=self.smooth,
        )
        return self._made(graph, path, how, quantized, like.share if like else None)

    def whole(self, made: Made) -> Made:
        """The same graph with nothing kept, in the same way, where that is quickly made."""
        if self.device == "tensorrt" or self.precision in HALVES or not made.kept:
            return made
        path = self._path(made.graph, "whole")
        how = cast(How, made.way)
        quantized = quantize_for_cpu(
            self.bundle.graph_path(made.graph),
            path,
            cast(Reduced, self.precision),
            how,
            feeds=self.recording.feeds(made.graph),
            smooth=self.smooth,
        )
        return replace(made, path=path, runs=path, quantized=quantized.quantized, kept=())

    def plain(self, graph: GraphName) -> Path:
        """What is quantized: the bundle's own graph, or that one smoothed."""
        source = self.bundle.graph_path(graph)
        if self.smooth is None:
            return source
        path = self._path(graph, "smoothed")
        if not path.exists():
            save_graph(folded(onnx.load(source)), path)
            smooth_graph(path, self.recording.feeds(graph), self.smooth)
        return path

    def described(self, made: Made, keep: Collection[str]) -> GraphMade:
        """For the record."""
        file = self.bundle.manifest.graphs[made.graph]
        before = sum(
            (self.bundle.folder / name).stat().st_size for name in (file.file, *file.external)
        )
        return GraphMade(
            graph=made.graph,
            precision=made.precision,
            way=made.way,
            quantized=len(made.quantized),
            kept=len(made.kept),
            kept_groups=list(keep),
            kept_tensors=list(made.kept_tensors),
            bytes_before=before,
            bytes=_size(made.path),
            share=made.share,
        )

    def _fastest(self, keep: Mapping[GraphName, Collection[str]]) -> dict[GraphName, Made]:
        precision = cast(Reduced, self.precision)
        recording = replace(
            self.recording,
            passes={name: self.recording.passes[name] for name in self.graphs},
        )
        compared = compare_ways(
            self.bundle,
            recording,
            [precision],
            self.folder,
            keep={name: nodes_of(self.parts(name), keep.get(name, ())) for name in self.graphs},
            threads=self.threads,
            smooth=self.smooth,
        )
        made = {}
        for graph, each in compared.items():
            way = each.chosen(precision)
            if way is not None:
                share = each.shares[way.name]
                made[graph] = self._made(graph, way.path, way.how, way.made, share)
        return made

    def _made(
        self, graph: GraphName, path: Path, how: How, made: Quantized, share: float | None
    ) -> Made:
        return Made(graph, path, path, self.precision, how, made.quantized, made.kept, share=share)

    def _half(self, graph: GraphName, nodes: Collection[str]) -> Made:
        source, precision = self.bundle.graph_path(graph), cast(Half, self.precision)
        model, tensors = guarded(source, precision, self.recording.feeds(graph))
        written = {
            node.name: node.output
            for node in onnx.load(source, load_external_data=False).graph.node
        }
        asked = [name for node in nodes for name in written[node]]
        if asked:
            model = reduce_precision(onnx.load(source), precision, [*tensors, *asked])
        path, runs = self._path(graph, precision), self._path(graph, f"{precision}.rounded")
        save_graph(rounded(model), runs)
        save_graph(model, path)
        products = self.products(graph)
        kept = tuple(name for name in nodes if name in products)
        quantized = tuple(sorted(products - set(kept)))
        return Made(graph, path, runs, self.precision, "cast", quantized, kept, tensors)

    def _for_tensorrt(self, graph: GraphName, nodes: Collection[str]) -> Made:
        from calibration.modelopt import quantize_for_tensorrt

        path, runs = self._path(graph, "qdq"), self._path(graph, "qdq.rounded")
        plain, feeds = self.plain(graph), self.recording.feeds(graph)
        _, tensors = guarded(plain, "fp16", feeds)  # what is not quantized becomes fp16
        made = quantize_for_tensorrt(
            plain,
            path,
            cast(TensorRtFormat, self.precision),
            feeds=feeds,
            keep=nodes,
            keep_tensors=tensors,
        )
        save_graph(rounded(onnx.load(path)), runs)
        return Made(graph, path, runs, self.precision, "qdq", made.quantized, made.kept, tensors)

    def _path(self, graph: GraphName, kind: str) -> Path:
        return self.folder / f"{graph}.{kind}.onnx"


def kept_groups(
    parts: Mapping[GraphName, Mapping[str, Sequence[str]]], keep: Sequence[str]
) -> dict[GraphName, tuple[str, ...]]:
    """What `--keep` means for each graph.

    Args:
        parts: each graph's groups.
        keep: names of groups, `GRAPH:GROUP` for those of one graph; "ends" stands for the head, the
            embedding and each network's first and last block, "none" for nothing.

    Raises:
        SlipstreamError: no graph has such a group.
    """
    found: dict[GraphName, list[str]] = {graph: [] for graph in parts}
    for name in keep:
        graph, colon, group = name.partition(":")
        known = False
        for each, own in parts.items():
            if name == ENDS:
                found[each] += first_and_last(own)
            elif colon and graph == each and group in own:
                found[each].append(group)
                known = True
            elif not colon and name in own:
                found[each].append(name)
                known = True
        if not known and name not in (ENDS, NONE):
            groups = ", ".join(f"{each}:{group}" for each, own in parts.items() for group in own)
            raise SlipstreamError(
                f"--keep {name!r} is no group of the bundle's graphs",
                expected=f"{ENDS}, {NONE}, or one of {groups}",
                found=name,
                fix="slipstream calibrate --report lists the groups and what each one costs",
            )
    return {graph: tuple(dict.fromkeys(names)) for graph, names in found.items()}


def _size(path: Path) -> int:
    data = beside(path)
    return path.stat().st_size + (data.stat().st_size if data.exists() else 0)
