"""The tables of a bench in the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from calibration.fastest import PLAIN
from drives.results import Figure
from slipstream.commands.bench_results import Bench, GraphTimes, PrecisionTimes
from slipstream.commands.screen import banner, labelled_table


def show_bench(bench: Bench, console: Console) -> None:
    """Print pass times by graph and way, then frames by precision, then what they mean."""
    if bench.drive.synthetic:
        console.print(banner("SYNTHETIC DRIVE", "prompts are made up; times are real"))
    console.print(_passes(bench.graphs))
    console.print(_frames(bench.precisions))
    kept = "head, first and last blocks in fp32" if bench.keep == "ends" else "all quantized"
    smooth = "" if bench.smooth is None else f", smoothed with {bench.smooth:g}"
    threads = bench.machine.threads
    console.print(
        f"{bench.frames} frames of {bench.drive.name}, {bench.decoder}, "
        f"{threads} engine thread{'s' * (threads != 1)}; {kept}{smooth}; ratios to fp32 from one "
        f"interleaved run{', of the computing thread' * (threads == 1)}; passes recorded in "
        f"{bench.recorded} frames",
        style="dim",
    )
    for sentence in verdicts(bench):
        console.print(f"• {sentence}", highlight=False)


def verdicts(bench: Bench) -> list[str]:
    """For each precision what a frame takes, and the way of each graph."""
    said = []
    for each in bench.precisions:
        if each.precision == PLAIN:
            continue
        value, low, high = each.ratio.value, each.ratio.low, each.ratio.high
        if value is None:
            continue
        what = f"{each.precision}: a frame takes {value:.2f}x of fp32{_interval(each.ratio)}"
        sure = low is not None and high is not None and not low <= 1.0 <= high
        what += "" if sure or low is None else ", no difference"
        ways = [f"{graph} {way.split()[-1]}" for graph, way in each.ways.items() if way != PLAIN]
        timed = {graph.graph for graph in bench.graphs if graph.passes}
        stay = [graph for graph, way in each.ways.items() if way == PLAIN and graph in timed]
        what += f"; {', '.join(ways)}" if ways else ""
        what += f"; no way is faster than fp32 for {', '.join(stay)}" if stay else ""
        said.append(f"{what}.")
    return said


def _passes(graphs: Sequence[GraphTimes]) -> Table:
    table = labelled_table("Passes: ms of fp32, and each way's time over it")
    ways = list(dict.fromkeys(way for graph in graphs for way in graph.shares if way != PLAIN))
    for heading in ("a frame", "fp32 ms", *(way.replace(" ", "\n") for way in ways)):
        table.add_column(heading, justify="right", no_wrap=True)
    for graph in graphs:
        for each in graph.passes:
            ratios = (_ratio(each.ratios.get(way)) for way in ways)
            row = f"{graph.graph}, {each.kind}", f"{each.per_frame:.1f}", f"{each.ms:.2f}"
            table.add_row(*row, *ratios)
        if graph.passes:
            shares = (_ratio(graph.shares.get(way)) for way in ways)
            count = f"{graph.graph}, {graph.quantized} of {graph.products} products"
            table.add_row(count, "", "", *shares, end_section=True)
    return table


def _frames(precisions: Sequence[PrecisionTimes]) -> Table:
    table = labelled_table("Frames, each graph in the way that is fastest for it")
    for heading in ("ms a frame", "of fp32", "tau", "no plan", "m to fp32", "MB"):
        table.add_column(heading, justify="right", no_wrap=True)
    for each in precisions:
        tau, gap = each.acceptance_length, each.plan_gap_m
        table.add_row(
            each.precision,
            f"{each.latency_ms.value or 0.0:.1f}",
            _ratio(each.ratio.value),
            "" if tau is None else f"{tau:.2f}",
            str(each.unusable),
            "" if gap is None else f"{gap:.3f}",
            f"{each.bytes / 1e6:.1f}",
        )
    return table


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _interval(figure: Figure) -> str:
    if figure.low is None or figure.high is None:
        return ""
    return f" [{figure.low:.2f}, {figure.high:.2f}]"
