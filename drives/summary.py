"""From a replay to its figures: one `Decoder` entry for each decoder, rows and scenes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from drives.baselines import BASELINES, baseline
from drives.bootstrap import BlockBootstrap
from drives.costs import (
    LEAST_FOR_P99,
    latencies,
    outliers,
    percentile,
    positions,
    sections,
    settings_of,
    stages,
)
from drives.deadline import Deadline, deadline_of
from drives.figures import Figure
from drives.figures import figure as figure
from drives.metrics import FIGURES, HORIZONS, ade, distances, fde, rollout_figures
from drives.replay import Replay, is_greedy, reference_of
from drives.results import (
    Accuracy,
    Decoder,
    Identity,
    Kinematic,
    Latency,
    Paired,
)
from drives.scene_results import Point
from drives.scores import compared_frames
from planners.plan import Plan
from runtime.settings import FOLLOWING

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class OutputLength:
    """Tokens of one output, scaffold included, and how many of them come before the fork."""

    tokens: int
    shared: int

    def of(self, rollouts: int) -> int:
        """Tokens that a frame of N rollouts outputs."""
        return self.shared + rollouts * (self.tokens - self.shared)


@dataclass(frozen=True)
class Summary:
    """The figures of a replay.

    Attributes:
        replay: what ran.
        output: length of an output, for TPOT and tokens a second.
        text: turns an output's tokens [L] into text.
    """

    replay: Replay
    output: OutputLength
    text: Callable[[NDArray[np.int64]], str]

    @cached_property
    def bootstrap(self) -> BlockBootstrap:
        return BlockBootstrap(np.array([w.observation.time for w in self.replay.windows]))

    @cached_property
    def truth(self) -> Floats:
        """[W, 20, 2]"""
        futures = [window.future for window in self.replay.windows]
        return np.stack([future for future in futures if future is not None])

    @cached_property
    def compared(self) -> NDArray[np.bool_]:
        """[W] frames that all error figures are over."""
        return compared_frames({name: ade(d, 5) for name, d in self.decoder_distances.items()})

    @cached_property
    def decoder_distances(self) -> dict[str, Floats]:
        """Decoder -> [W, 20] m; NaN rows where there is no plan."""
        return {
            name: distances(np.stack([trajectory(plan) for plan in plans]), self.truth)
            for name, plans in self.replay.plans.items()
        }

    @cached_property
    def baseline_trajectories(self) -> dict[str, Floats]:
        """Baseline -> [W, 20, 2] m."""
        observations = [window.observation for window in self.replay.windows]
        return {name: baseline(name, observations) for name in BASELINES}

    @cached_property
    def baseline_distances(self) -> dict[str, Floats]:
        """Baseline -> [W, 20] m."""
        return {
            name: distances(points, self.truth)
            for name, points in self.baseline_trajectories.items()
        }

    def decoders(self) -> list[Decoder]:
        return [self._decoder(name) for name in self.replay.settings]

    def kinematic(self) -> list[Kinematic]:
        return [
            Kinematic(name=name, label=motion.label, accuracy=self._accuracy(distance))
            for (name, motion), distance in zip(
                BASELINES.items(), self.baseline_distances.values(), strict=True
            )
        ]

    def _decoder(self, name: str) -> Decoder:
        replay, bootstrap = self.replay, self.bootstrap
        settings, plans = replay.settings[name], replay.plans[name]
        reference = reference_of(name, replay.settings)
        latency = latencies(plans)
        committed = sum(plan.stats.committed for plan in plans)
        proposed = sum(plan.stats.proposed for plan in plans)
        accepted = sum(plan.stats.accepted for plan in plans)
        rounds = sum(plan.stats.rounds for plan in plans)
        passes = sum(plan.stats.target_passes + plan.stats.draft_passes for plan in plans)
        engine_s = sum(sum(plan.stats.seconds.values()) for plan in plans)
        decode_s = sum(plan.stats.total for plan in plans)
        after_first_s = np.mean([plan.stats.total - plan.stats.first_token for plan in plans])
        reason = Counter(kind_of(problem) for plan in plans for problem in plan.problems if problem)
        return Decoder(
            name=name,
            settings=settings_of(settings),
            reference=reference,
            latency_ms=self._latency(name),
            deadline=self._deadline(name),
            speedup=figure(bootstrap.median(latencies(replay.plans[reference]) / latency)),
            stages_ms=stages(plans),
            host_share=1 - 1e3 * engine_s / float(latency.sum()),
            ttft_ms=1e3 * float(np.mean([plan.stats.first_token for plan in plans])),
            tpot_ms=1e3 * float(after_first_s) / max(self.output.tokens - 1, 1),
            tokens_per_s=sum(self.output.of(len(plan.tokens)) for plan in plans) / decode_s,
            target_passes=float(np.mean([plan.stats.target_passes for plan in plans])),
            draft_passes=float(np.mean([plan.stats.draft_passes for plan in plans])),
            tokens_per_pass=len(plans) * self.output.tokens / passes if passes else None,
            acceptance_length=committed / rounds if rounds else 0.0,
            acceptance_rate=accepted / proposed if proposed else None,
            by_position=positions(plans),
            by_section=sections(plans),
            cache_mb=max(plan.stats.cache_bytes for plan in plans) / 1e6,
            device_mb=max(plan.stats.device_bytes for plan in plans) / 1e6 or None,
            rollouts=sum(len(plan.valid) for plan in plans),
            unusable=dict(reason.most_common()),
            frames_without_plan=sum(plan.trajectory is None for plan in plans),
            flags=dict(Counter(flag for plan in plans for flag in plan.flags).most_common()),
            accuracy=self._accuracy(self.decoder_distances[name]),
            rollout_ade_3s=self._rollout_ade(name, 3),
            rollout_ade_5s=self._rollout_ade(name, 5),
            versus_reference=self._paired(name, self.decoder_distances[reference]),
            versus_kinematic={
                other: self._paired(name, distance)
                for other, distance in self.baseline_distances.items()
            },
            identity=self._identity(name, reference),
        )

    def _latency(self, name: str) -> Latency:
        plans = self.replay.plans[name]
        latency = latencies(plans)
        return Latency(
            mean=figure(self.bootstrap.mean(latency)),
            p50=figure(self.bootstrap.median(latency)),
            p90=percentile(latency, 90),
            p99=percentile(latency, 99) if len(latency) >= LEAST_FOR_P99 else None,
            longest=float(latency.max()),
            outliers=[plans[place].frame for place in outliers(latency)],
            warmup=[1e3 * seconds for seconds in self.replay.warmup[name]],
        )

    def _deadline(self, name: str) -> Deadline | None:
        plans, budget = self.replay.plans[name], self.replay.settings[name].budget_ms
        if budget is None:
            return None
        decoded = np.array([len(plan.tokens) for plan in plans], np.float64)
        return deadline_of(budget, latencies(plans), decoded, self.bootstrap)

    def _accuracy(self, distance: Floats) -> Accuracy:
        return Accuracy(
            ade={t: self._mean(ade(distance, t)) for t in HORIZONS},
            fde={t: self._mean(fde(distance, t)) for t in HORIZONS},
        )

    def _paired(self, name: str, other: Floats) -> Paired:
        own = self.decoder_distances[name]
        return Paired(
            ade_3s=figure(self.bootstrap.difference(ade(own, 3), ade(other, 3))),
            ade_5s=figure(self.bootstrap.difference(ade(own, 5), ade(other, 5))),
        )

    def _rollout_ade(self, name: str, horizon: float) -> dict[str, Figure]:
        """The plan's and the rollouts' readings, and greedy where a run at temperature 0 is."""
        frames = [
            rollout_figures(plan.rollouts[plan.valid], truth, horizon)
            for plan, truth in zip(self.replay.plans[name], self.truth, strict=True)
        ]
        columns = {"plan": ade(self.decoder_distances[name], horizon)}
        columns |= {f: np.array([frame[f] for frame in frames]) for f in FIGURES}
        if greedy := next((n for n, s in self.replay.settings.items() if is_greedy(s)), None):
            columns = {"greedy": ade(self.decoder_distances[greedy], horizon), **columns}
        return {f: self._mean(values) for f, values in columns.items()}

    def _mean(self, values: Floats) -> Figure:
        """Over the compared frames."""
        return figure(self.bootstrap.mean(np.where(self.compared, values, np.nan)))

    def _identity(self, name: str, reference: str) -> Identity | None:
        if name == reference:
            return None
        pairs = [
            (own.tokens[: len(other.tokens)], other.tokens[: len(own.tokens)])
            for own, other in zip(
                self.replay.plans[name], self.replay.plans[reference], strict=True
            )
        ]
        own, other = (np.concatenate(side) for side in zip(*pairs, strict=True))
        settings = self.replay.settings[name]
        return Identity(
            reference=reference,
            rollouts=len(own),
            identical=int((own == other).all(axis=1).sum()),
            expected=is_greedy(settings) or settings.rule in FOLLOWING,
        )


def kind_of(problem: str) -> str:
    """A rollout's problem without its figures: "speed 71 m/s is above 60" is "speed"."""
    return re.split(r"(?: by)? [-±]?\d", problem)[0]


def trajectory(plan: Plan) -> Floats:
    """[20, 2] m; NaN if there is no plan."""
    return np.full((20, 2), np.nan) if plan.trajectory is None else plan.trajectory


def points(xy: Floats) -> list[Point]:
    """[T, 2] m to millimetres."""
    return [(round(float(x), 3), round(float(y), 3)) for x, y in xy]
