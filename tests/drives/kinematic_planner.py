"""A planner without a network: one motion model drafts, another one checks.

It has the same `plan` as the language planner, so replay and report can be tested on real plans in
milliseconds. `ar` rolls out point by point; `dflash` drafts blocks of points at constant velocity
and keeps those that agree with the turning, accelerating rollout to 0.2 m.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from drives.baselines import roll_out
from planners.observation import FUTURE_STATES, RATE_HZ, Observation
from planners.plan import Aggregate, Plan
from runtime.settings import DecodeSettings
from runtime.telemetry import FrameStats

AGREE = 0.2  # m
BLOCK = 8


@dataclass
class KinematicPlanner:
    """Plans by rolling the current motion out, with N accelerations and yaw rates around it.

    Args:
        fail_every: every so manyth frame has a rollout that fails; 0 for none.
        lose_frame: a frame that gets no plan at all.
    """

    fail_every: int = 0
    lose_frame: int | None = None

    def plan(self, observation: Observation, settings: DecodeSettings, rule: Aggregate) -> Plan:
        began = time.perf_counter()
        stats = FrameStats()
        n = settings.rollouts
        rng = np.random.default_rng([settings.seed, settings.frame])
        noise = rng.normal(size=(2, n)) * settings.sampling.temperature
        speed = np.full(n, observation.speeds[-1])
        accel = observation.accelerations[-1] + 0.5 * noise[0]
        yaw_rate = observation.yaw_rates[-1] + 0.03 * noise[1]
        with stats.stage("prefill"):
            rollouts = roll_out(speed, accel, yaw_rate)
        stats.first_token = time.perf_counter() - began
        if settings.method == "dflash":
            with stats.stage("draft"):
                drafts = roll_out(speed, np.zeros(n), np.zeros(n))
            with stats.stage("verify"):
                verify(stats, np.linalg.norm(drafts - rollouts, axis=-1) < AGREE)
        else:
            for _ in range(FUTURE_STATES):
                with stats.stage("verify"):
                    roll_out(speed, accel, yaw_rate)
            stats.target_passes = FUTURE_STATES
            stats.rounds = stats.committed = n * FUTURE_STATES
        stats.cache_bytes = rollouts.nbytes
        problems = self.problems(n, observation.frame)
        valid = np.array([not problem for problem in problems])
        rollouts[~valid] = np.nan
        stats.total = time.perf_counter() - began
        return Plan(
            trajectory=rollouts[valid].mean(axis=0) if valid.any() else None,
            times=np.arange(1, FUTURE_STATES + 1) / RATE_HZ,
            rollouts=rollouts,
            valid=valid,
            problems=problems,
            tokens=np.nan_to_num(100 * rollouts[:, 3::4].reshape(n, -1)).astype(np.int64),
            rule=rule,
            spread=np.zeros(FUTURE_STATES),
            latency=time.perf_counter() - began,
            stats=stats,
            frame=observation.frame,
            time=observation.time,
            flags=() if valid.any() else ("no valid rollout",),
        )

    def text(self, tokens: np.ndarray) -> str:
        """Centimetres at 1..5 s."""
        return " ".join(str(token) for token in tokens)

    def problems(self, n: int, frame: int) -> tuple[str, ...]:
        if frame == self.lose_frame:
            return ("no number",) * n
        first = "folded" if self.fail_every and frame % self.fail_every == 0 and n > 1 else ""
        return (first, *[""] * (n - 1))


def verify(stats: FrameStats, agree: np.ndarray) -> None:
    """Count blocks of drafts as a speculative decoder does; agree [N, 20]."""
    for row in agree:
        at = 0
        while at < FUTURE_STATES:
            block = row[at : at + BLOCK]
            kept = int(np.cumprod(block).sum())
            places = np.arange(1, len(block) + 1)
            stats.by_position[0, places] += 1
            stats.by_position[1, places[:kept]] += 1
            stats.proposed += len(block)
            stats.accepted += kept
            stats.rounds += 1
            committed = min(kept + 1, FUTURE_STATES - at)
            stats.committed += committed
            counts = np.array([1, committed, len(block), kept])
            known = stats.by_section.get("trajectory", np.zeros(4, np.int64))
            stats.by_section["trajectory"] = known + counts
            at += committed
    stats.target_passes += stats.rounds // len(agree)
    stats.draft_passes = stats.target_passes
