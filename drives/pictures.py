"""The report's pictures: inline SVG whose colours and fonts follow the page, light or dark."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from drives.canvas import Canvas, MaxNLocator, rc_context
from drives.costs import LEAST_FOR_P99, outliers
from drives.metrics import HORIZONS
from drives.results import Accuracy, Decoder, Figure, Report
from drives.table import merged

# Colours that stand for the page's CSS variables; `_svg` puts those in.
INK, MUTED, LINE, SURFACE = "#010101", "#010102", "#010103", "#010104"
METHOD = {
    "ar": "#010111",
    "ar-scaffold": "#010112",
    "dflash": "#010113",
    "ddtree": "#010114",
    "spectr": "#010115",
    "scaffold-spec": "#010116",
    "section-diffusion": "#010117",
}
STAGE = {
    "patches": "#010128",
    "encode": "#010129",
    "prefill": "#010121",
    "draft": "#010122",
    "verify": "#010123",
    "head": "#010124",
    "embed": "#010125",
    "host": "#010126",
    "planning": "#010127",
}
BASELINE = "#010131"
_VARIABLES = {
    INK: "--ink",
    MUTED: "--muted",
    LINE: "--line",
    SURFACE: "--surface",
    BASELINE: "--baseline",
    **{color: f"--{method}" for method, color in METHOD.items()},
    **{color: f"--stage-{stage}" for stage, color in STAGE.items()},
}
_STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "font.size": 9.5,
    "text.color": INK,
    "axes.edgecolor": LINE,
    "axes.labelcolor": MUTED,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "grid.color": LINE,
    "grid.linewidth": 0.6,
    "lines.solid_capstyle": "round",
    "figure.constrained_layout.use": True,
}
WIDTH = 5.0  # inches: with 9.5 pt, readable 340 px wide and not too large at 560
_MARKERS = "oDs^"
_LINES = ("-", "--", ":", "-.")


def draw(width: float, height: float, paint: Callable[[Canvas], None]) -> str:
    """An SVG element of width x height inches, scaled to its container by the page."""
    with rc_context(_STYLE):
        canvas = Canvas(figsize=(width, height))
        paint(canvas)
        file = io.StringIO()
        canvas.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    return _svg(file.getvalue())


def _svg(text: str) -> str:
    """Matplotlib's SVG as an inline element: no prolog, no size, the page's fonts and colours."""
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.S)
    text = re.sub(r' (?:width|height)="[\d.]+pt"', "", text, count=2)
    text = re.sub(r"(font: [^\"';]*?px) [^;\"]*", r"\1 var(--sans)", text)
    # groups are named alike in every picture of a page; only clip paths are referred to
    text = re.sub(r' id="(?:figure|axes|patch|text|line2d|legend|matplotlib)[^"]*"', "", text)
    for color, variable in _VARIABLES.items():
        text = text.replace(color, f"var({variable})")
    return text.strip()


def frontier(report: Report) -> str:
    """Median latency against ADE@5s, with intervals; baselines are lines: they cost nothing."""

    def paint(canvas: Canvas) -> None:
        axes = canvas.subplots()
        best = report.best_kinematic(5)
        level = _value(best.accuracy.ade[5])
        axes.axhline(level, color=BASELINE, lw=1.2, ls=(0, (4, 3)))
        at = ("axes fraction", "data")
        _note(axes, best.name.upper(), (0, level), (3, -11), BASELINE, at)
        shown = [d for d in report.decoders if d.accuracy.ade[5].value is not None]
        for rank, decoder in enumerate(sorted(shown, key=lambda d: d.latency_ms.p50.value or 0)):
            latency, error = decoder.latency_ms.p50, decoder.accuracy.ade[5]
            spot = (_value(latency), _value(error))
            color, marker = color_of(decoder), marker_of(decoder, report)
            across, along = _arms(latency), _arms(error)
            axes.errorbar(*spot, along, across, color=color, elinewidth=1, alpha=0.45)
            axes.plot(*spot, marker, color=color, ms=7, mfc=_fill(decoder))
            _note(axes, decoder.name, spot, (7, (6, 20, -15)[rank % 3]), INK)  # neighbours apart
        axes.set_xlim(left=0)
        axes.margins(x=0.12, y=0.15)
        axes.set_xlabel("median latency, ms")
        axes.set_ylabel("ADE@5s, m")
        axes.grid(True)

    return draw(WIDTH, 3.0, paint)


def latency(report: Report) -> str:
    """Every frame's latency as a dot, with p50, p90 and p99 as strokes; one line a decoder.

    An outlier stands as an arrow at the edge: to scale, it would push the others together.
    """
    rng = np.random.default_rng(0)

    def paint(canvas: Canvas) -> None:
        axes = canvas.subplots()
        for line, decoder in enumerate(report.decoders):
            values = np.array([r.latency_ms for r in report.rows if r.decoder == decoder.name])
            color = color_of(decoder)
            jitter = line + rng.uniform(-0.22, 0.22, len(values))
            far = outliers(values)
            near = np.delete(np.arange(len(values)), far)
            axes.plot(values[near], jitter[near], "o", color=color, ms=3, alpha=0.35, mew=0)
            edge = np.full(len(far), 1.0)
            over = axes.get_yaxis_transform()
            axes.plot(edge, jitter[far], ">", color=color, ms=5, transform=over, clip_on=False)
            figures = decoder.latency_ms
            strokes = ((_value(figures.p50), 2.6), (figures.p90, 1.6), (figures.p99, 1.0))
            for value, width in strokes:
                if value is not None and value <= values[near].max():
                    axes.plot([value, value], [line - 0.32, line + 0.32], color=INK, lw=width)
        _rows(axes, [decoder.name for decoder in report.decoders])
        drawn = "p50, p90" if report.frames < LEAST_FOR_P99 else "p50, p90, p99"
        axes.set_xlabel(f"observation to plan, ms (strokes: {drawn})")

    return draw(WIDTH, 0.8 + 0.38 * len(report.decoders), paint)


def shown_stages(report: Report) -> list[str]:
    """Those that took any time: text planners have no cameras to encode."""
    return [s for s in STAGE if any(each.stages_ms.get(s, 0.0) > 0 for each in report.decoders)]


def stages(report: Report) -> str:
    """Where a frame's time goes: mean ms by stage, stacked."""

    def paint(canvas: Canvas) -> None:
        axes = canvas.subplots()
        for line, decoder in enumerate(report.decoders):
            left = 0.0
            for stage, color in STAGE.items():
                width = decoder.stages_ms.get(stage, 0.0)
                axes.barh(line, width, 0.62, left=left, color=color, ec=SURFACE, lw=0.5)
                left += width
            axes.text(left, line, f"  {left:,.1f} ms", va="center", fontsize=9, color=MUTED)
        _rows(axes, [decoder.name for decoder in report.decoders])
        axes.margins(x=0.12)
        axes.set_xlim(left=0)
        axes.set_xlabel("mean ms a frame")

    return draw(WIDTH, 0.8 + 0.38 * len(report.decoders), paint)


