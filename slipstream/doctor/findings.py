"""What is wrong or missing on a machine, and the command that mends it there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from slipstream.doctor.files import whole
from slipstream.doctor.jetson import Jetson
from slipstream.doctor.machine import Machine

Level = Literal["fault", "slow", "missing"]
OLDEST, NEWEST = (3, 10), (3, 12)
ONNXRUNTIME = (1, 23)  # the graphs use opset 23
# JetPack -> the Python its TensorRT bindings are for, and where its ONNX Runtime wheels are:
# the package index has no onnxruntime-gpu for aarch64
JETPACK_PYTHON = {6: "3.10", 7: "3.12"}
JETPACK_WHEELS = {
    6: "https://pypi.jetson-ai-lab.io/jp6/cu126",
    7: "https://pypi.jetson-ai-lab.io/sbsa/cu130",
}
LEAST_MEMORY = 512 << 20


@dataclass(frozen=True)
class Finding:
    """fault: no bundle runs, or wrongly. slow: runs below the machine's best. missing: optional."""

    level: Level
    what: str
    fix: str


def examine(machine: Machine) -> list[Finding]:
    """All findings, faults first."""
    found = [*_python(machine), *_onnxruntime(machine), *_memory(machine)]
    found += _jetson(machine, machine.jetson) if machine.jetson else _desktop(machine)
    order: tuple[Level, ...] = ("fault", "slow", "missing")
    return sorted(found, key=lambda finding: order.index(finding.level))


def _python(machine: Machine) -> Iterator[Finding]:
    python = machine.python
    if not OLDEST <= python.version[:2] <= NEWEST:
        yield Finding(
            "fault",
            f"Python {_dotted(python.version)} is not supported: 3.10 to 3.12 are",
            "python3.12 -m venv .venv && .venv/bin/pip install '.[cpu]'",
        )
    for module, error in python.broken.items():
        yield Finding(
            "fault" if module == "onnxruntime" else "missing",
            f"{module} is installed and does not import: {error}",
            _reinstall(machine, module),
        )


def _onnxruntime(machine: Machine) -> Iterator[Finding]:
    python = machine.python
    flavours = [name for name in ("onnxruntime", "onnxruntime-gpu") if name in python.packages]
    if len(flavours) == 2:
        yield Finding(
            "fault",
            "onnxruntime and onnxruntime-gpu are both installed: they are one module, and the last "
            "one overwrote the other",
            f"pip uninstall -y onnxruntime onnxruntime-gpu && {_gpu_wheel(machine)}",
        )
    if "onnxruntime" not in python.modules and "onnxruntime" not in python.broken:
        yield Finding("fault", "no engine: ONNX Runtime is not installed", "pip install '.[cpu]'")
    loaded = python.modules.get("onnxruntime")
    if loaded and _numbers(loaded) < ONNXRUNTIME:
        yield Finding(
            "fault",
            f"ONNX Runtime {loaded} is too old: the graphs use opset 23, known to "
            f"{_dotted(ONNXRUNTIME)} and later",
            f"pip install 'onnxruntime>={_dotted(ONNXRUNTIME)}'",
        )
    if flavours == ["onnxruntime-gpu"] and loaded and _no_cuda(machine):
        yield Finding(
            "slow",
            "onnxruntime-gpu finds no CUDA or cuDNN and runs on the CPU alone",
            _gpu_wheel(machine),
        )


def _memory(machine: Machine) -> Iterator[Finding]:
    if machine.available is not None and machine.available < LEAST_MEMORY:
        yield Finding(
            "slow",
            f"only {machine.available >> 20} MB of memory are free",
            "end other programs; `slipstream estimate` says what a bundle needs",
        )


def _desktop(machine: Machine) -> Iterator[Finding]:
    if machine.gpu is None:
        return
    if _cpu_alone(machine):
        yield Finding(
            "missing",
            f"{machine.gpu.name} is not used: this ONNX Runtime runs on the CPU alone",
            f"pip uninstall -y onnxruntime && {_gpu_wheel(machine)}",
        )
    if not {"tensorrt", "tensorrt_rtx"} & machine.python.modules.keys():
        yield Finding("missing", "no TensorRT for this GPU", "pip install '.[rtx]'")


