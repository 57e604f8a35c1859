"""Anytime rollouts: how many a frame has time for, decided once, at the fork.

The number depends on clocks alone: on what is left of the budget, and on what earlier frames took.
No rollout has begun when it is decided, so none can be preferred for what it says: those that are
taken are the first n of the frame's rollouts, each with the distribution that it has without a
budget, and an aggregate over them leans nowhere.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from runtime.ahead import drafts_ahead
from runtime.bundle import DraftDims
from runtime.costs import CostCurve
from runtime.gate import PRIOR_RATE
from runtime.script import Script
from runtime.settings import DRAFTING, UNVERIFIED, DecodeSettings

Floats = NDArray[np.float64]
Seconds = Callable[[int, Floats, int], Floats]

MEMORY = 64  # frames that are remembered
FADE = 0.9  # weight of a frame against that of the next one
SURE = 0.88  # share of the remembered frames that a prediction covers; a lone spike is outside


@dataclass
class Rest:
    """What the forked part takes, from the fork to the plan, learnt from the frames before.

    A frame says how far off the guess is; that counts less for a number of rollouts twice or half
    its own, and less with every later frame.

    Attributes:
        guess: [most] s for 1, 2, .. rollouts by the measured cost curve; None without one: then the
            first frame takes one rollout, and n rollouts are taken to cost n times that.
        seen: rollouts and s of the last frames, the latest one last.
    """

    guess: Floats | None
    seen: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=MEMORY))

    def add(self, rollouts: int, seconds: float) -> None:
        self.seen.append((rollouts, seconds))

    def most(self, asked: int, left: float) -> int:
        """The largest number of rollouts, up to `asked`, that fits `left` s; at least 1."""
        return max(1, int((self.predict(asked) <= left).sum()))

    def predict(self, most: int) -> Floats:
        """[most] s for 1, 2, .. rollouts; more rollouts never take less."""
        if self.guess is None and not self.seen:
            return np.full(most, np.inf)
        n = np.arange(1.0, most + 1)
        guess = n if self.guess is None else self.guess[:most]
        if not self.seen:
            return np.asarray(guess)
        counts, seconds = np.asarray(self.seen, np.float64).T
        shape = np.arange(1.0, counts.max() + 1) if self.guess is None else self.guess
        ratios = seconds / shape[counts.astype(np.int64) - 1]
        faded = FADE ** np.arange(len(counts) - 1.0, -1.0, -1.0)
        weights = faded * 0.5 ** abs(np.log2(n[:, None] / counts))
        return np.maximum.accumulate(guess * _quantile(ratios, weights, SURE))


def _quantile(values: Floats, weights: Floats, share: float) -> Floats:
    """[R] weighted quantiles of values [K] under weights [R, K]; one of the values each."""
    order = np.argsort(values)
    mass = weights[:, order].cumsum(axis=1)
    place = (mass < share * mass[:, -1:]).sum(axis=1)
    return np.asarray(values[order][place])


@dataclass(frozen=True)
class Fork:
    """A frame's fork: how many rollouts part there, and when, in s after the frame began."""

    rest: Rest
    rollouts: int
    at: float

    def learn(self, seconds: float) -> None:
        """The plan stands, `seconds` after the frame's work began."""
        self.rest.add(self.rollouts, seconds - self.at)


class Anytime:
    """Decides at each fork, with what was learnt for the same method, sampling and output.

    Args:
        most: rollouts that the bundle was made for.
    """

    def __init__(self, draft: DraftDims | None, most: int) -> None:
        self.draft, self.counts = draft, range(1, most + 1)
        self._rests: dict[tuple[DecodeSettings, int, int], Rest] = {}

    def forget(self) -> None:
        self._rests.clear()

    def fork(
        self,
        settings: DecodeSettings,
        script: Script,
        place: int,
        elapsed: float,
        curve: CostCurve | None,
    ) -> Fork:
        """How many rollouts part at a place of the script, `elapsed` s after the frame began."""
        alike = replace(settings, rollouts=1, seed=0, frame=0, budget_ms=None)
        key = alike, len(script.scaffold), place - script.prompt
        if key not in self._rests:
            self._rests[key] = Rest(self._by_curve(curve, settings, script, place))
        rest = self._rests[key]
        if settings.budget_ms is None:
            return Fork(rest, settings.rollouts, elapsed)
        left = settings.budget_ms / 1e3 - elapsed
        return Fork(rest, rest.most(settings.rollouts, left), elapsed)

    def _by_curve(
        self, curve: CostCurve | None, settings: DecodeSettings, script: Script, place: int
    ) -> Floats | None:
        """[most] s of the passes from the fork on, believing of drafts what the gate believes of
        those it has not seen yet."""
        if curve is None:
            return None
        tokens = len(script) - place
        passes = tokens if settings.method == "ar" else int((~script.fixed[place:]).sum())
        plain = passes * self._each(curve.target_seconds, tokens / passes, place)
        if self.draft is None or settings.method not in (*DRAFTING, *UNVERIFIED):
            return plain
        width = min(settings.block or self.draft.block, self.draft.block)
        steps, wide = (width - 1, 1) if self.draft.stepwise else (1, width)
        if drafts_ahead(self.draft, settings.method):
            steps = 0
        rounds = tokens * (1 - PRIOR_RATE) / (1 - PRIOR_RATE**width)
        verify = self._each(curve.target_seconds, width, place)
        draft = steps * self._each(curve.draft_seconds, wide, place)
        return np.asarray(np.minimum(plain, rounds * (verify + draft)))

    def _each(self, seconds: Seconds, rows: float, length: int) -> Floats:
        """[most] s of a pass of so many rows with 1, 2, .. rollouts."""
        return np.concatenate([seconds(n, np.asarray([rows]), length) for n in self.counts])
