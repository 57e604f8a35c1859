"""This Python: its ABI, its packages, which engines import, and ONNX Runtime's providers."""

from __future__ import annotations

import importlib
import importlib.util
import platform
import sys
from dataclasses import dataclass, field
from importlib.metadata import version

PACKAGES = (
    "slipstream",
    "numpy",
    "onnx",
    "onnxruntime",
    "onnxruntime-gpu",
    "tensorrt",
    "tensorrt-rtx",
    "tensorrt-rtx-cu12",
    "tensorrt-rtx-cu13",
    "cuda-python",
    "torch",
)


@dataclass(frozen=True)
class Interpreter:
    """The Python that runs slipstream.

    Attributes:
        version: (3, 10, 12). abi: cp310. machine: aarch64 or x86_64.
        system_packages: whether it sees the system's packages (TensorRT's bindings are there).
        packages: installed ones -> version.
        modules: engines that import (onnxruntime, tensorrt, tensorrt_rtx) -> version.
        broken: engines that are installed and don't import -> the error.
        providers: of ONNX Runtime.
    """

    version: tuple[int, int, int]
    abi: str
    machine: str
    executable: str
    system_packages: bool
    packages: dict[str, str]
    modules: dict[str, str] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)
    providers: tuple[str, ...] = ()


def this_interpreter() -> Interpreter:
    modules, broken = {}, {}
    providers: tuple[str, ...] = ()
    for name in ("onnxruntime", "tensorrt", "tensorrt_rtx"):
        try:
            if importlib.util.find_spec(name) is None:
                continue
            module = importlib.import_module(name)
            modules[name] = str(getattr(module, "__version__", "unknown"))
            if name == "onnxruntime":
                providers = tuple(module.get_available_providers())
        except Exception as error:  # a missing library, another ABI, half an installation
            modules.pop(name, None)
            broken[name] = (str(error).splitlines() or [type(error).__name__])[0]
    return Interpreter(
        version=sys.version_info[:3],
        abi=f"cp{sys.version_info[0]}{sys.version_info[1]}",
        machine=platform.machine(),
        executable=sys.executable,
        system_packages=_sees_system_packages(),
        packages={name: found for name in PACKAGES if (found := _version(name))},
        modules=modules,
        broken=broken,
        providers=providers,
    )


def _sees_system_packages() -> bool:
    return sys.prefix == sys.base_prefix or any("dist-packages" in path for path in sys.path)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except Exception:  # absent, or half its metadata is
        return None
