"""Everything the doctor knows of a machine, in one place."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass

from slipstream.doctor.files import Files, whole
from slipstream.doctor.jetson import Jetson, probe_jetson
from slipstream.doctor.python import Interpreter


@dataclass(frozen=True)
class Gpu:
    """The first NVIDIA GPU."""

    name: str
    compute_capability: str | None
    memory: int | None  # bytes of its own; None where it shares the machine's
    driver: str | None


@dataclass(frozen=True)
class Machine:
    """What is known; None is unknown or not there.

    Attributes:
        cores: that this process may use. memory, available: bytes.
        unified: CPU and GPU share the memory (Jetson).
        cuda: the toolkit's version. tensorrt: that of the system's library, not of Python's module.
        tensorrt_bindings: version of the system's Python module, wherever it is.
    """

    system: str | None
    cpu: str | None
    cores: int
    memory: int | None
    available: int | None
    unified: bool
    jetson: Jetson | None
    gpu: Gpu | None
    cuda: str | None
    tensorrt: str | None
    tensorrt_bindings: str | None
    python: Interpreter


def probe(files: Files, python: Interpreter) -> Machine:
    """Look at a machine. Never raises; a second at most (nvidia-smi is given no more)."""
    packages = files.packages()
    jetson = probe_jetson(files, packages)
    return Machine(
        system=files.match("/etc/os-release", r'^PRETTY_NAME="?([^"\n]+)'),
        cpu=files.match("/proc/cpuinfo", r"^model name\s*:\s*(.+)$"),
        cores=_cores(files),
        memory=_kib(files, "MemTotal"),
        available=_kib(files, "MemAvailable"),
        unified=jetson is not None,
        jetson=jetson,
        gpu=_gpu(files, jetson),
        cuda=_cuda(files),
        tensorrt=_tensorrt(files, packages),
        tensorrt_bindings=_plain(packages.get("python3-libnvinfer")),
        python=python,
    )


def _cores(files: Files) -> int:
    if files.is_this_machine:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    listed = re.findall(r"^processor\s*:", files.text("/proc/cpuinfo") or "", re.MULTILINE)
    return max(1, len(listed))


def _kib(files: Files, name: str) -> int | None:
    found = whole(files.match("/proc/meminfo", rf"^{name}:\s+(\d+) kB"))
    return None if found is None else found * 1024


def _gpu(files: Files, jetson: Jetson | None) -> Gpu | None:
    if jetson is not None:
        name = {"tegra234": "Orin", "tegra264": "Thor"}.get(jetson.soc or "", "Tegra")
        return Gpu(name, jetson.compute_capability, None, None)
    tool = shutil.which("nvidia-smi") if files.is_this_machine else None
    if tool is None:
        return None
    query = "--query-gpu=name,compute_cap,memory.total,driver_version"
    try:
        done = subprocess.run(
            [tool, query, "--format=csv,noheader,nounits"],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=1.0,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    cells = [cell.strip() for cell in (done.stdout.splitlines() or [""])[0].split(",")]
    if len(cells) != 4:
        return None
    memory = whole(cells[2])
    return Gpu(cells[0], cells[1], None if memory is None else memory << 20, cells[3])


def _cuda(files: Files) -> str | None:
    for path in ("/usr/local/cuda/version.json", *files.glob("/usr/local/cuda-*/version.json")):
        if found := files.json(path, "cuda", "version"):
            return found
    return None


def _tensorrt(files: Files, packages: dict[str, str]) -> str | None:
    for name in ("libnvinfer10", "libnvinfer11", "libnvinfer8"):
        if name in packages:
            return _plain(packages[name])
    for path in files.glob("/usr/lib/*-linux-gnu/libnvinfer.so.*.*.*"):
        return path.split(".so.", 1)[1]
    return None


def _plain(version: str | None) -> str | None:
    """10.3.0.30-1+cuda12.5 -> 10.3.0.30"""
    return re.split(r"[-+]", version)[0] if version else None