def acceptance(report: Report) -> str:
    """Share of drafted value tokens that verification kept, by place in the block; "" if none."""
    drafting = [decoder for decoder in report.decoders if decoder.by_position]

    def paint(canvas: Canvas) -> None:
        axes = canvas.subplots()
        for decoder in drafting:
            places = [p.position for p in decoder.by_position]
            kept = [p.accepted / p.drafted for p in decoder.by_position]
            style = marker_of(decoder, report) + line_of(decoder, report)
            axes.plot(
                places,
                kept,
                style,
                color=color_of(decoder),
                ms=4.5,
                lw=1.6,
                mfc=_fill(decoder),
                label=decoder.name,
            )
        axes.set_ylim(0, 1.03)
        axes.set_xlim(left=0.5)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
        axes.set_xlabel("place in the block after the anchor")
        axes.set_ylabel("accepted / drafted")
        axes.grid(True, axis="y")
        if len(drafting) > 1:
            axes.legend(frameon=False, fontsize=9, handlelength=3)

    return draw(WIDTH, 2.7, paint) if drafting else ""


def horizons(report: Report) -> str:
    """ADE by horizon with intervals; decoders whose plans agree on every frame share one line."""

    def paint(canvas: Canvas) -> None:
        axes = canvas.subplots()
        styles = ((0, (1, 1.5)), (0, (4, 2)), (0, (6, 2, 1, 2)), (0, (2, 2)))
        moving = [k for k in report.kinematic if k.name != "still"]
        for kinematic, style in zip(moving, styles, strict=True):
            values = [_value(kinematic.accuracy.ade[t]) for t in HORIZONS]
            axes.plot(
                HORIZONS, values, color=BASELINE, lw=1.3, ls=style, label=kinematic.name.upper()
            )
        groups = report.same_plans()
        for index, group in enumerate(groups):
            shift = 0.09 * (index - (len(groups) - 1) / 2)
            drawn = marker_of(group[-1], report) + line_of(group[-1], report)
            _horizon_line(axes, group[-1], shift, drawn, merged(group))
        axes.set_xticks(HORIZONS)
        axes.set_ylim(bottom=0)
        axes.set_xlabel("horizon, s")
        axes.set_ylabel("ADE, m")
        axes.grid(True, axis="y")
        axes.legend(frameon=False, fontsize=9, handlelength=3, loc="upper left")

    return draw(WIDTH, 3.1, paint)


