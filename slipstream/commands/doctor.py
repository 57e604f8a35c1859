"""`slipstream doctor`: facts, findings and a verdict about this machine."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from slipstream.commands.screen import Screen
from slipstream.doctor.files import Files
from slipstream.doctor.findings import Finding, examine
from slipstream.doctor.health import check_bundle
from slipstream.doctor.machine import Machine, probe
from slipstream.doctor.python import this_interpreter

_STYLE = {"fault": "bold red", "slow": "yellow", "missing": "cyan"}


def run_doctor(bundle: Path | None, *, as_json: bool, quiet: bool) -> int:
    """Look at this machine and say what to mend.

    Args:
        bundle: the bundle to open and run; None is the shipped one.
        quiet: print nothing but faults.

    Returns:
        1 if there is a fault, else 0.
    """
    import slipstream

    machine = probe(Files(), this_interpreter())
    findings = examine(machine)
    if "onnxruntime" in machine.python.modules:
        broken = check_bundle(bundle or slipstream.shipped_bundle())
        findings = [broken, *findings] if broken else findings
    faults = [finding for finding in findings if finding.level == "fault"]
    console = Screen()
    if as_json:
        print(to_json(machine, findings))
    elif quiet:
        _show_findings(faults, console)
    else:
        show(machine, findings, console)
    return 1 if faults else 0


def to_json(machine: Machine, findings: Sequence[Finding]) -> str:
    """Machine and findings as JSON text."""
    capability = machine.gpu.compute_capability if machine.gpu else None
    return json.dumps(
        {
            "machine": asdict(machine),
            "compute_capability": capability,
            "findings": [asdict(finding) for finding in findings],
            "healthy": all(finding.level != "fault" for finding in findings),
        },
        indent=1,
    )


def show(machine: Machine, findings: Sequence[Finding], console: Console) -> None:
    """Print facts, findings and the verdict."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column()
    for name, value in facts(machine).items():
        grid.add_row(name, Text(value))  # a machine's words are no markup
    console.print(grid, highlight=False)
    console.print()
    _show_findings(findings, console)
    faults = sum(finding.level == "fault" for finding in findings)
    verdict = f"{faults} to mend before a bundle runs" if faults else "bundles run here"
    console.print(verdict, style="bold", highlight=False)


def facts(machine: Machine) -> dict[str, str]:
    """Name -> value, for people; what is unknown says so."""
    python, jetson, gpu = machine.python, machine.jetson, machine.gpu
    found: dict[str, str] = {"system": f"{machine.system or 'unknown'}, {python.machine}"}
    if jetson:
        found["Jetson"] = f"{jetson.model or 'unknown model'} ({jetson.soc or 'unknown SoC'})"
        found["JetPack"] = f"{jetson.jetpack or 'unknown'} (Jetson Linux {jetson.l4t or 'unknown'})"
        clocks = {True: "clocks pinned", False: "clocks scale with load", None: "clocks unknown"}
        mode = f"{jetson.mode.name} (mode {jetson.mode.number})" if jetson.mode else "unknown"
        found["power"] = f"{mode}, {clocks[jetson.clocks_pinned]}"
    found["CPU"] = f"{machine.cpu or 'unknown'}, {machine.cores} threads"
    shared = ", shared with the GPU" if machine.unified else ""
    found["memory"] = f"{_gb(machine.memory)}, {_gb(machine.available)} free{shared}"
    found["GPU"] = _gpu_text(machine) if gpu else "none"
    found["CUDA"] = machine.cuda or "none"
    found["TensorRT"] = _tensorrt_text(machine)
    found["TensorRT-RTX"] = python.modules.get("tensorrt_rtx", "none")
    runtime = python.modules.get("onnxruntime", "none")
    found["ONNX Runtime"] = runtime + (
        f": {', '.join(name.removesuffix('ExecutionProvider') for name in python.providers)}"
        if python.providers
        else ""
    )
    version = ".".join(map(str, python.version))
    found["Python"] = f"{version} ({python.abi}), {python.executable}"
    return found


def _gpu_text(machine: Machine) -> str:
    gpu = machine.gpu
    assert gpu is not None
    parts = [gpu.name, f"compute capability {gpu.compute_capability or 'unknown'}"]
    parts += [_gb(gpu.memory)] if gpu.memory else []
    parts += [f"driver {gpu.driver}"] if gpu.driver else []
    return ", ".join(parts)


def _tensorrt_text(machine: Machine) -> str:
    module = machine.python.modules.get("tensorrt")
    parts = [machine.tensorrt] if machine.tensorrt else []
    parts += [f"Python module {module}"] if module else []
    if machine.tensorrt and not module:
        parts.append("not seen by this Python")
    return ", ".join(parts) or "none"


def _show_findings(findings: Sequence[Finding], console: Console) -> None:
    for finding in findings:
        line = Text(f"{finding.level}: ", style=_STYLE[finding.level])
        console.print(line.append(finding.what, style="default"), highlight=False)
        console.print(Text(f"  {finding.fix}", style="dim"), soft_wrap=True)


def _gb(size: int | None) -> str:
    return "unknown" if size is None else f"{size / 1e9:.1f} GB"
