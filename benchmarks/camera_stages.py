"""Encode, prefill and decode of a planner with cameras beside the same graphs run bare:
`python -m benchmarks.camera_stages --bundle BUNDLE --drive DRIVE --frames 50`.

Every frame's engine calls are written down with their inputs, and made once more by a plain ONNX
Runtime session with as many threads, call after call. A stage may take 1.3 times that.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnxruntime as ort

from benchmarks.common import console, options_of, planner_and_frames, table, write_results
from drives.cameras import with_cameras
from drives.open import open_drive
from planners.planner import Planner
from runtime.bundle import GraphName
from runtime.engines.base import Engine
from runtime.settings import DecodeSettings

WARM_UP = 5  # frames
ALLOWED = 1.3
QUICK = 10  # percentile over the frames, whose work is the same: what else the machine does is not
STAGES = ("encode", "prefill", "verify")
Feeds = dict[str, Any]


class Recorded:
    """An engine that keeps the inputs of its calls."""

    def __init__(self, inner: Engine) -> None:
        self.inner, self.calls = inner, list[Feeds]()
        self.inputs, self.outputs = inner.inputs, inner.outputs

    def run(self, feeds: Mapping[str, Any], into: Mapping[str, Any]) -> dict[str, Any]:
        self.calls.append({name: np.array(value) for name, value in feeds.items()})
        return self.inner.run(feeds, into)


def main() -> None:
    options = options_of(__doc__)
    options.frames = min(options.frames, 50)
    planner, frames = planner_and_frames(options)
    vision = planner.bundle.manifest.vision
    frames, _ = with_cameras(frames, open_drive(options.drive), vision)
    settings = DecodeSettings("ar-scaffold")
    bare: dict[str, list[float]] = defaultdict(list)
    ours: dict[str, list[float]] = defaultdict(list)
    sessions = {name: session(planner, name) for name in ("vision", "target")}
    for i, window in enumerate(frames):
        calls = recorded(planner, window.observation, settings)
        planner.forget()  # the same rows are passed again
        plan = planner.plan(window.observation, settings)
        if i < WARM_UP:
            continue
        for stage in STAGES:
            bare[stage].append(sum(seconds(sessions[g], feeds) for g, feeds in calls[stage]))
            ours[stage].append(plan.stats.seconds[stage])
    made, results = table("stages beside bare ONNX Runtime", "stage", "ms", "bare ms", "ratio"), {}
    for stage in STAGES:
        mine, theirs = (1e3 * float(np.percentile(each[stage], QUICK)) for each in (ours, bare))
        results[stage] = {"ms": mine, "bare_ms": theirs, "ratio": mine / theirs}
        made.add_row(stage, f"{mine:.2f}", f"{theirs:.2f}", f"{mine / theirs:.2f}")
    console.print(made)
    write_results(options.out / "camera_stages.json", results)
    if any(result["ratio"] > ALLOWED for result in results.values()):
        raise SystemExit(1)


def recorded(
    planner: Planner, observation: Any, settings: DecodeSettings
) -> dict[str, list[tuple[GraphName, Feeds]]]:
    """The calls of each stage while a frame is planned."""
    engines = planner.decoder.graphs._engines
    held = dict(engines)
    watched = {name: Recorded(held[name]) for name in ("vision", "target")}
    planner.forget()
    engines.update(watched)  # type: ignore[arg-type]
    try:
        planner.plan(observation, settings)
    finally:
        engines.update(held)
    target = [("target", feeds) for feeds in watched["target"].calls]
    encode = [("vision", feeds) for feeds in watched["vision"].calls]
    return {"encode": encode, "prefill": target[:1], "verify": target[1:]}  # type: ignore[dict-item]


def session(planner: Planner, name: Any) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = planner.threading.threads
    path = planner.bundle.graph_path(name)
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def seconds(bare: ort.InferenceSession, feeds: Feeds) -> float:
    began = time.perf_counter()
    bare.run(None, feeds)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