def _horizon_line(axes: Any, decoder: Decoder, shift: float, style: str, label: str) -> None:
    accuracy: Accuracy = decoder.accuracy
    values = [_value(accuracy.ade[t]) for t in HORIZONS]
    arms = np.array([_arms(accuracy.ade[t]) for t in HORIZONS])[:, :, 0].T
    axes.errorbar(
        np.array(HORIZONS) + shift,
        values,
        yerr=arms,
        fmt=style,
        color=color_of(decoder),
        ms=5,
        lw=1.6,
        elinewidth=1,
        mfc=_fill(decoder),
        label=label,
    )


def _note(
    axes: Any,
    text: str,
    spot: tuple[float, float],
    offset: tuple[float, float],
    color: str,
    coordinates: Any = "data",
) -> None:
    style = {"xytext": offset, "textcoords": "offset points", "fontsize": 9, "color": color}
    axes.annotate(text, spot, xycoords=coordinates, **style)


def color_of(decoder: Decoder) -> str:
    return METHOD[decoder.settings.method]


def marker_of(decoder: Decoder, report: Report) -> str:
    """One marker for each number of rollouts."""
    counts = list(dict.fromkeys(d.settings.rollouts for d in report.decoders))
    return _MARKERS[counts.index(decoder.settings.rollouts) % len(_MARKERS)]


def line_of(decoder: Decoder, report: Report) -> str:
    """One line style for each rule of a method, which share colour and marker."""
    alike = [
        d.name
        for d in report.decoders
        if (d.settings.method, d.settings.rollouts)
        == (decoder.settings.method, decoder.settings.rollouts)
    ]
    return _LINES[alike.index(decoder.name) % len(_LINES)]


def _fill(decoder: Decoder) -> str:
    """Hollow markers for one rollout, solid ones for several."""
    return SURFACE if decoder.settings.rollouts == 1 else color_of(decoder)


def _rows(axes: Any, labels: Sequence[str]) -> None:
    axes.set_yticks(range(len(labels)), labels)
    axes.tick_params(axis="y", labelcolor=INK)
    axes.invert_yaxis()
    axes.set_xlim(left=0)
    axes.spines["left"].set_visible(False)
    axes.grid(True, axis="x")


def _value(figure: Figure) -> float:
    return float("nan") if figure.value is None else figure.value


def _arms(figure: Figure) -> list[list[float]]:
    """[[down], [up]] as error bars want them; nothing without an interval."""
    if figure.value is None or figure.low is None or figure.high is None:
        return [[0.0], [0.0]]
    return [[max(figure.value - figure.low, 0.0)], [max(figure.high - figure.value, 0.0)]]
