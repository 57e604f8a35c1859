"""One frame from above, as inline SVG."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from drives.canvas import Canvas
from drives.pictures import BASELINE, INK, METHOD, MUTED, SURFACE, draw
from drives.scene_results import Line, Scene

STANDING = 0.05  # m in a step, below which it has no course
APART_PX = 20  # between two dots that have a number


def bird_eye(scene: Scene) -> str:
    """One frame from above, forward is up, and below it the distance from the truth over time."""

    def paint(canvas: Canvas) -> None:
        above, below = canvas.subplots(2, 1, height_ratios=(3.4, 1))
        for points in scene.baselines.values():
            _path(above, points, color=BASELINE, lw=1, alpha=0.8, ls=(0, (3, 2)))
        for points in scene.rollouts:
            _path(above, points, color=METHOD["dflash"], lw=0.8, alpha=0.35)
        _path(above, _recent(scene), color=MUTED, lw=1.6, marker="o", ms=2)
        _path(above, scene.truth, color=INK, lw=2.2)
        _path(above, scene.plan, color=METHOD["dflash"], lw=2.2)
        for points, color in ((scene.truth, INK), (scene.plan, METHOD["dflash"])):
            _path(above, points[3::4], color=color, ls="", marker="o", ms=4.5, mec=SURFACE)
        above.plot(0, 0, marker=(3, 0, 0), color=INK, ms=10, mec=SURFACE)
        above.update_datalim([(-4, -2), (4, 6)])  # at a standstill, noise is no road
        wide = stretch(scene)
        above.set_aspect(1 / wide, adjustable="datalim")
        above.invert_xaxis()  # y is positive to the left
        above.set_xlabel(
            "y, m (left)" + (f", drawn {wide} times as wide" if wide > 1 else ""), fontsize=8
        )
        above.set_ylabel("x, m (forward)", fontsize=8)
        above.grid(True)
        _errors(below, scene)

    return draw(3.6, 4.7, paint)


def ending(scene: Scene) -> str:
    """Where the plan ends beside what happened, along and across its course there, in words."""
    truth = np.array([(0.0, 0.0), *scene.truth])
    course = truth[-1] - truth[-2]
    length = float(np.hypot(*course))
    forward = course / length if length > STANDING else np.array([1.0, 0.0])
    apart = np.array(scene.plan[-1]) - truth[-1]
    along, left = float(apart @ forward), float(forward[0] * apart[1] - forward[1] * apart[0])
    told = [
        f"{abs(size):.1f} m {words[size > 0]}"
        for size, words in ((along, ("short", "too far")), (left, ("right", "left")))
        if abs(size) >= 0.05
    ]
    return f"ends {', '.join(told)}" if told else "ends where the vehicle was"


def numbered(dots: Line, seconds: Sequence[int]) -> list[tuple[float, float, int]]:
    """Dots of a picture (px) that have room for their second, and which it is."""
    shown: list[tuple[float, float, int]] = []
    for (x, y), second in zip(dots, seconds, strict=False):
        if all(np.hypot(x - other[0], y - other[1]) >= APART_PX for other in shown):
            shown.append((x, y, second))
    return shown


def stretch(scene: Scene) -> int:
    """How much wider than long a metre is drawn, so that a straight road shows its sides too."""
    shown = np.concatenate([scene.truth, scene.plan, *scene.rollouts, [(0.0, 0.0)]])
    forward, sideways = np.ptp(shown, axis=0)
    return next((wide for wide in (10, 5, 2) if wide * max(sideways, 4.0) < 0.7 * forward), 1)


def _recent(scene: Scene) -> list[tuple[float, float]]:
    """The past, no further back than a fifth of what lies ahead: it is there for direction."""
    ahead = max(np.abs(scene.truth).max(), np.abs(scene.plan).max(), 25.0)
    return [point for point in scene.past if np.hypot(*point) <= 0.2 * ahead]


def _errors(axes: Any, scene: Scene) -> None:
    truth = np.array(scene.truth)
    times = np.arange(1, len(truth) + 1) / 4

    def line(points: Sequence[tuple[float, float]], **style: Any) -> None:
        axes.plot(times, np.linalg.norm(np.array(points) - truth, axis=1), **style)

    for name, points in scene.baselines.items():
        if name != "still":
            line(points, color=BASELINE, lw=1, alpha=0.8, ls=(0, (3, 2)))
    for points in scene.rollouts:
        line(points, color=METHOD["dflash"], lw=0.8, alpha=0.35)
    line(scene.plan, color=METHOD["dflash"], lw=2)
    axes.set_ylim(bottom=0)
    axes.set_xlim(0, 5)
    axes.set_xlabel("s ahead", fontsize=8)
    axes.set_ylabel("error, m", fontsize=8)
    axes.grid(True, axis="y")


def _path(axes: Any, points: Sequence[tuple[float, float]], **style: Any) -> None:
    xy = np.array(points)
    axes.plot(xy[:, 1], xy[:, 0], **style)
