"""Memory that passes compute in: what a builder reported for a bundle's engines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from runtime.bundle import Bundle
from runtime.engines.store import EngineStore, Precision, Sidecar, graph_digest, sm_name
from slipstream.estimate.devices import Device


@dataclass(frozen=True)
class Activations:
    """Bytes of the memory that all engines of a bundle share for their passes, and their source."""

    bytes: float
    source: str


def of_engines(
    bundle: Bundle, precision: str, device: Device, store: EngineStore
) -> Activations | None:
    """What the builder reported when the bundle's engines were built; None if one is missing.

    Engines for the device's own GPU go before others, newer ones before older.
    """
    if precision not in get_args(Precision):
        return None
    entries = [entry.sidecar for entry in store.entries() if entry.sidecar and not entry.problem]
    built = [each for each in entries if each.precision == precision and each.device_bytes]
    own = [each for each in built if each.compute_capability == device.compute_capability]
    wanted = {graph_digest(graph) for graph in bundle.manifest.graphs.values()}
    for sidecars in _by_gpu(own) or _by_gpu(built):
        newest = {each.graph_sha256: each for each in reversed(sidecars)}
        if wanted <= newest.keys():
            size = max(max(newest[digest].device_bytes or [0]) for digest in wanted)
            return Activations(float(size), _source(newest[next(iter(wanted))], device, store))
    return None


def _by_gpu(sidecars: list[Sidecar]) -> list[list[Sidecar]]:
    """Engines that run together: of one GPU, TensorRT and version; the newest engine's first."""
    found: dict[tuple[str, str, str], list[Sidecar]] = {}
    for each in sidecars:
        key = (each.compute_capability, each.flavour, each.version)
        found.setdefault(key, []).append(each)
    return list(found.values())


def _source(engine: Sidecar, device: Device, store: EngineStore) -> str:
    text = f"by the builder of the engines for {engine.key.sm} in {store.folder}"
    if engine.compute_capability != device.compute_capability:
        text += f"; those for {sm_name(device.compute_capability)} may need more or less"
    return text
