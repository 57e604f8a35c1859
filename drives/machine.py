"""The machine and the versions that a report's figures belong to."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from drives.results import Machine


def this_machine(threads: int | None = None) -> Machine:
    """CPU, cores, memory and package versions; what can't be found out is null."""
    packages = ("slipstream", "numpy", "onnxruntime", "onnxruntime-gpu")
    versions = {"python": platform.python_version()}
    versions.update((name, found) for name in packages if (found := _version(name)))
    return Machine(
        cpu=_cpu(),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else _count(),
        threads=threads,
        memory_gb=_memory_gb(),
        system=f"{platform.system()} {platform.release()}",
        versions=versions,
    )


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _count() -> int:
    return os.cpu_count() or 1


def _cpu() -> str:
    """The model name; Arm kernels name the board in the device tree instead."""
    for path, key in (("/proc/cpuinfo", "model name"), ("/proc/device-tree/model", "")):
        try:
            text = Path(path).read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        for line in text.splitlines():
            if line.startswith(key):
                return line.split(":", 1)[-1].strip(" \t\0")
    return platform.processor() or platform.machine()


def _memory_gb() -> float | None:
    try:
        return round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9, 1)
    except (ValueError, OSError, AttributeError):
        return None
