"""An engine's key (all that it depends on) and its sidecar (what is known of it without a GPU)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from runtime.bundle import GraphFile
from runtime.engines.profiles import Profile

Flavour = Literal["tensorrt", "tensorrt_rtx"]
Precision = Literal["fp32", "fp16", "bf16", "int8", "fp8"]
SIDECAR_VERSION = 1


@dataclass(frozen=True)
class EngineKey:
    """All that an engine file depends on; two equal keys are served by one file.

    Attributes:
        graph: the graph's name in the bundle.
        graph_sha256: `graph_digest` of the bundle's graph, before a precision is written into it.
        profile: `runtime.engines.profiles.text_of` of its profiles.
        version: of the TensorRT that built it, all four numbers.
        compute_capability: such as "8.6".
        flags: of the builder, sorted, such as "optimization-level=3".
        timing_cache_sha256: of the timing cache that the build read; None without one.
    """

    graph: str
    graph_sha256: str
    profile: str
    precision: Precision
    flavour: Flavour
    version: str
    compute_capability: str
    flags: tuple[str, ...] = ()
    timing_cache_sha256: str | None = None

    @property
    def digest(self) -> str:
        """SHA-256, hex, of the key's fields."""
        text = json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def sm(self) -> str:
        """The compute capability as in `sm86`."""
        return sm_name(self.compute_capability)

    @property
    def stem(self) -> str:
        """The engine's file name without its ending."""
        flavour = self.flavour.replace("_", "-")
        return (
            f"{self.graph}-{self.precision}-{self.sm}-{flavour}-{self.version}-{self.digest[:16]}"
        )

    @property
    def filename(self) -> str:
        return self.stem + ".engine"


def graph_digest(entry: GraphFile) -> str:
    """SHA-256, hex, of a bundle's graph; with external weights, of all their hashes together."""
    if not entry.external:
        return entry.sha256
    joined = [entry.sha256, *(entry.external[file] for file in sorted(entry.external))]
    return hashlib.sha256("\n".join(joined).encode()).hexdigest()


def sm_name(compute_capability: str) -> str:
    """`8.6` -> `sm86`"""
    return "sm" + compute_capability.replace(".", "")


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TensorInfo(_Strict):
    """An input or output of an engine; a dynamic dimension is its name, as in the ONNX graph."""

    name: str
    mode: Literal["input", "output"]
    dtype: Literal["float32", "float16", "bfloat16", "int32", "int64"]
    shape: list[int | str]


class Sidecar(_Strict):
    """What is known of an engine without a GPU: its key, its file, its inputs and outputs.

    Attributes:
        graph .. timing_cache_sha256: the fields of `EngineKey`.
        size, sha256: of the engine file, bytes and hex.
        built_at: UTC, ISO 8601.
        builder_seconds: of TensorRT's build alone.
        peak_host_bytes: the builder process' largest resident memory.
        device_bytes: activation memory of each profile, where a GPU was at hand to ask; else None.
        tensors: inputs, then outputs, in the engine's order; profiles: index = TensorRT's profile.
        layers: number of network layers.
        python, system: of the machine that built it.
        bundle: the bundle's name; bundle_folder: where it lay.
        options: of the build, beside target, precision, flavour and graph, as `compile` takes them.
        warnings: what TensorRT warned of.
    """

    version_of_sidecar: Literal[1] = SIDECAR_VERSION  # type: ignore[assignment]
    graph: str
    graph_sha256: str
    profile: str
    precision: Precision
    flavour: Flavour
    version: str
    compute_capability: str
    flags: list[str]
    timing_cache_sha256: str | None
    size: int = Field(gt=0)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    built_at: str
    builder_seconds: float
    peak_host_bytes: int
    device_bytes: list[int] | None = None
    tensors: list[TensorInfo]
    profiles: list[Profile]
    layers: int
    python: str
    system: str
    bundle: str
    bundle_folder: str | None = None
    options: list[str] = Field(default_factory=list)
    warnings: list[str] = Field(default_factory=list)

    @property
    def key(self) -> EngineKey:
        return EngineKey(
            **{name: getattr(self, name) for name in _FIELDS} | {"flags": tuple(self.flags)}
        )

    @property
    def key_fields(self) -> dict[str, Any]:
        """The key's fields by name."""
        return asdict(self.key)

    @property
    def inputs(self) -> dict[str, TensorInfo]:
        return {tensor.name: tensor for tensor in self.tensors if tensor.mode == "input"}

    @property
    def outputs(self) -> dict[str, TensorInfo]:
        return {tensor.name: tensor for tensor in self.tensors if tensor.mode == "output"}


# in the order in which a difference is worth telling
_FIELDS = (
    "graph",
    "graph_sha256",
    "flavour",
    "version",
    "compute_capability",
    "precision",
    "profile",
    "flags",
    "timing_cache_sha256",
)


def differences(wanted: Mapping[str, Any], sidecar: Sidecar) -> list[str]:
    """The key's fields that are wanted otherwise, the weightiest first."""
    return [
        name
        for name in _FIELDS
        if name in wanted and _plain(wanted[name]) != _plain(getattr(sidecar, name))
    ]


def _plain(value: object) -> object:
    return tuple(value) if isinstance(value, list | tuple) else value
