"""Where the decode loop's random numbers come from: one counter for each place of use."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from runtime.philox import uniforms
from runtime.race import Race

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

PLACES = 65  # numbers that one row of a block may use: one for each of up to 64 paths, and LAST
LAST = PLACES - 1  # the place of the token behind the accepted path
_PER_ROUND = 1  # offset of the counter: a round's numbers are behind a position's own (`Race`)
DRAFT, ACCEPT = 0, 1  # words of a round's counter


@dataclass(frozen=True)
class Draws:
    """The numbers of one frame."""

    seed: int
    frame: int

    def at_position(self, rollouts: Ints, positions: Ints) -> Race:
        """The race that decides the token at each position [...], whoever drafts it."""
        return Race(self.seed, self.frame, *np.broadcast_arrays(rollouts, positions))

    def of_round(self, rollouts: Ints, start: Ints) -> RoundDraws:
        """A round's own numbers, fresh for every anchor.

        Reusing a draft's number in a later round would bias block verification, whose accepted
        length depends on drafts behind the rejected one.

        Args:
            rollouts, start: [N]
        """
        return RoundDraws(self, rollouts, start)


@dataclass(frozen=True)
class RoundDraws:
    """Numbers by row and place in the row."""

    draws: Draws
    rollouts: Ints
    start: Ints

    def __call__(self, places: Ints, word: int) -> Floats:
        """[N, W, ...] numbers for [N, W, ...] places below PLACES; `word` is DRAFT or ACCEPT."""
        per_rollout = (-1, *[1] * (places.ndim - 1))
        rows = np.arange(places.shape[1]).reshape(-1, *[1] * (places.ndim - 2))
        u = uniforms(
            self.draws.seed,
            self.draws.frame,
            self.rollouts.reshape(per_rollout),
            self.start.reshape(per_rollout),
            _PER_ROUND + rows * PLACES + places,
        )
        return np.asarray(u[..., word])