def _jetson(machine: Machine, jetson: Jetson) -> Iterator[Finding]:
    major = jetson.jetpack_major
    if major is not None and major not in JETPACK_PYTHON:
        yield Finding(
            "fault",
            f"JetPack {jetson.jetpack} is not supported: 6 (Orin) and 7 (Orin, Thor) are",
            "flash JetPack 6 or newer with NVIDIA SDK Manager",
        )
        return
    if machine.cuda is None:
        yield Finding("missing", "no CUDA toolkit", "sudo apt-get install -y nvidia-jetpack")
    yield from _jetson_tensorrt(machine, major)
    if _cpu_alone(machine):
        yield Finding(
            "missing",
            "ONNX Runtime runs on the CPU alone",
            f"pip uninstall -y onnxruntime && {_gpu_wheel(machine)}",
        )
    yield from _jetson_speed(jetson)


def _jetson_tensorrt(machine: Machine, major: int | None) -> Iterator[Finding]:
    python, wanted = machine.python, JETPACK_PYTHON.get(major or 0)
    if machine.tensorrt is None:
        yield Finding("missing", "no TensorRT", "sudo apt-get install -y nvidia-jetpack")
    elif machine.tensorrt_bindings is None and "tensorrt" not in python.modules:
        yield Finding(
            "missing",
            f"TensorRT {machine.tensorrt} has no Python module",
            "sudo apt-get install -y python3-libnvinfer",
        )
    elif "tensorrt" not in python.modules and wanted:
        have = ".".join(map(str, python.version[:2]))
        reason = (
            f"this is Python {have}, JetPack's module is for {wanted}"
            if have != wanted
            else "this environment does not see the system's packages"
        )
        yield Finding(
            "missing",
            f"TensorRT {machine.tensorrt} does not import: {reason}",
            f"python{wanted} -m venv --system-site-packages .venv && "
            ".venv/bin/pip install '.[cpu]'",
        )


def _jetson_speed(jetson: Jetson) -> Iterator[Finding]:
    mode, fastest = jetson.mode, jetson.fastest_mode
    if mode and fastest and mode.rank < fastest.rank:
        yield Finding(
            "slow",
            f"power mode {mode.name}; the fastest is {fastest.name}",
            f"sudo nvpmodel -m {fastest.number}",
        )
    if jetson.clocks_pinned is False:
        yield Finding("slow", "clocks scale with load, so latency varies", "sudo jetson_clocks")


def _no_cuda(machine: Machine) -> bool:
    return "CUDAExecutionProvider" not in machine.python.providers


def _cpu_alone(machine: Machine) -> bool:
    """Whether ONNX Runtime's CPU flavour is installed; the GPU's is judged for every machine."""
    python = machine.python
    there = "onnxruntime" in python.modules and "onnxruntime-gpu" not in python.packages
    return there and _no_cuda(machine)


def _gpu_wheel(machine: Machine) -> str:
    """How to get ONNX Runtime here: with CUDA where the machine has it, else for the CPU."""
    jetson = machine.jetson
    wheels = JETPACK_WHEELS.get(jetson.jetpack_major or 0) if jetson else None
    if wheels:
        return f"pip install onnxruntime-gpu --index-url {wheels}"
    return "pip install '.[gpu]'" if machine.gpu else "pip install '.[cpu]'"


def _reinstall(machine: Machine, module: str) -> str:
    if module == "onnxruntime":
        return f"pip uninstall -y onnxruntime onnxruntime-gpu && {_gpu_wheel(machine)}"
    if module == "tensorrt_rtx":
        return "pip install --force-reinstall '.[rtx]'"
    return (
        "sudo apt-get install -y --reinstall python3-libnvinfer"
        if machine.jetson
        else ("pip install --force-reinstall tensorrt")
    )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(whole(part) or 0 for part in re.findall(r"\d+", version)[:2])


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
