"""Which TensorRT is here, which GPU is here, and which can build for what.

TensorRT-RTX builds ahead of time for a list of compute capabilities, without a GPU. Full TensorRT
times kernels on the GPU at hand, so that an engine for a Jetson is built on that Jetson.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import re
from dataclasses import dataclass
from typing import Any

from runtime.engines.store import Flavour, Precision, sm_name
from runtime.errors import EngineError, SlipstreamError

NAMED = {"orin": "8.7", "thor": "11.0"}  # Jetson AGX Orin, Orin NX and Nano; Jetson Thor
TURING = "7.5"
PRECISIONS_FROM: dict[Precision, tuple[int, int]] = {"bf16": (8, 0), "fp8": (8, 9)}
_INSTALL = {
    "tensorrt_rtx": "pip install '.[rtx]' in slipstream's folder",
    "tensorrt": "pip install '.[tensorrt]' in slipstream's folder; on a Jetson it comes with "
    "JetPack: sudo apt install tensorrt python3-libnvinfer",
}


@dataclass(frozen=True)
class Library:
    """An installed TensorRT: the module, its full version, and what it builds for ("8.6", ...);
    None where that is the GPU at hand."""

    flavour: Flavour
    module: Any
    version: str
    capabilities: tuple[str, ...] | None


def parse_target(target: str) -> str:
    """The compute capability of `orin`, `thor`, `sm86` or `8.6`.

    Raises:
        SlipstreamError: none of these.
    """
    name = target.strip().lower()
    if name in NAMED:
        return NAMED[name]
    if match := re.fullmatch(r"sm_?([0-9]{1,2})([0-9])|([0-9]{1,2})\.([0-9])", name):
        major, minor = match.group(1, 2) if match.group(1) else match.group(3, 4)
        return f"{int(major)}.{minor}"
    raise SlipstreamError(
        f"--target {target} is unknown",
        expected=f"cpu, {', '.join(NAMED)}, or a compute capability such as sm86",
        found=target,
        fix="slipstream compile --help",
    )


def load_library(flavour: Flavour) -> Library:
    """Import a TensorRT.

    Raises:
        EngineError: it is not installed, or can't be loaded here.
    """
    try:
        module: Any = importlib.import_module(flavour)
    except (ImportError, OSError) as error:
        raise EngineError(
            f"{shown(flavour)} can't be loaded",
            expected=f"the Python module {flavour} and its libraries",
            found=str(error).splitlines()[0][:200],
            fix=_INSTALL[flavour],
        ) from error
    known = getattr(module, "ComputeCapability", None)
    capabilities = None
    if flavour == "tensorrt_rtx" and known is not None:
        names = [name for name in known.__members__ if re.fullmatch(r"SM\d+", name)]
        capabilities = tuple(f"{int(name[2:-1])}.{name[-1]}" for name in names)
    return Library(flavour, module, str(module.__version__), capabilities)


def choose_library(flavour: Flavour | None, capability: str, precision: Precision) -> Library:
    """The TensorRT that builds for a compute capability on this machine.

    Args:
        flavour: None takes full TensorRT on the target itself, else TensorRT-RTX.

    Raises:
        EngineError: no TensorRT here can build for it; says where and with what it is done.
    """
    _check_precision(capability, precision)
    device = device_capability()
    if flavour is None:
        flavour = "tensorrt" if device == capability and _installed("tensorrt") else "tensorrt_rtx"
        if capability in NAMED.values() and flavour == "tensorrt_rtx":
            flavour = "tensorrt"  # the only one that runs there
    if flavour == "tensorrt" and device != capability:
        raise _elsewhere(capability, precision, device)
    library = load_library(flavour)
    if flavour == "tensorrt_rtx" and capability == TURING and precision == "fp32":
        raise EngineError(
            f"{shown(flavour)} multiplies no fp32 matrices on {sm_name(capability)}",
            expected="fp16, the only precision that it has there for a whole planner",
            found=precision,
            fix="--precision fp16",
        )
    if library.capabilities is not None and capability not in library.capabilities:
        names = ", ".join(sm_name(known) for known in library.capabilities)
        raise EngineError(
            f"{shown(flavour)} {library.version} does not build for {sm_name(capability)}",
            expected=names,
            found=sm_name(capability),
            fix=_on_device(capability, precision),
        )
    return library


def device_capability() -> str | None:
    """The compute capability of the first GPU here, such as "8.7"; None without one."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    device, numbers = ctypes.c_int(), []
    if driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(device), 0):
        return None
    for attribute in (75, 76):  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR
        value = ctypes.c_int()
        if driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, device):
            return None
        numbers.append(value.value)
    return f"{numbers[0]}.{numbers[1]}"


def shown(flavour: Flavour) -> str:
    """The product's name."""
    return "TensorRT" if flavour == "tensorrt" else "TensorRT-RTX"


def _installed(flavour: Flavour) -> bool:
    return importlib.util.find_spec(flavour) is not None


def _check_precision(capability: str, precision: Precision) -> None:
    major, minor = (int(part) for part in capability.split("."))
    first = PRECISIONS_FROM.get(precision)
    if first and (major, minor) < first:
        raise EngineError(
            f"{sm_name(capability)} has no {precision}",
            expected=f"{precision} from {sm_name('{}.{}'.format(*first))} on",
            found=sm_name(capability),
            fix="--precision fp16",
        )


def _elsewhere(capability: str, precision: Precision, device: str | None) -> EngineError:
    return EngineError(
        f"TensorRT builds for the GPU at hand, and this is no {sm_name(capability)}",
        expected=f"to run on a GPU of {sm_name(capability)}: TensorRT times every kernel there",
        found=f"a GPU of {sm_name(device)}" if device else "no GPU",
        fix=_on_device(capability, precision),
    )


def _on_device(capability: str, precision: Precision) -> str:
    names = {value: name for name, value in NAMED.items()}
    target = names.get(capability, sm_name(capability))
    where = f"on the Jetson {target.capitalize()}" if capability in names else "on such a machine"
    return (
        f"{where}, with the bundle copied there: "
        f"slipstream compile BUNDLE --target {target} --precision {precision} --flavour tensorrt"
    )
