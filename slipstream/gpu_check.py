"""What only a GPU can tell: `python -m slipstream.gpu_check`, or `make gpu-check`.

For every way to run a bundle on a GPU: build or load its engines, compare each graph's outputs with
ONNX Runtime's on the CPU on passes recorded from a drive, run `slipstream verify`, time the stages.

Exit code 0: at least one way ran on a GPU, and all that ran passed. 1: something failed. 3: nothing
ran on a GPU, which proves nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import slipstream
from runtime.bundle import Bundle
from runtime.engines.backend import Backend
from runtime.engines.compare import Difference, Pass, compare
from runtime.errors import SlipstreamError
from runtime.files import write_atomic
from runtime.graphs import Graphs
from runtime.tune import Threading
from slipstream.commands.screen import Screen
from slipstream.commands.verify import Request, run_verify
from slipstream.gpu_passes import record, stage_seconds

TENSORRT = ("tensorrt:fp32", "tensorrt:fp16", "tensorrt-rtx:fp32", "tensorrt-rtx:fp16")
WAYS = ("cuda", "tensorrt-ep", *TENSORRT)
NOTHING_RAN = 3


@dataclass
class Part:
    """One way to run the bundle, and what came of it.

    Attributes:
        not_run: why it did not run here, or "".
        verified: exit code of `slipstream verify`; None where that was left out.
        stages: s of a pass by stage, the median.
        device_bytes: held on the GPU after all of it.
        failed: what broke off the part after it had begun, or "".
    """

    name: str
    not_run: str = ""
    failed: str = ""
    differences: list[Difference] = field(default_factory=list)
    verified: int | None = None
    stages: dict[str, float] = field(default_factory=dict)
    device_bytes: int = 0

    @property
    def passed(self) -> bool:
        return (
            not (self.not_run or self.failed)
            and bool(self.differences)
            and all(each.passed for each in self.differences)
            and not self.verified
        )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="slipstream.gpu_check", description=__doc__)
    parser.add_argument("--bundle", type=Path, default=slipstream.shipped_bundle())
    parser.add_argument("--drive", default="synthetic")
    parser.add_argument("--windows", type=int, default=3)
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--samples", type=int, default=512, help="of verify; 0 leaves it out")
    parser.add_argument("--out", type=Path, default=Path("out/gpu-check"))
    options = parser.parse_args(arguments)
    console = Screen(highlight=False)
    try:
        backends = [Backend.parse(name.strip()) for name in options.ways.split(",")]
        parts = check(options, backends, console)
        write_atomic(options.out / "gpu-check.json", json.dumps(_plain(parts), indent=1))
    except SlipstreamError as error:
        sys.stderr.write(f"slipstream: {error}\n")
        return error.exit_code
    return conclude(parts, console)


def check(options: Any, backends: Sequence[Backend], console: Console) -> list[Part]:
    """Run every way that this machine can."""
    problem = gpu_problem()
    parts: list[Part] = []
    if problem:
        return [Part(backend.name, not_run=problem) for backend in backends]
    bundle = Bundle.open(options.bundle)
    passes = record(bundle, options.drive, options.windows)
    for backend in backends:
        console.print(backend.name, style="bold")
        parts.append(_run(backend, bundle, passes, options, console))
    return parts


def gpu_problem() -> str:
    """Why no GPU can be used here, or ""."""
    from runtime.engines.cuda import device_count

    try:
        device_count()
    except SlipstreamError as error:
        return f"{error.what}: {error.found}; {error.fix}"
    return ""


def compare_all(graphs: Graphs, passes: Sequence[Pass], backend: Backend) -> list[Difference]:
    """Every graph's outputs against the recorded ones."""
    return [
        difference
        for name in graphs.manifest.graphs
        for difference in compare(
            name, passes, graphs.engine(name), graphs.device, backend.precision
        )
    ]


def conclude(parts: Sequence[Part], console: Console) -> int:
    """Print what ran, what did not and why; the exit code."""
    ran = [part for part in parts if not part.not_run]
    if not ran:
        for reason in dict.fromkeys(part.not_run for part in parts):
            names = ", ".join(part.name for part in parts if part.not_run == reason)
            console.print(f"not run: {names}\n  {reason}", soft_wrap=True)
        console.print("nothing ran on a GPU: this proves nothing", style="bold")
        return NOTHING_RAN
    table = Table(title="what ran on the GPU")
    for column in ("provider", "outputs", "verify", "memory", "result"):
        table.add_column(column)
    for part in parts:
        failed = [each for each in part.differences if not each.passed]
        right = len(part.differences) - len(failed)
        verified = {None: "not run", 0: "passed"}.get(part.verified, "FAILED")
        result = "passed" if part.passed else part.failed or "FAILED"
        table.add_row(
            part.name,
            f"{right} of {len(part.differences)}" if part.differences else "-",
            verified if not part.not_run else "-",
            f"{part.device_bytes / 1e6:.0f} MB" if part.device_bytes else "-",
            f"not run: {part.not_run}" if part.not_run else result,
        )
        for each in failed:
            console.print(
                f"{part.name} {each.graph} {each.tensor}: {each.worst:.2e} of the largest value, "
                f"at most {each.tolerance:.0e}, over {each.passes} passes",
                soft_wrap=True,
            )
        for stage, seconds in part.stages.items():
            console.print(f"{part.name} {stage}: {seconds * 1e3:.3f} ms", soft_wrap=True)
    console.print(table)
    return 0 if all(part.passed for part in ran) else 1


def _run(
    backend: Backend, bundle: Bundle, passes: Sequence[Pass], options: Any, console: Console
) -> Part:
    part = Part(backend.name)
    try:
        if backend.flavour:
            _build(backend, options.bundle)
        graphs = backend.open(bundle, Threading(1))
    except SlipstreamError as error:
        part.not_run = f"{error.what}: {error.found}"
        return part
    try:
        part.differences = compare_all(graphs, passes, backend)
        part.stages = stage_seconds(graphs)
        part.device_bytes = graphs.nbytes
        del graphs
        if options.samples and bundle.manifest.draft:
            part.verified = _verify(backend, options)
    except SlipstreamError as error:
        console.print(str(error))
        part.failed = error.what
    return part


def _build(backend: Backend, bundle: Path) -> None:
    """Build what the engine store lacks for this GPU."""
    from runtime.engines.cuda import CudaDevice
    from slipstream.commands.compile import Request as Compile
    from slipstream.commands.compile import run_compile

    run_compile(
        Compile(
            bundle=bundle,
            target=CudaDevice().compute_capability,
            precision=backend.precision,
            flavour=backend.kind,
            graphs=(),
            profiles=(),
            timing_cache=None,
            strict_timing=False,
            level=None,
            pools=(),
            tf32=False,
            engines=None,
            force=False,
            ignore_memory=False,
            dry_run=False,
        )
    )


def _verify(backend: Backend, options: Any) -> int:
    return run_verify(
        Request(
            bundle=options.bundle,
            out=options.out / backend.name.replace(":", "-"),
            drive=options.drive,
            frames="6",
            methods="dflash,ddtree,spectr",
            temperature=1.0,
            samples=options.samples,
            seed=0,
            threads=None,
            provider=backend.name,
        )
    )


def _plain(parts: Sequence[Part]) -> list[dict[str, Any]]:
    return [{**asdict(part), "passed": part.passed} for part in parts]


if __name__ == "__main__":
    sys.exit(main())
