"""Draws by an exponential race: of a place's tokens the first to arrive is drawn.

Token x arrives at E_x / p_x, where E_x = -log U_x with a uniform U_x of its own; the first is
distributed as p (to the 32 bits of a uniform). Who races under q with the same noise names the same
token with probability at least (1 - TV) / (1 + TV), the most that can be promised to two who don't
know each other's distribution (Daliri, Musco, Suresh, arXiv 2408.07978). By inverse CDF from one
number it would be less: there a token's edges move with all the tokens before it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.philox import uniforms
from runtime.sampling import draw

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

WIDE = 1024  # where more tokens than this are possible, one number decides, by inverse CDF
BLUR = 0.8  # of a drafter: typical error of its log p, as the scale of Gumbel noise
EDGE_BLUR = 0.03  # and of its cumulative probability
# The counter's last word, at a rollout's position: 0 is for a wide place's number, 2**31 and above
# for four tokens each. A round's own numbers (`runtime.draws`) lie between.
_NUMBER, _TOKENS = 0, 1 << 31


@dataclass(frozen=True)
class Race:
    """The noise of some places [...], the same whoever draws; `race[index]` is that of some.

    A token's noise is a function of seed, frame, rollout, position and token, and of nothing else.
    It is worked out for the tokens that a distribution makes possible.

    Attributes:
        rollouts, positions: [...]
        tokens: [..., C] what the columns of distributions stand for; None where columns are tokens.
        noise: [..., C] that of `tokens`, if worked out beforehand.
    """

    seed: int
    frame: int
    rollouts: Ints
    positions: Ints
    tokens: Ints | None = None
    noise: Floats | None = None

    def __getitem__(self, index: Any) -> Race:
        return replace(
            self,
            rollouts=self.rollouts[index],
            positions=self.positions[index],
            tokens=None if self.tokens is None else self.tokens[index],
            noise=None if self.noise is None else self.noise[index],
        )

    def among(self, tokens: Ints) -> Race:
        """The same for distributions over tokens [..., C], in token order."""
        return replace(self, tokens=tokens)

    def over(self, tokens: Ints) -> Race:
        """The same for distributions over tokens [..., C], for who draws at a place often: the
        noise is worked out once. Columns that are never possible may repeat a token."""
        known = self.among(tokens)
        return replace(known, noise=known._of(tokens)) if tokens.shape[-1] <= WIDE else known

    def draw(self, p: Floats) -> Ints:
        """The column that wins at each place [...], never one of zero probability.

        Args:
            p: [..., C], normalised.
        """
        if self.noise is not None:
            return _first(p, self.noise)
        rows, each = p.reshape(-1, p.shape[-1]), self._flat(p.shape)
        wide, won = is_wide(rows), np.zeros(len(rows), np.int64)
        if not wide.all():
            columns, few = _possible(rows, wide)
            won = columns[np.arange(len(rows)), _first(few, each._of_columns(columns))]
        if wide.any():
            won[wide] = draw(rows[wide], each[wide].numbers())
        return won.reshape(p.shape[:-1])

    def foreseen(self, q: Floats) -> Floats:
        """How likely each column is to win when the target draws, of whose p a drafter's q is an
        estimate.

        If log p is log q and BLUR times independent Gumbel noise, x wins with probability
        proportional to (q_x / E_x)^(1 / BLUR). BLUR was measured on the tiny planner: its log loss
        is 0.46 nats at T = 0.5 and 0.41 at T = 1 (of q alone 0.74 and 0.79), and between 0.5 and
        0.8 trees are accepted most. At a wide place the target's cumulative sums are taken to lie
        around q's by a logistic error of scale EDGE_BLUR.

        Args:
            q: [..., C], normalised.

        Returns:
            [..., C], normalised; 0 where q is.
        """
        if self.noise is not None:
            return _chances(q, self.noise)
        rows, each = q.reshape(-1, q.shape[-1]), self._flat(q.shape)
        wide, ahead = is_wide(rows), np.zeros(rows.shape)
        if not wide.all():
            columns, few = _possible(rows, wide)
            at = np.nonzero(few)
            ahead[at[0], columns[at]] = _chances(few, each._of_columns(columns))[at]
        if wide.any():
            ahead[wide] = _near(rows[wide], each[wide].numbers())
        return ahead.reshape(q.shape)

    def numbers(self) -> Floats:
        """[...] the uniform that decides at a wide place."""
        u = uniforms(self.seed, self.frame, self.rollouts, self.positions, _NUMBER)
        return np.asarray(u[..., 0])

    def _flat(self, shape: tuple[int, ...]) -> Race:
        """Places [M] of the rows of distributions of this shape."""
        places = shape[:-1]
        return replace(
            self,
            rollouts=np.broadcast_to(self.rollouts, places).reshape(-1),
            positions=np.broadcast_to(self.positions, places).reshape(-1),
            tokens=None
            if self.tokens is None
            else np.broadcast_to(self.tokens, shape).reshape(-1, shape[-1]),
        )

    def _of_columns(self, columns: Ints) -> Floats:
        """[..., C] noise of columns [..., C]."""
        return self._of(
            columns if self.tokens is None else np.take_along_axis(self.tokens, columns, axis=-1)
        )

    def _of(self, tokens: Ints) -> Floats:
        """[..., C] noise of tokens [..., C]; neighbours share a counter's four words."""
        four = tokens >> 2
        new = np.ones(tokens.shape, np.bool_)
        np.not_equal(four[..., 1:], four[..., :-1], out=new[..., 1:])
        at = np.nonzero(new)
        u = uniforms(
            self.seed,
            self.frame,
            np.broadcast_to(self.rollouts[..., None], tokens.shape)[at],
            np.broadcast_to(self.positions[..., None], tokens.shape)[at],
            _TOKENS + four[at],
        )
        counter = new.reshape(-1).cumsum().reshape(tokens.shape) - 1
        return np.asarray(-np.log(u[counter, tokens & 3]))


