"""A bundle to engines in a store: one for each graph, each skipped when it is already there."""

from __future__ import annotations

import hashlib
import json
import platform
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from export.engines import memory
from export.engines.builder import Built, build_engine, typed_network
from export.engines.flavours import Library
from export.engines.graphs import ready_graph, weight_bytes
from export.engines.options import BuildOptions, change_profiles, check_graphs, check_profiles
from export.engines.stop import held_signals
from export.engines.trace import BuildLog, Notify
from runtime.bundle import Bundle, GraphName
from runtime.engines.messages import logger_of
from runtime.engines.profiles import Profile, default_profiles, text_of
from runtime.engines.store import EngineKey, EngineStore, Sidecar, graph_digest
from runtime.errors import EngineError
from runtime.files import write_atomic


@dataclass(frozen=True)
class Planned:
    """One graph's build, decided: its key, its profiles, and whether the engine is there."""

    graph: GraphName
    key: EngineKey
    profiles: list[Profile]
    present: bool
    host_bytes: int  # estimated


@dataclass(frozen=True)
class Compiled:
    """One graph's engine in the store."""

    graph: GraphName
    path: Path
    sidecar: Sidecar
    built: bool  # now, and not before


def plan_builds(
    bundle: Bundle,
    library: Library,
    capability: str,
    options: BuildOptions,
    store: EngineStore,
    *,
    graphs: Sequence[GraphName] = (),
    profiles: Sequence[str] = (),
) -> list[Planned]:
    """What compiling would do.

    Args:
        graphs: empty takes all of the bundle's.
        profiles: changes to the default ones, see `export.engines.options.change_profiles`.

    Raises:
        SlipstreamError: options that don't fit the bundle or the library.
    """
    manifest = bundle.manifest
    check_graphs(bundle, graphs)
    if options.timing_cache and library.flavour == "tensorrt_rtx":
        raise EngineError(
            "TensorRT-RTX has no use for --timing-cache",
            expected="full TensorRT, which times kernels while it builds",
            found="TensorRT-RTX, which builds without timing and tunes itself on the GPU",
            fix="leave --timing-cache out, or --flavour tensorrt on the device",
        )
    names = list(graphs) or list(manifest.graphs)
    defaults = {name: default_profiles(manifest, name) for name in names}
    known = [profile for each in defaults.values() for profile in each]
    check_profiles(known, profiles, manifest.limits)
    timing = _timing_sha256(options)
    planned = []
    for name in names:
        chosen = change_profiles(defaults[name], profiles)
        key = EngineKey(
            graph=name,
            graph_sha256=graph_digest(manifest.graphs[name]),
            profile=text_of(chosen),
            precision=options.precision,
            flavour=library.flavour,
            version=library.version,
            compute_capability=capability,
            flags=options.flags(),
            timing_cache_sha256=timing,
        )
        estimate = memory.estimate(weight_bytes(bundle, name, options.precision))
        planned.append(Planned(name, key, chosen, _is_whole(store, key), estimate))
    return planned


def compile_graph(
    bundle: Bundle,
    library: Library,
    planned: Planned,
    options: BuildOptions,
    store: EngineStore,
    notify: Notify,
    waiting: Callable[[], None] = lambda: None,
) -> Compiled:
    """Build one graph's engine and store it; Ctrl-C and SIGTERM cancel the build.

    Args:
        waiting: called if another process is building the same engine, which is then taken.

    Raises:
        EngineError: no engine came of it; nothing is stored.
        SlipstreamError: the store can't be written; told before the build.
    """
    with store.building(planned.key, waiting):
        if not planned.present and _is_whole(store, planned.key):
            path, sidecar = store.get(planned.key)
            return Compiled(planned.graph, path, sidecar, built=False)
        return _build(bundle, library, planned, options, store, notify)


def _build(
    bundle: Bundle,
    library: Library,
    planned: Planned,
    options: BuildOptions,
    store: EngineStore,
    notify: Notify,
) -> Compiled:
    key = planned.key
    free = None if options.ignore_memory else memory.available()
    memory.check(planned.graph, weight_bytes(bundle, planned.graph, key.precision), free)
    timing = _read_timing(options)
    precision, profiles, sm = key.precision, planned.profiles, key.compute_capability
    with (
        held_signals() as stop,
        ready_graph(bundle, planned.graph, precision, _operators(library)) as graph,
    ):
        built, timed = build_engine(
            library, graph, profiles, options, sm, notify, timing, lambda: bool(stop)
        )
    sidecar = _sidecar(bundle, planned, options, built)
    layers = json.dumps({"source": built.source, "layers": built.layers}, indent=1)
    path = store.put(key, built.plan, sidecar, layers)
    if options.timing_cache and timed is not None and timed != timing:
        write_atomic(options.timing_cache, timed, option="--timing-cache")
    return Compiled(planned.graph, path, sidecar, built=True)


def _sidecar(bundle: Bundle, planned: Planned, options: BuildOptions, built: Built) -> Sidecar:
    fields: dict[str, Any] = asdict(planned.key)
    usual = default_profiles(bundle.manifest, planned.graph)
    profiles = [f"--profile={each.text}" for each in planned.profiles if each not in usual]
    return Sidecar(
        **fields | {"flags": list(planned.key.flags)},
        size=len(built.plan),
        sha256=hashlib.sha256(built.plan).hexdigest(),
        built_at=datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
        builder_seconds=round(built.seconds, 3),
        peak_host_bytes=built.peak_bytes,
        device_bytes=built.device_bytes,
        tensors=built.tensors,
        profiles=planned.profiles,
        layers=len(built.layers),
        python=platform.python_version(),
        system=f"{platform.system()} {platform.machine()} {sys.platform}",
        bundle=bundle.manifest.name,
        bundle_folder=str(bundle.folder.absolute()),
        options=[*profiles, *options.typed()],
        warnings=built.warnings[:20],
    )


def _operators(library: Library) -> Callable[[str], bool]:
    """Whether the library's parser knows an operator."""
    trt = library.module
    logger = logger_of(trt, BuildLog().write)
    builder = trt.Builder(logger)
    network = typed_network(trt, builder)
    parser = trt.OnnxParser(network, logger)
    known = {}

    def supports(operator: str) -> bool:
        if operator not in known:
            known[operator] = bool(parser.supports_operator(operator))
        return known[operator]

    # a parser must not outlive its builder
    supports.__dict__["keep"] = (logger, builder, network, parser)
    return supports


def _is_whole(store: EngineStore, key: EngineKey) -> bool:
    try:
        store.get(key)
    except EngineError:
        return False
    return True


def _read_timing(options: BuildOptions) -> bytes | None:
    if options.timing_cache is None:
        return None
    return options.timing_cache.read_bytes() if options.timing_cache.is_file() else b""


def _timing_sha256(options: BuildOptions) -> str | None:
    timing = _read_timing(options)
    return hashlib.sha256(timing).hexdigest() if timing else None
