"""One graph to one engine, with `tensorrt` or `tensorrt_rtx`: strongly typed, every end checked.

A build counts only when TensorRT returned a plan, the plan is large enough for its weights, it says
itself that it is for the wanted GPU, and its inputs and outputs are those of the graph.
"""

from __future__ import annotations

import mmap
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from export.engines import memory, trace
from export.engines.flavours import Library, shown
from export.engines.graphs import ReadyGraph
from export.engines.options import POOLS, BuildOptions
from export.engines.trace import BuildLog, Notify
from runtime.engines.messages import logger_of
from runtime.engines.profiles import Profile
from runtime.engines.store import TensorInfo, sm_name
from runtime.errors import EngineError

# TensorRT's names of types -> ours
_DTYPES = {
    "FLOAT": "float32",
    "HALF": "float16",
    "BF16": "bfloat16",
    "INT32": "int32",
    "INT64": "int64",
}
_LISTED = {"float": "float32", "half": "float16", "bfloat16": "bfloat16"}  # in the layer listing
_LEAST = 4  # a plan smaller than its weights divided by this has lost them


@dataclass(frozen=True)
class Built:
    """A built engine and what is known of it.

    Attributes:
        plan: the serialized engine.
        tensors: inputs, then outputs.
        layers: of the engine, as listed when it was built or by the inspector; may be empty.
        source: where the layers come from.
        seconds: of the build; peak_bytes: host memory at its peak.
        device_bytes: activation memory of each profile, as the builder reports it.
    """

    plan: bytes
    tensors: list[TensorInfo]
    layers: list[dict[str, Any]]
    source: str
    seconds: float
    peak_bytes: int
    device_bytes: list[int] | None
    warnings: list[str]


def build_engine(
    library: Library,
    graph: ReadyGraph,
    profiles: Sequence[Profile],
    options: BuildOptions,
    capability: str,
    notify: Notify,
    timing: bytes | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> tuple[Built, bytes | None]:
    """Build; returns the engine and the timing cache as the build left it.

    Args:
        timing: the timing cache to build from, b"" for a new one; None without.
        stopped: asked at every step; true cancels the build.

    Raises:
        EngineError: the graph can't be parsed or built, or what came out can't be right.
    """
    trt, log = library.module, BuildLog()
    name = graph.path.name
    logger = logger_of(trt, log.write)
    builder = trt.Builder(logger)
    network = typed_network(trt, builder)
    _parse(trt, network, graph, logger, log)
    tensors = _tensors(network, graph)
    config = builder.create_builder_config()
    _configure(library, config, options, capability, name)
    for profile in profiles:
        _add_profile(builder, config, tensors, profile, name)
    cache = _attach_timing(config, timing, options) if timing is not None else None
    config.progress_monitor = monitor = trace.as_monitor(trt, notify, stopped)
    memory.reset_peak()
    began = time.perf_counter()
    plan = builder.build_serialized_network(network, config)
    seconds, peak = time.perf_counter() - began, memory.peak()
    if lost := monitor.lost or logger.lost:
        raise lost
    if plan is None:
        raise _failed(library, name, log)
    raw = bytes(plan)
    _check_plan(library, raw, graph, capability, log)
    layers, source = _layers(trt, logger, raw, log)
    _check_tensors(log, tensors, name)
    activations = log.activations if len(log.activations) == len(profiles) else None
    built = Built(raw, tensors, layers, source, seconds, peak, activations, log.warnings)
    return built, bytes(cache.serialize()) if cache is not None else None


def capabilities_in(plan: Path | bytes) -> set[str]:
    """The GPUs that a TensorRT-RTX plan says it was compiled for, as `sm86`; empty if it does not
    say."""
    pattern = re.compile(rb"accelerators=\{([^}]{0,200})\}")
    if isinstance(plan, bytes):
        found = pattern.findall(plan)
    else:
        with plan.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
            found = pattern.findall(view)
    return {name.decode() for group in found for name in re.findall(rb"sm\d+", group)}


def typed_network(trt: Any, builder: Any) -> Any:
    """An empty network whose types are those of the graph, and no builder's choice."""
    return builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))


def _parse(trt: Any, network: Any, graph: ReadyGraph, logger: Any, log: BuildLog) -> None:
    parser = trt.OnnxParser(network, logger)
    if parser.parse_from_file(str(graph.path)):
        return
    errors = [parser.get_error(i) for i in range(parser.num_errors)]
    found = "; ".join(
        f"{error.node_operator()} {error.node_name()}: {error.desc()}" for error in errors[:3]
    )
    raise EngineError(
        f"{graph.path.name} can't be parsed",
        expected=f"operators that {trt.__name__} {trt.__version__} knows",
        found=(found or log.why())[:600],
        fix="slipstream export TARGET --draft DRAFTER -o BUNDLE writes such a graph",
    )


def _tensors(network: Any, graph: ReadyGraph) -> list[TensorInfo]:
    """Inputs, then outputs, with the graph's names for dynamic dimensions."""
    ends = [("input", network.get_input(i)) for i in range(network.num_inputs)]
    ends += [("output", network.get_output(i)) for i in range(network.num_outputs)]
    found = []
    for mode, tensor in ends:
        kind = _DTYPES.get(tensor.dtype.name)
        shape = graph.shapes.get(tensor.name)
        if kind is None or shape is None or kind == "int64":
            raise EngineError(
                f"{graph.path.name}: {mode} {tensor.name} is not one of the graph contract",
                expected="fp32, fp16, bf16 or int32 (TensorRT casts int64, slowly)",
                found=tensor.dtype.name,
                fix="slipstream export TARGET --draft DRAFTER -o BUNDLE",
            )
        found.append(
            TensorInfo.model_validate(
                {"name": tensor.name, "mode": mode, "dtype": kind, "shape": shape}
            )
        )
    return found