def drawn(p: Floats, numbers: Floats | Race) -> Ints:
    """Columns [...] drawn from p [..., C]: by a race, or by inverse CDF from uniforms [...]."""
    return numbers.draw(p) if isinstance(numbers, Race) else draw(p, numbers)


def is_wide(p: Floats) -> Bools:
    """[...] whether more than WIDE columns of p [..., C] are possible."""
    if p.shape[-1] <= WIDE:
        return np.zeros(p.shape[:-1], np.bool_)
    return np.asarray(np.count_nonzero(p, axis=-1) > WIDE)


def _possible(p: Floats, wide: Bools) -> tuple[Ints, Floats]:
    """The columns of p [M, V] that are not 0, in order, and p there: [M, C], padded with 0. Of wide
    rows none."""
    there = p > 0
    there[wide] = False
    at = np.flatnonzero(there)
    row, column = np.divmod(at, p.shape[-1])
    counts = np.bincount(row, minlength=len(p))
    place = np.arange(len(row)) - np.repeat(counts.cumsum() - counts, counts)
    columns = np.zeros((len(p), int(counts.max(initial=1))), np.int64)
    few = np.zeros(columns.shape)
    columns[row, place], few[row, place] = column, p[row, column]
    return columns, few


def _first(p: Floats, noise: Floats) -> Ints:
    with np.errstate(divide="ignore", over="ignore"):
        return np.asarray((noise / p).argmin(axis=-1))


def _chances(q: Floats, noise: Floats) -> Floats:
    speed = q / noise
    with np.errstate(invalid="ignore"):  # nothing is possible in a row that is left out
        mass = (speed / speed.max(axis=-1, keepdims=True)) ** (1.0 / BLUR)
        return np.asarray(mass / mass.sum(axis=-1, keepdims=True))


def _near(q: Floats, u: Floats) -> Floats:
    """The draw by inverse CDF at u [M], or one of its neighbours in token order: [M, V]."""
    above = q.cumsum(axis=-1)
    edges = np.concatenate([np.zeros_like(above[..., :1]), above], axis=-1)
    distance = np.asarray(edges - u[..., None], np.float64)
    below = 0.5 * np.tanh(distance / (2.0 * EDGE_BLUR))
    mass = np.where(q > 0, np.diff(below, axis=-1), 0.0)
    return np.asarray(mass / mass.sum(axis=-1, keepdims=True))
