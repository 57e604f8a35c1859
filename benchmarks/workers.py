"""What more workers bring: `python -m benchmarks.workers`.

The same drives, replayed by one worker process and by several, one engine thread each, each time
into an empty folder. Throughput is frames a second while all workers are at work: from the moment
that the last engine is loaded until the first worker has nothing left. The whole run, with engines
that load one after another, is told as well.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.common import console, table, write_results
from runtime.bundle import Bundle
from runtime.settings import DecodeSettings
from slipstream import shipped_bundle
from slipstream.commands.about import own_version
from slipstream.fleet.job import Done, Frames, Item, Job, Message, Ready
from slipstream.fleet.local import Processes
from slipstream.fleet.schedule import run_all

SETTINGS = {"ar-scaffold": DecodeSettings(method="ar-scaffold"), "dflash": DecodeSettings(block=16)}
WANTED = 1.7  # times the throughput of one worker, with two


class Clock:
    """When each worker was ready, planned a frame, and ended its last drive; s."""

    def __init__(self) -> None:
        self.ready: dict[int, float] = {}
        self.frames: list[float] = []
        self.ended: dict[int, float] = {}

    def gave(self, worker: int, item: Item) -> None: ...

    def heard(self, worker: int, item: Item, message: Message) -> None:
        now = time.perf_counter()
        if isinstance(message, Ready):
            self.ready[worker] = now
        elif isinstance(message, Frames):
            self.frames.append(now)
        elif isinstance(message, Done):
            self.ended[worker] = now

    def retries(self, item: Item, why: str) -> None:
        raise AssertionError(f"{item.drive}: {why}")

    def gives_up(self, item: Item) -> None: ...

    def throughput(self) -> float:
        """Frames a second while all workers are at work."""
        began, ended = max(self.ready.values()), min(self.ended.values())
        return sum(began < at <= ended for at in self.frames) / (ended - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bundle", type=Path, default=shipped_bundle())
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--drives", type=int, default=8)
    parser.add_argument("--frames", type=int, default=12, help="of each drive")
    parser.add_argument("--out", type=Path, default=Path("out/bench"))
    options = parser.parse_args()
    job = Job(
        bundle=options.bundle.resolve(),
        key=Bundle.open(options.bundle).key,
        version=own_version(),
        settings=SETTINGS,
        rule="guarded",
        frames=str(options.frames),
        provider="cpu",
        threads=1,
        command="python -m benchmarks.workers",
    )
    drives = [f"synthetic:{n}" for n in range(options.drives)]
    items = [Item(drive, drive.replace(":", "-"), drive) for drive in drives]
    shown = table(f"{len(items)} drives of {options.frames} frames", "workers", "frames/s", "s")
    results: dict[str, dict[str, float]] = {}
    for workers in (1, options.workers):
        rate, seconds = measured(job, items, workers)
        results[str(workers)] = {"frames_per_s": rate, "seconds": seconds}
        shown.add_row(str(workers), f"{rate:.2f}", f"{seconds:.1f}")
    console.print(shown)
    one, several = results["1"], results[str(options.workers)]
    gain = several["frames_per_s"] / one["frames_per_s"]
    console.print(
        f"{options.workers} workers: {gain:.2f} times the throughput of one "
        f"(the whole run {one['seconds'] / several['seconds']:.2f} times as fast), "
        f"{os.cpu_count()} cores; wanted with two: {WANTED}"
    )
    write_results(options.out / "workers.json", {"gain": gain, "runs": results})


def measured(job: Job, items: list[Item], workers: int) -> tuple[float, float]:
    """Frames a second, and s of the whole run."""
    clock = Clock()
    with TemporaryDirectory() as folder:
        began = time.perf_counter()
        crew = Processes(job, Path(folder))
        try:
            failures = run_all(crew, items, workers, clock)
        finally:
            crew.close()
    assert not failures, failures
    return clock.throughput(), time.perf_counter() - began


if __name__ == "__main__":
    main()
