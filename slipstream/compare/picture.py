"""The picture of a comparison: acceptance, places in the block, cost, and one panel a study."""

from __future__ import annotations

import io
from collections.abc import Sequence
from math import isfinite
from typing import Any

from drives.bootstrap import Interval
from drives.canvas import Canvas, rc_context
from drives.scaling_picture import CURVES, INK, LINE, MUTED, STYLE
from runtime.visible import visible
from slipstream.compare.pooled import change, pooled, position_rates, section_tau, tau
from slipstream.compare.results import Comparison, Entry, Study

COLD, HOT = CURVES[0], CURVES[1]
MOST_NAMED = 8  # entries; beyond them names would cover each other
_COLORS = (*CURVES, "#b0741a", "#5b6470", "#a83279", "#4a7c2f", "#3b4cc0", "#8c5a3c", "#008080")


def picture(comparison: Comparison) -> bytes:
    """A PNG; bars are Student's 95 % intervals over the seeds."""
    panels = 3 + len(comparison.studies)
    heights = _heights(comparison)
    with rc_context(STYLE):
        canvas = Canvas(figsize=(12.0, 1.0 + sum(heights)), dpi=140)
        grid = canvas.subplots(
            len(heights), 2, squeeze=False, gridspec_kw={"height_ratios": heights}
        )
        places = list(grid.flat)
        _acceptance(places[0], comparison)
        _positions(places[1], comparison)
        _frontier(places[2], comparison)
        for axes, study in zip(places[3:], comparison.studies, strict=False):
            _study(axes, comparison, study)
        for axes in places[panels:]:
            axes.set_axis_off()
        canvas.suptitle(visible(_title(comparison)), x=0.01, ha="left", fontsize=11)
        file = io.BytesIO()
        canvas.savefig(file, format="png", metadata={"Software": None})
    return file.getvalue()


def _heights(comparison: Comparison) -> list[float]:
    """Inches of each line of two panels: as many as its names need."""
    rows = [len(comparison.entries), 0, 0, *(len(s.entries) - 1 for s in comparison.studies)]
    heights = [max(2.6, 0.27 * count + 1.0) for count in (*rows, 0)]
    return [max(heights[i : i + 2]) for i in range(0, len(rows), 2)]


def _title(comparison: Comparison) -> str:
    budget = comparison.budget
    return (
        f"{len(comparison.entries)} drafters for {budget.target}: {budget.steps} steps of "
        f"{budget.batch} x {budget.anchors} blocks, {len(budget.seeds)} seeds; "
        f"{comparison.frames} held-out frames of {', '.join(comparison.drives)}"
    )


def _acceptance(axes: Any, comparison: Comparison) -> None:
    axes.set_title("acceptance length of a chain, tokens a round")
    names = [entry.name for entry in comparison.entries]
    heats = _heats(comparison)
    for color, heat, shift in zip(CURVES, heats, _shifts(len(heats)), strict=False):
        spots = [pooled(entry, tau("chain", heat)) for entry in comparison.entries]
        _dots(axes, names, spots, color, shift, f"T = {heat:g}")
    _named_rows(axes, names)


def _positions(axes: Any, comparison: Comparison) -> None:
    heat = _heats(comparison)[-1]
    axes.set_title(f"share of drafts that stand, by place in the block, T = {heat:g}")
    for entry, color in _behind_first(comparison):
        rates = position_rates(entry, "chain", heat)
        axes.plot(list(rates), list(rates.values()), "o-", color=color or LINE, ms=3, lw=1.2)
        if rates and color:
            last = max(rates)
            spot = {"xytext": (4, 0), "textcoords": "offset points", "va": "center"}
            axes.annotate(visible(entry.name), (last, rates[last]), color=color, fontsize=7, **spot)
    axes.set_ylim(0, 1.02)
    axes.margins(x=0.16)
    axes.set_xlabel("place; 1 is the first behind the anchor")
    axes.grid(True, axis="y")


