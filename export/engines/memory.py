"""Host memory of a build: an estimate before it, the peak after it (Linux's own accounting)."""

from __future__ import annotations

import re
import resource
from contextlib import suppress
from pathlib import Path

from runtime.errors import EngineError

# what TensorRT's builder was seen to hold: a few copies of the weights, and its own libraries
WEIGHT_COPIES = 4
BASE_BYTES = 768 << 20


def estimate(weight_bytes: int) -> int:
    """Bytes that a build of a graph with so many bytes of weights takes at its peak."""
    return BASE_BYTES + WEIGHT_COPIES * weight_bytes


def available() -> int | None:
    """Bytes that this process may still take: the machine's, or its control group's if less."""
    free = _meminfo()
    with suppress(OSError, ValueError):
        group = Path("/sys/fs/cgroup")
        limit = int((group / "memory.max").read_text())  # "max" is a ValueError: no limit
        left = limit - int((group / "memory.current").read_text())
        free = left if free is None else min(free, left)
    return free


def check(graph: str, weight_bytes: int, free: int | None) -> int:
    """The estimate, if it fits.

    Raises:
        EngineError: it does not; better now than killed without a word an hour later.
    """
    wanted = estimate(weight_bytes)
    if free is not None and wanted > free:
        raise EngineError(
            f"building {graph} would not fit this machine's memory",
            expected=f"{gib(wanted)}: {WEIGHT_COPIES} x {gib(weight_bytes)} of weights and "
            f"{gib(BASE_BYTES)}",
            found=f"{gib(free)} available",
            fix="close other programs, add swap, or try it all the same with --ignore-memory",
        )
    return wanted


def reset_peak() -> None:
    """Let the peak count from here, where the kernel allows that."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak() -> int:
    """Bytes: this process' largest resident memory since `reset_peak`."""
    with suppress(OSError):
        found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
        if found:
            return int(found.group(1)) << 10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def gib(size: int) -> str:
    return f"{size / (1 << 30):.1f} GiB"


def _meminfo() -> int | None:
    with suppress(OSError):
        found = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
        if found:
            return int(found.group(1)) << 10
    return None
