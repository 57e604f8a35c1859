"""A straight drive whose every figure can be worked out by hand, and plans that are off by so much.

The vehicle drives along x at 8 m/s. A plan is `ahead` m/s faster: t s ahead it is ahead * t m off.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from drives.drive import AgentFrame, Drive
from drives.windows import Window, windows
from planners.observation import Observation
from planners.plan import Aggregate, Plan
from runtime.settings import DecodeSettings
from runtime.telemetry import FrameStats

Floats = NDArray[np.float64]

SPEED = 8.0  # m/s
TIMES = np.arange(1, 21) / 4
FRONT = 1.37 + 4.084 / 2  # m from the rear axle to the bumper of the nuScenes car


def drive(seconds: float = 12.0, agents: tuple[AgentFrame, ...] | None = None) -> Drive:
    """4 s of history, 5 s of future and what is between them: 4 (seconds - 9) + 1 windows."""
    times = np.arange(round(seconds * 20) + 1) / 20
    return Drive(
        name="straight",
        source="computed",
        licence="none",
        synthetic=False,
        times=times,
        positions=np.stack([SPEED * times, np.zeros(len(times))], axis=1),
        headings=np.zeros(len(times)),
        speeds=np.full(len(times), SPEED),
        agents=agents,
        dataset="nuScenes",
    )


def car(place: Callable[[float], float], seconds: float = 12.0) -> tuple[AgentFrame, ...]:
    """A car 4 m long on the ego's line, labelled twice a second; its rear is place(t) m along x."""
    return tuple(
        AgentFrame(
            time=float(time),
            ids=("car",),
            kinds=("vehicle.car",),
            positions=np.array([[place(float(time)) + 2.0, 0.0, 0.0]]),
            headings=np.zeros(1),
            sizes=np.array([[4.0, 2.0, 1.5]]),
        )
        for time in np.arange(0, seconds + 0.1, 0.5)
    )


def cut(which: Drive, **changes: object) -> list[Window]:
    """The drive's windows; changes go to the first one."""
    first, *others = windows(which).windows
    return [replace(first, **changes), *others]  # type: ignore[arg-type]


@dataclass
class Fixed:
    """Plans with rollouts so many m/s too fast; `ahead` decides by decoder method and frame."""

    ahead: Callable[[str, int], Sequence[float]]

    def plan(self, observation: Observation, settings: DecodeSettings, rule: Aggregate) -> Plan:
        speeds = SPEED + np.array(self.ahead(settings.method, observation.frame), np.float64)
        rollouts = np.stack([speeds[:, None] * TIMES, np.zeros((len(speeds), 20))], axis=2)
        valid = np.isfinite(speeds)
        stats = FrameStats()
        stats.total, stats.first_token = 2e-3, 1e-3
        stats.rounds = stats.committed = stats.target_passes = 20
        return Plan(
            trajectory=rollouts[valid].mean(axis=0) if valid.any() else None,
            times=TIMES,
            rollouts=rollouts,
            valid=valid,
            problems=tuple("" if fine else "no number" for fine in valid),
            tokens=np.nan_to_num(100 * rollouts[:, 3::4].reshape(len(speeds), -1)).astype(np.int64),
            rule=rule,
            spread=np.zeros(20),
            latency=3e-3,
            stats=stats,
            frame=observation.frame,
            time=observation.time,
            flags=() if valid.any() else ("no valid rollout",),
        )

    def text(self, tokens: NDArray[np.int64]) -> str:
        return " ".join(str(token) for token in tokens)
