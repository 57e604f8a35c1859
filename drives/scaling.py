"""Test-time scaling: what more rollouts buy and what they cost, beside the greedy plan.

Averaging samples undoes noise that sampling put in, so the honest baseline is the greedy decode of
the same frames, not one sample. Every error is a mean over the same frames of the same run: those
on which all settings have a plan. Its interval comes from resampled segments of the drives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from drives.baselines import BASELINES, baseline
from drives.bootstrap import BlockBootstrap
from drives.calibration import best_of, calibration, energy_score, spread
from drives.costs import latencies
from drives.metrics import ade, distances, fde, rollout_figures
from drives.rater import RaterScore, rater_feedback_score
from drives.replay import Replay
from drives.results import Figure, Paired
from drives.scaling_results import Kinematic, Point, Reading
from drives.summary import figure, trajectory
from planners.plan import Plan

Floats = NDArray[np.float64]

GREEDY = "greedy"
HORIZON = 5.0  # s, of spread, calibration and misses


@dataclass(frozen=True)
class Curve:
    """Figures of a replay whose settings are `greedy` and numbers of rollouts."""

    replay: Replay

    @cached_property
    def bootstrap(self) -> BlockBootstrap:
        windows = self.replay.windows
        times = np.array([window.observation.time for window in windows])
        return BlockBootstrap(times, [window.drive for window in windows])

    @cached_property
    def truth(self) -> Floats:
        """[W, 20, 2] m"""
        futures = [window.future for window in self.replay.windows]
        return np.stack([future for future in futures if future is not None])

    @cached_property
    def compared(self) -> NDArray[np.bool_]:
        """[W] whether every setting has a plan."""
        lost = [[plan.trajectory is None for plan in plans] for plans in self.replay.plans.values()]
        return np.asarray(~np.array(lost).any(axis=0))

    @property
    def rated_frames(self) -> int:
        rated = [window.rated is not None for window in self.replay.windows]
        return int((np.array(rated) & self.compared).sum())

    @cached_property
    def _plans(self) -> Mapping[str, Floats]:
        """Setting -> [W, 20, 2] m, NaN where there is no plan."""
        return {
            name: np.stack([trajectory(plan) for plan in plans])
            for name, plans in self.replay.plans.items()
        }

    @cached_property
    def _kinematic(self) -> dict[str, Floats]:
        """Baseline -> [W, 20, 2] m."""
        observations = [window.observation for window in self.replay.windows]
        return {name: baseline(name, observations) for name in BASELINES}

    @cached_property
    def _best_kinematic(self) -> Floats:
        """[W, 20] m, of the baseline with the least ADE@5s."""
        errors = [distances(paths, self.truth) for paths in self._kinematic.values()]
        return min(errors, key=lambda distance: float(ade(distance, 5)[self.compared].sum()))

    def kinematic(self) -> list[Kinematic]:
        return [
            Kinematic(
                name=name,
                label=BASELINES[name].label,
                ade_3s=self._mean(ade(distances(paths, self.truth), 3)),
                ade_5s=self._mean(ade(distances(paths, self.truth), 5)),
                rfs=self._rated(self._scores(paths)),
            )
            for name, paths in self._kinematic.items()
        ]

    def point(self, name: str) -> Point:
        """All figures of one setting."""
        plans, settings = self.replay.plans[name], self.replay.settings[name]
        own = distances(self._plans[name], self.truth)
        greedy = distances(self._plans[GREEDY], self.truth)
        best = [
            best_of(plan.rollouts, truth, max(int(plan.valid.sum()), 1), HORIZON)
            for plan, truth in zip(plans, self.truth, strict=True)
        ]
        kept = [plan.rollouts for plan, counts in zip(plans, self.compared, strict=True) if counts]
        forecast = calibration(kept, self.truth[self.compared], HORIZON)
        scores, other = self._scores(self._plans[name]), self._scores(self._plans[GREEDY])
        latency, one = latencies(plans), self._plans_of_one(name)
        return Point(
            name=name,
            rollouts=settings.rollouts,
            temperature=settings.sampling.temperature,
            unusable=sum(int((~plan.valid).sum()) for plan in plans),
            frames_without_plan=sum(plan.trajectory is None for plan in plans),
            ade_3s=self._reading(plans, own, 3),
            ade_5s=self._reading(plans, own, 5),
            fde_5s=self._mean(fde(own, 5)),
            min_fde_5s=self._mean(np.array([each.min_fde for each in best])),
            miss_rate_5s=self._mean(np.array([each.miss_rate for each in best])),
            versus_greedy=self._paired(own, greedy),
            mean_versus_greedy=self._read_versus(plans, "mean", greedy),
            medoid_versus_greedy=self._read_versus(plans, "medoid", greedy),
            versus_kinematic=self._paired(own, self._best_kinematic),
            spread_5s=self._each(plans, lambda plan, truth: spread(plan.rollouts)[-1]),
            energy_score_5s=self._each(
                plans, lambda plan, truth: energy_score(plan.rollouts, truth, HORIZON)
            ),
            spread_ratio_5s=forecast.spread_ratio if forecast.frames else None,
            coverage_5s={
                "along": {f"{level:g}": share for level, share in forecast.along.items()},
                "across": {f"{level:g}": share for level, share in forecast.across.items()},
            }
            if forecast.frames
            else {},
            rfs=self._rated(scores),
            rfs_of_one=self._rated(self._scores_of_rollouts(plans)),
            rfs_versus_greedy=self._rated(scores - other),
            latency_ms=figure(self.bootstrap.mean(latency)),
            latency_p50_ms=figure(self.bootstrap.median(latency)),
            cost=figure(self.bootstrap.median(latency / latencies(self.replay.plans[GREEDY]))),
            cost_of_one=figure(self.bootstrap.median(latency / latencies(one))) if one else None,
            cache_of_one=_most_cache(plans) / max(_most_cache(one), 1) if one else None,
            target_passes=float(np.mean([plan.stats.target_passes for plan in plans])),
            cache_mb=_most_cache(plans) / 1e6,
        )

    def _plans_of_one(self, name: str) -> list[Plan] | None:
        """Plans of one rollout at a setting's temperature; None if the sweep has none."""
        wanted = replace(self.replay.settings[name], rollouts=1)
        for other, settings in self.replay.settings.items():
            if settings == wanted:
                return self.replay.plans[other]
        return None

    def _reading(self, plans: list[Plan], own: Floats, horizon: float) -> Reading:
        columns = {name: self._mean(v) for name, v in self._read(plans, horizon).items()}
        return Reading(plan=self._mean(ade(own, horizon)), **columns)

    def _read(self, plans: list[Plan], horizon: float) -> dict[str, Floats]:
        """Way of reading the rollouts -> [W] ADE, m."""
        frames = [
            rollout_figures(plan.rollouts, truth, horizon)
            for plan, truth in zip(plans, self.truth, strict=True)
        ]
        return {name: np.array([frame[name] for frame in frames]) for name in frames[0]}

    def _read_versus(self, plans: list[Plan], way: str, greedy: Floats) -> Paired:
        own = {horizon: self._read(plans, horizon)[way] for horizon in (3.0, 5.0)}
        return Paired(
            ade_3s=self._mean(own[3.0] - ade(greedy, 3)),
            ade_5s=self._mean(own[5.0] - ade(greedy, 5)),
        )

    def _paired(self, own: Floats, other: Floats) -> Paired:
        return Paired(
            ade_3s=self._mean(ade(own, 3) - ade(other, 3)),
            ade_5s=self._mean(ade(own, 5) - ade(other, 5)),
        )

    def _each(self, plans: list[Plan], measure: Callable[[Plan, Floats], float]) -> Figure:
        values = [measure(plan, truth) for plan, truth in zip(plans, self.truth, strict=True)]
        return self._mean(np.array(values))

    def _scores(self, paths: Floats) -> Floats:
        """[W] RFS of one trajectory a frame; NaN where it is not rated or there is no plan."""
        return np.array(
            [self._score(row, path, lambda s: s.score) for row, path in enumerate(paths)]
        )

    def _scores_of_rollouts(self, plans: list[Plan]) -> Floats:
        """[W] mean RFS of the usable rollouts."""
        return np.array(
            [
                self._score(row, plan.rollouts[plan.valid], lambda s: float(s.each.mean()))
                for row, plan in enumerate(plans)
            ]
        )

    def _score(self, row: int, paths: Floats, read: Callable[[RaterScore], float]) -> float:
        window = self.replay.windows[row]
        if window.rated is None or not len(paths):
            return float("nan")
        even = None if paths.ndim == 2 else np.full(len(paths), 1.0 / len(paths))
        speed = abs(float(window.observation.speeds[-1]))
        return read(rater_feedback_score(paths, window.rated, speed, even))

    def _rated(self, scores: Floats) -> Figure | None:
        return self._mean(scores) if self.rated_frames else None

    def _mean(self, values: Floats) -> Figure:
        """Over the compared frames."""
        return figure(self.bootstrap.mean(np.where(self.compared, values, np.nan)))


def _most_cache(plans: list[Plan]) -> int:
    """Most bytes of keys and values in a frame."""
    return max(plan.stats.cache_bytes for plan in plans)
