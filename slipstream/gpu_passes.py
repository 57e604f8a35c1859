"""What `slipstream.gpu_check` runs: passes recorded from real frames, and a pass of each stage."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from drives.open import open_drive
from drives.windows import windows
from planners.planner import Planner
from runtime.bundle import Bundle
from runtime.costs import draft_pass, target_pass
from runtime.costs import seconds as timed
from runtime.decode import Decoder
from runtime.engines.compare import Pass, Recorder
from runtime.engines.onnx import OnnxEngine
from runtime.graphs import Graphs
from runtime.settings import DecodeSettings, Sampling
from runtime.tree import causal
from slipstream.commands.verify import cases_of

PASSES = 8  # recorded of each graph and way to decode
REPEATS = 20


def record(bundle: Bundle, drive: str, count: int, most: int = PASSES) -> list[Pass]:
    """Passes of real frames, on ONNX Runtime and the CPU: one rollout and several, drafted or not.

    Args:
        count: windows of the drive, evenly spread.
        most: passes kept of each graph and way to decode.
    """
    passes: list[Pass] = []
    names = {bundle.graph_path(name): name for name in bundle.manifest.graphs}
    recorders: list[Recorder] = []

    def open_recorder(path: Path) -> Recorder:
        recorders.append(Recorder(names[path], OnnxEngine(path, threads=1), passes))
        return recorders[-1]

    graphs = Graphs(bundle, open_recorder)
    planner = Planner.load(bundle.folder, threads=1)
    chosen = windows(open_drive(drive)).windows
    places = np.linspace(0, len(chosen) - 1, count).round().astype(int)
    several = min(4, bundle.manifest.limits.rollouts)
    kinds = [DecodeSettings("ar-scaffold")]
    if bundle.manifest.draft:
        block = bundle.manifest.draft.block
        kinds = [
            DecodeSettings("dflash", block=block),
            DecodeSettings("dflash", block=block, rollouts=several, sampling=Sampling(0.5)),
            *kinds,
        ]
    decoder = Decoder(graphs, None)
    cases = cases_of(planner, [chosen[i] for i in places])
    for settings in kinds:
        for recorder in recorders:
            recorder.left = most
        for case in cases:
            decoder.decode(case.prompt, case.scaffold, settings, case.fork_at)
    return passes


def stage_seconds(graphs: Graphs, repeats: int = REPEATS) -> dict[str, float]:
    """s of a pass of each stage, waited for; the median."""
    manifest, device = graphs.manifest, graphs.device
    limits = manifest.limits
    width = manifest.draft.block if manifest.draft else 8
    length = min(256, limits.trunk // 2)
    tokens = np.zeros((1, length), np.int32)
    cache = graphs.cache(manifest.target, limits.trunk, limits.branch)
    embeddings = device.to_host(graphs.embed(tokens)).copy()
    hidden = np.zeros((1, width, manifest.target.width), np.float32)

    def prefill() -> None:
        graphs.target(embeddings, tokens, causal(length), cache)

    stages: dict[str, Callable[[], object]] = {
        f"prefill, {length} rows": prefill,
        "embed": lambda: graphs.embed(tokens[:, :width]),
        "head": lambda: graphs.head(hidden),
        "verify, 1 row": target_pass(graphs, 1, 1, length),
        f"verify, {width} rows": target_pass(graphs, 1, width, length),
        f"verify, {limits.rollouts} rollouts of {width} rows": target_pass(
            graphs, limits.rollouts, width, length
        ),
    }
    if manifest.draft:
        stages[f"draft, {width} rows"] = draft_pass(graphs, 1, width, length)

    def once(stage: Callable[[], object]) -> float:
        def run() -> None:
            stage()
            device.synchronise()

        return timed(run)

    return {
        name: float(np.median([once(stage) for _ in range(repeats + 4)][4:]))
        for name, stage in stages.items()
    }
