"""Whole frames of a bench: every precision plans the same ones, in turn."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from calibration.fastest import PLAIN
from drives.bootstrap import BlockBootstrap
from drives.figures import figure
from drives.replay import rotated
from drives.windows import Window
from planners.plan import Plan
from planners.planner import Planner
from runtime.settings import DecodeSettings
from slipstream.commands.bench_results import PrecisionTimes

WARM_UP = 4  # frames, in which the cost gate tries its ways


class BenchFrames:
    """Plans of every precision on the same frames, in turn, and what each took.

    Attributes:
        plans, seconds: by precision, one a frame.
    """

    def __init__(
        self,
        planners: Mapping[str, Planner],
        seen: Sequence[Window],
        settings: DecodeSettings,
        done: Callable[[int], None],
    ) -> None:
        names = list(planners)
        self._bootstrap = BlockBootstrap(np.array([w.observation.time for w in seen]))
        one_thread = planners[PLAIN].threading.threads == 1
        clock = time.thread_time if one_thread else time.perf_counter
        for planner in planners.values():
            for window in seen[:WARM_UP]:
                planner.plan(window.observation, settings)
        self.plans: dict[str, list[Plan]] = {name: [] for name in names}
        self.seconds: dict[str, list[float]] = {name: [] for name in names}
        for index, window in enumerate(seen):
            for name in rotated(names, index):
                start = clock()
                self.plans[name].append(planners[name].plan(window.observation, settings))
                self.seconds[name].append(clock() - start)
            done(index + 1)

    def times(self, name: str, size: int, ways: dict[str, str]) -> PrecisionTimes:
        """The figures of one precision."""
        plans, bootstrap = self.plans[name], self._bootstrap
        ratios = np.array(self.seconds[name]) / np.array(self.seconds[PLAIN])
        rounds = sum(plan.stats.rounds for plan in plans)
        return PrecisionTimes(
            precision=name,
            ways=ways,
            latency_ms=figure(bootstrap.median(np.array([1e3 * plan.latency for plan in plans]))),
            ratio=figure(bootstrap.median(ratios)),
            acceptance_length=sum(p.stats.committed for p in plans) / rounds if rounds else None,
            unusable=sum(plan.trajectory is None for plan in plans),
            plan_gap_m=self._gap(name),
            bytes=size,
        )

    def _gap(self, name: str) -> float | None:
        gaps = [
            np.linalg.norm(own.trajectory - plain.trajectory, axis=1).mean()
            for own, plain in zip(self.plans[name], self.plans[PLAIN], strict=True)
            if own.trajectory is not None and plain.trajectory is not None
        ]
        return float(np.mean(gaps)) if gaps else None
