"""The picture of a sweep: accuracy, gain over greedy, spread, cost, and RFS where it is rated."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from drives.canvas import Canvas, rc_context
from drives.results import Figure
from drives.scaling_results import Point, Scaling
from runtime.visible import visible

INK, MUTED, LINE = "#1b1f24", "#5b6470", "#d9dde2"
GREEDY, BASELINE = "#1b1f24", "#9a6a1f"
CURVES = ("#1668b8", "#c2412d", "#2e8540", "#7a3fa0", "#0f8a8a")  # one a temperature
STYLE: dict[str, Any] = {
    "font.size": 9.0,
    "text.color": INK,
    "axes.edgecolor": LINE,
    "axes.labelcolor": MUTED,
    "text.parse_math": False,  # a name with dollar signs is no formula
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "grid.color": LINE,
    "grid.linewidth": 0.6,
    "figure.constrained_layout.use": True,
}


def picture(sweep: Scaling) -> bytes:
    """A PNG. Bars and bands are 95 % intervals; hollow markers are oracles.

    Means have none here: frames differ far more than settings on the same frame do, so only the
    differences beside them tell settings apart.
    """
    rated = sweep.rated_frames > 0
    with rc_context(STYLE):
        canvas = Canvas(figsize=(11.0, 7.2 if not rated else 10.4), dpi=140)
        rows = canvas.subplots(3 if rated else 2, 2)
        _accuracy(rows[0][0], sweep)
        _gain(rows[0][1], sweep)
        _spread(rows[1][0], sweep)
        _cost(rows[1][1], sweep)
        if rated:
            _rfs(rows[2][0], sweep)
            _rfs_gain(rows[2][1], sweep)
        for axes in (axes for row in rows for axes in row):
            _counts(axes, sweep)
        canvas.suptitle(visible(_title(sweep)), x=0.01, ha="left", fontsize=11)
        file = io.BytesIO()
        canvas.savefig(file, format="png", metadata={"Software": None})
    return file.getvalue()


def _title(sweep: Scaling) -> str:
    names = [drive.name for drive in sweep.drives]
    drives = names[0] if len(names) == 1 else f"{len(names)} drives"
    synthetic = " (SYNTHETIC)" if any(drive.synthetic for drive in sweep.drives) else ""
    trained = sum(training.frames for training in sweep.training.values())
    seen = f" ({trained} TRAINED ON)" if trained else ""
    return (
        f"{sweep.bundle.name} on {drives}{synthetic}: {sweep.compared} frames{seen}; "
        f"{sweep.method}, {sweep.accept}, rule {sweep.rule}"
    )


def _accuracy(axes: Any, sweep: Scaling) -> None:
    axes.set_title("ADE@5s against the log, m")
    _level(axes, sweep.greedy.ade_5s.plan, "greedy", GREEDY, band=False)
    best = sweep.best_kinematic
    _level(axes, best.ade_5s, f"best kinematic: {best.name.upper()}", BASELINE, band=False)
    for color, heat, points in _curves(sweep):
        plan = [p.ade_5s.plan for p in points]
        _line(axes, points, plan, color, "o-", f"plan, T = {heat:g}", bars=False)
        single = [p.ade_5s.mean_of_ade for p in points]
        _line(axes, points, single, color, "s:", "mean of the rollouts' ADEs", bars=False)
        oracle = [p.ade_5s.min_ade for p in points]
        _line(axes, points, oracle, color, "^--", "minADE (oracle)", bars=False, hollow=True)
    axes.set_ylim(bottom=0)
    _legend(axes)


def _gain(axes: Any, sweep: Scaling) -> None:
    axes.set_title("ADE@5s minus greedy, same frames, m (below 0 is better)")
    axes.axhline(0, color=GREEDY, lw=1.2, label="greedy")
    _each_curve(axes, sweep, lambda p: p.versus_greedy.ade_5s, "plan")
    _legend(axes)


def _spread(axes: Any, sweep: Scaling) -> None:
    axes.set_title("At 5 s, m: spread of the rollouts, and energy score (lower is better)")
    _level(axes, sweep.greedy.energy_score_5s, "greedy: energy score", GREEDY, band=False)
    _each_curve(axes, sweep, lambda p: p.spread_5s, "spread")
    for color, heat, points in _curves(sweep):
        scores = [p.energy_score_5s for p in points]
        _line(axes, points, scores, color, "s:", f"energy score, T = {heat:g}", bars=False)
    axes.set_ylim(bottom=0)
    _legend(axes)


def _cost(axes: Any, sweep: Scaling) -> None:
    axes.set_title("median latency, ms a frame (beside the points: against greedy, by frame)")
    _level(axes, sweep.greedy.latency_p50_ms, "greedy", GREEDY)
    _each_curve(axes, sweep, lambda p: p.latency_p50_ms, "latency")
    for _, _, points in _curves(sweep)[:1]:
        for point in points:
            if point.latency_p50_ms.value is not None and point.cost.value is not None:
                spot = (point.rollouts, point.latency_p50_ms.value)
                offset = {"xytext": (5, -13), "textcoords": "offset points"}
                axes.annotate(f"{point.cost.value:.2f}x", spot, color=MUTED, fontsize=8, **offset)
    axes.set_ylim(bottom=0)
    axes.margins(y=0.12)
    _legend(axes)


def _rfs(axes: Any, sweep: Scaling) -> None:
    axes.set_title(f"Rater Feedback Score, {sweep.rated_frames} rated frames (higher is better)")
    _level(axes, sweep.greedy.rfs, "greedy", GREEDY, band=False)
    known = [k for k in sweep.kinematic if k.rfs is not None and k.rfs.value is not None]
    if known:
        best = max(known, key=lambda k: (k.rfs.value or 0.0) if k.rfs else 0.0)
        _level(axes, best.rfs, f"best kinematic: {best.name.upper()}", BASELINE, band=False)
    for color, heat, points in _curves(sweep):
        plan = [p.rfs for p in points]
        _line(axes, points, plan, color, "o-", f"plan, T = {heat:g}", bars=False)
        single = [p.rfs_of_one for p in points]
        _line(axes, points, single, color, "s:", f"one rollout, T = {heat:g}", bars=False)
    _legend(axes)


def _rfs_gain(axes: Any, sweep: Scaling) -> None:
    axes.set_title("RFS minus greedy, same frames (above 0 is better)")
    axes.axhline(0, color=GREEDY, lw=1.2, label="greedy")
    _each_curve(axes, sweep, lambda p: p.rfs_versus_greedy, "plan")
    _legend(axes)


def _each_curve(axes: Any, sweep: Scaling, read: Any, label: str) -> None:
    curves = _curves(sweep)
    for rank, (color, heat, points) in enumerate(curves):
        shift = 1.03 ** (rank - (len(curves) - 1) / 2)  # bars beside each other
        figures = [read(p) for p in points]
        _line(axes, points, figures, color, "o-", f"{label}, T = {heat:g}", shift=shift)


def _curves(sweep: Scaling) -> list[tuple[str, float, list[Point]]]:
    return [
        (CURVES[rank % len(CURVES)], heat, points)
        for rank, (heat, points) in enumerate(sweep.curves().items())
    ]


def _line(
    axes: Any,
    points: Sequence[Point],
    figures: Sequence[Figure | None],
    color: str,
    style: str,
    label: str,
    *,
    bars: bool = True,
    hollow: bool = False,
    shift: float = 1.0,
) -> None:
    spots = [(shift * p.rollouts, f) for p, f in zip(points, figures, strict=True)]
    known = [(spot, f) for spot, f in spots if f is not None]
    known = [(count, each) for count, each in known if each.value is not None]
    across, values = [count for count, _ in known], [each.value or 0.0 for _, each in known]
    fill = "white" if hollow else color
    axes.plot(across, values, style, color=color, ms=5, lw=1.6, mfc=fill, label=label)
    for count, each in known:
        if bars and each.low is not None and each.high is not None:
            axes.plot([count, count], [each.low, each.high], color=color, lw=1.0, alpha=0.55)


def _level(axes: Any, value: Figure | None, label: str, color: str, *, band: bool = True) -> None:
    if value is None or value.value is None:
        return
    axes.axhline(
        value.value, color=color, lw=1.2, ls="-" if color == GREEDY else (0, (4, 3)), label=label
    )
    if band and value.low is not None and value.high is not None:
        axes.axhspan(value.low, value.high, color=color, alpha=0.07, lw=0)


def _counts(axes: Any, sweep: Scaling) -> None:
    counts = sorted({point.rollouts for point in sweep.points})
    axes.set_xscale("log", base=2)
    axes.set_xticks(counts, [str(count) for count in counts])
    axes.minorticks_off()
    axes.set_xlim(counts[0] / 1.25, counts[-1] * 1.25)
    axes.set_xlabel("rollouts")
    axes.grid(True, axis="y")


def _legend(axes: Any) -> None:
    handles, labels = axes.get_legend_handles_labels()
    once = dict(zip(labels, handles, strict=True))  # what every temperature shares is said once
    axes.legend(once.values(), once.keys(), frameon=False, fontsize=8, handlelength=2.6)
