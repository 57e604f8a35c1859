"""Memory of a planner with cameras, frame after frame:
`python -m benchmarks.camera_memory --bundle BUNDLE --drive DRIVE --frames 1000`.

Every frame has pictures of its own, decoded from the drive; a shorter drive is driven again.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path

import numpy as np

from benchmarks.common import console, options_of, table, write_results
from drives.cameras import with_cameras
from drives.open import open_drive
from drives.windows import windows
from planners.planner import Planner
from runtime.settings import DecodeSettings, Method

WARM_UP = 300  # frames, in which the engines meet their shapes and the gate its ways
ALLOWED = 4.0  # MiB of growth behind them


def main() -> None:
    options = options_of(__doc__)
    planner = Planner.load(options.bundle, threads=1)
    manifest = planner.bundle.manifest
    drive = open_drive(options.drive)
    seen, _ = with_cameras(windows(drive).windows, drive, manifest.vision)
    method: Method = "dflash" if manifest.draft else "ar-scaffold"
    settings = DecodeSettings(method, rollouts=min(2, manifest.limits.rollouts))
    held, latencies = [], []
    for frame, window in enumerate(islice(cycle(seen), options.frames)):
        plan = planner.plan(replace(window.observation, frame=frame), settings)
        held.append(resident())
        latencies.append(1e3 * plan.latency)
    marks = [i for i in range(len(held)) if i % 100 == 99 or i == WARM_UP]
    made = table(f"{len(held)} frames of {drive.name}, {method}", "frame", "MiB", "median ms")
    for i in marks:
        made.add_row(str(i + 1), f"{held[i]:.1f}", f"{np.median(latencies[: i + 1]):.1f}")
    console.print(made)
    growth = max(held[WARM_UP:]) - held[WARM_UP]
    console.print(f"growth behind frame {WARM_UP}: {growth:.1f} MiB (at most {ALLOWED:g})")
    write_results(options.out / "camera_memory.json", {"mib": held, "growth_mib": growth})
    if growth > ALLOWED:
        raise SystemExit(1)


def resident() -> float:
    """MiB of this process that are in memory (Linux)."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


if __name__ == "__main__":
    main()
