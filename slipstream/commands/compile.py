"""`slipstream compile`: a bundle to engines for one GPU, or a check that the CPU can run it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast, get_args

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from export.engines import memory
from export.engines.compile import Compiled, Planned, compile_graph, plan_builds
from export.engines.flavours import Library, choose_library, parse_target, shown
from export.engines.options import BuildOptions, check_graphs, parse_pools
from runtime.bundle import Bundle, GraphName
from runtime.engines.onnx import OnnxEngine
from runtime.engines.store import EngineStore, Flavour, Precision, sm_name
from runtime.errors import SlipstreamError
from slipstream.commands.screen import Screen


@dataclass(frozen=True)
class Request:
    """The command's arguments as typed; None and empty ones take defaults."""

    bundle: Path
    target: str
    precision: str
    flavour: str | None
    graphs: Sequence[str]
    profiles: Sequence[str]
    timing_cache: Path | None
    strict_timing: bool
    level: int | None
    pools: Sequence[str]
    tf32: bool
    engines: Path | None
    force: bool
    ignore_memory: bool
    dry_run: bool


def run_compile(request: Request) -> None:
    """Compile and say where the engines are.

    Raises:
        SlipstreamError: bad arguments, or a build that came to nothing.
    """
    console = Screen(highlight=False)
    if request.target.strip().lower() == "cpu":
        _check_cpu(request, console)
        return
    options = _options(request)
    capability = parse_target(request.target)
    flavour = _flavour(request.flavour)
    bundle = Bundle.open(request.bundle)
    library = choose_library(flavour, capability, options.precision)
    store = EngineStore(request.engines, request.bundle)
    planned = plan_builds(
        bundle,
        library,
        capability,
        options,
        store,
        graphs=cast(Sequence[GraphName], request.graphs),
        profiles=request.profiles,
    )
    console.print(
        f"{shown(library.flavour)} {library.version} for {sm_name(capability)}, "
        f"{options.precision}, into {store.folder}",
        soft_wrap=True,
    )
    if request.dry_run:
        _show_plan(planned, console)
        return
    for each in planned:
        if each.present and not request.force:
            console.print(f"  {each.graph}: is there already", soft_wrap=True)
        else:
            compiled = _build(bundle, library, each, options, store, console)
            if compiled.built:
                _show_built(compiled, console)
            else:
                console.print(f"  {each.graph}: was built meanwhile", soft_wrap=True)


def _build(
    bundle: Bundle,
    library: Library,
    planned: Planned,
    options: BuildOptions,
    store: EngineStore,
    console: Console,
) -> Compiled:
    columns = (TextColumn("  {task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    hidden = not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=hidden) as progress:
        task = progress.add_task(planned.graph, total=1.0)

        def notify(phase: str, done: float) -> None:
            text = f"{planned.graph}: {phase}"
            if done < 0:
                progress.update(task, description=text)
            else:
                progress.update(task, description=text, completed=done)

        def waiting() -> None:
            text = f"  {planned.graph}: another process is building it; waiting for that"
            console.print(text, soft_wrap=True)

        return compile_graph(bundle, library, planned, options, store, notify, waiting)


def _show_built(compiled: Compiled, console: Console) -> None:
    sidecar = compiled.sidecar
    console.print(
        f"  {compiled.graph}: {sidecar.size / 1e6:.1f} MB, {sidecar.layers} layers, "
        f"{sidecar.builder_seconds:.1f} s, peak host memory {memory.gib(sidecar.peak_host_bytes)}"
        f"{_device_memory(sidecar.device_bytes)}",
        soft_wrap=True,
    )
    for warning in sidecar.warnings:
        console.print(f"    TensorRT warns: {warning}", soft_wrap=True)


def _device_memory(sizes: list[int] | None) -> str:
    return f", activations up to {max(sizes) / 1e6:.0f} MB" if sizes else ""


def _show_plan(planned: Sequence[Planned], console: Console) -> None:
    for each in planned:
        state = "is there already" if each.present else "would be built"
        console.print(
            f"  {each.graph}: {state}, about {memory.gib(each.host_bytes)} of host memory",
            soft_wrap=True,
        )
        console.print(f"    {each.key.filename}", soft_wrap=True)
        for profile in each.profiles:
            console.print(f"    --profile {profile.text}", soft_wrap=True)


def _check_cpu(request: Request, console: Console) -> None:
    """ONNX Runtime optimises a graph when it loads it; what can be done ahead is to try that."""
    if request.precision != "fp32":
        raise SlipstreamError(
            f"--precision {request.precision} is not for --target cpu",
            expected="fp32: ONNX Runtime runs the bundle's graphs as they are",
            found=request.precision,
            fix="leave --precision out, or name a GPU with --target",
        )
    bundle = Bundle.open(request.bundle)
    check_graphs(bundle, request.graphs)
    console.print("nothing to build: ONNX Runtime runs the bundle's graphs as they are")
    for name in cast(Sequence[GraphName], request.graphs) or list(bundle.manifest.graphs):
        began = time.perf_counter()
        engine = OnnxEngine(bundle.graph_path(name), threads=1)
        console.print(
            f"  {name}: loads in {time.perf_counter() - began:.2f} s, {len(engine.inputs)} inputs, "
            f"{len(engine.outputs)} outputs",
            soft_wrap=True,
        )


def _options(request: Request) -> BuildOptions:
    if request.precision not in get_args(Precision):
        raise SlipstreamError(
            "--precision is unknown",
            expected=", ".join(get_args(Precision)),
            found=request.precision,
            fix="slipstream compile --help",
        )
    if request.level is not None and not 0 <= request.level <= 5:
        raise SlipstreamError(
            "--optimization-level is out of range",
            expected="0 to 5",
            found=str(request.level),
            fix="slipstream compile --help",
        )
    if request.strict_timing and request.timing_cache is None:
        raise SlipstreamError(
            "--error-on-timing-cache-miss needs a timing cache",
            expected="--timing-cache FILE beside it",
            found="none",
            fix="slipstream compile --help",
        )
    return BuildOptions(
        precision=cast(Precision, request.precision),
        level=request.level,
        pools=parse_pools(request.pools),
        tf32=request.tf32,
        timing_cache=request.timing_cache,
        strict_timing=request.strict_timing,
        ignore_memory=request.ignore_memory,
    )


def _flavour(name: str | None) -> Flavour | None:
    if name is None:
        return None
    flavour = name.lower().replace("-", "_")
    if flavour not in get_args(Flavour):
        raise SlipstreamError(
            "--flavour is unknown",
            expected="tensorrt or tensorrt-rtx",
            found=name,
            fix="slipstream compile --help",
        )
    return cast(Flavour, flavour)
