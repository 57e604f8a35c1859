"""How fast recordings are read and cut into windows: `python -m benchmarks.readers [PATH ...]`.

A frame is a pose sample of the drive that is read: a row of its table or a message of its topic (of
Argoverse 2's rows, those less than 5 ms behind another are left out). Windows are cut every 0.1 s,
each with 16 past states and 20 future points. Seconds are the process's own, on one core, the best
of three, with the files in the system's cache. Without a PATH, a computed drive of 2,000 samples is
written in every format first.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.common import console, table, write_results
from drives.drive import Drive
from drives.open import format_of, open_drive
from drives.readers.plain import write_plain
from drives.readers.synthetic import synthetic_drive
from drives.windows import windows
from tests.drives.readers import writers

SAMPLES = 2000
STEP = 0.1  # s from window to window
REPEATS = 3
WANTED = 2000  # frames a second


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="*", help="of drives; see `slipstream drives list`")
    parser.add_argument("--out", type=Path, default=Path("out/bench"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        paths = options.paths or written(Path(folder))
        results = [measured(str(path)) for path in paths]
    shown = table(
        "reading and windowing, one core",
        *("format", "frames", "windows", "read ms", "cut ms", "frames/s", "windows/s"),
    )
    for each in results:
        slow = "" if each["frames_a_second"] >= WANTED else "[red]"
        shown.add_row(
            each["format"],
            f"{each['frames']:,}",
            f"{each['windows']:,}",
            f"{1e3 * each['read_s']:.1f}",
            f"{1e3 * each['cut_s']:.1f}",
            f"{slow}{each['frames_a_second']:,.0f}",
            f"{each['windows_a_second']:,.0f}",
        )
    console.print(shown)
    write_results(options.out / "readers.json", {"step_s": STEP, "formats": results})


def measured(path: str) -> dict[str, Any]:
    """The best of three readings, each with its windows."""
    drive = open_drive(path)  # imports what is imported at first use
    best = (float("inf"), 0.0, 0.0)
    for _ in range(REPEATS):
        start = time.process_time()
        drive = open_drive(path)
        read = time.process_time()
        cut = windows(drive, STEP, without_future=True)
        end = time.process_time()
        best = min(best, (end - start, read - start, end - read))
    whole, reading, cutting = best
    return {
        "format": f"{format_of(path)} {Path(path).suffix}".strip(),
        "path": path,
        "frames": len(drive.times),
        "windows": len(cut),
        "read_s": reading,
        "cut_s": cutting,
        "frames_a_second": len(drive.times) / whole,
        "windows_a_second": len(cut) / whole,
    }


def written(folder: Path) -> list[Path]:
    """One computed drive in every text and tabular format."""
    drive = synthetic_drive(2, duration=0.1 * SAMPLES)
    writes: dict[str, Callable[[Path, Drive], object]] = {
        "poses.txt": writers.write_kitti,
        "kitti_raw": writers.write_kitti_raw,
        "boreas": writers.write_boreas,
        "comma2k19": writers.write_comma2k19,
        "argoverse2": lambda path, drive: writers.write_argoverse2(path, drive, twins=False),
        "nuscenes": lambda path, drive: writers.write_nuscenes(path, {"scene-0001": drive}),
        "plain.csv": lambda path, drive: write_plain(drive, path),
        "plain.parquet": lambda path, drive: write_plain(drive, path),
    }
    for name, write in writes.items():
        write(folder / name, drive)
    return [folder / name / ("scene-0001" * (name == "nuscenes")) for name in writes]


if __name__ == "__main__":
    main()