def _frontier(axes: Any, comparison: Comparison) -> None:
    axes.set_title("what it brings: latency of ar-scaffold / of a frame (chain, greedy)")
    heat = _heats(comparison)[0]
    for entry, color in _behind_first(comparison):
        across = pooled(entry, tau("chain", heat)).value
        up = pooled(entry, lambda measured: measured.speedup_scaffold).value
        axes.plot([across], [up], "o", color=color or MUTED, ms=6 if color else 4)
        spot = {"xytext": (6, 3), "textcoords": "offset points"}
        if color:
            axes.annotate(visible(entry.name), (across, up), color=color, fontsize=7.5, **spot)
    axes.set_xlabel(f"acceptance length, T = {heat:g}")
    axes.margins(0.18)
    axes.grid(True)


def _study(axes: Any, comparison: Comparison, study: Study) -> None:
    section = list(comparison.entries[0].seeds[0].acceptance[0].by_section)[-1]
    axes.set_title(visible(f"{study.name}: tau against {study.base}, %"))
    axes.axvline(0, color=INK, lw=1.0)
    base, others = comparison.entry(study.base), [n for n in study.entries if n != study.base]
    heats = _heats(comparison)
    shown: list[tuple[float, str | None, str, str]] = [
        (heats[0], None, COLD, f"T = {heats[0]:g}, whole output")
    ]
    if len(heats) > 1:
        shown.append((heats[-1], section, HOT, f"T = {heats[-1]:g}, {section}"))
    for (heat, part, color, label), shift in zip(shown, _shifts(len(shown)), strict=True):
        read = tau("chain", heat) if part is None else section_tau("chain", heat, part)
        spots = [_percent(change(comparison.entry(name), base, read)) for name in others]
        _dots(axes, others, spots, color, shift, label)
    _named_rows(axes, others)


def _dots(
    axes: Any, names: Sequence[str], spots: Sequence[Interval], color: str, shift: float, label: str
) -> None:
    rows = [row + shift for row in range(len(names))]
    axes.plot([spot.value for spot in spots], rows, "o", color=color, ms=4.5, label=label)
    for row, spot in zip(rows, spots, strict=True):
        if isfinite(spot.low) and isfinite(spot.high):
            axes.plot([spot.low, spot.high], [row, row], color=color, lw=1.1, alpha=0.6)


def _named_rows(axes: Any, names: Sequence[str]) -> None:
    axes.set_yticks(range(len(names)), [visible(name) for name in names])
    room = max(0.7, 0.07 * len(names))  # for the legend, so that it covers nothing
    axes.set_ylim(len(names) - 0.5, -0.5 - room)
    axes.tick_params(axis="y", labelcolor=INK, length=0)
    axes.grid(True, axis="x", color=LINE)
    axes.legend(frameon=False, fontsize=8, labelcolor=MUTED, loc="upper right", ncols=3)


def _shifts(count: int) -> list[float]:
    return [0.22 * (rank - (count - 1) / 2) for rank in range(count)]


def _heats(comparison: Comparison) -> list[float]:
    return sorted({each.temperature for each in comparison.entries[0].seeds[0].acceptance})


def _percent(interval: Interval) -> Interval:
    return Interval(100 * interval.value, 100 * interval.low, 100 * interval.high)


def _behind_first(comparison: Comparison) -> list[tuple[Entry, str | None]]:
    """Entries in the order of drawing, with their colours; of many, only a few have one: the first,
    and each architecture's furthest accepted."""
    heat = _heats(comparison)[-1]
    shown = {entry.name for entry in comparison.entries}
    if len(shown) > MOST_NAMED:
        ranked = sorted(comparison.entries, key=lambda e: pooled(e, tau("chain", heat)).value)
        shown = {entry.name for entry in {entry.kind: entry for entry in ranked}.values()}
        shown.add(comparison.entries[0].name)
    named = [entry for entry in comparison.entries if entry.name in shown]
    colors = dict(zip((entry.name for entry in named), _COLORS, strict=False))
    found = [(entry, colors.get(entry.name)) for entry in comparison.entries]
    return sorted(found, key=lambda each: each[1] is not None)
