"""How a decoder kept to its deadline, over the frames of one drive or of many."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from drives.bootstrap import BlockBootstrap
from drives.figures import Figure, Strict, figure

Floats = NDArray[np.float64]


class Deadline(Strict):
    """Frames within the deadline, and the rollouts that were decoded to keep it."""

    budget_ms: float = Field(description="Latency that a frame may take.")
    in_time: Figure = Field(description="Share of the frames whose latency is within it.")
    frames_in_time: int
    rollouts: Figure = Field(description="Rollouts decoded, mean over the frames.")
    fewest: int = Field(description="Rollouts of the frame with the fewest.")
    most: int


def deadline_of(
    budget_ms: float, latency: Floats, rollouts: Floats, bootstrap: BlockBootstrap
) -> Deadline:
    """Args: latency [W] ms, rollouts [W] that were decoded, of the same frames as `bootstrap`."""
    in_time = latency <= budget_ms
    return Deadline(
        budget_ms=budget_ms,
        in_time=figure(bootstrap.mean(in_time.astype(np.float64))),
        frames_in_time=int(in_time.sum()),
        rollouts=figure(bootstrap.mean(rollouts)),
        fewest=int(rollouts.min()),
        most=int(rollouts.max()),
    )
