"""The table of a sweep in the terminal, with what it says in one sentence a temperature."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from rich.console import Console
from rich.table import Table

from drives.bootstrap import LEAST_SEGMENTS
from drives.results import Figure
from drives.scaling_results import Point, Scaling
from slipstream.commands.screen import banner, detailed, labelled_table, titled_table


def show_sweep(sweep: Scaling, console: Console) -> None:
    """Print greedy and the baseline, then every point, then the verdicts."""
    if any(drive.synthetic for drive in sweep.drives):
        console.print(banner("SYNTHETIC DRIVE", "errors say nothing about real roads"))
    if trained := sum(training.frames for training in sweep.training.values()):
        seen = f"the bundle was trained on {trained} of these {sweep.frames} frames"
        console.print(banner("TRAINING DATA", seen))
    console.print(detailed(partial(_errors, sweep), console))
    console.print(_against(sweep))
    frames = f"{sweep.compared} of {sweep.frames} frames have every plan and are compared"
    frames += f", {sweep.rated_frames} of them rated" if sweep.rated_frames else ""
    cut = [drive.windows for drive in sweep.drives if drive.windows is not None]
    frames += f"; {sum(cut):,} windows in all" if len(cut) == len(sweep.drives) else ""
    made = sweep.intervals
    segments = f"{made.segments} segment{'s' * (made.segments != 1)} of {made.segment_s:g} s"
    intervals = f"95 % intervals from {segments}"
    if made.segments < LEAST_SEGMENTS:
        intervals = f"no intervals: {segments}, it takes {LEAST_SEGMENTS}"
    console.print(
        f"{frames}; {intervals}; minADE is an oracle, no plan has it; "
        "cost: median of latency / greedy latency",
        style="dim",
    )
    for sentence in verdicts(sweep):
        console.print(f"• {sentence}", highlight=False)


def _errors(sweep: Scaling, everything: bool) -> Table:
    """Kinematic baselines, greedy, and every number of rollouts."""
    table = labelled_table(f"Rollouts, rule {sweep.rule}: errors in m against the log")
    rated = sweep.rated_frames > 0
    shown = [
        column
        for column in COLUMNS
        if (everything or not column.detail) and (rated or not column.rated)
    ]
    for column in shown:
        table.add_column(column.title, justify="right", no_wrap=True)
    for kinematic in sweep.kinematic:
        known = {"ADE\n@3s": kinematic.ade_3s, "ADE\n@5s": kinematic.ade_5s, "RFS": kinematic.rfs}
        cells = [_text(known[c.title]) if c.title in known else "" for c in shown]
        table.add_row(kinematic.name.upper(), *cells, end_section=kinematic is sweep.kinematic[-1])
    table.add_row(*_row(sweep.greedy, shown), end_section=True)
    for points in sweep.curves().values():
        for point in points:
            table.add_row(*_row(point, shown), end_section=point is points[-1])
    return table


def _against(sweep: Scaling) -> Table:
    """What each reading of the rollouts gains on greedy, and what they cost beside one rollout."""
    table = titled_table("Against greedy: difference of ADE@5s in m, frame by frame")
    headings = ("", "mean of N", "medoid of N", "latency\nof N = 1", "KV\nof N = 1")
    for heading in headings:
        table.add_column(heading, justify="right" if heading else "left", no_wrap=True)
    for points in sweep.curves().values():
        for point in points:
            gains = (point.mean_versus_greedy.ade_5s, point.medoid_versus_greedy.ade_5s)
            cells = (" ".join((_text(gain, sign=True), _interval(gain))) for gain in gains)
            cost, cache = point.cost_of_one, point.cache_of_one
            factors = (cost.value if cost else None, cache)
            costs = ("-" if factor is None else f"{factor:.2f}x" for factor in factors)
            table.add_row(point.name, *cells, *costs, end_section=point is points[-1])
    return table


def verdicts(sweep: Scaling) -> list[str]:
    """For each temperature: does the most rollouts beat greedy beyond the interval? Which others?

    The largest number speaks, not the best one: the best of several is flattered by the choice.
    """
    said = []
    if 2 * sweep.compared < sweep.frames:
        worst = max([sweep.greedy, *sweep.points], key=lambda point: point.frames_without_plan)
        said.append(
            f"Only {sweep.compared} of {sweep.frames} frames are compared: {worst.name} has no "
            f"plan on {worst.frames_without_plan}. Leave such settings out."
        )
    for heat, points in sweep.curves().items():
        most = points[-1]
        gain, rollouts = most.versus_greedy.ade_5s, "1 rollout"
        if most.rollouts > 1:
            rollouts = f"{most.rollouts} rollouts"
        if gain.value is None:
            said.append(f"T = {heat:g}: no frame has both a plan and a greedy plan.")
            continue
        what = f"T = {heat:g}: {rollouts}, {_signed(gain.value)} m ADE@5s against greedy"
        what += f" {interval}" if (interval := _interval(gain)) else ""
        what += f" at {_or(most.cost.value, float('nan')):.2f}x its latency"
        if gain.low is None:
            said.append(f"{what}; too few segments for an interval.")
            continue
        verdict = "no difference that these frames can show"
        if gain.excludes_zero:
            verdict = "better" if gain.value < 0 else "worse"
        sure = [str(p.rollouts) for p in points[:-1] if p.versus_greedy.ade_5s.excludes_zero]
        others = f"; an interval without 0 also at {', '.join(sure)}" if sure else ""
        said.append(f"{what}: {verdict}{others}.")
        if most.spread_ratio_5s is not None:
            said.append(
                f"T = {heat:g}: at 5 s the rollouts spread {most.spread_ratio_5s:.2f} times as far "
                "as their mean errs (1 would be honest)."
            )
    return said


@dataclass(frozen=True)
class Column:
    """One column: its heading, its cell, whether only wide terminals or rated frames have it."""

    title: str
    cell: Callable[[Point], str]
    detail: bool = False
    rated: bool = False


def _versus_greedy(point: Point) -> str:
    gain = point.versus_greedy.ade_5s
    if point.temperature == 0:
        return ""
    interval = _interval(gain)
    return _text(gain, sign=True) + (f"\n{interval}" if interval else "")


COLUMNS = (
    Column("ADE\n@3s", lambda p: _text(p.ade_3s.plan), detail=True),
    Column("ADE\n@5s", lambda p: _text(p.ade_5s.plan)),
    Column("minus greedy\n@5s", _versus_greedy),
    Column("mean of\nADE@5s", lambda p: _text(p.ade_5s.mean_of_ade)),
    Column("minADE\n@5s", lambda p: _text(p.ade_5s.min_ade)),
    Column("spread\n@5s", lambda p: _text(p.spread_5s)),
    Column("RFS", lambda p: _text(p.rfs), rated=True),
    Column(
        "RFS minus\ngreedy",
        lambda p: "" if p.temperature == 0 else _text(p.rfs_versus_greedy, sign=True),
        detail=True,
        rated=True,
    ),
    Column("unusable", lambda p: str(p.unusable), detail=True),
    Column("ms\np50", lambda p: f"{_or(p.latency_p50_ms.value, float('nan')):.0f}"),
    Column("cost", lambda p: f"{_or(p.cost.value, float('nan')):.2f}x"),
    Column("KV\nMB", lambda p: f"{p.cache_mb:.1f}", detail=True),
)


def _row(point: Point, shown: Sequence[Column]) -> list[str]:
    return [point.name, *(column.cell(point) for column in shown)]


def _text(value: Figure | None, *, sign: bool = False) -> str:
    if value is None or value.value is None:
        return "-"
    return _signed(value.value) if sign else f"{value.value:.2f}"


def _interval(value: Figure) -> str:
    if value.low is None or value.high is None:
        return ""
    return f"[{_signed(value.low)}, {_signed(value.high)}]"


def _signed(value: float) -> str:
    return f"{value:+.3f}".replace("-", "−")


def _or(value: float | None, other: float) -> float:
    return other if value is None else value
