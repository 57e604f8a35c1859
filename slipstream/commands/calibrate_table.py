"""The tables of a calibration in the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from calibration.results import (
    Attempt,
    CalibrationResults,
    Change,
    GateResult,
    GroupEffect,
    TensorError,
    TokenFigures,
)
from calibration.sensitivity import MAIN
from slipstream.commands.screen import banner, labelled_table

_SHOWN = 6  # groups of a graph, where nobody asked for the report


def show_calibration(
    results: CalibrationResults, out: Path, console: Console, *, report: bool
) -> None:
    """Print graphs, held-out frames, errors and gates of each attempt, then what became of it.

    Args:
        out: the bundle's folder.
        report: print every group, worst first; else the worst ones, and only where gates failed.
    """
    if any(drive.synthetic for drive in results.drives):
        console.print(banner("SYNTHETIC DRIVE", "no vehicle drove it; use drives of your own"))
    for number, attempt in enumerate(results.attempts):
        if number:
            kept = results.attempts[number - 1].blamed
            console.print(f"\nOnce more, {kept} kept as it was:", style="bold")
        console.print(_graphs(attempt))
        if attempt.changes:
            console.print(_changes(attempt.changes))
        if attempt.tensors:
            console.print(_errors(attempt.tensors))
        if attempt.driving:
            kinds = ", ".join(
                f"{each.stratum} {each.source or 0:.2f} -> {each.candidate or 0:.2f} m "
                f"({each.frames})"
                for each in attempt.driving
            )
            console.print(f"ADE@5s by kind of driving (frames): {kinds}", style="dim")
        if attempt.tokens:
            console.print(_tokens(attempt.tokens), style="dim")
        console.print(_gates(attempt.gates))
    if results.sensitivity and (report or results.attempts[0].failed):
        console.print(_groups(results.sensitivity, None if report else _SHOWN))
    console.print(_conditions(results), style="dim")
    for line in verdict(results, out):
        console.print(f"• {line}", highlight=False, soft_wrap=True)


def verdict(results: CalibrationResults, out: Path) -> list[str]:
    """What became of the candidate, and what can be done about it."""
    last = results.attempts[-1]
    said = []
    if len(results.attempts) > 1:
        first = results.attempts[0]
        said.append(f"{first.blamed} was to blame ({', '.join(first.failed)}) and was kept.")
    if results.outcome == "passed":
        return [*said, f"{results.precision}: every gate passed; {out} is written."]
    failed = "; ".join(f"{g.gate}: {g.says}" for g in last.gates if not g.passed)
    blamed = f" {last.blamed} costs the most." if last.blamed else ""
    if results.outcome == "forced":
        return [
            *said,
            f"{failed}.{blamed} {out} is written all the same, and its manifest says so.",
        ]
    keep = f"--keep '{last.blamed}', " if last.blamed else ""
    smooth = "--smooth 0.5, " if results.smooth is None and results.precision == "int8" else ""
    return [
        *said,
        f"Refused. {failed}.{blamed} Nothing is written.",
        f"To try: {keep}{smooth}another --how or precision; --force writes it all the same.",
    ]


def _graphs(attempt: Attempt) -> Table:
    table = labelled_table("Graphs")
    for heading in ("way", "products", "kept", "MB", "time"):
        justify = "left" if heading in ("way", "kept") else "right"
        table.add_column(heading, justify=justify)  # type: ignore[arg-type]
    for each in attempt.graphs:
        kept = list(each.kept_groups)
        if each.kept_tensors:
            kept.append(f"{len(each.kept_tensors)} tensors beyond fp16")
        table.add_row(
            each.graph,
            f"{each.precision} {each.way}",
            f"{each.quantized} of {each.quantized + each.kept}",
            ", ".join(kept) or "nothing",
            f"{each.bytes_before / 1e6:.1f} -> {each.bytes / 1e6:.1f}",
            "" if each.share is None else f"{each.share:.2f}x",
        )
    return table


def _changes(changes: Sequence[Change]) -> Table:
    table = labelled_table("Held-out frames, planned by both")
    for heading in ("source", "candidate", "change", "95 % interval"):
        table.add_column(heading, justify="right", no_wrap=True)
    for each in changes:
        counted = each.name.startswith("unusable")
        digits = 0 if counted else 3 if "@" in each.name else 2
        low, high = each.change.low, each.change.high
        table.add_row(
            each.name,
            _number(each.source, digits),
            _number(each.candidate, digits),
            _percent(each.change.value),
            "" if low is None or high is None else f"{_percent(low)} .. {_percent(high)}",
        )
    return table


def _errors(tensors: Sequence[TensorError]) -> Table:
    table = labelled_table("Error on recorded passes of held-out frames, over the norm")
    for heading in ("main output", "error", "largest", "worst other", "error", "passes"):
        justify = "left" if heading in ("main output", "worst other") else "right"
        table.add_column(heading, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    for graph in dict.fromkeys(each.graph for each in tensors):
        own = [each for each in tensors if each.graph == graph]
        main = next(each for each in own if each.tensor == MAIN[graph])  # type: ignore[index]
        others = [each for each in own if each is not main]
        worst = max(others, key=_relative, default=None)
        table.add_row(
            graph,
            main.tensor,
            _relative_text(main),
            "not finite" if main.largest is None else f"{main.largest:.3g}",
            worst.tensor if worst else "",
            _relative_text(worst) if worst else "",
            str(main.passes),
        )
    return table


def _tokens(tokens: TokenFigures) -> str:
    said = (
        f"Greedy outputs: {tokens.identical} of {tokens.frames} identical, "
        f"{100 * tokens.until_difference:.0f} % of the values before the first difference"
    )
    if tokens.agreeing is not None:
        said += f"; fed the same, {100 * tokens.agreeing:.1f} % of {tokens.rows} tokens agree"
    if tokens.log_likelihood is not None:
        said += f", log likelihood {tokens.log_likelihood:+.4f} nats a token"
    return said


def _gates(gates: Sequence[GateResult]) -> Table:
    table = labelled_table("Gates")
    for heading in ("measured", "limit", "verdict", ""):
        justify = "right" if heading in ("measured", "limit") else "left"
        table.add_column(heading, justify=justify, no_wrap=heading != "")  # type: ignore[arg-type]
    for each in gates:
        verdict = Text("passed", "green") if each.passed else Text("FAILED", "bold red")
        value = "" if each.value is None else f"{each.value:.4g}"
        table.add_row(
            each.gate, value, "" if each.limit is None else f"{each.limit:g}", verdict, each.says
        )
    return table


def _groups(effects: Sequence[GroupEffect], most: int | None) -> Table:
    table = labelled_table("What groups cost: error of the graph's main output, over the norm")
    for heading in ("products", "alone", "all others", "all", "nats a token", ""):
        table.add_column(heading, justify="right" if heading else "left", no_wrap=True)
    for graph in dict.fromkeys(each.graph for each in effects):
        own = [each for each in effects if each.graph == graph]
        for each in own[:most]:
            table.add_row(
                f"{graph}:{each.group}",
                str(each.products),
                _error(each.alone),
                _error(each.without),
                _error(each.all),
                "" if each.log_likelihood is None else f"{each.log_likelihood:+.4f}",
                "" if each.quantized else "kept",
            )
        table.add_section()
    return table


def _conditions(results: CalibrationResults) -> str:
    kinds = ", ".join(f"{n} {kind}" for kind, n in results.calibrated.items() if n)
    threads = results.machine.threads
    memory = ""
    if results.candidate_cache_bytes != results.cache_bytes:
        before, after = results.cache_bytes / 1e6, results.candidate_cache_bytes / 1e6
        memory = f"; keys and values {before:.1f} -> {after:.1f} MB when full"
    return (
        f"calibrated on {kinds} windows of {', '.join(d.name for d in results.drives)}; judged on "
        f"{results.held_out} held-out frames of {', '.join(results.judged_on)}; "
        f"{results.decoder}, {results.rollouts} rollouts; {threads} engine "
        f"thread{'s' * (threads != 1)}{memory}; {results.seconds:.0f} s"
    )


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:+.2f} %"


def _relative(error: TensorError) -> float:
    return float("inf") if error.relative is None else error.relative


def _relative_text(error: TensorError) -> str:
    return _error(error.relative)


def _error(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.4f}"
