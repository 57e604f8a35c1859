"""The rows of `report.json`: each frame's figures, from which many drives are pooled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from drives.figures import Strict, known
from drives.scene_results import Point
from drives.scores import BOUNDS, RolloutScores, Scores

Floats = NDArray[np.float64]

Three = tuple[float | None, float | None, float | None]


class FrameScores(Strict):
    """One trajectory's figures on one frame; null where the frame has no such figure."""

    ade_3s: float | None = Field(description="m, against the log.")
    ade_5s: float | None
    fde_5s: float | None
    top_ade_3s: float | None = Field(
        description="m, against the trajectory that the raters scored highest; null: not rated, or "
        "it does not reach that far."
    )
    top_ade_5s: float | None
    rfs: float | None = Field(description="Rater Feedback Score; null: not rated, or no plan.")
    l2_at: Three = Field(description="nuScenes L2 at 1, 2, 3 s, m.")
    l2_up_to: Three = Field(description="nuScenes L2 averaged up to 1, 2, 3 s, m.")
    collision_at: Three = Field(
        description="1 or 0 at 1, 2, 3 s; null where no labels are near, or where the logged box "
        "overlaps an agent's already (for the log itself that is a 1)."
    )
    collision_up_to: Three = Field(
        description="Share of the judged steps up to 1, 2, 3 s that collide."
    )
    discomfort: list[str] | None = Field(
        description="Bounds of comfort that it breaks; empty: none; null: no plan."
    )


class RolloutFigures(Strict):
    """One frame's rollouts at 5 s; null where none is usable."""

    min_ade: float | None = Field(description="m, of the best usable rollout.")
    min_fde: float | None
    brier_min_fde: float | None
    missed: float | None = Field(description="1 where all usable rollouts end over 2 m away.")
    spread: float | None = Field(description="m, root mean square distance from the mean.")
    energy_score: float | None


class FrameRow(FrameScores):
    """One decoder on one frame."""

    frame: int
    name: str | None = Field(description="What the data set calls the instant.")
    cluster: str | None = Field(description="Scenario cluster, where one is given.")
    time: float
    decoder: str
    latency_ms: float
    target_passes: int
    acceptance_length: float
    usable: int = Field(description="Usable rollouts.")
    problems: list[str] = Field(description="Of unusable rollouts.")
    flags: list[str]
    rollouts: RolloutFigures
    trajectory: list[Point] | None = Field(description="20 points at 4 Hz, m, ego frame.")


class BaselineRow(FrameScores):
    """A kinematic baseline, or the log itself, on one frame."""

    frame: int
    baseline: str = Field(description="Name of a baseline, or `log`.")


def scores_of(scores: Scores, row: int) -> FrameScores:
    """One frame of the columns."""
    return FrameScores(
        ade_3s=known(scores.ade_3s[row]),
        ade_5s=known(scores.ade_5s[row]),
        fde_5s=known(scores.fde_5s[row]),
        top_ade_3s=known(scores.top_ade_3s[row]),
        top_ade_5s=known(scores.top_ade_5s[row]),
        rfs=known(scores.rfs[row]),
        l2_at=_three(scores.l2_at[row]),
        l2_up_to=_three(scores.l2_up_to[row]),
        collision_at=_three(scores.collision_at[row]),
        collision_up_to=_three(scores.collision_up_to[row]),
        discomfort=_broken(scores.discomfort[row]),
    )


def rollouts_of(scores: RolloutScores, row: int) -> RolloutFigures:
    """One frame of the columns."""
    return RolloutFigures(
        **{each.name: known(getattr(scores, each.name)[row]) for each in fields(scores)}
    )


def columns(rows: Sequence[FrameScores]) -> Scores:
    """The columns of W rows, of one drive or of many: the opposite of `scores_of`."""
    return Scores(
        **{
            each.name: np.array([getattr(row, each.name) for row in rows], np.float64)
            for each in fields(Scores)
            if each.name != "discomfort"
        },
        discomfort=np.array([_marks(row.discomfort) for row in rows], np.float64),
    )


def rollout_columns(rows: Sequence[RolloutFigures]) -> RolloutScores:
    """The opposite of `rollouts_of`."""
    return RolloutScores(
        **{
            each.name: np.array([getattr(row, each.name) for row in rows], np.float64)
            for each in fields(RolloutScores)
        }
    )


def _three(values: Floats) -> Three:
    first, second, third = (known(value) for value in values)
    return first, second, third


def _broken(marks: Floats) -> list[str] | None:
    if np.isnan(marks).any():
        return None
    return [name for name, mark in zip(BOUNDS, marks, strict=True) if mark]


def _marks(broken: list[str] | None) -> list[float]:
    return [float("nan") if broken is None else float(name in broken) for name in BOUNDS]