def _configure(
    library: Library, config: Any, options: BuildOptions, capability: str, name: str
) -> None:
    trt = library.module
    if library.capabilities is not None:  # ahead of time, for this one
        config.num_compute_capabilities = 1
        config.set_compute_capability(
            getattr(trt.ComputeCapability, sm_name(capability).upper()), 0
        )
        # all memory is the application's: a condition of capturing a pass as a CUDA graph
        config.set_flag(trt.BuilderFlag.REQUIRE_USER_ALLOCATION)
    if not options.tf32:
        config.clear_flag(trt.BuilderFlag.TF32)
    if options.strict_timing:
        config.set_flag(trt.BuilderFlag.ERROR_ON_TIMING_CACHE_MISS)
    if options.level is not None:
        config.builder_optimization_level = options.level
    for pool, size in options.pools.items():
        kind = getattr(trt.MemoryPoolType, POOLS[pool])
        config.set_memory_pool_limit(kind, size)
        if (
            set_to := config.get_memory_pool_limit(getattr(trt.MemoryPoolType, POOLS[pool]))
        ) != size:
            raise EngineError(
                f"--memory-pool {pool}:{size}B was not accepted for {name}",
                expected=f"a size that {shown(library.flavour)} takes",
                found=f"it keeps {set_to} bytes",
                fix="leave the option out, or try another size",
            )
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED


def _add_profile(
    builder: Any, config: Any, tensors: Sequence[TensorInfo], profile: Profile, name: str
) -> None:
    made = builder.create_optimization_profile()
    for tensor in tensors:
        if tensor.mode == "input":
            made.set_shape(tensor.name, *profile.shapes(tensor.shape))
    if config.add_optimization_profile(made) < 0:
        raise EngineError(
            f"{name}: TensorRT does not take the profile {profile.name}",
            expected="min <= opt <= max for every input",
            found=profile.text,
            fix="give other ranges with --profile",
        )


def _attach_timing(config: Any, timing: bytes, options: BuildOptions) -> Any:
    cache = config.create_timing_cache(timing)
    if cache is None or not config.set_timing_cache(cache, ignore_mismatch=False):
        raise EngineError(
            f"{options.timing_cache} is no timing cache for this GPU and this TensorRT",
            expected="one that this command wrote on this machine",
            found=f"{len(timing)} bytes",
            fix=f"rm {options.timing_cache}, and compile again",
        )
    return cache


def _failed(library: Library, name: str, log: BuildLog) -> EngineError:
    if needed := re.search(r"Requested size was (\d+) bytes", log.why()):
        mebibytes = -(-int(needed.group(1)) // (1 << 20))
        return EngineError(
            f"{name} does not fit the memory pool",
            expected=f"a workspace of at least {mebibytes} MiB for these profiles",
            found=log.why(),
            fix=f"--memory-pool workspace:{mebibytes}M or more, or smaller ranges with --profile",
        )
    if "workspace limit" in log.why():
        return EngineError(
            f"{name} does not fit the memory pool",
            expected="a workspace that its kernels fit",
            found=log.why(),
            fix="--memory-pool workspace:SIZE with a larger size, or leave it out",
        )
    return EngineError(
        f"{shown(library.flavour)} {library.version} built no engine from {name}",
        expected="a plan",
        found=log.why(),
        fix="try another --precision or --optimization-level",
    )


def _check_plan(
    library: Library, plan: bytes, graph: ReadyGraph, capability: str, log: BuildLog
) -> None:
    least = graph.weight_bytes // _LEAST
    if len(plan) <= max(least, 1024):
        raise EngineError(
            f"the engine of {graph.path.name} can't be whole",
            expected=f"more than {least} bytes, a quarter of its weights",
            found=f"{len(plan)} bytes; {log.why()}",
            fix="compile again with more free memory and disk",
        )
    named = capabilities_in(plan) if library.capabilities is not None else set()
    if named and sm_name(capability) not in named:
        raise EngineError(
            f"the engine of {graph.path.name} is for another GPU than asked for",
            expected=sm_name(capability),
            found=", ".join(sorted(named)),
            fix="report this with the TensorRT version",
        )


def _layers(trt: Any, logger: Any, plan: bytes, log: BuildLog) -> tuple[list[dict[str, Any]], str]:
    """From the builder's own listing; else from the engine, if it can be opened here."""
    if layers := trace.listed_layers(log.listing):
        return layers, "builder"
    engine = trt.Runtime(logger).deserialize_cuda_engine(plan)
    if engine is None:
        return [], "none"
    inspector = engine.create_engine_inspector()
    text = inspector.get_engine_information(trt.LayerInformationFormat.JSON)
    return trace.inspected_layers(text), "inspector"


def _check_tensors(log: BuildLog, tensors: Sequence[TensorInfo], name: str) -> None:
    """The engine's inputs and outputs, where the builder lists them, are the graph's."""
    listed = trace.listed_tensors(log.listing)
    if not listed:
        log.warnings.append("the builder listed no tensors: inputs and outputs were not checked")
        return
    wanted = {(t.name, t.mode, t.dtype, len(t.shape)) for t in tensors}
    found = {(t.name, t.mode, _LISTED.get(t.dtype, t.dtype), len(t.shape)) for t in listed}
    if wanted != found:
        raise EngineError(
            f"the engine of {name} has other inputs and outputs than its graph",
            expected=str(sorted(wanted - found)),
            found=str(sorted(found - wanted)),
            fix="report this with the TensorRT version",
        )
