"""What the benchmarks share: frames, interleaved runs, and figures of a run."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from drives.fetch import fetch, is_cached
from drives.open import open_drive
from drives.windows import Window, windows
from planners.plan import Plan
from planners.planner import Planner
from runtime.files import write_atomic
from runtime.settings import DecodeSettings
from slipstream import shipped_bundle

WARM_UP = 12  # frames, in which the gate tries its ways
console = Console()


def options_of(description: str | None) -> argparse.Namespace:
    """The command line of every benchmark."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--bundle", type=Path, default=shipped_bundle())
    parser.add_argument("--drive", default="kitti-00")
    parser.add_argument("--frames", type=int, default=200, help="of the greedy decoders")
    parser.add_argument("--sweep-frames", type=int, default=40, help="of every other table")
    parser.add_argument("--out", type=Path, default=Path("out/bench"))
    return parser.parse_args()


def planner_and_frames(options: argparse.Namespace) -> tuple[Planner, list[Window]]:
    """The bundle's planner and frames evenly spread over the drive."""
    if options.drive == "kitti-00" and not is_cached(options.drive):
        fetch(options.drive)
    planner = Planner.load(options.bundle)
    return planner, spread(windows(open_drive(options.drive)).windows, options.frames)


def write_results(path: Path, results: dict[str, Any]) -> None:
    write_atomic(path, json.dumps(results, indent=2))
    console.print(f"written to {path}")


def interleaved(
    planner: Planner,
    frames: list[Window],
    settings: dict[str, DecodeSettings],
    title: str,
    warm_up: int = WARM_UP,
) -> dict[str, list[Plan]]:
    """Plans of every decoder, in rotated order: what else the machine does falls on all of them."""
    names = list(settings)
    for name in names:
        for window in frames[:warm_up]:
            planner.plan(window.observation, settings[name], "mean")
    plans: dict[str, list[Plan]] = {name: [] for name in names}
    for i, window in enumerate(track(frames, title, console=console, transient=True)):
        for name in names[i % len(names) :] + names[: i % len(names)]:
            frame = replace(settings[name], frame=window.observation.frame)
            plans[name].append(planner.plan(window.observation, frame, "mean"))
    return plans


def spread(frames: Any, count: int) -> list[Window]:
    """`count` frames, evenly spread."""
    chosen = np.linspace(0, len(frames) - 1, min(count, len(frames))).round().astype(int)
    return [frames[i] for i in np.unique(chosen)]


def latency(plans: list[Plan]) -> float:
    """s; mean over frames."""
    return float(np.mean([plan.latency for plan in plans]))


def acceptance_length(plans: list[Plan]) -> float:
    return sum(p.stats.committed for p in plans) / sum(p.stats.rounds for p in plans)


def host_share(plans: list[Plan]) -> float:
    """Share of a frame outside of engine calls, from prompt to plan."""
    engine = sum(sum(plan.stats.seconds.values()) for plan in plans)
    return 1.0 - engine / sum(plan.latency for plan in plans)


def table(title: str, *columns: str) -> Table:
    """A table whose first column is text and whose others are figures."""
    made = Table(title=title)
    for i, column in enumerate(columns):
        made.add_column(column, justify="right" if i else "left")
    return made
