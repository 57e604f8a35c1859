"""What keys and values in fp16 or int8 would cost the plans, the cache alone being rounded:
`python -m benchmarks.kv_cache --drive DRIVE`.

int8 has one scale for each row and key/value head. Rows of one pass see each other unrounded, as in
a kernel that quantizes what it appends.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks.common import console, options_of, table, write_results
from calibration.gates import Gates, judge
from calibration.heldout import SHARE, held_out, spread
from calibration.recording import record, usual_settings
from drives.figures import Figure
from drives.open import open_drive
from drives.windows import windows
from export.graphs.storage import save_graph
from planners.planner import Planner
from runtime.bundle import GraphName

NETWORKS: tuple[GraphName, ...] = ("target", "draft")
FIGURES = ("ADE@5s, both", "FDE@5s, both", "tau, both")


def main() -> None:
    options = options_of(__doc__)
    planner = Planner.load(options.bundle, threads=1)
    drive = open_drive(options.drive)
    _, judged = held_out(windows(drive).windows, drive, SHARE)
    recording = record(planner, judged[:1], usual_settings(planner.bundle.manifest), passes=2)
    results: dict[str, Any] = {}
    made = table("Keys and values", "precision", "identical", *FIGURES)
    earlier = None
    with TemporaryDirectory(prefix="slipstream-kv-cache-") as folder:
        for precision in ("fp16", "int8"):
            graphs = written(planner, Path(folder), precision)
            attempt, earlier = judge(
                planner,
                graphs,
                [],
                spread(judged, options.sweep_frames),
                recording,
                Gates(),
                timed=False,
                earlier=earlier,
            )
            results[precision] = attempt.model_dump(mode="json")
            assert attempt.tokens is not None
            same = f"{attempt.tokens.identical} of {attempt.tokens.frames}"
            by_name = {each.name: each.change for each in attempt.changes}
            made.add_row(precision, same, *(shown(by_name[name]) for name in FIGURES))
    console.print(made)
    write_results(options.out / "kv_cache.json", results)


def shown(change: Figure) -> str:
    """`+0.12 % [-0.10, 0.30]`"""
    value, *ends = (100 * (each or 0.0) for each in (change.value, change.low, change.high))
    return f"{value:+.2f} % [{ends[0]:.2f}, {ends[1]:.2f}]"


def written(planner: Planner, folder: Path, precision: str) -> dict[GraphName, Path]:
    """The graphs with a cache, with rounded keys and values."""
    graphs: dict[GraphName, Path] = {}
    for name in NETWORKS:
        if name in planner.bundle.manifest.graphs:
            graphs[name] = folder / f"{name}.{precision}.onnx"
            model = onnx.load(planner.bundle.graph_path(name))
            save_graph(with_rounded_cache(model, precision), graphs[name])
    return graphs


def with_rounded_cache(model: onnx.ModelProto, precision: str) -> onnx.ModelProto:
    """The graph with every `present.*` rounded on its way out."""
    graph = model.graph
    if precision == "int8":
        axis, largest = np.array([-1], np.int64), np.array(127.0, np.float32)
        least = np.array(1e-20, np.float32)  # of a scale: a row of zeros stays one
        for name, value in (("kv.axis", axis), ("kv.largest", largest), ("kv.least", least)):
            graph.initializer.append(numpy_helper.from_array(value, name))
    presents = {value.name for value in graph.output if value.name.startswith("present.")}
    nodes = []
    for node in graph.node:
        nodes.append(node)
        for place, name in enumerate(node.output):
            if name in presents:
                node.output[place] = exact = f"{name}.exact"
                nodes += _halved(exact, name) if precision == "fp16" else _quantized(exact, name)
    for node in nodes:  # inside of a pass the exact rows are read
        if not node.name.startswith("kv."):
            node.input[:] = [f"{name}.exact" if name in presents else name for name in node.input]
    del graph.node[:]
    graph.node.extend(nodes)
    return model


def _halved(exact: str, name: str) -> list[onnx.NodeProto]:
    return [
        _node("Cast", [exact], f"{name}.half", to=TensorProto.FLOAT16),
        _node("Cast", [f"{name}.half"], name, to=TensorProto.FLOAT),
    ]


def _quantized(exact: str, name: str) -> list[onnx.NodeProto]:
    return [
        _node("Abs", [exact], f"{name}.abs"),
        _node("ReduceMax", [f"{name}.abs", "kv.axis"], f"{name}.max", keepdims=1),
        _node("Max", [f"{name}.max", "kv.least"], f"{name}.most"),
        _node("Div", [f"{name}.most", "kv.largest"], f"{name}.scale"),
        _node("Div", [exact, f"{name}.scale"], f"{name}.steps"),
        _node("Round", [f"{name}.steps"], f"{name}.whole"),
        _node("Mul", [f"{name}.whole", f"{name}.scale"], name),
    ]


def _node(kind: str, inputs: list[str], output: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(kind, inputs, [output], name=f"kv.{output}", **attributes)


if __name__ == "__main__":
    main()
