"""A plan: where the vehicle should be over the next five seconds, and how that came about."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from runtime.telemetry import FrameStats

Floats = NDArray[np.float64]
Aggregate = Literal["mean", "medoid", "guarded"]


@dataclass(frozen=True, eq=False)
class Plan:
    """What the planner returns for one observation, in the observation's ego frame.

    Attributes:
        trajectory: [20, 2] m (x forward, y left, rear axle), first point 0.25 s ahead; None if no
            rollout was usable.
        times: [20] s after the observation.
        rollouts: [N, 20, 2] m; rows of unusable rollouts are NaN. N is `stats.rollouts`: fewer than
            were asked for where the budget had no time for more.
        valid: [N] bool.
        problems: [N] why a rollout is unusable, "" where it is fine.
        tokens: [N, L] the decoded outputs; `Planner.text` turns one into text.
        rule: which rule made the trajectory ("guarded" names what it chose, e.g. "guarded:mean").
        spread: [20] m, root mean square distance of the valid rollouts from their mean.
        latency: s, observation to plan.
        stats: what decoding cost.
        flags: e.g. "no valid rollout", "two modes", "late" (the budget was missed).
    """

    trajectory: Floats | None
    times: Floats
    rollouts: Floats
    valid: NDArray[np.bool_]
    problems: tuple[str, ...]
    tokens: NDArray[np.int64]
    rule: str
    spread: Floats
    latency: float
    stats: FrameStats
    frame: int
    time: float
    flags: tuple[str, ...] = field(default=())
