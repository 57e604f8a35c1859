"""Published memory bandwidth and compute of the Jetson modules. Peak figures, dense."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from runtime.errors import SlipstreamError

Precision = Literal["fp32", "fp16", "bf16", "int8", "fp8", "int4", "nvfp4"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)

# Bits of a matrix' weight, scales included: int4 has one fp16 scale for 128 weights (AWQ), nvfp4 an
# fp8 scale for 16.
WEIGHT_BITS: dict[Precision, float] = {
    "fp32": 32.0,
    "fp16": 16.0,
    "bf16": 16.0,
    "int8": 8.0,
    "fp8": 8.0,
    "int4": 4.0 + 16 / 128,
    "nvfp4": 4.0 + 8 / 16,
}


@dataclass(frozen=True)
class Device:
    """One module in one of its published modes.

    Attributes:
        memory: bytes, shared by CPU and GPU.
        bandwidth: bytes/s of that memory.
        fp32: operations/s of the CUDA cores (a multiplication and an addition are two).
        fp16: dense operations/s of the tensor cores; bf16 and int4 (weights only) compute so too.
        int8, fp8, nvfp4: the same; None where the GPU has no such arithmetic.
        source: where the figures are published.
    """

    name: str
    title: str
    memory: float
    bandwidth: float
    fp32: float
    fp16: float
    int8: float
    fp8: float | None
    nvfp4: float | None
    compute_capability: str
    source: str

    def operations(self, precision: Precision) -> float:
        """Operations/s at a precision.

        Raises:
            SlipstreamError: this GPU has no arithmetic for it.
        """
        rates: dict[Precision, float | None] = {
            "fp32": self.fp32,
            "fp16": self.fp16,
            "bf16": self.fp16,
            "int4": self.fp16,
            "int8": self.int8,
            "fp8": self.fp8,
            "nvfp4": self.nvfp4,
        }
        rate = rates[precision]
        if rate is None:
            can = [name for name, value in rates.items() if value is not None]
            raise SlipstreamError(
                f"{self.title} has no {precision} arithmetic",
                expected=" or ".join(can),
                found=f"--precision {precision}",
                fix="--precision fp16",
            )
        return rate


def _orin(
    name: str,
    title: str,
    memory_gb: int,
    bandwidth_gb: float,
    fp32: float,
    sparse_int8: float,
    source: str,
) -> Device:
    """Ampere: the sheet gives sparse INT8; dense is half of it, FP16 half of that."""
    return Device(
        name=name,
        title=title,
        memory=memory_gb * 1e9,
        bandwidth=bandwidth_gb * 1e9,
        fp32=fp32 * 1e12,
        fp16=sparse_int8 / 4 * 1e12,
        int8=sparse_int8 / 2 * 1e12,
        fp8=None,
        nvfp4=None,
        compute_capability="8.7",
        source=source,
    )


_NANO = "NVIDIA Jetson Orin Nano Series data sheet"
_SUPER = "NVIDIA, Jetson Orin Nano Super Developer Kit (JetPack 6.1 and later, MAXN_SUPER)"
_NX = "NVIDIA Jetson Orin NX Series data sheet"
_AGX = "NVIDIA Jetson AGX Orin Series technical brief"
_THOR = "NVIDIA Jetson Thor Series data sheet: 2070 sparse FP4 TFLOPS, INT8 taken as FP8's rate"

# The GPU's share of INT8 alone: the headline TOPS of Orin NX and AGX Orin count the DLAs too.
DEVICES: dict[str, Device] = {
    device.name: device
    for device in (
        _orin("orin-nano-8gb", "Jetson Orin Nano 8GB", 8, 68.0, 1.28, 40.0, _NANO),
        _orin("orin-nano-8gb-super", "Jetson Orin Nano 8GB Super", 8, 102.0, 2.09, 67.0, _SUPER),
        _orin("orin-nx", "Jetson Orin NX 16GB", 16, 102.4, 1.88, 60.0, _NX),
        _orin("agx-orin", "Jetson AGX Orin 64GB", 64, 204.8, 5.3, 170.0, _AGX),
        Device(
            name="thor",
            title="Jetson AGX Thor (T5000)",
            memory=128e9,
            bandwidth=273e9,
            fp32=8.06e12,
            fp16=2070e12 / 8,
            int8=2070e12 / 4,
            fp8=2070e12 / 4,
            nvfp4=2070e12 / 2,
            compute_capability="11.0",
            source=_THOR,
        ),
    )
}


def device_named(name: str) -> Device:
    """A module by its name on the command line.

    Raises:
        SlipstreamError: no module of that name.
    """
    if name not in DEVICES:
        raise SlipstreamError(
            f"--device {name} is not known",
            expected=" or ".join(DEVICES),
            found=name,
            fix="slipstream estimate BUNDLE --device orin-nx",
        )
    return DEVICES[name]


def check_precision(name: str) -> Precision:
    """Raises: SlipstreamError: no precision of that name."""
    for precision in PRECISIONS:
        if precision == name:
            return precision
    raise SlipstreamError(
        f"--precision {name} is not known",
        expected=" or ".join(PRECISIONS),
        found=name,
        fix="--precision fp16",
    )
