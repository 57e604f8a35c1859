"""`slipstream engines`: what lies in the store of built engines, and removing what is of no use."""

from __future__ import annotations

from collections import Counter
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ValidationError
from rich import box
from rich.console import Console
from rich.table import Table

from export.engines.builder import capabilities_in
from runtime.bundle import Bundle
from runtime.engines.prune import prune
from runtime.engines.store import EngineStore, Sidecar, StoredEngine, graph_digest, sm_name
from runtime.errors import EngineError
from slipstream.commands.screen import Screen

WIDTH = 100  # columns that the list needs
PRODUCTS = ("gemm", "matrixmultiply")  # types of layers, as TensorRT-RTX and TensorRT name them


class _Tensor(BaseModel):
    name: str
    dtype: str


class _Layer(BaseModel):
    name: str
    type: str
    inputs: list[_Tensor]
    outputs: list[_Tensor]


class _Layers(BaseModel):
    """What a build recorded of its engine's layers."""

    source: str = "none"
    layers: list[_Layer] = []


def list_engines(folder: Path | None) -> None:
    """Print the store's engines, newest first."""
    console, store = Screen(highlight=False), EngineStore(folder)
    entries = store.entries()
    if not entries:
        console.print(f"no engines in {store.folder}", soft_wrap=True)
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("id", "graph", "bundle", "precision", "GPU", "TensorRT", "MB", "built (UTC)"):
        justify: Literal["left", "right"] = "right" if heading == "MB" else "left"
        table.add_column(heading, justify=justify, no_wrap=True)
    for entry in entries:
        table.add_row(*_row(entry))
    Screen(highlight=False, width=max(console.width, WIDTH)).print(table)
    for entry in entries:
        if entry.problem:
            console.print(f"{entry.path.name} {entry.problem}", soft_wrap=True)
    console.print(f"{store.folder}", soft_wrap=True)


def inspect_engine(name: str, folder: Path | None, layers: bool) -> None:
    """Print all that is known of one engine: its key, inputs and outputs, profiles, layers.

    Args:
        name: the engine's file, or the start of its id or file name in the store.

    Raises:
        EngineError: no such engine, several, or a file that can't be used.
    """
    console = Screen(highlight=False)
    path = _locate(name, EngineStore(folder))
    store = EngineStore(path.parent)
    sidecar = store.check(path)
    recorded = _recorded(path, store)
    _show_facts(path, sidecar, console)
    _show_tensors(sidecar, console)
    found = recorded.layers
    kinds = Counter(layer.type for layer in found).most_common()
    counted = ", ".join(f"{count} {kind}" for kind, count in kinds)
    text = f"layers ({recorded.source}): {len(found)} ({counted})"
    console.print(text, soft_wrap=True)
    types = Counter(tensor.dtype for layer in found for tensor in layer.outputs)
    if types:
        shown = ", ".join(f"{count} {kind}" for kind, count in types.most_common())
        console.print(f"layers write: {shown}", soft_wrap=True)
    reads = Counter(_reads(layer) for layer in found if layer.type.lower() in PRODUCTS)
    if reads:
        shown = ", ".join(f"{count} {kind}" for kind, count in reads.most_common())
        console.print(f"products read: {shown}", soft_wrap=True)
    if layers:
        for layer in found:
            ends = [_dtypes(layer.inputs), _dtypes(layer.outputs)]
            text = f"  {layer.name} [{layer.type}] {' -> '.join(ends)}"
            console.print(text, soft_wrap=True)


def prune_engines(
    folder: Path | None, bundle: Path | None, old_versions: bool, everything: bool, dry_run: bool
) -> None:
    """Remove what can't be used, and what the options name.

    Args:
        bundle: engines that carry this bundle's name but are of other graphs go.
        old_versions: engines of other TensorRT versions than the installed ones go.
    """
    console, store = Screen(highlight=False), EngineStore(folder)
    current = Bundle.open(bundle) if bundle else None
    digests = (
        {graph_digest(entry) for entry in current.manifest.graphs.values()} if current else set()
    )
    installed = _installed_versions() if old_versions else {}

    def unwanted(sidecar: Sidecar) -> str | None:
        if everything:
            return "asked for"
        of_bundle = current is not None and sidecar.bundle == current.manifest.name
        if of_bundle and sidecar.graph_sha256 not in digests:
            return "stale: the bundle has another graph now"
        if old_versions and installed.get(sidecar.flavour, sidecar.version) != sidecar.version:
            return f"for TensorRT {sidecar.version}, not {installed[sidecar.flavour]}"
        return None

    removed = prune(store, unwanted, dry_run=dry_run)
    for item in removed:
        console.print(f"{item.path.name}: {item.reason}", soft_wrap=True)
    word = "would be removed" if dry_run else "removed"
    size = sum(item.size for item in removed) / 1e6
    console.print(f"{len(removed)} {word}, {size:.1f} MB, in {store.folder}", soft_wrap=True)


