"""From a replay to the scores of everybody in it, and from those to the rows of `report.json`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from drives.collision import NUSCENES_EGO
from drives.drive import Drive
from drives.frame_rows import BaselineRow, FrameRow, rollouts_of, scores_of
from drives.leaderboard_results import LOG
from drives.leaderboards import Board
from drives.replay import Replay, reference_of
from drives.scene_results import Point
from drives.scores import path_scores, rollout_scores, usable_rollouts
from drives.summary import Summary, points, trajectory
from drives.windows import NO_FUTURE, Window
from planners.plan import Plan

EGOS = {"nuScenes": NUSCENES_EGO}  # data set -> its vehicle


def judge(summary: Summary, drive: Drive, clusters: Mapping[str, str] | None = None) -> Board:
    """Score every decoder, every baseline and the log on the frames of a replay.

    Args:
        summary: of the replay.
        drive: what was replayed; its labelled road users are what plans may collide with.
        clusters: sequence -> scenario cluster, see `drives.clusters`.
    """
    replay, truth = summary.replay, summary.truth
    windows = replay.windows
    ego = EGOS.get(drive.dataset, NUSCENES_EGO)
    plans = {
        name: np.stack([trajectory(plan) for plan in plans]) for name, plans in replay.plans.items()
    }
    kinematic = summary.baseline_trajectories
    rollouts = {
        **{name: [plan.rollouts for plan in plans] for name, plans in replay.plans.items()},
        **{name: list(paths[:, None]) for name, paths in kinematic.items()},
    }
    logged = [replace(window, future=None) for window in windows]
    return Board(
        decoders={
            name: path_scores(paths, windows, truth, drive.agents, ego)
            for name, paths in plans.items()
        },
        baselines={
            name: path_scores(paths, windows, truth, drive.agents, ego)
            for name, paths in kinematic.items()
        },
        log=path_scores(truth, logged, truth, drive.agents, ego),
        rollouts={name: rollout_scores(paths, truth) for name, paths in rollouts.items()},
        counts={name: max(len(each) for each in paths) for name, paths in rollouts.items()},
        usable={name: usable_rollouts(paths) for name, paths in rollouts.items()},
        references={name: reference_of(name, replay.settings) for name in replay.settings},
        bootstrap=summary.bootstrap,
        clusters=[(clusters or {}).get(sequence(window), "") for window in windows],
        agents=drive.agents is not None,
        ego=ego,
        known_ego=drive.dataset in EGOS,
        cut_off=replay.skipped[NO_FUTURE],
        forecasts={
            name: rollouts[name]
            for name, settings in replay.settings.items()
            if settings.rollouts > 1
        },
        truth=truth,
    )


def sequence(window: Window) -> str:
    """The sequence that a recorded window is of: `<sequence>-<index>` is WOD-E2E's name."""
    return window.name.rpartition("-")[0]


def frame_rows(replay: Replay, board: Board) -> list[FrameRow]:
    """Every decoder on every frame."""
    return [
        FrameRow(
            **scores_of(board.decoders[name], place).model_dump(),
            frame=plan.frame,
            name=window.name or None,
            cluster=board.clusters[place] or None,
            time=plan.time,
            decoder=name,
            latency_ms=1e3 * plan.latency,
            target_passes=plan.stats.target_passes,
            acceptance_length=plan.stats.acceptance_length,
            usable=int(plan.valid.sum()),
            problems=[problem for problem in plan.problems if problem],
            flags=list(plan.flags),
            rollouts=rollouts_of(board.rollouts[name], place),
            trajectory=_path(plan),
        )
        for place, window in enumerate(replay.windows)
        for name, plan in ((name, plans[place]) for name, plans in replay.plans.items())
    ]


def baseline_rows(replay: Replay, board: Board) -> list[BaselineRow]:
    """Every baseline and the log on every frame."""
    return [
        BaselineRow(
            **scores_of(scores, place).model_dump(),
            frame=window.observation.frame,
            baseline=name,
        )
        for place, window in enumerate(replay.windows)
        for name, scores in {**board.baselines, LOG: board.log}.items()
    ]


def _path(plan: Plan) -> list[Point] | None:
    return None if plan.trajectory is None else points(plan.trajectory)
