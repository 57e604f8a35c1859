"""A stretch of a frame timed in each way to decode it, and the way that was fastest."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

Arm = Literal["tree", "whole", "chain", "plain"]
# Ways to decode a stretch of a frame with a method. A tree that doesn't pay is a chain. The whole
# block comes before what the gate makes of it, which then knows how often each place stands.
ARMS: dict[str, tuple[Arm, ...]] = {
    "dflash": ("whole", "chain", "plain"),
    "ddtree": ("tree", "chain", "plain"),
    "spectr": ("tree", "plain"),
    "scaffold-spec": ("whole", "chain", "plain"),
}
LEARNING = 4  # frames in which each way of drafting is tried at first, taking turns
CHECKS = 3  # frames in which drafting nothing is tried, where it might be faster
PLAUSIBLE = 1.5  # the cost curve may overrate what drafting nothing takes by this much
# a way that took up to so many times as long as the best is timed again after so many frames
RETRIES = ((1.25, 16), (2.0, 64), (math.inf, 1024))
RECENT = 9  # frames of a way that its time is the median of


@dataclass
class Trial:
    """What a stretch of a frame took in each way, as measured.

    Medians, since drafting takes longer in some frames than in others: whatever leans towards the
    fast ones would prefer drafting to a way that always takes the same.

    Attributes:
        arms: the ways; the last drafts nothing.
        taken: s of the recent stretches by way, for those that were tried. A way's first one is
            left out: an engine takes its time over shapes that it has not seen.
        tried: how often each way was.
    """

    arms: tuple[Arm, ...]
    taken: dict[Arm, deque[float]] = field(default_factory=dict)
    tried: dict[Arm, int] = field(default_factory=dict)
    turns: int = 0

    @property
    def seconds(self) -> dict[Arm, float]:
        """s of a typical stretch by way, for those that were tried."""
        return {arm: float(np.median(taken)) for arm, taken in self.taken.items()}

    def next(self, expected_plain: float) -> Arm:
        """How to decode this time: the best so far, and now and then another.

        Args:
            expected_plain: s that drafting nothing would take by the cost curve.
        """
        turn, self.turns = self.turns, self.turns + 1
        drafting = self.arms[:-1]
        if turn < LEARNING * len(drafting):
            return drafting[turn % len(drafting)]
        for arm in drafting:
            if arm not in self.taken:  # every frame of its turns failed
                return arm
        seconds = self.seconds
        best = min(seconds, key=lambda arm: seconds[arm])
        plain = seconds.get("plain", expected_plain)
        if self.tried.get("plain", 0) < CHECKS and plain < PLAUSIBLE * seconds[best]:
            return "plain"
        return self._retried(turn, best, seconds) or best

    def _retried(self, turn: int, best: Arm, seconds: dict[Arm, float]) -> Arm | None:
        """A way whose turn it is to be timed again, though it was not the best."""
        for index, arm in enumerate(self.arms):
            tried = arm != best and arm in seconds
            if tried and turn % _retry_after(seconds[arm] / seconds[best]) == index:
                return arm
        return None

    def add(self, arm: Arm, seconds: float) -> None:
        """A stretch took so long."""
        self.tried[arm] = self.tried.get(arm, 0) + 1
        if self.tried[arm] == 1:
            return
        self.taken.setdefault(arm, deque(maxlen=RECENT)).append(seconds)


def _retry_after(loss: float) -> int:
    """Frames until a way is timed again that took `loss` times as long as the best: the more a
    frame would lose, the later."""
    return next(frames for most, frames in RETRIES if loss <= most)