def _row(entry: StoredEngine) -> list[str]:
    size = f"{entry.size / 1e6:.1f}"
    known = entry.sidecar
    if known is None:
        return ["unusable", *[""] * 5, size, ""]
    return [
        "unusable" if entry.problem else known.key.digest[:8],
        known.graph,
        known.bundle,
        known.precision,
        sm_name(known.compute_capability),
        f"{'RTX ' if known.flavour == 'tensorrt_rtx' else ''}{known.version}",
        size,
        known.built_at[:16].replace("T", " "),
    ]


def _locate(name: str, store: EngineStore) -> Path:
    if Path(name).is_file():
        return Path(name)
    found = [
        entry.path
        for entry in store.entries()
        if entry.path.name.startswith(name)
        or (entry.sidecar and entry.sidecar.key.digest.startswith(name))
    ]
    if len(found) != 1:
        raise EngineError(
            f"{name} names {'no engine' if not found else f'{len(found)} engines'}",
            expected=f"a file, or the start of an id or file name in {store.folder}",
            found=", ".join(path.name for path in found[:4]) or "none",
            fix="slipstream engines list",
        )
    return found[0]


def _show_facts(path: Path, sidecar: Sidecar, console: Console) -> None:
    compiled_for = ", ".join(sorted(capabilities_in(path))) or "does not say"
    peak = f"{sidecar.peak_host_bytes / 1e6:.0f} MB"
    facts = {
        "file": str(path),
        "id": sidecar.key.digest,
        "graph": f"{sidecar.graph} of {sidecar.bundle}, SHA-256 {sidecar.graph_sha256}",
        "GPU": f"{sm_name(sidecar.compute_capability)} (the file: {compiled_for})",
        "precision": sidecar.precision,
        "TensorRT": f"{sidecar.flavour} {sidecar.version}",
        "flags": ", ".join(sidecar.flags) or "none",
        "timing cache": sidecar.timing_cache_sha256 or "none",
        "size": f"{sidecar.size} bytes, SHA-256 {sidecar.sha256}",
        "built": f"{sidecar.built_at}, {sidecar.builder_seconds} s, peak host memory {peak}, "
        f"Python {sidecar.python}, {sidecar.system}",
        "activations": ", ".join(f"{size / 1e6:.1f} MB" for size in sidecar.device_bytes or [])
        or "not known",
    }
    for label, value in facts.items():
        console.print(f"{label}: {value}", soft_wrap=True)
    for profile in sidecar.profiles:
        console.print(f"profile: {profile.text}", soft_wrap=True)


def _show_tensors(sidecar: Sidecar, console: Console) -> None:
    for tensor in sidecar.tensors:
        shape = ", ".join(map(str, tensor.shape))
        text = f"{tensor.mode}: {tensor.name} {tensor.dtype} [{shape}]"
        console.print(text, soft_wrap=True)


def _recorded(path: Path, store: EngineStore) -> _Layers:
    try:
        return _Layers.model_validate_json(store.layers(path) or "{}")
    except ValidationError as error:
        raise store.bad_layers(path, error.errors()[0]["msg"]) from error


def _dtypes(tensors: list[_Tensor]) -> str:
    return ", ".join(f"{tensor.name} {tensor.dtype}" for tensor in tensors) or "-"


def _reads(layer: _Layer) -> str:
    """The types that a product reads, each once; quantized weights are not among its inputs."""
    return " and ".join(dict.fromkeys(tensor.dtype for tensor in layer.inputs)) or "-"


def _installed_versions() -> dict[str, str]:
    """By flavour; from the packages' data, so that nothing heavy is loaded."""
    names = {
        "tensorrt_rtx": ("tensorrt_rtx_cu12", "tensorrt_rtx_cu13", "tensorrt_rtx"),
        "tensorrt": ("tensorrt", "tensorrt_cu12", "tensorrt_cu13"),
    }
    found = {}
    for flavour, packages in names.items():
        for package in reversed(packages):
            try:
                found[flavour] = version(package)
            except PackageNotFoundError:
                continue
    return found
